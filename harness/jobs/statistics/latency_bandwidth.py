"""Latency and bandwidth of transfers, fitted to how long they took by size.

A transfer of s bytes takes alpha + s / beta (Hockney, The communication challenge for MPP,
1994). Errors are taken to be in proportion to the time, as noise and mismatch of the model
are, so that small and large sizes count alike. One size is one point: its repetitions share
what the model lacks there, and are no further evidence for it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.statistics.samples import SampleError, check_confidence

_FEWEST = 3
_ROUNDS = 20
_BYTE_NS = 8e9


@dataclass(frozen=True, slots=True)
class LatencyBandwidth:
    """The fitted line with intervals at `confidence`; times in ns, rates in bit/s.

    latency: alpha, the time that no byte at all would take.
    bandwidth: beta, the rate that ever larger sizes approach; `bandwidth_upper` is infinite
        where the times do not show that they grow.
    points: how many sizes were used.
    misfit: root mean square of the relative deviation of the points from the line.
    """

    latency: float
    latency_lower: float
    latency_upper: float
    bandwidth: float
    bandwidth_lower: float
    bandwidth_upper: float
    points: int
    misfit: float
    confidence: float

    def time_ns(self, size: float) -> float:
        """The time of `size` bytes by the fit."""
        return self.latency + _BYTE_NS * size / self.bandwidth


@dataclass(frozen=True, slots=True)
class NoLine:
    """Reason for which there is no line, in one sentence."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def latency_bandwidth(
    sizes: npt.ArrayLike, times: npt.ArrayLike, confidence: float = 0.95
) -> LatencyBandwidth | NoLine:
    """Fit `times` in ns over `sizes` in bytes, both of shape (n,), one point a size.

    Least squares of relative deviations, weights from the line itself; intervals by Student's
    t with n - 2 degrees of freedom. Raises `SampleError` for arrays that make no sense.
    """
    check_confidence(confidence)
    x, y = np.asarray(sizes, dtype=float), np.asarray(times, dtype=float)
    if x.shape != y.shape or x.ndim != 1 or not np.isfinite(x).all() or not np.isfinite(y).all():
        raise SampleError("sizes and times: expected as many finite numbers of each")
    if (x < 0).any() or (y <= 0).any() or np.unique(x).size != x.size:
        raise SampleError("sizes from 0, each once, and times above 0 are expected")
    if x.size < _FEWEST:
        return NoLine(f"{x.size} sizes, {_FEWEST} needed for a line with an interval")
    # In units of its own, so that the normal equations of 1 B to 8 GB can be solved.
    scale = float(x.max()) or 1.0
    columns = np.column_stack([np.ones_like(x), x / scale])
    expected = y
    for _ in range(_ROUNDS):
        weighted = columns / expected[:, None]
        found, *_ = np.linalg.lstsq(weighted, y / expected, rcond=None)
        fitted = columns @ found
        if (fitted <= 0).any():
            break
        expected = fitted
    alpha, slope = float(found[0]), float(found[1]) / scale
    if slope <= 0:
        return NoLine("the times do not grow with the size")
    relative = (y - columns @ found) / expected
    freedom = x.size - 2
    variance = float(relative @ relative) / freedom
    covariance = variance * np.linalg.inv(weighted.T @ weighted)
    wide = float(scipy.special.stdtrit(freedom, (1 + confidence) / 2))
    alpha_half = wide * float(np.sqrt(covariance[0, 0]))
    slope_half = wide * float(np.sqrt(covariance[1, 1]) / scale)
    flattest = slope - slope_half
    return LatencyBandwidth(
        alpha,
        alpha - alpha_half,
        alpha + alpha_half,
        _BYTE_NS / slope,
        _BYTE_NS / (slope + slope_half),
        _BYTE_NS / flattest if flattest > 0 else np.inf,
        x.size,
        float(np.sqrt(np.mean(relative**2))),
        confidence,
    )
