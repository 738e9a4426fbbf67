"""The content of the nights' page for one lab, gathered before anything is rendered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from lightrig.harness.quantities.registry import all_quantities, quantity_of
from lightrig.harness.record.nights import Start
from lightrig.harness.report.frames import natural
from lightrig.harness.report.nights.last_night_departures import SeriesDeparture
from lightrig.harness.report.nights.series import History, Lab, NightSeries
from lightrig.harness.report.nights.series_changes import (
    ChangeGroup,
    LabChange,
    SeriesChange,
    group_changes,
)
from lightrig.testbeds import Limit

MOST_MOVED, MOST_WORST = 6, 3
"""Most series of one quantity that are drawn: those that changed, and others if none did."""

_FAMILIES = ("reconfiguration", "outage")
_LAST = ("loss", "closure", "harness")


@dataclass(frozen=True, slots=True)
class Quantity:
    """All series of one quantity at a lab, and those of them that are drawn.

    drawn: those that changed, the farthest first, then the worst of the others, before them
        those that depart in the last night.
    """

    name: str
    series: tuple[NightSeries, ...]
    moved: tuple[SeriesChange, ...]
    drawn: tuple[tuple[NightSeries, SeriesChange | None], ...]
    limit: Limit | None

    @property
    def subjects(self) -> list[str]:
        """The quantity's subjects in natural order."""
        return sorted({one.subject for one in self.series}, key=natural)


def _clock_note(before: Start, now: Start) -> str:
    """Return what differs between the clocks that dated two runs."""
    if before.zone != now.zone:
        return f"dates of {now.zone or 'UTC'} from here on, of {before.zone or 'UTC'} before"
    if before.offset is None or now.offset is None or before.offset == now.offset:
        return ""
    hours = (now.offset - before.offset).total_seconds() / 3600
    direction = "forward" if hours > 0 else "back"
    return f"clocks of {now.zone} were set {direction} by {abs(hours):g} h since the run before"


@dataclass(frozen=True)
class Board:
    """One lab.

    index: its number on the page. departures: of its last night. reported: its runs whose
    report exists and can be linked. unreadable: why its baselines file is not followed.
    starts: when runs began, by name.
    """

    index: int
    history: History
    lab: Lab
    events: tuple[LabChange, ...]
    moved: tuple[SeriesChange, ...]
    departures: tuple[SeriesDeparture, ...]
    limits: Mapping[str, Limit]
    reported: frozenset[str]
    unreadable: str = ""
    starts: Mapping[str, Start] = field(default_factory=dict)

    @cached_property
    def clock_notes(self) -> Mapping[int, str]:
        """What is new with the clocks that date a night, by its place; in few nights anything."""
        found: dict[int, str] = {}
        before: Start | None = None
        for night, runs in enumerate(self.lab.runs):
            known = [self.starts[run] for run in runs if run in self.starts]
            notes = []
            for now in known:
                if before is not None:
                    notes.append(_clock_note(before, now))
                before = now
            if any(notes):
                found[night] = "; ".join(filter(None, notes))
        return found

    @cached_property
    def change_groups(self) -> list[ChangeGroup]:
        """Changes of one or of neighbouring nights together, the oldest first."""
        return group_changes(self.lab, self.moved, self.events)

    @cached_property
    def quantities(self) -> list[Quantity]:
        """By family: whole reconfigurations, outages, others, then the harness itself."""
        by_name: dict[str, list[NightSeries]] = {}
        for one in self.lab.series:
            if one.statistic == "median":
                by_name.setdefault(one.quantity, []).append(one)
        return [self._quantity(name, by_name[name]) for name in sorted(by_name, key=_order)]

    @cached_property
    def figures(self) -> dict[int, NightSeries]:
        """The series that have a figure, by its number on the page."""
        drawn = (series for quantity in self.quantities for series, _ in quantity.drawn)
        return dict(enumerate(drawn))

    def anchor(self, series: int | None = None) -> str:
        """Return the id of the lab's section or, with the number of a series, of its figure."""
        return f"n{self.index}" if series is None else f"n{self.index}-{series}"

    def fold(self, quantity: str) -> str:
        """Return the id of a quantity at the lab."""
        return f"n{self.index}-{quantity}"

    def number(self, series: NightSeries) -> int | None:
        """Return the number of the series' figure, or None without one."""
        return self._numbers.get(id(series))

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {id(series): number for number, series in self.figures.items()}

    def _quantity(self, name: str, series: Sequence[NightSeries]) -> Quantity:
        moved = sorted((one for one in self.moved if one.series.quantity == name), key=_distance)
        found = {id(one.series) for one in moved}
        departed = {id(one.series): one.series for one in self.departures}
        tails = [one for one in departed.values() if one.statistic != "median"]
        shown = [*series, *(one for one in tails if one.quantity == name)]
        unchanged = [one for one in shown if id(one) not in found]
        unchanged.sort(key=lambda one: (id(one) in departed, _badness(one)), reverse=True)
        limit = self.limits.get(name)
        if limit is not None and limit.unit != series[0].unit:
            limit = None
        drawn = [(one.series, one) for one in moved[:MOST_MOVED]]
        worst = unchanged[: 1 if moved else MOST_WORST]
        return Quantity(
            name,
            tuple(series),
            tuple(moved),
            (*drawn, *((one, None) for one in worst)),
            limit,
        )


def _order(name: str) -> tuple[int, int, str]:
    """Sort whole reconfigurations first, then outages, others, and the harness last."""
    family = name.partition(".")[0]
    rank = 2
    if family in _FAMILIES:
        rank = _FAMILIES.index(family)
    elif family in _LAST:
        rank = 3 + _LAST.index(family)
    declared = list(all_quantities())
    return rank, declared.index(name) if name in declared else len(declared), name


def _distance(moved: SeriesChange) -> float:
    """Return a sort key: the greatest relative change first, drifts last."""
    steps = [abs(c.after - c.before) / (abs(c.before) or 1.0) for c in moved.changes]
    return -max(steps, default=0.0)


def _badness(series: NightSeries) -> float:
    value = float(series.median[series.last])
    if not np.isfinite(value):
        return float("inf")
    higher = quantity_of(series.quantity, series.unit).better == "higher"
    return -value if higher else value
