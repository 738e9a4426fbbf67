"""Stages of one reconfiguration, of every switch, egress and NIC port; as rows.

Where light is simulated there is ground truth: then closure and the cost of time stamps are rows
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.loss_windows import LossWindow
from lightrig.harness.record import Row
from lightrig.harness.statistics import judge_bounds
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.testbeds import Port

if TYPE_CHECKING:
    from lightrig.instruments.simulated.world.ground_truth import GroundTruth

EventStage: TypeAlias = Literal[
    "acknowledged",
    "los",
    "datagrams_lost",
    "firmware_down",
    "carrier_down",
    "signal_recovered",
    "firmware_up",
    "carrier_up",
    "first_datagram",
]
"""Stages of a reconfiguration, in their usual order."""

OF_LINK: dict[tuple[str, bool], EventStage] = {
    ("datagram", False): "datagrams_lost",
    ("firmware", False): "firmware_down",
    ("carrier", False): "carrier_down",
    ("firmware", True): "firmware_up",
    ("carrier", True): "carrier_up",
    ("datagram", True): "first_datagram",
}
ENDS: frozenset[EventStage] = frozenset(
    ("acknowledged", "signal_recovered", "firmware_up", "carrier_up", "first_datagram")
)
"""Stages that an event has reached when its last subject has."""

_TRUTH: dict[EventStage, tuple[str, bool]] = {
    "acknowledged": ("acknowledged", True),
    "los": ("light", False),
    "signal_recovered": ("light", True),
    **{stage: truth for truth, stage in OF_LINK.items()},
}
"""The moment of the ground truth that a stage must agree with."""


class Seen(NamedTuple):
    """One stage of one subject: a switch, an egress or a NIC port.

    `at` is on the bench's clock.
    """

    subject: str
    stage: EventStage
    at: Span


@dataclass(frozen=True)
class Reconfiguration:
    """Observation of one change of plan.

    Attributes:
        plan: the name of the plan that was applied.
        moved: how many circuits were made.
        sent: between which stamps the commands were written.
        seen: every stage of every subject.
        missing: subject and stage of what had to come and was not seen.
        reading_gap: the longest time between two readings of a switch's monitors, in ns.
        windows: each direction's interruption of datagrams.
        watched: until when the light of each switch was watched, on the bench's clock, in ns.
    """

    plan: str
    moved: int
    sent: Span
    seen: tuple[Seen, ...]
    missing: tuple[tuple[str, EventStage], ...]
    reading_gap: int = 0
    windows: tuple[LossWindow, ...] = ()
    watched: Mapping[str, int] = field(default_factory=dict)

    def after(self, at: Span) -> Span:
        """Latency of `at` after the command, not below zero."""
        earliest, latest = at[0] - self.sent[1], at[1] - self.sent[0]
        return Span(earliest if earliest > 0 else 0, latest if latest > 0 else 0)

    @cached_property
    def seen_after(self) -> tuple[Span, ...]:
        """For each of `seen`, how long after the command it happened."""
        return tuple(self.after(seen.at) for seen in self.seen)

    def stages(self) -> dict[EventStage, Span]:
        """Each stage of the event as a whole, after the command.

        What comes up counts when the last subject has it, what goes down when the first
        has lost it.
        """
        spans: dict[EventStage, list[Span]] = {}
        for seen, after in zip(self.seen, self.seen_after, strict=True):
            spans.setdefault(seen.stage, []).append(after)
        whole = {}
        for stage, parts in spans.items():
            pick = max if stage in ENDS else min
            whole[stage] = Span(
                pick(part.earliest for part in parts), pick(part.latest for part in parts)
            )
        return whole

    def outages(self) -> Iterator[tuple[str, str, Span]]:
        """Port, kind (`carrier` or `datagram`) and length of each outage, in ns."""
        moments = {(seen.subject, seen.stage): seen.at for seen in self.seen}
        pairs: tuple[tuple[str, EventStage, EventStage], ...] = (
            ("carrier", "carrier_down", "carrier_up"),
            ("datagram", "datagrams_lost", "first_datagram"),
        )
        for kind, down, up in pairs:
            for (subject, stage), lost in moments.items():
                recovered = moments.get((subject, up))
                if stage == down and recovered is not None:
                    length = recovered.since(lost)
                    yield subject, kind, Span(max(length.earliest, 0), max(length.latest, 0))


def rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """The event as rows: each stage as a whole, each subject's own, and the outages."""
    time, conditions = event.sent.earliest, {"event": number}

    def row(subject: str, quantity: str, span: Span) -> Row:
        middle = (span.earliest + span.latest) // 2
        return Row(subject, quantity, middle, span.earliest, span.latest, "ns", time, conditions)

    for stage, span in event.stages().items():
        yield row(fabric.testbed.name, f"reconfiguration.{stage}", span)
    for seen, after in zip(event.seen, event.seen_after, strict=True):
        yield row(seen.subject, seen.stage, after)
    for subject, kind, span in event.outages():
        yield row(subject, f"outage.{kind}", span)


