"""Durations that two clocks of whole units have stamped, and the lognormals that they came from."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import SampleError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lognormal:
    """`share` of all durations: lognormal, with this median, and this sd of the logarithm."""

    share: float
    median: float
    sigma: float

    @property
    def mean(self) -> float:
        """Of these durations."""
        return self.median * math.exp(self.sigma**2 / 2)

    @property
    def sd(self) -> float:
        """Of these durations."""
        return self.mean * math.sqrt(math.expm1(self.sigma**2))

    def below(self, bound: Floats) -> Floats:
        """The integral of the distribution function from 0 to each bound, which is not negative."""
        with np.errstate(divide="ignore"):
            z = (np.log(bound) - math.log(self.median)) / self.sigma
        below: Floats = bound * scipy.special.ndtr(z) - self.mean * scipy.special.ndtr(
            z - self.sigma
        )
        return below


@dataclass(frozen=True, slots=True)
class Fit:
    """A mixture fitted to whole durations, and how well it fits.

    parts: the most frequent one first. n: durations. log_likelihood: of them all.
    distance: the greatest difference between the share of durations up to any and what the fit
        expects; without a fitted parameter, 95 of 100 samples would be within 1.36 / sqrt(n).
    """

    parts: tuple[Lognormal, ...]
    n: int
    log_likelihood: float
    distance: float

    @property
    def akaike(self) -> float:
        """Akaike's criterion: of two fits the one with the lesser value tells more."""
        return 2 * (3 * len(self.parts) - 1) - 2 * self.log_likelihood

    def expected(self, most: int) -> Floats:
        """Expected number of samples at each of the durations 0, 1, ... `most`."""
        return self.n * probabilities(self.parts, np.arange(most + 1))


def probabilities(parts: tuple[Lognormal, ...], whole: npt.ArrayLike) -> Floats:
    """The probability of each whole duration, as the difference of two stamps cut to units.

    A duration d between n and n + 1 is stamped n or n + 1 by when it began within its unit, so
    that n has the weight 1 - |d - n|: a second difference of the integrated distribution.
    """
    n = np.asarray(whole, dtype=float)
    total = np.zeros_like(n)
    for part in parts:
        around = part.below(n + 1) - 2 * part.below(n) + part.below(np.maximum(n - 1, 0))
        total += part.share * around
    # Rounding may leave a hair below zero where nothing is expected.
    probable: Floats = np.maximum(total, 0.0)
    return probable


def fit_lognormals(whole: npt.ArrayLike, count: int) -> Fit:
    """One or two lognormals, by maximum likelihood, for differences of stamps of whole units.

    Raises `SampleError` for fewer than 10 durations, negative or broken ones, or another count.
    """
    durations = np.asarray(whole, dtype=float)
    if durations.size < 10 or (durations < 0).any() or (durations != durations.round()).any():
        raise SampleError(f"found {durations.size} durations, expected at least 10, all whole")
    if count not in {1, 2}:
        raise SampleError(f"found {count} parts, expected 1 or 2")
    values, often = np.unique(durations, return_counts=True)

    def loss(parameters: Floats) -> float:
        likely = probabilities(_parts(parameters), values)
        return -float((often * np.log(np.maximum(likely, 1e-300))).sum())

    best = min(
        (scipy.optimize.minimize(loss, start, method="Nelder-Mead", options={"maxfev": 4000})
         for start in _starts(durations, count)),
        key=lambda found: float(found.fun),
    )  # fmt: skip
    parts = tuple(sorted(_parts(best.x), key=lambda part: -part.share))
    grid = np.arange(durations.max() + 1)
    observed = np.array([(durations <= bound).mean() for bound in grid])
    distance = float(np.abs(np.cumsum(probabilities(parts, grid)) - observed).max())
    return Fit(parts, int(durations.size), -float(best.fun), distance)


def _starts(durations: Floats, count: int) -> list[list[float]]:
    middle = max(float(np.median(durations)), 0.5)
    if count == 1:
        return [[math.log(middle), math.log(0.3)]]
    return [
        [math.log(middle), math.log(0.1), math.log(far), math.log(0.4), tilt]
        for far in (2 * middle, 4 * middle)
        for tilt in (-1.0, 0.0)
    ]


def _parts(parameters: npt.ArrayLike) -> tuple[Lognormal, ...]:
    at = [float(value) for value in np.asarray(parameters, dtype=float)]
    slow = float(scipy.special.expit(at[4])) if len(at) > 2 else 0.0
    first = Lognormal(1 - slow, math.exp(at[0]), math.exp(at[1]))
    if len(at) == 2:
        return (first,)
    return (first, Lognormal(slow, math.exp(at[2]), math.exp(at[3])))
