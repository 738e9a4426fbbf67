"""Samples of one test, and their verdicts by the testbed's limits."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from lightrig.harness.measure.bit_errors import BitErrors, judge_counts
from lightrig.harness.quantities import (
    Reduction,
    UnknownQuantityError,
    all_quantities,
    current_name,
    quantity_of,
)
from lightrig.harness.record import Row
from lightrig.harness.statistics import Verdict, judge
from lightrig.testbeds import LightrigError, Limit
from lightrig.testbeds.findings import did_you_mean

_COMBINE: Mapping[Reduction, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "sum": math.fsum,
}


class LimitExceededError(LightrigError, AssertionError):
    """A measured quantity exceeds a limit of the testbed."""


class NotEnoughDataError(LightrigError):
    """Too few samples for a verdict at the stated confidence."""


class UnitError(LightrigError, ValueError):
    """A row has another unit than its quantity."""


def limits_under(limits: Mapping[str, Limit], families: Iterable[str]) -> list[Limit]:
    """Limits on the quantities `families` and on those under them, e.g. "reconfiguration"."""
    roots = tuple(families)
    prefixes = tuple(f"{root}." for root in roots)
    return [
        limit
        for quantity, limit in limits.items()
        if quantity in roots or quantity.startswith(prefixes)
    ]


class Judged:
    """Measurements of one test under limits.

    Args:
        limits: by quantity.
        judged: is called with each verdict.
        undecided: is called with the limits that need more samples; `judge` raises without it.
    """

    def __init__(
        self,
        limits: Mapping[str, Limit],
        judged: Callable[[Limit, Verdict], None] = lambda _limit, _verdict: None,
        undecided: Callable[[str], None] | None = None,
    ) -> None:
        self._limits = limits
        self._judged = judged
        self._undecided = undecided
        self._counters: list[BitErrors] = []
        self._spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._events: defaultdict[str, list[object]] = defaultdict(list)

    def verdicts(self, *families: str) -> list[tuple[Limit, Verdict]]:
        """Return the verdict on each of the testbed's limits under `families`.

        A limit without samples is inconclusive.
        """
        return [(limit, self._verdict(limit)) for limit in limits_under(self._limits, families)]

    def judge(self, *families: str) -> None:
        """Judge the samples of this test by the testbed's limits under `families`.

        Raises:
            UnknownQuantityError: no quantity of that name is declared.
            LimitExceededError: a limit is exceeded; names each with its reason.
            NotEnoughDataError: none is broken, but one needs more samples; not raised where
                `undecided` is given.
        """
        names = [*all_quantities(), *self._limits, *self._spans]
        known = {name[:end] for name in names for end in _ends(name)}
        families = tuple(map(current_name, families))
        for family in families:
            if family not in known:
                raise UnknownQuantityError(
                    f"no quantity {family!r} is declared{did_you_mean(family, sorted(known))}"
                )
        verdicts = self.verdicts(*families)
        for limit, verdict in verdicts:
            self._judged(limit, verdict)
        if broken := [pair for pair in verdicts if pair[1].outcome == "fail"]:
            raise LimitExceededError(_sentences(broken))
        if unclear := [pair for pair in verdicts if pair[1].outcome == "not enough data"]:
            if self._undecided is None:
                raise NotEnoughDataError(_sentences(unclear))
            self._undecided(_sentences(unclear))

    def _take(self, rows: Iterable[Row]) -> None:
        """Let the limits on their quantities judge `rows`."""
        for row in rows:
            low, high = row.lower, row.upper
            self._spans[row.quantity].append(
                (row.value if low is None else low, row.value if high is None else high)
            )
            self._events[row.quantity].append(row.conditions.get("event"))

    def _verdict(self, limit: Limit) -> Verdict:
        counts = [c for one in self._counters if one.quantity == limit.quantity for c in one.counts]
        if counts:
            return judge_counts(limit, counts)
        spans = self._combined(limit)
        return judge(limit, [low for low, _ in spans], [high for _, high in spans])

    def _combined(self, limit: Limit) -> list[tuple[float, float]]:
        """Return one span an event, since its subjects are no independent samples."""
        spans = self._spans.get(limit.quantity, [])
        events = self._events.get(limit.quantity, [])
        reduction = quantity_of(limit.quantity, limit.unit).reduction(limit.side)
        if reduction is None or len(events) < len(spans) or None in events:
            return spans
        by_event: dict[object, list[tuple[float, float]]] = {}
        for event, span in zip(events, spans, strict=True):
            by_event.setdefault(event, []).append(span)
        combine = _COMBINE[reduction]
        return [
            (combine([low for low, _ in each]), combine([high for _, high in each]))
            for each in by_event.values()
        ]


def _sentences(verdicts: Iterable[tuple[Limit, Verdict]]) -> str:
    return "; ".join(f"{limit}: {verdict.reason}" for limit, verdict in verdicts)


def _ends(name: str) -> list[int]:
    """Return where each name ends under which a test may judge `name`: itself and its prefixes."""
    return [place for place, letter in enumerate(name) if letter == "."] + [len(name)]
