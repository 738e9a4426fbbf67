"""The power at which a receiver reaches a bit error ratio, from counts at several powers.

For a receiver of two levels (NRZ) whose noise does not depend on the light, the ratio is
erfc(Q / sqrt 2) / 2 with Q in proportion to the optical power (Agrawal, Fiber-Optic Communication
Systems, section 4.6). Of four levels (PAM4) a symbol is wrong with 2 (1 - 1/4) times that of one
eye's Q, which is a third (Proakis and Salehi, Digital Communications, 5th ed., equation 4.3-4), and
of Gray coding one of its two bits: 3/4 of erfc(Q / 3 sqrt 2) / 2. Where noise depends on the light,
Q grows more slowly. So log Q is fitted as a line over power in dB, with a slope
of its own, and with a floor below which no power helps if one is asked for. The fit is the
likeliest for the counts, which are Poisson; a power without any error counts as well.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from lightrig.harness.statistics.samples import SampleError, check_confidence

_FEWEST = 3
_THERMAL = 0.1
"""Decades of Q a dB of optical power, where the noise does not depend on the light."""
_WIDEST_DB = 20.0
_MISFIT = 0.05
"""Counts that are less probable than this under the curve scatter about it by more than counts."""
_SOLVED_DB = 1e-6

REFUSED = 0.01
"""Counts that are less probable than this under the curve do not give a sensitivity."""

Modulation: TypeAlias = Literal["NRZ", "PAM4"]

_SHARES: Mapping[Modulation, float] = {"NRZ": 1.0, "PAM4": 0.75}
"""Ratio over the probability that noise passes the one threshold beside a level."""

_Residuals: TypeAlias = Callable[[float, float, float], npt.NDArray[np.float64]]
_Excess: TypeAlias = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A receiver's sensitivity.

    target: the bit error ratio that it is meant at.
    dbm, lower, upper: the power there and its interval at `confidence`: the profile likelihood
        of the counts, widened where they scatter about the curve by more than counts do, and
        the error of the power's scale, added as the root of the sum of squares.
    slope: decades of Q a dB; 0.1 where noise does not depend on the light.
    floor: the ratio that more power does not improve, or None if none was fitted.
    points: how many powers were used.
    misfit: probability of counts that fit no better, if the model is true.
    modulation: whose curve was fitted.
    """

    target: float
    dbm: float
    lower: float
    upper: float
    slope: float
    floor: float | None
    points: int
    confidence: float
    misfit: float
    modulation: Modulation = "NRZ"

    def ratio_at(self, dbm: float) -> float:
        """The fitted bit error ratio at a power in dBm."""
        return float(_ratios(np.array([dbm]), self._fit())[0])

    def _fit(self) -> "_Fit":
        share = _SHARES[self.modulation]
        return _Fit(self.dbm, self.slope, self.floor or 0.0, self.target, share)


@dataclass(frozen=True, slots=True)
class NoSensitivity:
    """Reason for which there is no sensitivity, in one sentence.

    misfit: probability of counts that fit no better, where that refuses it.
    """

    reason: str
    misfit: float | None = None


@dataclass(frozen=True, slots=True)
class _Fit:
    at: float
    slope: float
    floor: float
    target: float
    share: float


