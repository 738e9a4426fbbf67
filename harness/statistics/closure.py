"""Closure: how often the truth lies inside what was recorded about it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.samples import (
    SampleError,
    as_intervals,
    as_samples,
    check_confidence,
)

CLOSURE_ERROR = 1e-4
"""Probability with which intervals that hold the truth as often as stated are called not closed.

A night judges some hundred quantities of as many tests.
"""


@dataclass(frozen=True, slots=True)
class ClosureVerdict:
    """Verdict on intervals beside the truth.

    closed: whether the intervals are consistent with what they state.
    n, inside: number of intervals, and of those that hold the truth.
    reason: one sentence for people.
    """

    closed: bool
    n: int
    inside: int
    reason: str

    @property
    def share(self) -> float:
        """Share of the intervals that hold the truth."""
        return self.inside / self.n


_NO_INTERVAL = "found no interval, expected at least 1"


def judge_bounds(inside: Sequence[bool]) -> ClosureVerdict:
    """Judge intervals that are bounds: each has to hold the truth, and a single miss is an error.

    Raises `SampleError` for none.
    """
    n, covered = len(inside), sum(map(bool, inside))
    if not n:
        raise SampleError(_NO_INTERVAL)
    return ClosureVerdict(
        covered == n, n, covered, f"{covered:,} of {n:,} bounds hold the true value."
    )


def judge_deviations(deviations: npt.ArrayLike) -> ClosureVerdict:
    """Judge 95 % intervals by how far their middles lie from the truth.

    deviations: of value from truth, each over half the width of its 95 % interval, with sign
    (ISO 13528 calls it E_n; an interval with an absolute value of up to 1 holds the truth).
    Intervals of one run share errors, of a reference for one, so that the number of misses says
    little: all may be off together, and rightly so one time in twenty. Not closed is what stays
    improbable however they depend on each other: a mean that is too far from zero, whose
    variance is at most that of a single one, or a single one that is too far off for one of so
    many. Each may happen by chance with half of `CLOSURE_ERROR`. Raises `SampleError` for none.
    """
    found = as_samples("deviations", deviations)
    n, covered = _numbers(np.abs(found) <= 1)
    normal = found * float(scipy.special.ndtri(0.975))
    mean, worst = float(np.mean(normal)), float(np.max(np.abs(normal)))
    p_mean, p_worst = (
        2 * scipy.special.ndtr(-abs(mean)),
        min(2 * n * scipy.special.ndtr(-worst), 1.0),
    )
    reason = (
        f"{covered:,} of {n:,} intervals of 95 % hold the true value; in standard uncertainties "
        f"the mean deviation is {mean:.2g} (p = {p_mean:.2g}), the greatest {worst:.2g} "
        f"(p = {p_worst:.2g})."
    )
    return ClosureVerdict(bool(min(p_mean, p_worst) > CLOSURE_ERROR / 2), n, covered, reason)


def _numbers(inside: npt.ArrayLike) -> tuple[int, int]:
    found = np.asarray(inside, dtype=bool)
    if not found.size:
        raise SampleError(_NO_INTERVAL)
    return found.size, int(np.count_nonzero(found))


@dataclass(frozen=True, slots=True)
class Closure:
    """Share of recorded intervals that contain the ground truth of a simulation.

    n: number of events.
    inside: events whose truth lies inside the recorded interval, ends included.
    share: `inside` / `n`; an honest recorder of hard bounds reaches 1.
    lower, upper: two-sided Clopper-Pearson interval of that share.
    confidence: of that interval.
    """

    n: int
    inside: int
    share: float
    lower: float
    upper: float
    confidence: float


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
    )
