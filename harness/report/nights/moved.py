"""What moved from night to night: changes of level, and drifts, that chance does not explain.

All series of a page are tried, so each is allowed its share of the error (Bonferroni): `ERROR`
is the chance that a page on which nothing moved marks a change anywhere, and the same again
that it marks a drift. See `harness.statistics.changes` for what that takes for granted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from harness.report.nights.events import Event
from harness.report.nights.series import Lab, Series
from harness.statistics.changes import Change, Trend, find_changes, trend

ERROR = 0.01
"""The chance of marking anything where nothing moved: once for changes, once for drifts."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One series that moved: by steps, by a drift beside them, or both."""

    series: Series
    changes: tuple[Change, ...]
    drift: Trend | None


@dataclass(frozen=True, slots=True)
class Occasion:
    """All that changed at one lab at once, and what else was different from that night on.

    night: the first of the new level; that of most of the changes.
    """

    lab: Lab
    night: int
    changes: tuple[tuple[Series, Change], ...]
    events: tuple[Event, ...]


def find_moved(labs: Sequence[Lab]) -> list[list[Moved]]:
    """The series of each lab that moved, in the lab's order."""
    tried = sum(len(lab.series) for lab in labs)
    return [list(_moved(lab.series, ERROR / max(tried, 1))) for lab in labs]


def _moved(series: Iterable[Series], error: float) -> Iterable[Moved]:
    for one in series:
        # Each night is one number anyway; an empty one has no data.
        there = np.isfinite(one.level).tolist()
        nights = [one.level[at : at + held] for at, held in enumerate(there)]
        changes = tuple(find_changes(nights, error))
        drift = trend(nights, error, changes)
        if changes or drift:
            yield Moved(one, changes, drift)


def occasions(lab: Lab, found: Iterable[Moved], events: Sequence[Event]) -> list[Occasion]:
    """Bring changes together that came at once: on one night, or on neighbouring ones."""
    changes = [(one.series, change) for one in found for change in one.changes]
    nights = sorted({change.index for _, change in changes})
    # Nights that follow each other keep the same difference to their place among all.
    together = [
        [night for _, night in each]
        for _, each in groupby(enumerate(nights), lambda placed: placed[1] - placed[0])
    ]
    result = []
    for each in together:
        those = [(series, change) for series, change in changes if change.index in each]
        night = Counter(change.index for _, change in those).most_common(1)[0][0]
        near = tuple(event for event in events if each[0] <= event.night <= each[-1])
        result.append(Occasion(lab, night, tuple(those), near))
    return result
