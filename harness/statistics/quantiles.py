"""Quantiles of interval-censored samples with distribution-free confidence intervals."""

import functools
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.binomial import at_least, at_most, first_true_from
from lightrig.harness.statistics.samples import (
    Samples,
    as_intervals,
    as_samples,
    check_confidence,
    check_share,
)

Sides: TypeAlias = Literal["two", "upper"]


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of the population, estimated; all values in the unit of the samples.

    q: the share of the population that is at or below the quantile.
    value: sample quantile of the points, else the midpoint of those of `earliest` and of `latest`.
    lower, upper: confidence interval; `lower` is None where only an upper bound was asked.
    confidence: probability, at least, that such an interval holds the true quantile.
    n: number of samples. effective: as how many independent ones they count.
    """

    q: float
    value: float
    lower: float | None
    upper: float
    confidence: float
    n: int
    effective: int | None = None


@dataclass(frozen=True, slots=True)
class NotEnough:
    """There are `n` samples, and the interval exists only from `needed` samples on."""

    n: int
    needed: int

    def __str__(self) -> str:
        return f"not enough data: {self.n:,} samples, {self.needed:,} needed"


def quantile(
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    q: float,
    confidence: float = 0.95,
    sides: Sides = "two",
    points: npt.ArrayLike | None = None,
    effective: int | None = None,
) -> Quantile | NotEnough:
    """Estimate the quantile `q` of the population that the intervals were drawn from.

    The bounds are order statistics: the lower one of `earliest`, the upper one of `latest`,
    so that sampling and censoring both widen the interval. The number of samples at or below
    the true quantile is binomial whatever the distribution (David and Nagaraja, Order
    Statistics, 3rd ed., section 7.1). "two" splits the error evenly; "upper" spends it all on
    the upper bound. The sample quantile is definition 2 of Hyndman and Fan (1996), which makes
    the median of an even number the mean of the middle two, and never leaves the interval.

    Samples must be independent: one per event, not one per circuit of an event. points: the most
    likely value of each sample, where that is not the middle of its interval; bounds do not depend
    on them. effective: as how many independent samples they count, where they depend on each other
    (see `independence.effective_samples`): their ranks are spread over all samples.
    Raises `SampleError` for samples, `q` or `confidence` (from 0.5) that make no sense.
    """
    low, high = as_intervals(earliest, latest)
    needed = samples_needed(q, confidence, sides)
    n = low.size
    count = n if effective is None else min(effective, n)
    if count < needed:
        return NotEnough(count, needed)
    low, high = np.sort(low), np.sort(high)
    lower, upper = _ranks(count, q, confidence, sides)
    if count < n:
        lower = None if lower is None else max(math.floor(lower * n / count) - n // count, 1)
        upper = min(math.ceil(upper * n / count), n)
    value = _middle(_sample_quantile(low, q), _sample_quantile(high, q))
    if points is not None and math.isfinite(value):
        value = _sample_quantile(np.sort(as_samples("points", points)), q)
    return Quantile(
        q=q,
        value=value,
        lower=None if lower is None else _item(low, lower),
        upper=_item(high, upper),
        confidence=confidence,
        n=n,
        effective=count if count < n else None,
    )


# Tests of one run take equally many samples, and a terminal asks at each of its lines.
@functools.lru_cache(maxsize=1024)
def _ranks(n: int, q: float, confidence: float, sides: Sides) -> tuple[int | None, int]:
    """Return the ranks, from 1, of the samples that bound the quantile."""
    tail = _tail(confidence, sides)
    # With just enough samples rounding could put the rank one past the end, where the bound is
    # known.
    upper = min(n, first_true_from(1, lambda rank: at_least(rank, n, q) <= tail))
    if sides == "upper":
        return None, upper
    return first_true_from(1, lambda rank: at_most(rank, n, q) > tail), upper


def samples_needed(q: float, confidence: float = 0.95, sides: Sides = "two") -> int:
    """Count the samples from which on `quantile` has an interval.

    The largest of n samples bounds the quantile with confidence 1 - q**n (Wilks 1941), the
    smallest with 1 - (1 - q)**n. Raises `SampleError` for a `q` or `confidence` out of range.
    """
    check_share("q", q)
    check_confidence(confidence)
    tail = _tail(confidence, sides)
    worst = q if sides == "upper" else max(q, 1 - q)
    guess = max(1, math.floor(math.log(tail) / math.log(worst)))
    return guess if worst**guess <= tail else guess + 1


def _tail(confidence: float, sides: Sides) -> float:
    return (1 - confidence) / 2 if sides == "two" else 1 - confidence


def _sample_quantile(ordered: Samples, q: float) -> float:
    rank = ordered.size * q
    whole = round(rank)
    # 100 * 0.29 is 28.999999999999996 and means 29.
    if math.isclose(rank, whole, rel_tol=1e-12, abs_tol=1e-12) and 0 < whole < ordered.size:
        return _middle(_item(ordered, whole), _item(ordered, whole + 1))
    return _item(ordered, min(ordered.size, max(1, math.ceil(rank))))


def _middle(low: float, high: float) -> float:
    # As Python numbers integers do not overflow, and the division rounds once.
    return (low + high) / 2


def _item(ordered: Samples, rank: int) -> float:
    item: float = ordered[rank - 1].item()
    return item
