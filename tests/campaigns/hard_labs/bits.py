"""Labs of bit errors: gates whose errors come one by one, in bursts, at slips, or unevenly.

Ratios are in units of the limit. Gates are read while they are open, as a counter is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lightrig.harness.statistics.bursts import GateErrors, burst_bounds, judge_gates, pooled
from tests.campaigns.hard_labs.found import Found, Lab

LIMIT = 1e-9
LOOKS = 20
AT_LIMIT, BELOW = "bit errors, truth at the limit", "bit errors, truth at 0.8"

Errors = Callable[[np.random.Generator, float, int], "np.ndarray[tuple[int], np.dtype[np.int64]]"]
"""Draws the errors of some looks, of which there are so many in the mean."""


def bursts(length: float) -> Errors:
    """Return errors in bursts of geometric length, `length` in the mean; 1 for single errors."""

    def drawn(draws: np.random.Generator, mean: float, looks: int) -> "np.ndarray":
        several = draws.poisson(mean / length, looks)
        sizes = (draws.geometric(1 / length, n).sum() for n in several)
        return np.array([int(size) for size in sizes])

    return drawn


SINGLE = bursts(1)


@dataclass(frozen=True)
class BitErrors(Lab):
    """A lab in which a counter's gates are judged by a limit on their ratio.

    Attributes:
        errors: how errors come.
        mean: errors of all gates at the limit.
        gates: their number.
        tests: how often all this is done with one seed.
    """

    errors: Errors = SINGLE
    mean: float = 120.0
    gates: int = 6
    tests: int = 4

    def measure(self, seed: int, found: Found) -> None:
        """Judge gates with the truth at the limit, and at 0.8 of it."""
        draws = np.random.default_rng([34, seed])
        for _ in range(self.tests):
            for share, what, truly in ((1.0, AT_LIMIT, "fail"), (0.8, BELOW, "pass")):
                bits = round(self.mean / LIMIT / self.gates)
                each = self.mean * share / self.gates / LOOKS
                gates = [
                    GateErrors.of_looks(bits, self.errors(draws, each, LOOKS).cumsum().tolist())
                    for _ in range(self.gates)
                ]
                verdict = judge_gates(gates, LIMIT)
                found.judges(what, verdict.outcome, truly=truly)  # type: ignore[arg-type]
                found.sentences.append(verdict.reason)
                whole = pooled(gates)
                if whole.events < 10:
                    found.declines("ratio")
                    continue
                lower, upper = (end / LIMIT for end in burst_bounds(whole, 0.975))
                value = whole.errors / whole.bits / LIMIT
                found.holds("ratio", "interval", value, lower, upper, share)
