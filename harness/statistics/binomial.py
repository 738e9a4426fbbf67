"""Tails of the binomial distribution and the Clopper-Pearson interval.

Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404-413, in its beta form.
"""

from collections.abc import Callable

import scipy


def at_most(k: int, n: int, p: float) -> float:
    """Probability of `k` or fewer successes in `n` trials of probability `p`."""
    # scipy answers NaN outside 0..n.
    if k < 0:
        return 0.0
    return float(scipy.special.bdtr(k, n, p)) if k < n else 1.0


def at_least(k: int, n: int, p: float) -> float:
    """Probability of `k` or more successes in `n` trials of probability `p`."""
    if k <= 0:
        return 1.0
    return float(scipy.special.bdtrc(k - 1, n, p)) if k <= n else 0.0


def clopper_pearson(k: int, n: int, confidence: float) -> tuple[float, float]:
    """Two-sided exact interval of a probability after `k` successes in `n` > 0 trials."""
    tail = (1 - confidence) / 2
    lower = float(scipy.special.betaincinv(k, n - k + 1, tail)) if k else 0.0
    upper = float(scipy.special.betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return lower, upper


def first_true_from(start: int, holds: Callable[[int], bool]) -> int:
    """Smallest integer from `start` on where `holds`, which once true stays true."""
    step = 1
    while not holds(start + step - 1):
        step *= 2
    low, high = start + step // 2, start + step - 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