def closure_rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """Share of the intervals of each stage, and of each outage, that contain the ground truth.

    Where the truth is only known within bounds (a change in the kernel), the two intervals must
    overlap. What was seen and did not happen is contained in nothing.
    """
    truth = fabric.bench.truth
    if truth is None:
        return
    inside: dict[str, list[bool]] = {}
    written = _first_write(event, truth)
    for seen, after in zip(event.seen, event.seen_after, strict=True):
        name, _ = _TRUTH[seen.stage]
        # In real time the reply needs a moment from the switch to us, in virtual time none.
        judged = seen.stage != "acknowledged" or fabric.bench.clock.virtual
        if judged and truth.knows(seen.subject, name):
            true = _true_moment(seen, event, truth)
            inside.setdefault(seen.stage, []).append(_overlap(true, seen.at))
            if written is not None and true is not None:
                inside.setdefault("latency", []).append(_overlap(true.since(written), after))
    for subject, kind, length in event.outages():
        if truth.knows(subject, kind):
            down = truth.first(subject, kind, up=False, since=event.sent.earliest)
            up = down and truth.first(subject, kind, up=True, since=down.earliest)
            true = up.since(down) if up is not None and down is not None else None
            inside.setdefault(f"outage_{kind}", []).append(_overlap(true, length))
    for name, found in inside.items():
        verdict = judge_bounds(found)
        yield closure_row(
            fabric.testbed.name, f"closure.{name}", verdict, event.sent.earliest, number
        )


def _first_write(event: Reconfiguration, truth: GroundTruth) -> Span | None:
    """Return when the first command was written; None where that is all the same to `sent`."""
    if not truth.knows("harness", "written"):
        return None
    found = truth.first("harness", "written", up=True, since=event.sent.earliest)
    return found if found is not None and found.latest <= event.sent.latest else None


def _true_moment(seen: Seen, event: Reconfiguration, truth: GroundTruth) -> Span | None:
    (name, up), since = _TRUTH[seen.stage], event.sent.earliest
    if seen.stage == "acknowledged":  # with the last command of a change
        return truth.last(seen.subject, name, since=since)
    if seen.stage == "signal_recovered":  # for good: a fault may take the new light again
        until = event.watched.get(seen.subject.rpartition(".")[0])
        return truth.last(seen.subject, name, since=since, until=until)
    return truth.first(seen.subject, name, up=up, since=since)


def _overlap(true: Span | None, seen: Span) -> bool:
    if true is None:
        return False
    return true.latest >= seen.earliest and true.earliest <= seen.latest


def cost_rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """From the kernel's change of a carrier to the harness's stamp of it, in ns.

    The kernel's change lies between the request that caused it and its acknowledgement;
    the upper bound counts from the request.
    """
    truth = fabric.bench.truth
    if truth is None or fabric.bench.clock.virtual:
        return
    for seen in event.seen:
        if seen.stage not in ("carrier_down", "carrier_up"):
            continue
        up = seen.stage == "carrier_up"
        true = truth.first(seen.subject, "carrier", up=up, since=event.sent.earliest)
        if true is not None:
            cost = Span(seen.at.latest - true.latest, seen.at.latest - true.earliest)
            yield _duration(seen.subject, "harness.carrier_stamp", cost, event, number)


def cross_check_rows(
    checks: Iterable[tuple[Port, LinkEvent]], event: Reconfiguration, number: int
) -> Iterator[Row]:
    """Delay of netlink behind the fast path for the same carrier event, in ns."""
    seen = {(one.subject, one.stage): one.at for one in event.seen}
    for port, announced in checks:
        stage: EventStage = "carrier_up" if announced.up else "carrier_down"
        at = seen.get((str(port), stage))
        if at is not None and announced.at.latest >= at.earliest:
            delay = Span(announced.at.latest - at.latest, announced.at.latest - at.earliest)
            yield _duration(str(port), "harness.netlink_delay", delay, event, number)


def _duration(subject: str, quantity: str, span: Span, event: Reconfiguration, number: int) -> Row:
    lower, upper = max(span.earliest, 0), max(span.latest, 0)
    time = event.sent.earliest
    return Row(subject, quantity, (lower + upper) // 2, lower, upper, "ns", time, {"event": number})
