"""Means of times with their intervals of 95 %."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import scipy  # whose modules are loaded when they are first used

from lightrig.testbeds.intervals import interval


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean, or a difference of two, in ns, with its interval of 95 % by Student's or Welch's t.

    n: the samples that it rests on, of the smaller set.
    """

    value: float
    lower: float
    upper: float
    n: int

    @property
    def steps_needed(self) -> int | None:
        """Number of samples after which the interval would not reach zero; None where it does not.

        For samples that deviate as these do. Half of an interval is from its value to `upper`.
        """
        if self.lower > 0 or self.value <= 0:
            return None
        return math.ceil(self.n * ((self.upper - self.value) / self.value) ** 2) + 1

    def at_least_zero(self, wider: float = 0.0) -> "MeanEstimate":
        """Return it with an interval wider by so much to each side, of which none is negative."""
        lower, upper = max(0.0, self.lower - wider), self.upper + wider
        return MeanEstimate(self.value, lower, upper, self.n)

    def __str__(self) -> str:
        written = interval(self.lower, self.upper, "ns", self.value)
        return f"{written.value} (95 % interval {written.ends}, n = {self.n})"


def mean_of(values: Sequence[int]) -> MeanEstimate:
    """Return the mean of values in ns; raises `ValueError` for fewer than two."""
    if len(values) < 2:
        raise ValueError(f"found {len(values)} values, expected at least 2 for an interval")
    mean, n = fmean(values), len(values)
    half = float(scipy.special.stdtrit(n - 1, 0.975)) * stdev(values) / math.sqrt(n)
    return MeanEstimate(mean, mean - half, mean + half, n)


def predicted_mean(values: Sequence[int], alike: float) -> MeanEstimate:
    """Return the mean of values in ns, with an interval of 95 % for that of another run.

    That has as many values, which deviate each by itself, as these do, and by `alike` all together.
    Raises `ValueError` for fewer than two.
    """
    mean = mean_of(values)
    half = math.hypot(math.sqrt(2) * (mean.upper - mean.value), alike)
    return MeanEstimate(mean.value, mean.value - half, mean.value + half, mean.n)


def mean_less(values: Sequence[int], less: Sequence[int]) -> MeanEstimate:
    """Return by how much the mean of `less` is below that of `values`, in ns.

    Raises `ValueError` for fewer than two of either.
    """
    n = min(len(values), len(less))
    if n < 2:
        raise ValueError(f"found {n} values, expected at least 2 for an interval")
    interval = scipy.stats.ttest_ind(values, less, equal_var=False).confidence_interval()
    return MeanEstimate(fmean(values) - fmean(less), interval.low, interval.high, n)
