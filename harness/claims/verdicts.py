"""Verdicts on claims: whether our value agrees with the published one."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.claims.published import Basis, PrintedFigure, Statistic
from lightrig.harness.report.units import shown
from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.testbeds import format_share
from lightrig.testbeds.intervals import interval

CONFIDENCE = 0.95
FEWEST = 10
"""Fewest samples of a mean: with fewer, its interval depends on a normal distribution."""

ClaimOutcome: TypeAlias = Literal[
    "agrees", "differs", "cannot tell", "not enough data", "not measured"
]
Kind: TypeAlias = Literal["hardware", "namespaces", "closure", "tested"] | Basis
"""The origin of a value beside a published one.

hardware: measured, with no simulated instrument. namespaces: real packets over kernel links, while
the switches and their times are simulated. closure: the value that a simulation in virtual time
was given, measured by the harness. tested: the share of the tests of a mechanism that hold. The
others are computed.
"""
MEASURED: frozenset[Kind] = frozenset({"hardware", "namespaces"})
"""The kinds of which an agreement is evidence that was measured here."""
CAN_AGREE: frozenset[Kind] = MEASURED | {"closure", "emulated", "computed", "tested"}
"""The kinds of values that could have differed; the others restate what is printed."""
_VERDICTS: dict[Kind, dict[ClaimOutcome, str]] = {
    "closure": {"agrees": "recovered", "differs": "not recovered"},
    "printed": {"agrees": "reproduces", "differs": "does not reproduce"},
    "released": {"agrees": "reproduces", "differs": "does not reproduce"},
    "fitted": {"agrees": "fitted", "differs": "does not fit"},
}


_TOLERANCES: dict[Kind, float] = {
    "hardware": 0.01,
    "namespaces": 0.01,
    "closure": 0.01,
    "emulated": 0.01,
    "computed": 0.01,
}
"""The one tolerance of a kind, as a share; a kind that is missing has the printed digits alone."""
KIND_TEXTS: dict[Kind, str] = {
    "hardware": "measured on hardware",
    "namespaces": "measured in namespaces: real packets, simulated switches",
    "closure": "closure: the simulation returns what it was given",
    "emulated": "emulated: the system's control plane in virtual time",
    "computed": "computed: by a path that contains neither the figure nor the paper's formula",
    "tested": "tested: tests of the mechanism",
    "printed": "printed: arithmetic and constants of the paper",
    "released": "released: the authors' recordings, read here",
    "fitted": "fitted: what the paper does not print was chosen so that its figure comes out",
}


def verdict_text(kind: Kind | None, outcome: ClaimOutcome) -> str:
    """Return the word for an outcome: "agrees" where the value could have differed."""
    return outcome if kind is None else _VERDICTS.get(kind, {}).get(outcome, outcome)


def tolerance_of(kind: Kind, ours: "Estimate | NotEnough") -> float:
    """Return the tolerance of a kind: the printed digits for arithmetic and exact values, else 1 %.

    A value that was computed without draws and bounds is exact.
    """
    exact = isinstance(ours, Estimate) and ours.n == 1 and ours.lower == ours.upper
    return 0.0 if kind == "computed" and exact else _TOLERANCES.get(kind, 0.0)


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
    width = float(scipy.special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) / math.sqrt(n)
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
    if ours.lower < ours.upper:
        return interval(ours.lower, ours.upper, unit, ours.value).value
    return f"{ours.value:,.6g}" if unit == "1" else shown(ours.value, unit)


def interval_text(ours: Estimate, unit: str, value: str = "") -> str:
    """Return an interval as text, without its unit if `value` has it."""
    return interval(ours.lower, ours.upper, unit, ours.value if value else None).ends


def compare(
    figure: PrintedFigure, ours: Estimate | NotEnough | None, tolerance: float = 0.0
) -> tuple[ClaimOutcome, str]:
    """Return the verdict on a published figure, and its reason in a sentence.

    tolerance: share of each end of the figure's range by which the range is wider for this.

    They agree where our whole interval is within the range, and differ where it has nothing in
    common with it. An interval that reaches into the range and beyond would agree with many other
    figures as well: the verdict is "cannot tell".
    """
    if ours is None:
        return "not measured", "Nothing was measured yet that answers it."
    if isinstance(ours, NotEnough):
        return "not enough data", f"{ours.n:,} events, {ours.needed:,} needed."
    low, high = figure.low, figure.high
    if tolerance > 0:  # an infinite end times nothing is no number
        low, high = low - abs(low) * tolerance, high + abs(high) * tolerance
    allowed = f"the printed range and its tolerance of {format_share(tolerance)}"
    if tolerance == 0:
        allowed = "the range of the printed digits"
    if ours.lower > high:
        return "differs", f"Ours is greater than {allowed}."
    if ours.upper < low:
        return "differs", f"Ours is less than {allowed}."
    if low <= ours.lower and ours.upper <= high:
        return "agrees", f"Ours is within {allowed}."
    return "cannot tell", f"Our interval reaches beyond {allowed}."
