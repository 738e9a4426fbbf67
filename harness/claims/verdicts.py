"""Verdicts on claims: whether our value agrees with the published one."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from lightrig.harness.claims.published import Figure, Statistic
from lightrig.harness.report.units import shown, span
from lightrig.harness.statistics import NotEnough, quantile

CONFIDENCE = 0.95
FEWEST = 10
"""Fewest samples of a mean: with fewer, its interval depends on a normal distribution."""

ClaimOutcome: TypeAlias = Literal[
    "agrees", "differs", "cannot tell", "not enough data", "not measured"
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of ours with its two-sided interval at `CONFIDENCE`, from `n` events."""

    value: float
    lower: float
    upper: float
    n: int


def estimate(
    statistic: Statistic, earliest: npt.ArrayLike, latest: npt.ArrayLike
) -> Estimate | NotEnough:
    """Estimate the statistic of samples with two bounds each, one sample an event.

    A quantile has the interval of `harness.statistics.quantile`. A mean has Student's, from
    that of the earliest to that of the latest, for means of samples that are not too skewed.
    Raises `SampleError` for invalid samples.
    """
    if statistic == "mean":
        return _mean(np.asarray(earliest, dtype=float), np.asarray(latest, dtype=float))
    found = quantile(earliest, latest, 0.5 if statistic == "median" else 0.99, CONFIDENCE)
    if isinstance(found, NotEnough):
        return found
    assert found.lower is not None
    return Estimate(found.value, found.lower, found.upper, found.n)


def _mean(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> Estimate | NotEnough:
    n = low.size
    if n < FEWEST:
        return NotEnough(n, FEWEST)
    width = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) / math.sqrt(n)
    first, last = float(low.mean()), float(high.mean())
    if not math.isfinite(last):
        return Estimate(last, first - width * float(low.std(ddof=1)), last, n)
    return Estimate(
        (first + last) / 2,
        first - width * float(low.std(ddof=1)),
        last + width * float(high.std(ddof=1)),
        n,
    )


def value_text(ours: Estimate, unit: str) -> str:
    """Return a value of ours as text; an exact plain number as papers print dollars."""
    if unit != "1":
        return shown(_rounded(ours.value, unit), unit)
    return f"{ours.value:,.{6 if ours.lower == ours.upper else 4}g}"


def interval_text(ours: Estimate, unit: str, value: str = "") -> str:
    """Return an interval as text; its unit once, or not at all if `value` has it."""
    return span(_rounded(ours.lower, unit), _rounded(ours.upper, unit), unit, value)


def _rounded(value: float, unit: str) -> float:
    # A share's shortest form has up to six digits, of which the last ones mean nothing.
    return float(f"{value:.4g}") if unit == "share" else value


def compare(figure: Figure, ours: Estimate | NotEnough | None) -> tuple[ClaimOutcome, str]:
    """The verdict on a published figure, and why, in a sentence.

    They agree where our interval and the range of the printed digits overlap, since the true
    value may be in both, and differ where they do not. Where our interval is wider than the
    figure itself, agreement would mean nothing: the verdict is "cannot tell".
    """
    if ours is None:
        return "not measured", "Nothing was measured yet that answers it."
    if isinstance(ours, NotEnough):
        return "not enough data", f"{ours.n:,} events, {ours.needed:,} needed."
    if ours.lower > figure.high:
        return "differs", "Ours is surely greater."
    if ours.upper < figure.low:
        return "differs", "Ours is surely less."
    inside = figure.low <= ours.lower and ours.upper <= figure.high
    ends = [abs(end) for end in (figure.low, figure.high) if math.isfinite(end)]
    if not inside and ours.upper - ours.lower > max(ends):
        return "cannot tell", "Our interval is wider than the figure itself."
    if inside:
        return "agrees", "Our whole interval is within what the printed digits stand for."
    return "agrees", "What the printed digits stand for and our interval overlap."
