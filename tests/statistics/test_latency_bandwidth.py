"""Latency and bandwidth from times by size."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lightrig.harness.jobs.statistics.latency_bandwidth import (
    LatencyBandwidth,
    NoLine,
    latency_bandwidth,
)
from lightrig.harness.statistics.samples import SampleError

SIZES = 2.0 ** np.arange(3, 31, 2)


def times(latency: float, rate: float, sizes: np.ndarray = SIZES) -> np.ndarray:
    return np.asarray(latency + 8e9 * sizes / rate)


@settings(max_examples=40)
@given(st.floats(1e2, 1e7), st.floats(1e8, 1e13))
def test_a_line_without_noise_is_found(latency: float, rate: float) -> None:
    found = latency_bandwidth(SIZES, times(latency, rate))
    assert isinstance(found, LatencyBandwidth)
    assert found.bandwidth == pytest.approx(rate, rel=1e-6)
    assert found.latency == pytest.approx(latency, rel=1e-6)
    assert found.misfit < 1e-6
    assert found.time_ns(1e6) == pytest.approx(found.latency + 8e15 / found.bandwidth)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of 300 fits 95 %, within what chance allows at odds of 1 in 1,000."""
    random = np.random.default_rng(4)
    truth = times(2e4, 2e11)
    held = np.zeros(2)
    for _ in range(300):
        noisy = truth * (1 + 0.02 * random.standard_normal(truth.size))
        found = latency_bandwidth(SIZES, noisy)
        assert isinstance(found, LatencyBandwidth)
        held += (
            found.latency_lower <= 2e4 <= found.latency_upper,
            found.bandwidth_lower <= 2e11 <= found.bandwidth_upper,
        )
    assert (held >= 271).all()
    assert (held <= 297).all()


def test_small_and_large_sizes_count_alike() -> None:
    """Noise in proportion to the time leaves the latency known, as plain least squares do not."""
    random = np.random.default_rng(1)
    noisy = times(2e4, 2e11) * (1 + 0.01 * random.standard_normal(SIZES.size))
    found = latency_bandwidth(SIZES, noisy)
    assert isinstance(found, LatencyBandwidth)
    assert found.latency == pytest.approx(2e4, rel=0.02)


def test_a_bend_is_told_as_misfit() -> None:
    bent = np.where(SIZES > 1e6, times(2e4, 2e11), times(4e4, 2e11))
    found = latency_bandwidth(SIZES, bent)
    assert isinstance(found, LatencyBandwidth)
    assert found.misfit > 0.03


def test_too_little_to_tell() -> None:
    assert isinstance(latency_bandwidth([1, 2], [1, 2]), NoLine)
    flat = latency_bandwidth([8, 16, 32], [22.0, 21.0, 20.0])
    assert "do not grow" in str(flat)


def test_times_that_hardly_grow_bound_no_bandwidth() -> None:
    found = latency_bandwidth([8, 16, 32, 64], [100.0, 103.0, 99.0, 104.0])
    assert isinstance(found, LatencyBandwidth)
    assert found.bandwidth_upper == np.inf


@pytest.mark.parametrize(
    ("sizes", "spent"),
    [
        ([1, 2, 3], [1, 2]),
        ([1, 2, 2], [1, 2, 3]),
        ([1, 2, 3], [1, 0, 3]),
        ([1, 2, 3], [1, np.nan, 3]),
    ],
)
def test_invalid_samples_are_refused(sizes: list[float], spent: list[float]) -> None:
    with pytest.raises(SampleError):
        latency_bandwidth(sizes, spent)
