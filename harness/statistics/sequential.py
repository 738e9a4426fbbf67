"""Counting bit errors only for as long as it takes: Wald's sequential test.

The likelihood of a bad link over that of a good one moves with every bit. It crosses
1 / alpha for a good link with a probability of at most alpha, and beta for a bad one with at
most beta (Wald, Sequential Analysis, 1947, section 3.2, with the bounds that need no
approximation). Looking at any time, and as often as one likes, is what it is made for.

Errors in bursts of `burst` errors in the mean, of any length as coins fall, have 2 burst - 1 times
the variance of independent ones. They count as so many times fewer independent ones (McCullagh and
Nelder, Generalized Linear Models, 1989, section 6.2.3), and need so many times the bits.
"""

import bisect
import functools
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import scipy  # whose modules are loaded when they are first used

from lightrig.harness.statistics.bit_errors import anytime_interval
from lightrig.harness.statistics.samples import SampleError

Decision: TypeAlias = Literal["accept", "reject", "go on"]


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """Sequential test of a good link against a bad one.

    good: a bit error ratio that must not be rejected, more often than `alpha`.
    bad: one that must not be accepted, more often than `beta`; above `good`.
    burst: declared mean number of errors in a burst; 1 for independent errors.

    A link between the two may be decided either way, and takes longest.
    Raises `SampleError` for ratios or rates that make no sense.
    """

    good: float
    bad: float
    alpha: float = 0.05
    beta: float = 0.05
    burst: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.good < self.bad < 1:
            raise SampleError(f"found good {self.good} and bad {self.bad}, expected 0 < good < bad")
        for name, rate in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 < rate < 0.5:
                raise SampleError(f"{name}: found {rate}, expected a rate between 0 and 0.5")
        if not self.burst >= 1:
            raise SampleError(f"burst: found {self.burst}, expected 1 error or more")

    def decide(self, errors: int, bits: int) -> Decision:
        """Return the decision after `errors` in `bits`; raises `SampleError` for invalid counts."""
        if not 0 <= errors <= bits:
            raise SampleError(f"errors: found {errors} of {bits} bits")
        # The logarithm of how much likelier these counts are on the bad link than on the good one.
        # Only the totals matter, so it may be asked after any gate.
        ratio = (self._per_error * errors - self._per_bit * (bits - errors)) / self.dispersion
        # 1 / alpha and beta, not Wald's approximations (1 - beta) / alpha and beta / (1 - alpha):
        # they hold whatever the last gate overshoots, at the price of a few more bits.
        if ratio >= -math.log(self.alpha):
            return "reject"
        if ratio <= math.log(self.beta):
            return "accept"
        return "go on"

    def settle(self, errors: int, bits: int) -> Decision:
        """Decide, but accept only once the ratio's interval is below `bad` too.

        So what is shown beside a pass does not contradict it; in the mean that takes 16 to 25 %
        more bits.
        """
        decision = self.decide(errors, bits)
        if decision == "accept" and self.interval(errors, bits)[1] > self.bad:
            return "go on"
        return decision

    def interval(self, errors: int, bits: int) -> tuple[float, float]:
        """The two-sided interval of the ratio that holds whenever the test stops."""
        sure = 1 - max(self.alpha, self.beta)
        return anytime_interval(errors, bits, self.bad, sure, self.dispersion)

    def bits_without_errors(self) -> int:
        """Number of bits without an error that are accepted: the shortest test that can pass."""
        return math.ceil(-math.log(self.beta) / self._per_bit * self.dispersion)

    def bits_to_settle_without_errors(self) -> int:
        """Number of bits without an error after which `settle` accepts."""
        return _shortest(self)

    def expected_bits(self, ratio: float) -> float:
        """About how many bits the test takes on a link of this `ratio` (Wald's approximation)."""
        drift = ratio * self._per_error - (1 - ratio) * self._per_bit
        up, down = -math.log(self.alpha), math.log(self.beta)
        up, down = up * self.dispersion, down * self.dispersion
        # Between good and bad the walk has no drift, and only its variance brings it to a bound.
        if abs(drift) < 1e-12 * self._per_bit:
            variance = ratio * (self._per_error + self._per_bit) ** 2 * self.dispersion
            return -up * down / variance
        rejected = self._rejected(ratio, drift)
        return (rejected * up + (1 - rejected) * down) / drift

    def fixed_bits(self) -> int:
        """Bits of the shortest test of fixed length with the same two error rates."""
        allowed = 0
        while True:
            # Most bits that a good link survives, fewest that a bad one does not.
            most = float(scipy.special.gammaincinv(allowed + 1, self.alpha)) / self.good
            fewest = float(scipy.special.gammaincinv(allowed + 1, 1 - self.beta)) / self.bad
            if fewest <= most:
                return math.ceil(fewest * self.dispersion)
            allowed += 1

    @property
    def dispersion(self) -> float:
        """The variance of the number of errors over that of independent ones."""
        return 2 * self.burst - 1

    @property
    def _per_error(self) -> float:
        return math.log(self.bad / self.good)

    @property
    def _per_bit(self) -> float:
        return math.log1p(-self.good) - math.log1p(-self.bad)

    def _rejected(self, ratio: float, drift: float) -> float:
        """Probability that a link of `ratio` is rejected, by Wald's fundamental identity."""

        def identity(h: float) -> float:
            up, down = math.expm1(h * self._per_error), math.expm1(-h * self._per_bit)
            return ratio * up + (1 - ratio) * down

        # The identity has the root 0, which says nothing, and one more on the side against the
        # drift: double until beyond it, then halve until short of it.
        far = -math.copysign(1.0, drift)
        while identity(far) < 0:
            far *= 2
        near = far / 2
        while identity(near) > 0:
            near /= 2
        h = float(scipy.optimize.brentq(identity, min(near, far), max(near, far)))
        up, down = math.exp(-h * math.log(self.alpha)), math.exp(h * math.log(self.beta))
        return (1 - down) / (up - down)


@functools.lru_cache(maxsize=64)
def _shortest(test: SequentialTest) -> int:
    least, most = 1, 2
    while test.settle(0, most) != "accept":
        least, most = most, 2 * most
    return least + bisect.bisect_left(
        range(least, most), 1, key=lambda bits: test.settle(0, bits) == "accept"
    )
