"""Whether successive samples depend on each other, and as how many independent ones they count."""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import Samples, as_samples

DEPENDENT = 0.01
"""Probability below which samples are not taken for independent."""

_LEAST = 10
"""Samples from which on the normal approximations hold."""

_NEGLIGIBLE = 1e-3
"""Correlation below which samples are not counted as following each other."""


def rank_samples(samples: Samples) -> Samples:
    """Return the rank of each sample from 1; equal ones share the mean of theirs.

    As `scipy.stats.rankdata`: that package takes a second to load, in each process that measures.
    """
    _, places, counts = np.unique(samples, return_inverse=True, return_counts=True)
    ranks: Samples = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def serial_p(values: npt.ArrayLike) -> float:
    """Return the probability that independent samples follow each other as closely as these.

    By the ratio of von Neumann on ranks: the sum of squared differences of successive ranks is
    normal in good approximation (R. Bartels, J. Am. Stat. Assoc. 77 (1982) 40-46). Only what makes
    intervals too narrow counts: that a sample is like the one before. 1 below ten samples.
    """
    samples = as_samples("values", values)
    n = samples.size
    ranks = rank_samples(samples)
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


def effective_samples(values: npt.ArrayLike, q: float) -> int:
    """Return as how many independent samples these count for the quantile `q`.

    values: in the order in which they were taken. All of them, unless either test (each at half of
    `DEPENDENT`) finds them dependent. Then n / (1 + 2 s), with s the sum over all lags of the
    correlation of being below the quantile, as in a process of the first order: of ranks whose
    correlation r, from one to the next, is taken one standard error up, and falls as its powers.
    Extreme values follow each other less than ranks do, so a p95 loses less than a median.
    """
    samples = as_samples("values", values)
    n = samples.size
    if min(serial_p(samples), runs_p(samples)) >= DEPENDENT / 2:
        return n
    ranks = rank_samples(samples)
    before, after = ranks[:-1], ranks[1:]
    # A lone exceedance at either end looks like dependence to the test, and is none.
    if not (np.ptp(before) and np.ptp(after)):
        return n
    r = float(np.corrcoef(before, after)[0, 1])
    if r <= 0:
        return n
    r = min(r + math.sqrt((1 - r * r) / n), 1 - 1 / n)
    powers = r ** np.arange(1, n)
    follow = math.fsum(below_together(powers[powers > _NEGLIGIBLE], q))
    return max(math.floor(n / (1 + 2 * follow)), 1)


def follow_more_closely(values: npt.ArrayLike, correlation: float) -> bool:
    """Whether samples, in their order, follow each other more closely than `correlation` says.

    By the correlation of successive ranks, as that of normal values of the same ranks (2 sin of a
    sixth of pi times it: K. Pearson, 1907), at `DEPENDENT` by Fisher's transform. False below ten.
    """
    samples = as_samples("values", values)
    ranks = rank_samples(samples)
    if samples.size < _LEAST or not (np.ptp(ranks[:-1]) and np.ptp(ranks[1:])):
        return False
    r = 2 * math.sin(math.pi / 6 * float(np.corrcoef(ranks[:-1], ranks[1:])[0, 1]))
    doubt = -float(scipy.special.ndtri(DEPENDENT)) / math.sqrt(samples.size - 4)
    return r >= 1 or math.atanh(r) - math.atanh(correlation) > doubt


def below_together(r: Samples, q: float) -> Samples:
    """Return the correlation of two normal values' being below the quantile `q`, from their own.

    By the integral over the correlation of the density at the quantile (R. L. Plackett, Biometrika
    41 (1954) 351-360), with r = sin(a).
    """
    square = float(scipy.special.ndtri(q)) ** 2
    nodes, weights = _nodes_and_weights()
    half = np.arcsin(r)[:, None] / 2
    inside = np.exp(-square / (1 + np.sin(half * (1 + nodes)))) @ weights * half[:, 0]
    return np.asarray(inside / (2 * math.pi * q * (1 - q)))


@cache
def _nodes_and_weights() -> tuple[Samples, Samples]:
    """Return those of Gauss and Legendre, which take longer to find than to use."""
    nodes, weights = np.polynomial.legendre.leggauss(32)
    return nodes, weights
