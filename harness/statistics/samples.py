"""Interval-censored samples as arrays, and the checks that every statistic makes of its input."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.sample_checks import SampleError, check_confidence, check_share

__all__ = [
    "SampleError",
    "Samples",
    "as_intervals",
    "as_samples",
    "check_confidence",
    "check_share",
]

Samples: TypeAlias = npt.NDArray[Any]


def as_samples(name: str, values: npt.ArrayLike) -> Samples:
    """`values` as one row of real numbers; integers stay integers.

    Raises `SampleError` for anything else, and for a NaN.
    """
    samples = np.asarray(values)
    if samples.ndim != 1:
        raise SampleError(f"{name}: found {samples.ndim} dimensions, expected 1")
    if samples.size and samples.dtype.kind not in "iuf":
        raise SampleError(f"{name}: found {samples.dtype}, expected integers or floats")
    if np.isnan(samples).any():
        raise SampleError(f"{name}: found NaN at index {int(np.argmax(np.isnan(samples)))}")
    return samples


def as_intervals(earliest: npt.ArrayLike, latest: npt.ArrayLike) -> tuple[Samples, Samples]:
    """Both ends of the intervals, checked.

    `latest` may be infinite: the event was not seen before the observer gave up. Raises
    `SampleError` if lengths differ, an `earliest` is infinite or after its `latest`.
    """
    low, high = as_samples("earliest", earliest), as_samples("latest", latest)
    if low.size != high.size:
        raise SampleError(f"found {low.size} earliest and {high.size} latest, expected as many")
    if not np.isfinite(low).all():
        raise SampleError(f"earliest: found infinity at index {int(np.argmin(np.isfinite(low)))}")
    if (low > high).any():
        at = int(np.argmax(low > high))
        raise SampleError(f"index {at}: earliest {low[at]} is after latest {high[at]}")
    return low, high
