"""Closure with a stated power: test whether pooled 95 % intervals deviate from the truth as stated.

Intervals of one seed share errors, of a reference for one; those of different seeds do not. So one
deviation is taken of each seed, in standard uncertainties. If the intervals are right they are
standard normal: their mean shows a bias, and the sum of their squares an uncertainty that is wrong.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import scipy

ERROR = 1e-3
"""Probability that right intervals are rejected, by either of the two tests."""
POWER = 0.95
BIAS, FACTOR = 0.5, 1.5
"""Deviations detected with `POWER`: bias in standard uncertainties, factor of a wrong one."""


class Pooled(NamedTuple):
    """Verdict on pooled deviations: whether a bias and a wrong uncertainty were detected."""

    n: int
    mean: float
    sd: float
    bias: bool
    factor: bool

    @property
    def closed(self) -> bool:
        """Whether the intervals are consistent with what they state."""
        return not (self.bias or self.factor)


def judge(deviations: Sequence[float], error: float = ERROR) -> Pooled:
    """Judge independent deviations, each value less truth over the stated standard uncertainty."""
    n, (low, high) = len(deviations), _squares(len(deviations), error)
    mean, squares = math.fsum(deviations) / n, math.fsum(each**2 for each in deviations)
    reach = -scipy.special.ndtri(error / 4) / math.sqrt(n)
    biased, wrong = bool(abs(mean) > reach), not low < squares < high
    return Pooled(n, float(mean), math.sqrt(squares / n), biased, bool(wrong))


def power_of_bias(n: int, bias: float = BIAS, error: float = ERROR) -> float:
    """Return the probability that n deviations show a bias of so many standard uncertainties."""
    reach, shift = -scipy.special.ndtri(error / 4), bias * math.sqrt(n)
    return float(scipy.special.ndtr(shift - reach) + scipy.special.ndtr(-shift - reach))


def power_of_factor(n: int, factor: float = FACTOR, error: float = ERROR) -> float:
    """Return the probability that n deviations show a stated uncertainty too small by a factor."""
    low, high = (square / factor**2 for square in _squares(n, error))
    return float(scipy.special.chdtr(n, low) + scipy.special.chdtrc(n, high))


@functools.cache
def seeds_needed(error: float = ERROR) -> int:
    """Return the least number of seeds that detects each with `POWER`, on either side of 1."""
    n = 2
    while (
        min(
            power_of_bias(n, error=error),
            power_of_factor(n, error=error),
            power_of_factor(n, 1 / FACTOR, error),
        )
        < POWER
    ):
        n += 1
    return n


def _squares(n: int, error: float) -> tuple[float, float]:
    """Return both ends of the interval of the sum of n squares of standard normal values."""
    ends = scipy.special.chdtri(n, (1 - error / 4, error / 4))
    return float(ends[0]), float(ends[1])
