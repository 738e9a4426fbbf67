"""Whether successive samples depend on each other, and as how many independent ones they count."""

import math

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import as_samples

DEPENDENT = 0.01
"""Probability below which samples are not taken for independent."""

_LEAST = 10
"""Samples from which on the normal approximations hold."""


def serial_p(values: npt.ArrayLike) -> float:
    """Return the probability that independent samples follow each other as closely as these.

    By the ratio of von Neumann on ranks: the sum of squared differences of successive ranks is
    normal in good approximation (R. Bartels, J. Am. Stat. Assoc. 77 (1982) 40-46). Only what makes
    intervals too narrow counts: that a sample is like the one before. 1 below ten samples.
    """
    samples = as_samples("values", values)
    n = samples.size
    ranks = scipy.stats.rankdata(samples)
    spread = float(((ranks - ranks.mean()) ** 2).sum())
    if n < _LEAST or not spread:
        return 1.0
    ratio = float((np.diff(ranks) ** 2).sum()) / spread
    variance = 4 * (n - 2) * (5 * n * n - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) ** 2)
    return float(scipy.special.ndtr((ratio - 2) / math.sqrt(variance)))


def runs_p(values: npt.ArrayLike) -> float:
    """Return the probability of so few runs above and below the median (Wald and Wolfowitz).

    Few runs show a slow drift or a change of level. Samples at the median count for neither side.
    1 where a side has fewer than five samples.
    """
    samples = as_samples("values", values)
    middle = float(np.median(samples)) if samples.size else 0.0
    above = samples[samples != middle] > middle
    ups, downs = int(above.sum()), int((~above).sum())
    if min(ups, downs) < _LEAST // 2:
        return 1.0
    n, runs = ups + downs, 1 + int(np.count_nonzero(above[1:] != above[:-1]))
    mean = 1 + 2 * ups * downs / n
    variance = (mean - 1) * (mean - 2) / (n - 1)
    return float(scipy.special.ndtr((runs + 0.5 - mean) / math.sqrt(variance)))


def effective_samples(values: npt.ArrayLike) -> int:
    """Return as how many independent samples these count, in the order in which they were taken.

    All of them, unless either test (each at half of `DEPENDENT`) finds them dependent: then
    n (1 - r) / (1 + r) with the correlation r of the ranks of successive samples, as for a process
    of the first order, whose largest plausible r, one standard error up, is used.
    """
    samples = as_samples("values", values)
    n = samples.size
    if min(serial_p(samples), runs_p(samples)) >= DEPENDENT / 2:
        return n
    ranks = scipy.stats.rankdata(samples)
    r = float(np.corrcoef(ranks[1:], ranks[:-1])[0, 1])
    r = min(max(r, 0.0) + math.sqrt((1 - r * r) / n), 1 - 1 / n)
    return max(math.floor(n * (1 - r) / (1 + r)), 1)
