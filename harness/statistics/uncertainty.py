"""Uncertainty budgets: named components of one value, combined as the GUM says.

Components are standard uncertainties (k = 1) in one unit: those found from samples (type A) with
their degrees of freedom, those that were stated (type B) with none to count (infinitely many). They
are independent unless a correlation is stated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from lightrig.harness.statistics.sample_checks import SampleError, check_confidence

if TYPE_CHECKING:
    import numpy.typing as npt

Distribution: TypeAlias = Literal["normal", "rectangular"]


@dataclass(frozen=True, slots=True)
class Component:
    """One reason why a value is not known exactly.

    name: in a word or two. standard: its standard uncertainty. degrees: of freedom.
    distribution: that `standard` was computed from. sensitivity: how much the result changes with
    it.

    Raises `SampleError` for an uncertainty below zero, or less than one degree of freedom.
    """

    name: str
    standard: float
    degrees: float = math.inf
    distribution: Distribution = "normal"
    sensitivity: float = 1.0

    @property
    def evaluation(self) -> Literal["A", "B"]:
        """Type A: found from samples; B: by other means (GUM, 2.3.2 and 2.3.3)."""
        return "A" if math.isfinite(self.degrees) else "B"

    @property
    def contribution(self) -> float:
        """Its part of the result's uncertainty, with the sign of its sensitivity."""
        return self.sensitivity * self.standard

    def __post_init__(self) -> None:
        if not 0 <= self.standard < math.inf:
            raise SampleError(f"{self.name}: found {self.standard}, expected an uncertainty")
        if not self.degrees >= 1:
            raise SampleError(f"{self.name}: found {self.degrees} degrees, expected 1 or more")


@dataclass(frozen=True, slots=True)
class Budget:
    """Components and what they come to together, in their unit.

    standard: combined standard uncertainty. degrees: effective degrees of freedom.
    factor: coverage factor for `confidence`. expanded: half the width of the interval.
    """

    components: tuple[Component, ...]
    standard: float
    degrees: float
    factor: float
    expanded: float
    confidence: float


def combine(
    components: Iterable[Component],
    confidence: float = 0.95,
    correlations: Mapping[tuple[int, int], float] | None = None,
) -> Budget:
    """Combine components to an interval of value ± `expanded`.

    The root of the sum of squared contributions, and of twice the product of two contributions and
    their correlation; effective degrees of freedom by Welch and Satterthwaite, the coverage factor
    by Student's t (GUM, JCGM 100:2008, 5.1.2, 5.2.2, G.3 and G.4).

    correlations: coefficients by the places of two components; others are independent.

    Raises `SampleError` for a confidence or a coefficient that makes no sense, and for a correlated
    component with a finite number of degrees of freedom, for which the formula does not hold.
    """
    check_confidence(confidence)
    parts = tuple(components)
    variance = math.fsum(part.contribution**2 for part in parts)
    for (first, second), r in (correlations or {}).items():
        pair = parts[first], parts[second]
        if not -1 <= r <= 1 or first == second:
            raise SampleError(f"correlation of {pair[0].name} and {pair[1].name}: found {r}")
        if any(part.evaluation == "A" for part in pair):
            raise SampleError(
                f"{pair[0].name} and {pair[1].name} are correlated: found degrees of freedom, "
                "expected none"
            )
        variance += 2 * r * pair[0].contribution * pair[1].contribution
    standard = math.sqrt(max(variance, 0.0))
    shares = sum((part.contribution / standard) ** 4 / part.degrees for part in parts if standard)
    degrees = 1 / shares if shares else math.inf
    factor = coverage_factor(degrees, confidence)
    return Budget(parts, standard, degrees, factor, factor * standard, confidence)


def en_number(difference: float, expanded: float, reference_expanded: float) -> float:
    """Return |En| of two values: their difference by their combined expanded uncertainty.

    They agree within what both state where it is 1 or less (ISO 13528:2022, 9.7). Raises
    `SampleError` where neither has an uncertainty.
    """
    combined = math.hypot(expanded, reference_expanded)
    if not combined > 0:
        raise SampleError("found no uncertainty in either value, expected one to compare with")
    return abs(difference) / combined


@functools.lru_cache(maxsize=4096)
def coverage_factor(degrees: float, confidence: float = 0.95) -> float:
    """By how many standard uncertainties a value is surrounded, two-sided."""
    import scipy  # noqa: PLC0415 - interlocks load this module, and most changes need no budget

    # Beyond this Student's t and the normal distribution are the same.
    return float(scipy.special.stdtrit(min(degrees, 1e9), (1 + confidence) / 2))


def pooled(groups: Iterable[npt.ArrayLike], name: str) -> Component:
    """The standard deviation of one sample, from groups whose means may differ.

    Raises `SampleError` where no group has two samples.
    """
    import numpy as np  # noqa: PLC0415 - as scipy above

    squares, degrees = 0.0, 0
    for group in groups:
        samples = np.asarray(group, dtype=np.float64)
        if samples.size > 1:
            squares += float(((samples - samples.mean()) ** 2).sum())
            degrees += samples.size - 1
    if not degrees:
        raise SampleError(f"{name}: found no two samples of anything, expected some")
    return Component(name, math.sqrt(squares / degrees), degrees)


def readings_needed(noise: float, target: float, *, least: int = 2, most: int = 1000) -> int:
    """Number of readings to average for a noise of the mean of at most `target`."""
    if target <= 0:
        raise SampleError(f"target: found {target}, expected more than zero")
    return min(max(math.ceil((noise / target) ** 2), least), most)


@dataclass(frozen=True, slots=True)
class Margin:
    """Margin of a power budget, in dB: launched power less loss less sensitivity.

    expanded: half the width of its interval at `confidence`.
    """

    value: float
    expanded: float
    confidence: float

    @property
    def closes(self) -> bool | None:
        """Whether the margin is certainly positive; False: certainly not, None: undecided."""
        if self.value - self.expanded >= 0:
            return True
        return False if self.value + self.expanded < 0 else None


def margin(
    sent: tuple[float, float],
    stages: Sequence[tuple[float, float]],
    needed: tuple[float, float],
    confidence: float = 0.95,
) -> Margin:
    """The margin of a path through any number of stages, uncertainties combined.

    Each pair is a value and its standard uncertainty: `sent` and `needed` in dBm, the losses of
    `stages` in dB.
    """
    budget = combine(
        (Component(f"{n}", each[1]) for n, each in enumerate((sent, *stages, needed))), confidence
    )
    lost = sum(loss for loss, _ in stages)
    return Margin(sent[0] - lost - needed[0], budget.expanded, confidence)
