"""Many nights in a row: where the level changed abruptly, where it drifts, where nights lack.

Each night is one number, its median: events of a night are not independent of each other.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.binomial import at_least
from lightrig.harness.statistics.nights import as_night
from lightrig.harness.statistics.precedents import PRECEDENT, deviations, share_of_nights
from lightrig.harness.statistics.samples import Samples, as_samples
from lightrig.harness.statistics.steps import WINDOW, find_steps

CONFIDENCE = 0.95
"""Of the intervals of levels and slopes."""

FEWEST_NIGHTS = 10
"""With fewer, neither a change nor a drift is looked for."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """An abrupt change of level.

    index: the first night of the new level, among all nights. before, after: the level on both
    sides, in the unit of the samples, over up to `WINDOW` nights, with an interval at
    `CONFIDENCE`. p: the probability that the nights show such a change anywhere if they hold
    none.
    """

    index: int
    before: float
    after: float
    before_lower: float
    before_upper: float
    after_lower: float
    after_upper: float
    p: float

    @property
    def up(self) -> bool:
        """Whether the new level is the higher one."""
        return self.after > self.before


@dataclass(frozen=True, slots=True)
class Trend:
    """A slow drift: by how much the level moves from one night to the next.

    per_night: Sen's slope, in the unit of the samples, with an interval at `CONFIDENCE`.
    p: of the Mann-Kendall test. n: nights with data.
    """

    per_night: float
    lower: float
    upper: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class NightGap:
    """Nights without data: `nights` of them from `index` on."""

    index: int
    nights: int


def find_changes(nights: Sequence[npt.ArrayLike], error: float = 0.01) -> list[LevelChange]:
    """Find the abrupt changes of level among `nights`, in their order.

    A night is its samples, or two rows with their bounds; an empty one has no data. Where nothing
    changed, any change is found with a probability of at most `error`: for nights that scatter
    about one level or about a straight drift, whether normally or with some far out. Nights that
    wander or follow one another alarm more often; of 1 %, 5 % were measured for 60 nights that do
    nothing but wander, 10 % for 30, and fewer the more nights there are.

    A change shows from its third night on (`harness.statistics.steps` says how);
    `find_departures` is sooner. Raises `SampleError` for samples that make no sense.
    """
    places, levels = _levels(nights)
    if levels.size < FEWEST_NIGHTS:
        return []
    ratio = bool(levels.min() > 0)
    values = np.log(levels) if ratio else levels
    steps = find_steps(values, error)
    cuts = [0, *(step.at for step in steps), values.size]
    changes = []
    for step, start, end in zip(steps, cuts, cuts[2:], strict=False):
        before = _level(values[max(start, step.at - WINDOW) : step.at], ratio)
        after = _level(values[step.at : min(end, step.at + WINDOW)], ratio)
        night = places[step.at]
        changes.append(LevelChange(night, before[0], after[0], *before[1:], *after[1:], step.p))
    return changes


def unprecedented(
    changes: Sequence[LevelChange], levels: Samples, rest: Sequence[Samples], error: float
) -> Iterator[LevelChange]:
    """Yield the changes of a series of tails that are more than its family's rare events.

    They are not where so many nights in a row with such an event, after a change or, where it ends,
    before it, have a probability above `error` (`harness.statistics.precedents`).

    Args:
        changes: all that `find_changes` has found in `levels`.
        levels: of all nights, NaN where there is no data.
        rest: levels of the rest of the family.
        error: probability of a change anywhere where nothing changed.
    """
    ratio = all(np.nanmin(each, initial=np.inf) > 0 for each in (levels, *rest))
    values, *scaled = (np.log(each) if ratio else each for each in (levels, *rest))
    cuts = [0, *(change.index for change in changes), levels.size]
    for change, start, end in zip(changes, cuts, cuts[2:], strict=False):
        at, sides = change.index, (change.before, change.after)
        before, after = map(math.log, sides) if ratio else sides
        size = abs(after - before)
        old, new = (_known(values[start:at]), _known(values[at:end]))
        earlier = [deviations(_known(each[:at])) for each in scaled]
        share = share_of_nights(size, deviations(old), earlier)
        p = max(
            at_least(int((np.abs(nights - usual) >= PRECEDENT * size).sum()), nights.size, share)
            for nights, usual in ((old, after), (new, before))
        )
        if p * values.size <= error:  # it could have begun on any night
            yield change


def _known(levels: Samples) -> Samples:
    return levels[np.isfinite(levels)]


def trend(
    nights: Sequence[npt.ArrayLike], error: float = 0.01, changes: Sequence[LevelChange] = ()
) -> Trend | None:
    """The slow drift of the level, if there is one; nights that wander can seem to drift.

    Nights before and after one of `changes` are not compared with each other. Mann (1945) and
    Kendall's test of levels against time, with ties; Sen's slope with the interval of Gilbert,
    Statistical Methods for Environmental Pollution Monitoring (1987), section 16.5. Without
    any drift it is found with a probability of at most `error`. Raises `SampleError`.
    """
    places, levels = _levels(nights)
    if levels.size < FEWEST_NIGHTS:
        return None
    when = np.array(places)
    cuts = np.searchsorted(when, [change.index for change in changes])
    slopes = np.sort(np.concatenate([*map(_slopes, np.split(when, cuts), np.split(levels, cuts))]))
    variance = sum(map(_variance, np.split(levels, cuts)))
    score = abs(float(np.sign(slopes).sum()))
    if variance == 0:
        return None
    # The score moves by 2: half of that is taken off, as the normal distribution has no steps.
    p = 2 * float(scipy.special.ndtr(-max(0.0, score - 1) / math.sqrt(variance)))
    if p > error:
        return None
    reach = float(scipy.special.ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    # Counted from 0, Gilbert's ranks are half a rank further out than the reach.
    ranks = (slopes.size - 1) / 2 + np.array([0, -(reach + 1) / 2, (reach + 1) / 2])
    slope, lower, upper = np.interp(ranks, np.arange(slopes.size), slopes).tolist()
    return Trend(slope, lower, upper, p, levels.size)


def gaps(nights: Sequence[npt.ArrayLike]) -> list[NightGap]:
    """The runs of nights without data, in their order."""
    empty = [np.asarray(night).size == 0 for night in nights]
    starts = [i for i, now in enumerate(empty) if now and not (i and empty[i - 1])]
    return [
        NightGap(
            start, next((i for i in range(start, len(empty)) if not empty[i]), len(empty)) - start
        )
        for start in starts
    ]


def _levels(nights: Sequence[npt.ArrayLike]) -> tuple[list[int], Samples]:
    """Return the nights that have data, and their medians."""
    rows = [np.asarray(night) for night in nights]
    rows = [
        row if row.ndim == 1 else as_night(f"night {index}", row).middle
        for index, row in enumerate(rows)
    ]
    places = [index for index, row in enumerate(rows) if row.size]
    if not places:
        return [], np.array([])
    sizes = np.array([rows[index].size for index in places])
    # Sorted as one table, since there are thousands of nights and each median has its overhead.
    table = np.full((sizes.size, sizes.max()), np.inf)
    table[np.arange(sizes.max()) < sizes[:, None]] = as_samples(
        "nights", np.concatenate([rows[index] for index in places])
    )
    table.sort(axis=1)
    each = np.arange(sizes.size)
    return places, (table[each, (sizes - 1) // 2] + table[each, sizes // 2]) / 2


def _level(values: Samples, ratio: bool) -> tuple[float, float, float]:
    """The mean and its interval."""
    mean, n = float(values.mean()), values.size
    reach = float(
        values.std(ddof=1) / math.sqrt(n) * scipy.special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)
    )
    if ratio:
        return math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)
    return mean, mean - reach, mean + reach


def _variance(levels: Samples) -> float:
    """Of Kendall's score, where nothing drifts; ties take from it."""
    _, ties = np.unique(levels, return_counts=True)
    all_of_them, tied = (n * (n - 1) * (2 * n + 5) / 18 for n in (levels.size, ties))
    return float(all_of_them - np.sum(tied))


def _slopes(when: Samples, levels: Samples) -> Samples:
    first, second = np.triu_indices(when.size, 1)
    slopes: Samples = (levels[second] - levels[first]) / (when[second] - when[first])
    return slopes