def sensitivity(
    dbm: npt.ArrayLike,
    errors: npt.ArrayLike,
    bits: npt.ArrayLike,
    target: float,
    confidence: float = 0.95,
    *,
    with_floor: bool = False,
    scale_db: float = 0.0,
    modulation: Modulation = "NRZ",
    least_p: float = REFUSED,
) -> Sensitivity | NoSensitivity:
    """Fit counts of `errors` in `bits` at received powers `dbm`, each of shape (n,).

    scale_db: standard uncertainty (k = 1) of the scale that all powers share, in dB. Where the
    counts do not fit, each is taken to scatter by as much more as their deviance exceeds its
    expectation (quasi-likelihood: McCullagh and Nelder, Generalized Linear Models, 2nd ed.,
    section 4.5), with the quantile of F for that of chi square.

    least_p: a fit whose `misfit` is below is refused. Raises `SampleError` for arrays of different
    lengths or a target that makes no sense.
    """
    power = np.asarray(dbm, dtype=float)
    wrong, all_bits = np.asarray(errors, dtype=float), np.asarray(bits, dtype=float)
    if not power.shape == wrong.shape == all_bits.shape or power.ndim != 1:
        raise SampleError("powers, errors and bits: expected as many of each")
    if not 0 < target < 0.5:
        raise SampleError(f"target: found {target}, expected a ratio between 0 and 0.5")
    check_confidence(confidence)
    with_errors = np.unique(power[wrong > 0]).size
    if with_errors < _FEWEST:
        return NoSensitivity(
            f"errors at {with_errors} powers, {_FEWEST} needed: count longer or attenuate more"
        )

    share = _SHARES[modulation]

    def residuals(at: float, slope: float, floor: float) -> npt.NDArray[np.float64]:
        fitted = _Fit(at, slope, floor, target, share)
        return _residuals(wrong, all_bits * _ratios(power, fitted))

    start = _start(power, wrong / all_bits / share, target / share)
    best, (at, slope, floor) = _best(residuals, start, with_floor=with_floor)
    freedom = max(power.size - (3 if with_floor else 2), 1)
    misfit = float(scipy.special.chdtrc(freedom, best))
    if misfit < least_p:
        return NoSensitivity(
            f"the counts do not follow the curve of {modulation} (p = {misfit:.1g}, "
            f"{least_p:g} needed)",
            misfit,
        )
    worse = float(scipy.special.chdtri(1, 1 - confidence))
    if misfit < _MISFIT:
        worse = float(scipy.special.fdtri(1, freedom, confidence)) * best / freedom

    def excess(where: float) -> float:
        return _best_at(residuals, where, (slope, floor), with_floor=with_floor) - best - worse

    lower, upper = _crossing(excess, at, -1), _crossing(excess, at, 1)
    if lower is None or upper is None:
        return NoSensitivity("the counts do not bound it: powers nearer to the target are needed")
    of_scale = -float(scipy.special.ndtri((1 - confidence) / 2)) * scale_db
    lower, upper = at - math.hypot(at - lower, of_scale), at + math.hypot(upper - at, of_scale)
    fitted_floor = floor if with_floor else None
    return Sensitivity(
        target,
        at,
        lower,
        upper,
        slope,
        fitted_floor,
        power.size,
        confidence,
        misfit,
        modulation,
    )


def _ratios(power: npt.NDArray[np.float64], fit: _Fit) -> npt.NDArray[np.float64]:
    q_target = -scipy.special.ndtri(fit.target / fit.share)
    exponent = np.clip(fit.slope * (power - fit.at), -6, 6)
    ratios = fit.share * scipy.special.ndtr(-q_target * 10.0**exponent) + fit.floor
    return np.asarray(np.clip(ratios, 1e-300, 0.5))


def _residuals(
    wrong: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The roots of each count's deviance: their squares add up to the fit's."""
    deviance = 2 * (scipy.special.xlogy(wrong, wrong / expected) - (wrong - expected))
    return np.asarray(np.sign(wrong - expected) * np.sqrt(np.maximum(deviance, 0)))


def _start(
    power: npt.NDArray[np.float64], ratio: npt.NDArray[np.float64], target: float
) -> tuple[float, float]:
    """A line through log Q of the powers that had errors."""
    seen = (ratio > 0) & (ratio < 0.5)
    log_q = np.log10(-scipy.special.ndtri(ratio[seen]))
    slope, offset = np.polyfit(power[seen], log_q, 1)
    slope = min(max(slope, _THERMAL / 5), _THERMAL * 5)
    at = (math.log10(-scipy.special.ndtri(target)) - offset) / slope
    return float(np.clip(at, power.min() - _WIDEST_DB, power.max() + _WIDEST_DB)), float(slope)


def _best(
    residuals: _Residuals, start: tuple[float, float], *, with_floor: bool
) -> tuple[float, tuple[float, float, float]]:
    def of(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return residuals(x[0], math.exp(x[1]), _floor(x[2]) if with_floor else 0.0)

    guess = [start[0], math.log(start[1]), *([-9.0] if with_floor else [])]
    found = scipy.optimize.least_squares(of, guess, x_scale="jac")
    x = [*map(float, found.x), -math.inf]
    floor = _floor(x[2]) if with_floor else 0.0
    return 2 * float(found.cost), (x[0], math.exp(x[1]), floor)


def _floor(decades: float) -> float:
    return float(10.0 ** min(max(decades, -20.0), -1.0))


def _best_at(
    residuals: _Residuals, at: float, start: tuple[float, float], *, with_floor: bool
) -> float:
    """The least deviance with the sensitivity held at `at`."""

    def of(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return residuals(at, math.exp(x[0]), _floor(x[1]) if with_floor else 0.0)

    guess = [math.log(start[0]), *([math.log10(max(start[1], 1e-18))] if with_floor else [])]
    return 2 * float(scipy.optimize.least_squares(of, guess, x_scale="jac").cost)


def _crossing(excess: _Excess, at: float, side: int) -> float | None:
    """Return the place, on one side of the best, at which the excess becomes zero."""
    step = 0.01
    while step <= _WIDEST_DB:
        if excess(at + side * step) > 0:
            near, far = at + (side * step / 2 if step > 0.01 else 0.0), at + side * step
            low, high = min(near, far), max(near, far)
            return float(scipy.optimize.brentq(excess, low, high, xtol=_SOLVED_DB))
        step *= 2
    return None
