"""Closure: how often the truth lies inside what was recorded about it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.samples import (
    SampleError,
    as_intervals,
    as_samples,
    check_confidence,
)


@dataclass(frozen=True, slots=True)
class Closure:
    """Share of recorded intervals that contain the ground truth of a simulation.

    n: number of events.
    inside: events whose truth lies inside the recorded interval, ends included.
    share: `inside` / `n`; an honest recorder of hard bounds reaches 1.
    lower, upper: two-sided Clopper-Pearson interval of that share.
    confidence: of that interval.
    mean_width: mean of latest - earliest, in the unit of the samples; a wide interval closes
        easily, so neither number is quoted without the other.
    """

    n: int
    inside: int
    share: float
    lower: float
    upper: float
    confidence: float
    mean_width: float


def closure(
    true: npt.ArrayLike,
    earliest: npt.ArrayLike,
    latest: npt.ArrayLike,
    confidence: float = 0.95,
) -> Closure:
    """Compare the truth of each event with the interval recorded for it, in the same order.

    Raises `SampleError` if there is no event, lengths differ, or samples make no sense.
    """
    check_confidence(confidence)
    truth = as_samples("true", true)
    low, high = as_intervals(earliest, latest)
    n = truth.size
    if n != low.size:
        raise SampleError(f"found {n} true values and {low.size} intervals, expected as many")
    if n == 0:
        raise SampleError("found no event, expected at least 1")
    inside = int(np.count_nonzero((low <= truth) & (truth <= high)))
    lower, upper = clopper_pearson(inside, n, confidence)
    return Closure(
        n=n,
        inside=inside,
        share=inside / n,
        lower=lower,
        upper=upper,
        confidence=confidence,
        mean_width=float(np.mean(high - low)),
    )
