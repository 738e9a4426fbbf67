"""Labs of switching times, seen by polls: their quantiles, and verdicts on their p95.

A lab draws times in ms. The true quantiles are those of a million draws of its own.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lightrig.harness.statistics.independence import effective_samples
from lightrig.harness.statistics.limits import judge
from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.testbeds import Limit
from tests.campaigns.hard_labs.found import Found, Lab

POLL_MS = 0.2
AT_LIMIT, BELOW = "p95, truth at the limit", "p95, truth at 0.8"

Times = "np.ndarray[tuple[int], np.dtype[np.float64]]"
Draw = Callable[[np.random.Generator, int], "np.ndarray"]


def lognormal(draws: np.random.Generator, n: int) -> "np.ndarray":
    """Return independent times about 40 ms."""
    return draws.lognormal(np.log(40), 0.12, n)


def autocorrelated(rho: float) -> Draw:
    """Return times about 40 ms whose logarithms follow each other."""

    def drawn(draws: np.random.Generator, n: int) -> "np.ndarray":
        steps = draws.standard_normal(n)
        level = np.empty(n)
        level[0] = steps[0]
        for place in range(1, n):
            level[place] = rho * level[place - 1] + np.sqrt(1 - rho**2) * steps[place]
        return 40 * np.exp(0.12 * level)

    return drawn


def bimodal(share: float) -> Draw:
    """Return times about 20 ms, and a share about 90 ms."""

    def drawn(draws: np.random.Generator, n: int) -> "np.ndarray":
        slow = draws.random(n) < share
        return np.where(slow, draws.normal(90, 5, n), draws.normal(20, 1, n))

    return drawn


@functools.cache
def truths(draw: Draw) -> tuple[float, float]:
    """Return the true median and p95."""
    found = np.quantile(draw(np.random.default_rng(1), 1_000_000), (0.5, 0.95))
    return float(found[0]), float(found[1])


@dataclass(frozen=True)
class SwitchingTimes(Lab):
    """A lab in which so many changes of plan are timed.

    Attributes:
        draw: the times, in their order.
        n: number of changes.
        tests: how often all this is done with one seed.
    """

    draw: Draw = lognormal
    n: int = 198
    tests: int = 4

    def measure(self, seed: int, found: Found) -> None:
        """Estimate quantiles of polled times, and judge the p95."""
        draws = np.random.default_rng([35, seed])
        median, p95 = truths(self.draw)
        for _ in range(self.tests):
            times = self.draw(draws, self.n)
            low = times - draws.uniform(0, POLL_MS, self.n)
            high = low + POLL_MS
            for name, q, truth in (("median", 0.5, median), ("p95", 0.95, p95)):
                # As a run's page does with its events.
                estimate = quantile(low, high, q, effective=effective_samples(low, q))
                if isinstance(estimate, NotEnough) or estimate.lower is None:
                    found.declines(name)
                    continue
                ends = estimate.value, estimate.lower, estimate.upper
                found.holds(name, "interval", *ends, truth, POLL_MS)
            for limit, what, truly in ((p95, AT_LIMIT, "fail"), (p95 / 0.8, BELOW, "pass")):
                stated = Limit("reconfiguration", "upper", 0.95, limit, "1", 0.95)
                verdict = judge(stated, low, high)
                found.judges(what, verdict.outcome, truly=truly)  # type: ignore[arg-type]
                found.sentences.append(verdict.reason)
