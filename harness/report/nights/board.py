"""Everything that the page says of one lab, gathered before any of it is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.report.frames import natural
from harness.report.nights.events import Event
from harness.report.nights.moved import Moved, Occasion, occasions
from harness.report.nights.series import History, Lab, Series
from harness.report.stages import MEANING
from testbeds import Limit

MOST_MOVED, MOST_WORST = 6, 3
"""Of one quantity, how many series that moved are drawn, and how many others if none did."""

_LEAST_IS_WORST = frozenset(("bit/s", "dBm", "share"))
_FAMILIES = ("reconfiguration", "outage")
_LAST = ("loss", "closure", "harness")
_STAGES = list(MEANING)


@dataclass(frozen=True, slots=True)
class Quantity:
    """All series of one quantity at a lab, and those of them that are drawn.

    drawn: those that moved, the farthest first, then the worst of the others.
    """

    name: str
    series: tuple[Series, ...]
    moved: tuple[Moved, ...]
    drawn: tuple[tuple[Series, Moved | None], ...]
    limit: Limit | None

    @property
    def subjects(self) -> list[str]:
        """What it was measured of, in a person's order."""
        return sorted({one.subject for one in self.series}, key=natural)


@dataclass(frozen=True)
class Board:
    """One lab.

    index: its number on the page. reported: its runs whose report is there to be linked.
    """

    index: int
    history: History
    lab: Lab
    events: tuple[Event, ...]
    moved: tuple[Moved, ...]
    limits: Mapping[str, Limit]
    reported: frozenset[str]

    @cached_property
    def occasions(self) -> list[Occasion]:
        """What changed at once, the oldest first."""
        return occasions(self.lab, self.moved, self.events)

    @cached_property
    def quantities(self) -> list[Quantity]:
        """By family: whole reconfigurations, outages, others, then what the harness costs."""
        by_name: dict[str, list[Series]] = {}
        for one in self.lab.series:
            by_name.setdefault(one.quantity, []).append(one)
        return [self._quantity(name, by_name[name]) for name in sorted(by_name, key=_order)]

    @cached_property
    def figures(self) -> dict[int, Series]:
        """The series that have a figure, by the number that it has on the page."""
        drawn = (series for quantity in self.quantities for series, _ in quantity.drawn)
        return dict(enumerate(drawn))

    def number(self, series: Series) -> int | None:
        """The number of the series' figure, if it has one."""
        return self._numbers.get(id(series))

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {id(series): number for number, series in self.figures.items()}

    def _quantity(self, name: str, series: Sequence[Series]) -> Quantity:
        moved = sorted((one for one in self.moved if one.series.quantity == name), key=_distance)
        found = {id(one.series) for one in moved}
        others = [one for one in series if id(one) not in found]
        others.sort(key=_badness, reverse=True)
        limit = self.limits.get(name)
        if limit is not None and limit.unit != series[0].unit:
            limit = None
        drawn = [(one.series, one) for one in moved[:MOST_MOVED]]
        worst = others[: 1 if moved else MOST_WORST]
        return Quantity(
            name,
            tuple(series),
            tuple(moved),
            (*drawn, *((one, None) for one in worst)),
            limit,
        )


def _order(name: str) -> tuple[int, int, str]:
    family, _, stage = name.rpartition(".")
    rank = 2
    if family in _FAMILIES:
        rank = _FAMILIES.index(family)
    elif name in MEANING:
        rank = 3
    elif name.partition(".")[0] in _LAST:
        rank = 4 + _LAST.index(name.partition(".")[0])
    return rank, _STAGES.index(stage) if stage in MEANING else len(_STAGES), name


def _distance(moved: Moved) -> float:
    """The farther a series moved, measured by its own level, the less; drifts come last."""
    steps = [abs(c.after - c.before) / (abs(c.before) or 1.0) for c in moved.changes]
    return -max(steps, default=0.0)


def _badness(series: Series) -> float:
    value = float(series.median[series.last])
    if not np.isfinite(value):
        return float("inf")
    return -value if series.unit in _LEAST_IS_WORST else value
