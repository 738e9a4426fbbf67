"""As how many independent samples those of circuits count, which share ports."""

import math

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.samples import SampleError, as_samples

_ROUNDING = 1e-9
"""A whole number that rounding has made less than it is."""


def _variance(below: npt.NDArray[np.float64], clusters: npt.NDArray[np.int_]) -> float:
    """Return the variance of a sum whose terms move together in two clusters or more."""
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], below)
    return float(sums @ sums) * sums.size / max(sums.size - 1, 1)


def clustered_samples(
    values: npt.ArrayLike, first: npt.ArrayLike, second: npt.ArrayLike, q: float, *, least: int = 1
) -> int:
    """Return as how many independent samples these count for the quantile `q`.

    The variance of the share below the sample quantile allows for samples of one cluster moving
    together, in two ways that cross (A. C. Cameron, J. B. Gelbach, D. L. Miller, J. Bus. Econ.
    Stat. 29 (2011) 238-249, eq. 2.11, each part times G / (G - 1) for its G clusters): as many
    independent samples have the same variance. At most all, and no fewer than `least` of them.

    first, second: cluster of each sample, such as ingress and egress port. A single cluster says
    nothing of others, and is left out.

    Raises `SampleError` for values or clusters that make no sense.
    """
    samples = as_samples("values", values)
    groups = [np.unique(np.asarray(each), return_inverse=True)[1] for each in (first, second)]
    if any(each.shape != samples.shape for each in groups):
        raise SampleError("found clusters of another number than samples, expected one of each")
    below = (samples <= np.quantile(samples, q)).astype(np.float64)
    below -= below.mean()
    alone = _variance(below, np.arange(samples.size))
    pairs = _variance(below, groups[0] * samples.size + groups[1])
    together = -pairs
    for each in groups:
        together += _variance(below, each) if np.ptp(each) else pairs
    if together <= alone:
        return samples.size
    count = math.floor(samples.size * alone / together + _ROUNDING)
    return max(count, min(least, samples.size))
