"""Numbers of samples beyond a quantile where each sample follows the one before.

Samples are a Gaussian process of the first order (of any distribution: only ranks count), whose
correlation from one to the next is declared. Below ten or so they cannot show it themselves: six
of six samples keep a median that is exactly at its limit with 1.6 % if they are independent, and
with 10 % at a correlation of 0.6.

The distribution of their number beyond a threshold is exact up to the error of quadrature: of the
last sample's value and the number so far, moved on sample by sample by the kernel of the process,
with nodes of Gauss and Legendre on either side of the threshold. Without correlation they are the
binomial tails.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics import binomial

Masses = npt.NDArray[np.float64]
"""Probabilities by number of samples beyond (row) and value of the last sample (node)."""

_WIDEST = 7.0
"""Standard deviations that quadrature covers: what lies beyond has a probability of 3e-12."""

_PANELS, _ORDER = 4, 16


class _Chain(NamedTuple):
    start: npt.NDArray[np.float64]
    kernel: npt.NDArray[np.float64]
    beyond: npt.NDArray[np.bool_]


@cache
def _chain(share: float, correlation: float) -> _Chain:
    """Return the process by nodes; `share` of it is beyond the threshold."""
    threshold = -float(scipy.special.ndtri(share))
    nodes, weights = np.polynomial.legendre.leggauss(_ORDER)
    edges = np.concatenate(
        [
            np.linspace(-_WIDEST, threshold, _PANELS + 1),
            np.linspace(threshold, _WIDEST, _PANELS + 1)[1:],
        ]
    )
    middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    x = (middles[:, None] + halves[:, None] * nodes).ravel()
    w = (halves[:, None] * weights).ravel() / math.sqrt(2 * math.pi)
    rest = math.sqrt(1 - correlation**2)
    step = (x[None, :] - correlation * x[:, None]) / rest
    return _Chain(np.exp(-(x**2) / 2) * w, np.exp(-(step**2) / 2) / rest * w, x > threshold)


def first_sample(share: float, correlation: float, most: int) -> Masses:
    """Return the masses of one sample, of which `share` is beyond; rows for 0 to `most`."""
    chain = _chain(share, correlation)
    masses = np.zeros((most + 1, chain.start.size))
    masses[0] = np.where(chain.beyond, 0, chain.start)
    if most:
        masses[1] = np.where(chain.beyond, chain.start, 0)
    return masses


def further_samples(masses: Masses, samples: int, share: float, correlation: float) -> Masses:
    """Return the masses `samples` samples later; numbers above the last row are lost."""
    chain = _chain(share, correlation)
    for _ in range(samples):
        moved = masses @ chain.kernel
        masses = np.where(chain.beyond, 0, moved)
        masses[1:] += np.where(chain.beyond, moved[:-1], 0)
    return masses


def at_most(k: int, n: int, share: float, correlation: float = 0.0) -> float:
    """Return the probability of `k` or fewer of `n` samples beyond a threshold.

    share: probability of one sample beyond it. correlation: of successive samples, 0 to 0.9.
    """
    if not correlation or k < 0 or k >= n:
        return binomial.at_most(k, n, share)
    masses = first_sample(share, correlation, k)
    return float(further_samples(masses, n - 1, share, correlation).sum())


def at_least(k: int, n: int, share: float, correlation: float = 0.0) -> float:
    """Return the probability of `k` or more of `n` samples beyond a threshold."""
    if not correlation or k <= 0 or k > n:
        return binomial.at_least(k, n, share)
    return 1 - at_most(k - 1, n, share, correlation)
