"""Statistics of a bit error ratio: intervals, bounds, gate lengths, verdicts.

Intervals are exact (Clopper and Pearson 1934). For the small ratios and large bit counts of a
link they equal the Poisson interval (Garwood 1936), which is computed where the bit count is too
large for the binomial arithmetic. Errors are assumed independent; behind an equaliser or an
interleaver they come in bursts, and bursts should be counted instead.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from lightrig.harness.statistics.samples import SampleError, check_confidence
from lightrig.harness.statistics.verdicts import Outcome
from lightrig.testbeds.intervals import at_least, at_most

_SHAPE = 0.5
_DECADES = tuple(10.0**-decade for decade in range(1, 19))
_POISSON_FROM = 10**9
_POISSON_BELOW = 1e-4
"""From so many bits, and below such a ratio, both intervals differ by 1e-4 of their width at most.

Poisson's is wider by a factor of 1 / sqrt(1 - ratio), and has no end at 1.
"""


@dataclass(frozen=True, slots=True)
class ErrorRatio:
    """A bit error ratio with its interval.

    errors, bits: what was counted.
    value: errors / bits; where the number of bits is known within bounds, by their middle.
    lower, upper: two-sided interval at `confidence`. Without errors `lower` is 0, and `upper` is
        above the one-sided zero-error bound, which `upper_bound` gives: to spend all of the
        error on one side only after no error was seen would break the confidence.
    """

    errors: int
    bits: int
    value: float
    lower: float
    upper: float
    confidence: float


def error_ratio(
    errors: int, bits: int, confidence: float = 0.95, most_bits: int | None = None
) -> ErrorRatio:
    """The ratio of `errors` in `bits`, with an interval that holds it at least so often.

    most_bits: the most bits that there may have been, where `bits` is the least. Raises
    `SampleError` for counts that cannot be, such as no bits or more errors than bits.
    """
    _check(errors, bits)
    check_confidence(confidence)
    each, most = (1 + confidence) / 2, max(bits, most_bits or bits)
    lower, upper = lower_bound(errors, most, each), upper_bound(errors, bits, each)
    return ErrorRatio(errors, bits, 2 * errors / (bits + most), lower, upper, confidence)


def upper_bound(errors: int, bits: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound of the ratio at `confidence`.

    Without errors it is 1 - (1 - confidence)**(1 / bits), about -ln(1 - confidence) / bits.
    Raises `SampleError`.
    """
    _check(errors, bits)
    check_confidence(confidence)
    if errors == bits:
        return 1.0
    if errors == 0:
        return -math.expm1(math.log1p(-confidence) / bits)
    if _is_poisson(errors, bits):
        return float(scipy.special.gammaincinv(errors + 1, confidence)) / bits
    return float(scipy.special.betaincinv(errors + 1, bits - errors, confidence))


def lower_bound(errors: int, bits: int, confidence: float = 0.95) -> float:
    """Return the one-sided lower bound of the ratio at `confidence`; raises `SampleError`."""
    _check(errors, bits)
    check_confidence(confidence)
    if errors == 0:
        return 0.0
    if _is_poisson(errors, bits):
        return float(scipy.special.gammaincinv(errors, 1 - confidence)) / bits
    return float(scipy.special.betaincinv(errors, bits - errors + 1, 1 - confidence))


def anytime_interval(
    errors: int, bits: int, scale: float, confidence: float = 0.95, dispersion: float = 1.0
) -> tuple[float, float]:
    """Two-sided interval of the ratio that holds however often, and whenever, one looked.

    `error_ratio` is for a number of bits that was fixed beforehand: who stops when the counts
    please has broken its confidence. This one is wider, and holds at every moment at once: the
    ratios under which the counts were never too unlikely against a mixture of all others
    (Robbins, Ann. Math. Statist. 41 (1970) 1397-1409, here for Poisson counts and a mixture of
    gamma distributions, half of it at `scale`, the rest over all decades), which any true ratio
    survives with at least `confidence`. scale: a ratio of the size that matters, such as the
    limit; it is narrowest there. dispersion: the variance of the number of errors over that of
    independent ones. Raises `SampleError`.
    """
    _check(errors, bits)
    check_confidence(confidence)
    count, exposure = errors / dispersion, bits / dispersion  # as so many independent ones
    priors = 1 / np.array([scale, *_DECADES])
    of_each = (
        _SHAPE * np.log(priors)
        + math.lgamma(_SHAPE + count)
        - math.lgamma(_SHAPE)
        - (_SHAPE + count) * np.log(priors + exposure)
    )
    mixture = float(
        scipy.special.logsumexp(of_each, b=[0.5, *[0.5 / len(_DECADES)] * len(_DECADES)])
    )

    def excess(log_ratio: float) -> float:
        likelihood = count * log_ratio - exposure * math.exp(log_ratio)
        return mixture - likelihood + math.log1p(-confidence)

    best = math.log(max(count, 0.5) / exposure)
    reach = best + 1.0
    while excess(reach) < 0:
        reach += 1.0
    start = best if errors else best - 60.0
    upper = math.exp(float(scipy.optimize.brentq(excess, start, reach)))
    if not errors:
        return 0.0, min(upper, 1.0)
    reach = best - 1.0
    while excess(reach) < 0:
        reach -= 1.0
    return math.exp(float(scipy.optimize.brentq(excess, reach, best))), min(upper, 1.0)


