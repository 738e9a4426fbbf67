"""Nights of samples, and what the nights before lead one to expect of the next.

Events of one night share its temperature, its firmware and its mood, and follow one another:
they are not independent, and no count of them says how far nights lie apart. Only nights can.
So each night is one number, and tonight's is held against how far each night before lay from
what was then to be expected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import SampleError, Samples, as_intervals, as_samples

GAIN = 0.5
"""Smoothing factor: share of a miss that the next expectation takes over.

With one over the number of nights the expectation would be their mean, which lags behind drift;
with 1 it would be last night alone, which doubles the scatter. `benchmarks/gates.py` measures
its effect.
"""


@dataclass(frozen=True, slots=True)
class Night:
    """The samples of one night in the order of their events; each lies in `low` to `high`.

    middle: midpoints; where `high` is infinite, which says "not before `low`", that is `low`.
    """

    low: Samples
    middle: Samples
    high: Samples


def as_night(name: str, samples: npt.ArrayLike) -> Night:
    """One row of values, or two rows: the earliest and the latest that each can have been.

    Raises `SampleError` for anything else, and for values that make no sense.
    """
    try:
        rows = np.asarray(samples)
    except ValueError:
        raise SampleError(f"{name}: found rows of different lengths, expected as many") from None
    if rows.ndim == 2 and rows.shape[0] == 2:
        low, high = as_intervals(*rows)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(high), low + (high - low) / 2, low)
        return Night(low, middle, high)
    values = as_samples(name, rows)
    if not np.isfinite(values).all():
        raise SampleError(f"{name}: found infinity at index {int(np.argmin(np.isfinite(values)))}")
    return Night(values, values, values)


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Scatter of misses: a standard deviation, estimated with `df` degrees of freedom."""

    spread: float
    df: float

    def tail(self, miss: float) -> float:
        """The probability of a miss of at least so much, on its side."""
        return float(scipy.special.stdtr(self.df, -miss / self.spread))

    def reach(self, tail: float) -> float:
        """The miss that has this tail."""
        return -float(scipy.special.stdtrit(self.df, tail)) * self.spread

    def found(self, tail: float, power: float) -> float:
        """The change of which the miss exceeds that reach with a probability of `power`."""
        critical = -float(scipy.special.stdtrit(self.df, tail))
        return float(scipy.special.nctdtrinc(self.df, 1 - power, critical)) * self.spread


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected score of a night, and the scatter of earlier misses.

    growth: by how much a miss scatters more than a night does, since the expectation does too.
    """

    value: float
    misses: Yardstick
    growth: float


def expect(scores: Sequence[float]) -> Expectation:
    """Expect the next of `scores`, oldest first, of which there are at least two.

    The expectation follows the nights by exponential smoothing. Each miss is divided by how
    many standard deviations of a night it would have, were there no drift; their root mean
    square is the yardstick. With the mean for an expectation that is exactly the prediction
    of a next normal value (recursive residuals: Brown, Durbin and Evans, J. R. Stat. Soc. B 37
    (1975) 149-192). One that follows keeps the rate of false alarms where nights drift as
    well, since the misses before have then been as large.
    """
    # Of the weights with which the nights stand in the expectation, the sum of the squares.
    expected, weights, squares = scores[0], 1.0, 0.0
    for score in scores[1:]:
        miss = score - expected
        squares += miss**2 / (1 + weights)
        expected += GAIN * miss
        weights = (1 - GAIN) ** 2 * weights + GAIN**2
    df, growth = len(scores) - 1, math.sqrt(1 + weights)
    return Expectation(expected, Yardstick(math.sqrt(squares / df) * growth, df), growth)
