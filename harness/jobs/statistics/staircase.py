"""An adaptive threshold: at which level half of the trials fail, with a credible interval.

The Bayesian staircase of Kontsevich and Tyler (1999, "Bayesian adaptive estimation of psychometric
slope and threshold", Vision Research 39): each next level is the one whose answer is expected to
leave the least entropy, and the slope is a nuisance that is estimated with it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

_SLOPES = (0.005, 0.02, 0.05, 0.1, 0.2)
"""Spread of the threshold from trial to trial, in decades of the level."""
_LAPSE = 0.02
"""Probability of an answer that has nothing to do with the level."""
_STEPS = 97
_BEYOND = 0.7
"""How far the threshold may be outside of the levels, in decades."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The level at which half of the trials fail.

    Attributes:
        value: its median; 0 where it is below the levels that can be tried, infinite where above.
        lower, upper: its interval, in the same way.
    """

    value: float
    lower: float
    upper: float


class Staircase:
    """Levels to try one after the other, from `least` to `most`, and what they tell.

    Args:
        least, most: the lowest and the highest level that can be tried.
        confidence: probability of the interval.
    """

    def __init__(self, least: float, most: float, confidence: float = 0.95) -> None:
        self._range = np.log10(least), np.log10(most)
        low, high = self._range
        self._levels: Array = np.linspace(low, high, _STEPS)
        self._thresholds: Array = np.linspace(low - _BEYOND, high + _BEYOND, 2 * _STEPS + 1)
        self._confidence = confidence
        # Axes: level, threshold, slope.
        self._fails = self._failing(self._levels[:, None, None])
        shape = self._fails.shape[1:]
        self._posterior: Array = np.full(shape, 1 / math.prod(shape))

    def next_level(self) -> float:
        """Return the level to try next."""
        fail = np.tensordot(self._fails, self._posterior, 2)
        entropy = np.zeros_like(fail)
        for answer, share in ((self._fails, fail), (1 - self._fails, 1 - fail)):
            after = (answer * self._posterior).sum(axis=2) / share[:, None]
            entropy -= share * (after * np.log(after + 1e-300)).sum(axis=1)
        return float(10 ** self._levels[int(entropy.argmin())])

    def answered(self, level: float, *, failed: bool) -> None:
        """Take the answer at a level, which may be another one than was to be tried."""
        fails = self._failing(np.log10(level))
        self._posterior *= fails if failed else 1 - fails
        self._posterior /= self._posterior.sum()

    def _failing(self, exponents: float | Array) -> Array:
        """Return the probabilities of a failure at levels, by threshold and slope."""
        distance = (exponents - self._thresholds[:, None]) / np.array(_SLOPES)
        fails: Array = _LAPSE / 2 + (1 - _LAPSE) * scipy.special.expit(2 * distance)
        return fails

    def threshold(self) -> Threshold:
        """Return the threshold so far."""
        sums = np.cumsum(self._posterior.sum(axis=1))
        tail = (1 - self._confidence) / 2
        # The threshold lies between points of the grid: one more on either side.
        return Threshold(self._at(sums, 0.5), self._at(sums, tail, -1), self._at(sums, 1 - tail, 1))

    def _at(self, sums: npt.NDArray[Any], share: float, beside: int = 0) -> float:
        place = int(np.searchsorted(sums, share)) + beside
        exponent = self._thresholds[min(max(place, 0), len(self._thresholds) - 1)]
        low, high = self._range
        return 0.0 if exponent < low else math.inf if exponent > high else float(10**exponent)