def bits_needed(limit: float, confidence: float = 0.95, errors: int = 0) -> int:
    """Number of bits that show a ratio of at most `limit` at `confidence`, given `errors`.

    Without errors it is -ln(1 - confidence) / limit: 3.0 / limit at 95 %. Raises `SampleError`.
    """
    if not 0 < limit < 1:
        raise SampleError(f"limit: found {limit}, expected a ratio between 0 and 1")
    if errors < 0:
        raise SampleError(f"errors: found {errors}, expected a count")
    check_confidence(confidence)
    if errors == 0:
        bits = math.ceil(math.log1p(-confidence) / math.log1p(-limit))
        while upper_bound(0, bits, confidence) > limit:  # by a rounding error
            bits += max(1, bits >> 50)
        return bits
    bits = max(
        math.ceil(float(scipy.special.gammaincinv(errors + 1, confidence)) / limit), errors + 1
    )
    # The Poisson bound is the larger one: fewer bits may do.
    low = errors
    while bits - low > 1:
        middle = (low + bits) // 2
        if upper_bound(errors, middle, confidence) <= limit:
            bits = middle
        else:
            low = middle
    return bits


@dataclass(frozen=True, slots=True)
class ErrorRatioVerdict:
    """Verdict of a count on a limit.

    outcome: "pass", "fail" or "not enough data".
    ratio: the counted ratio with its interval.
    needed: further bits without an error that would make it pass; None when decided.
    reason: one sentence for people.
    """

    outcome: Outcome
    ratio: ErrorRatio | None
    needed: int | None
    reason: str

    @property
    def upper(self) -> float:
        """Upper end of the ratio's interval; infinite where nothing was counted."""
        return math.inf if self.ratio is None else self.ratio.upper


def judge_error_ratio(
    errors: int,
    bits: int,
    limit: float,
    confidence: float = 0.95,
    *,
    sync_lost: bool = False,
    most_bits: int | None = None,
) -> ErrorRatioVerdict:
    """Judge the claim that the bit error ratio is at most `limit`; `most_bits` as `error_ratio`.

    It passes where the upper bound at `confidence` keeps the limit and fails where the lower
    bound is above it, each wrongly with a probability of at most 1 - `confidence` at a number
    of bits fixed beforehand (`bits_needed` says it). A detector that lost its pattern has
    counted nothing: that fails, whatever it shows. Raises `SampleError`.
    """
    if sync_lost:
        reason = "The detector lost the pattern while it counted, so its counts bound nothing."
        return ErrorRatioVerdict("fail", None, None, reason)
    if not 0 < limit < 1:
        raise SampleError(f"limit: found {limit}, expected a ratio between 0 and 1")
    if bits == 0:
        needed = bits_needed(limit, confidence)
        reason = f"No bit was compared: {needed:.3g} needed."
        return ErrorRatioVerdict("not enough data", None, needed, reason)
    ratio = error_ratio(errors, bits, confidence, most_bits)
    counted = f"{errors:,} errors in {bits:.4g} bits"
    sure = f"at {100 * confidence:g} % confidence"
    upper = upper_bound(errors, bits, confidence)
    if upper <= limit:
        reason = f"{counted}: at most {at_most(upper, '1')} {sure}, and {limit:.2g} is allowed."
        return ErrorRatioVerdict("pass", ratio, None, reason)
    lower = lower_bound(errors, max(bits, most_bits or bits), confidence)
    if lower > limit:
        reason = (
            f"{counted}: at least {at_least(lower, '1')} {sure}, and only {limit:.2g} is allowed."
        )
        return ErrorRatioVerdict("fail", ratio, None, reason)
    needed = bits_needed(limit, confidence, errors) - bits
    reason = f"{counted} do not decide {limit:.2g} {sure}: {needed:.3g} more bits without an error."
    return ErrorRatioVerdict("not enough data", ratio, needed, reason)


def _is_poisson(errors: int, bits: int) -> bool:
    return bits >= _POISSON_FROM and errors < _POISSON_BELOW * bits


def _check(errors: int, bits: int) -> None:
    if bits < 1:
        raise SampleError(f"bits: found {bits}, expected at least 1")
    if not 0 <= errors <= bits:
        raise SampleError(f"errors: found {errors} of {bits} bits, expected 0 to {bits}")
