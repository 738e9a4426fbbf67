"""What a test uses: take a measurement, record it, judge it by the testbed's limits."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from harness.bench import Fabric
from harness.measure.links import LinkObservation, LinksDownError
from harness.measure.reconfiguration import (
    IncompleteError,
    Reconfiguration,
    reconfigure,
    rising_ports,
    rows,
)
from harness.measure.self_check import closure_rows, cost_rows, cross_check_rows
from harness.record import Row
from harness.statistics import Verdict, judge
from instruments.clock import Span
from testbeds import LightrigError, Limit, Plan

LINK_TIMEOUT = 60_000_000_000
"""How long links may take to come up, in ns; the slowest recorded firmware took 25 s."""

Record = Callable[[Sequence[Row]], None]


class LimitExceededError(LightrigError, AssertionError):
    """What was measured breaks a limit of the testbed."""


class NotEnoughDataError(LightrigError):
    """Too few samples for a verdict at the stated confidence."""


class Measure:
    """Takes measurements on a fabric for one test.

    Args:
        fabric: what is measured.
        links: the observation of its servers' links.
        record: where rows go.
    """

    def __init__(self, fabric: Fabric, links: LinkObservation, record: Record) -> None:
        self._fabric = fabric
        self._links = links
        self._record = record
        self._count = 0
        self._events: defaultdict[str, list[Span]] = defaultdict(list)

    def bring_up(self, plan: Plan) -> None:
        """Apply `plan` and wait until its links carry traffic; raises `LinksDownError`."""
        transition = self._fabric.prepare(plan)
        sent = transition.begin()
        transition.acknowledged()
        transition.verify()
        # What still seems to be up may be the links before.
        rising = rising_ports(self._fabric, transition)
        _, unfinished = self._links.changes(rising, sent.latest, LINK_TIMEOUT)
        if unfinished:
            raise LinksDownError(unfinished, LINK_TIMEOUT)
        ports = {port for link in self._fabric.links(plan) for port in (link.a, link.b)}
        self._links.await_up(ports, LINK_TIMEOUT)
        self._links.take_cross_checks()

    def reconfiguration(self, plan: Plan) -> Reconfiguration:
        """Apply `plan` and record every stage until traffic runs on the new links.

        Raises:
            IncompleteError: light or a link did not come; what was seen is recorded first.
            InstrumentError: an instrument refused or failed.
        """
        event = reconfigure(self._fabric, plan, self._links, link_timeout=LINK_TIMEOUT)
        number, self._count = self._count, self._count + 1
        checks = self._links.take_cross_checks()
        self._record(
            [
                *rows(event, self._fabric, number),
                *closure_rows(event, self._fabric, number),
                *cost_rows(event, self._fabric, number),
                *cross_check_rows(checks, event, number),
            ]
        )
        if event.missing:
            self._fabric.bench.check_world()
            raise IncompleteError(
                f"reconfiguration {number} to {plan.name} did not complete; not seen: "
                + ", ".join(f"{subject} {stage}" for subject, stage in event.missing)
                + _how_closely(event)
            )
        for stage, span in event.stages().items():
            self._events[f"reconfiguration.{stage}"].append(span)
        return event

    def verdicts(self, family: str) -> list[tuple[Limit, Verdict]]:
        """The verdict on each of the testbed's limits under `family`, e.g. "reconfiguration".

        A limit on what was never measured is not kept: there is not enough data.
        """
        return [
            (limit, self._verdict(limit))
            for quantity, limit in self._fabric.testbed.limits.items()
            if quantity == family or quantity.startswith(f"{family}.")
        ]

    def _verdict(self, limit: Limit) -> Verdict:
        spans = self._events.get(limit.quantity, [])
        earliest = [span.earliest for span in spans]
        return judge(limit, earliest, [span.latest for span in spans])

    def judge(self, family: str) -> None:
        """Hold what this test measured against the testbed's limits under `family`.

        Raises:
            LimitExceededError: a limit is broken; names each with what was found.
            NotEnoughDataError: none is broken, but one needs more samples.
        """
        verdicts = self.verdicts(family)
        if broken := [pair for pair in verdicts if pair[1].outcome == "fail"]:
            raise LimitExceededError(_sentences(broken))
        if unclear := [pair for pair in verdicts if pair[1].outcome == "not enough data"]:
            raise NotEnoughDataError(_sentences(unclear))


def _how_closely(event: Reconfiguration) -> str:
    """What to know where light was not seen to come back."""
    if all(stage != "light_back" for _, stage in event.missing):
        return ""
    return (
        f"; up to {event.reading_gap / 1e6:.0f} ms passed between two readings of a switch's "
        "monitors, and a shorter darkness may go unseen"
    )


def _sentences(verdicts: Iterable[tuple[Limit, Verdict]]) -> str:
    return "; ".join(f"{limit}: {verdict.reason}" for limit, verdict in verdicts)
