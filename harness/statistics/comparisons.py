"""Three scores of a night and their inverses: mean rank, midmean, and mean.

The inverse is a shift: the decrease of all of tonight's samples that yields a given score.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy

from lightrig.harness.statistics.levels import Scale
from lightrig.harness.statistics.nights import Yardstick
from lightrig.harness.statistics.samples import Samples

_FEW, _MANY = 48, 128
"""Quantiles that stand for tonight's samples and for all before, where shifts are looked for.

As midpoints of equal shares they give mean ranks to about the square of their spacing.
"""

_TAIL = 0.05
"""Share of the samples on each side that the scatter of the others is taken without."""

_ENOUGH_ALONE = 5
"""Samples from which on a night's standard error of the mean is used."""


class Comparison(Protocol):
    """Nights as numbers: those before, oldest first, and tonight."""

    @property
    def before(self) -> Sequence[float]:
        """The score of each night before."""

    @property
    def least_spread(self) -> float:
        """Standard deviation of a score from the scatter of samples alone; 0 if not used."""

    def tonight_yardsticks(self, expected: float) -> Sequence[Yardstick]:
        """Yardsticks for a miss of `expected` from the scatter of tonight's samples, if used."""

    def tonight(self, shift: float) -> float:
        """Tonight's score if all its samples were less by `shift`."""

    def shift_to(self, score: float) -> float:
        """Return the decrease of all of tonight's samples that yields `score`."""

    def growth(self, usual: float, score: float) -> float:
        """Return the increase that takes a night from score `usual` to score `score`.

        Infinite where no increase yields `score`.
        """


class _Level:
    """A score that falls by as much as the samples do; see `Comparison`."""

    _tonight: float

    def tonight(self, shift: float) -> float:
        return self._tonight - shift

    def shift_to(self, score: float) -> float:
        return self._tonight - score

    def growth(self, usual: float, score: float) -> float:
        return score - usual


class Means(_Level):
    """The mean of each night.

    A single outlier moves a mean, and earlier nights without outliers do not show that scatter;
    so the t test of tonight's samples has to confirm a change as well.
    """

    def __init__(self, scale: Scale, before: Sequence[float], tonight: Samples) -> None:
        self.before: Sequence[float] = scale.values(np.array(before)).tolist()
        self.least_spread = 0.0
        self._scale, self._samples = scale, tonight
        self._tonight = float(scale.values(tonight.mean(keepdims=True))[0])

    def tonight_yardsticks(self, expected: float) -> Sequence[Yardstick]:
        """See `Comparison`."""
        n = self._samples.size
        error = float(self._samples.std(ddof=1)) / math.sqrt(n) if n >= _ENOUGH_ALONE else 0.0
        mean, usual = self._scale.change(self._tonight), self._scale.change(expected)
        if not error or mean == usual:
            return ()
        # In the samples' own unit, since a logarithm would make strays look small.
        return (Yardstick(error * (self._tonight - expected) / (mean - usual), n - 1),)


class Midmeans(_Level):
    """The mean of the middle half of each night's samples.

    Unlike a mean rank it has no bound, so that a change is found however far nights lie apart,
    if only it is larger; unlike a mean it does not follow a few outliers. Where many samples are
    equal the middle half may be the same on all nights by chance, and say nothing of their
    scatter: so nights are taken to scatter by at least the standard error of a mean of the
    samples between their 5th and 95th percentile.
    """

    def __init__(self, before: Sequence[Samples], tonight: Samples) -> None:
        self.before = [_midmean(night) for night in before]
        self._tonight = _midmean(tonight)
        centred = np.concatenate([night - np.median(night) for night in before])
        low, high = np.quantile(centred, [_TAIL, 1 - _TAIL])
        spread = float(high - low) / (2 * -float(scipy.special.ndtri(_TAIL)))
        self.least_spread = spread / math.sqrt(tonight.size)

    def tonight_yardsticks(self, expected: float) -> Sequence[Yardstick]:
        """See `Comparison`."""
        return ()


class Ranks:
    """Each night's mean rank among all samples of the nights before, from 0 to 1.

    A rank is the share of them below the sample, of those equal to it half. The mean rank of
    tonight is the probability that a sample of tonight is above one of before (Mann and
    Whitney 1947), whatever the distribution, and moves little with any one sample.
    """

    def __init__(self, before: Sequence[Samples], tonight: Samples) -> None:
        samples = np.concatenate(before)
        self._all, self._tonight = np.sort(samples), tonight
        starts = np.cumsum([0, *(night.size for night in before[:-1])])
        sizes = [night.size for night in before]
        self.before = (np.add.reduceat(self._ranks(samples), starts) / sizes).tolist()
        self.least_spread = 0.0

    def tonight_yardsticks(self, expected: float) -> Sequence[Yardstick]:
        """See `Comparison`."""
        return ()

    def tonight(self, shift: float) -> float:
        """See `Comparison`."""
        return float(self._ranks(self._tonight - shift).mean())

    def shift_to(self, score: float) -> float:
        """See `Comparison`."""
        return _share_above(self._differences, score)

    def growth(self, usual: float, score: float) -> float:
        """See `Comparison`."""
        # A night like those before, which has to shrink by a shift to score as much.
        typical = self._against(self._all)
        return _share_above(typical, usual) - _share_above(typical, score)

    def _ranks(self, samples: Samples) -> Samples:
        below = np.searchsorted(self._all, samples, "left")
        not_above = np.searchsorted(self._all, samples, "right")
        return np.asarray((below + not_above) / (2 * self._all.size))

    @cached_property
    def _differences(self) -> Samples:
        return self._against(np.sort(self._tonight))

    def _against(self, ordered: Samples) -> Samples:
        """By how much each of some samples is above each of those before, in order."""
        few, many = _thinned(ordered, _FEW), _thinned(self._all, _MANY)
        return np.sort((few[:, None] - many).ravel())


def _midmean(samples: Samples) -> float:
    """The mean of samples without a quarter on each side, of one on the border a part."""
    ordered = np.sort(samples)
    cut, part = divmod(samples.size / 4, 1)
    weights = np.ones(samples.size)
    for side in (weights, weights[::-1]):
        side[: int(cut)] = 0
        side[int(cut)] -= part
    return float(weights @ ordered / weights.sum())


def _thinned(ordered: Samples, most: int) -> Samples:
    if ordered.size <= most:
        return ordered
    places = (np.arange(most) + 0.5) / most * ordered.size
    return np.asarray(ordered[places.astype(int)])


def _share_above(ordered: Samples, share: float) -> float:
    """The value that `share` of the samples are above."""
    if not 0 < share < 1:
        return -math.inf if share >= 1 else math.inf
    place = min(max((1 - share) * ordered.size - 0.5, 0), ordered.size - 1)
    below = int(place)
    part = place - below
    low, high = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)])
    return low + part * (high - low)
