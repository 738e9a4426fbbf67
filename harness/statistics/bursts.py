"""Bit error ratios where errors come in bursts, as behind an equalizer or an interleaver.

A gate that is read while it is open shows at how many looks errors had been added. Bursts are
independent of each other, the errors of one are not: the number of errors is compound Poisson, a
sum of burst sizes of which each occurs a Poisson number of times. Its bounds are those of weighted
sums of Poisson counts (M. P. Fay and E. J. Feuer, Statistics in Medicine 16 (1997) 791-801); where
each size is 1 they are Garwood's. Two bursts in one look count as a larger one, which widens them.

Few bursts do not show how large bursts are: ten looks with errors are needed. With fewer, a
declared mean number of errors in a burst takes the place of the sizes. Without it errors are
assumed to be independent, unless gates differ by more than independent errors do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from lightrig.harness.statistics.bit_errors import (
    ErrorRatioVerdict,
    bits_needed,
    error_ratio,
    judge_error_ratio,
    lower_bound,
    upper_bound,
)
from lightrig.harness.statistics.samples import SampleError, check_confidence
from lightrig.harness.statistics.verdicts import Outcome
from lightrig.testbeds.intervals import at_least, at_most

LEAST_EVENTS = 10
"""Looks with errors from which on their sizes bound the ratio."""

DISPERSED = 0.01
"""Probability below which gates differ by more than independent errors do."""

_DRAWS = 9_999
_SEED = 1934
_RANK: tuple[Outcome, ...] = ("pass", "not enough data", "fail")


@dataclass(frozen=True, slots=True)
class GateErrors:
    """Errors of one gate by the looks at it.

    events: looks that showed more errors than the look before. squares: sum of the squares of these
    additions. largest: the largest of them. A gate that was read once has one at most. most_bits:
    as of `error_ratio`.
    """

    errors: int
    bits: int
    events: int
    squares: int
    largest: int
    most_bits: int | None = None

    @property
    def most(self) -> int:
        """The most bits that there may have been."""
        return max(self.bits, self.most_bits or self.bits)

    @classmethod
    def of_looks(
        cls, bits: int, errors: Sequence[int], most_bits: int | None = None
    ) -> "GateErrors":
        """Return what the error counts of successive looks show, the last one that of the gate."""
        added = np.diff([0, *errors])
        if (added < 0).any():
            raise SampleError(f"errors: found {list(errors)}, expected counts that never fall")
        seen = added[added > 0]
        largest = int(seen.max(initial=0))
        return cls(errors[-1], bits, seen.size, int((seen**2).sum()), largest, most_bits)


def pooled(gates: Sequence[GateErrors]) -> GateErrors:
    """Return several gates of one counter as one."""
    return GateErrors(
        sum(gate.errors for gate in gates),
        sum(gate.bits for gate in gates),
        sum(gate.events for gate in gates),
        sum(gate.squares for gate in gates),
        max(gate.largest for gate in gates),
        sum(gate.most for gate in gates) if any(gate.most_bits for gate in gates) else None,
    )


def burst_bounds(gate: GateErrors, confidence: float = 0.95) -> tuple[float, float]:
    """Return the one-sided lower and upper bound of the ratio, each at `confidence`.

    Raises `SampleError` where there is no error.
    """
    check_confidence(confidence)
    if not gate.errors:
        raise SampleError("errors: found none, expected at least one")
    least, inverse = gate.errors, scipy.special.gammaincinv
    lower = gate.squares / least * inverse(least**2 / gate.squares, 1 - confidence)
    most, squares = least + gate.largest, gate.squares + gate.largest**2
    upper = squares / most * inverse(most**2 / squares, confidence)
    return float(lower) / gate.most, min(float(upper) / gate.bits, 1.0)


def dispersion(gates: Sequence[GateErrors]) -> float:
    """Return the probability that independent errors spread over gates as unevenly as these.

    The errors of all gates fall into each in proportion to its bits; the measure is Pearson's
    chi-squared, among random draws with a fixed seed, since few errors have no known distribution.
    1 where there are fewer than two gates or errors.
    """
    errors = np.array([gate.errors for gate in gates])
    total = int(errors.sum())
    if len(gates) < 2 or total < 2:
        return 1.0
    share = np.array([gate.bits for gate in gates], dtype=float)
    share /= share.sum()
    draws = np.random.default_rng(_SEED).multinomial(total, share, size=_DRAWS)
    unevenness = ((draws - total * share) ** 2 / (total * share)).sum(axis=1)
    found = float(((errors - total * share) ** 2 / (total * share)).sum())
    return float(1 + np.count_nonzero(unevenness >= found * (1 - 1e-9))) / (_DRAWS + 1)


def judge_gates(
    gates: Sequence[GateErrors], limit: float, confidence: float = 0.95, burst: float | None = None
) -> ErrorRatioVerdict:
    """Judge the claim that the bit error ratio of one counter is at most `limit`.

    gates: at least one, with bits. burst: declared mean number of errors in a burst.

    With ten looks with errors or more, all gates are judged as one, and so is each gate that has
    as many by itself; the worst verdict counts. With fewer every gate is judged by itself: with
    `burst` the bits that it takes are multiplied by it, without it errors are assumed to be
    independent. Raises `SampleError`.
    """
    whole = pooled(gates)
    if whole.events >= LEAST_EVENTS:
        many = [gate for gate in gates if gate.events >= LEAST_EVENTS]
        return _worst([_by_bursts(gate, limit, confidence) for gate in (whole, *many)])
    if burst is not None:
        return _worst([_by_declared(gate, limit, confidence, burst) for gate in gates])
    verdict = _worst([_alone(gate, limit, confidence) for gate in gates])
    chance = dispersion(gates)
    if verdict.outcome == "pass" and chance < DISPERSED:
        reason = (
            f"{verdict.reason} But {len(gates)} gates differ as independent errors do with a "
            f"probability of {chance:.2g} only: {LEAST_EVENTS} looks with errors decide, or a "
            "declared number of errors in a burst."
        )
        return replace(verdict, outcome="not enough data", reason=reason)
    if verdict.outcome == "not enough data":
        return verdict
    return replace(verdict, reason=f"{verdict.reason} Errors are assumed to be independent.")


def _worst(verdicts: Sequence[ErrorRatioVerdict]) -> ErrorRatioVerdict:
    return max(verdicts, key=lambda one: (_RANK.index(one.outcome), one.upper))


def _alone(gate: GateErrors, limit: float, confidence: float) -> ErrorRatioVerdict:
    return judge_error_ratio(gate.errors, gate.bits, limit, confidence, most_bits=gate.most_bits)


def _by_bursts(gate: GateErrors, limit: float, confidence: float) -> ErrorRatioVerdict:
    lower, upper = burst_bounds(gate, confidence)
    counted = f"{gate.errors:,} errors at {gate.events:,} looks in {gate.bits:.4g} bits"
    sure = f"at {100 * confidence:g} % confidence, also in bursts"
    ratio = error_ratio(gate.errors, gate.bits, confidence, gate.most_bits)
    if upper <= limit:
        reason = f"{counted}: at most {at_most(upper, '1')} {sure}, and {limit:.2g} is allowed."
        return ErrorRatioVerdict("pass", ratio, None, reason)
    if lower > limit:
        reason = (
            f"{counted}: at least {at_least(lower, '1')} {sure}, and only {limit:.2g} is allowed."
        )
        return ErrorRatioVerdict("fail", ratio, None, reason)
    reason = f"{counted} do not decide {limit:.2g} {sure}."
    return ErrorRatioVerdict("not enough data", ratio, None, reason)


def _by_declared(
    gate: GateErrors, limit: float, confidence: float, burst: float
) -> ErrorRatioVerdict:
    """Judge the number of bursts, of `burst` errors each in the mean.

    Looks with errors are at least as many bursts. Where they show larger bursts than declared, or
    several in one look, the larger size counts against a pass, and the smaller against a fail.
    """
    sizes = [burst, gate.errors / gate.events] if gate.events else [burst]
    counted = f"{gate.errors:,} errors at {gate.events:,} looks in {gate.bits:.4g} bits"
    sure = f"at {100 * confidence:g} % confidence with {burst:g} errors in a declared burst"
    ratio = error_ratio(gate.errors, gate.bits, confidence, gate.most_bits)
    upper = max(sizes) * upper_bound(gate.events, gate.bits, confidence)
    if upper <= limit:
        reason = f"{counted}: at most {at_most(upper, '1')} {sure}, and {limit:.2g} is allowed."
        return ErrorRatioVerdict("pass", ratio, None, reason)
    lower = min(sizes) * lower_bound(gate.events, gate.most, confidence)
    if lower > limit:
        reason = (
            f"{counted}: at least {at_least(lower, '1')} {sure}, and only {limit:.2g} is allowed."
        )
        return ErrorRatioVerdict("fail", ratio, None, reason)
    needed = bits_needed(limit / max(sizes), confidence, gate.events) - gate.bits
    reason = f"{counted} do not decide {limit:.2g} {sure}: {needed:.3g} more bits without an error."
    return ErrorRatioVerdict("not enough data", ratio, needed, reason)
