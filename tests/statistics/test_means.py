"""Means of times and their intervals, beside tables of Student's distribution."""

import math

import pytest

from lightrig.harness.jobs.statistics.means import mean_less, mean_of, predicted_mean


def test_means_have_the_intervals_of_t() -> None:
    """Of 1, 2, 3: 2 ± 4.303 √(1/3), and as far from a set 10 ns above by Welch's rule."""
    found = mean_of([1, 2, 3])
    assert (found.value, found.n) == (2, 3)
    assert [found.lower, found.upper] == pytest.approx([-0.4841, 4.4841], abs=1e-3)
    less = mean_less([11, 12, 13], [1, 2, 3])
    assert less.value == 10
    assert [less.lower, less.upper] == pytest.approx([7.7330, 12.2670], abs=1e-3)
    with pytest.raises(ValueError, match="found 1 values"):
        mean_of([1])


def test_the_interval_of_another_run_has_both_ways_in_which_it_deviates() -> None:
    """Student's 95 % of three degrees of freedom is 3.1824; the mean of 10 to 40 has 6.4550."""
    mean = predicted_mean([10, 20, 30, 40], 9)
    half = math.sqrt(2 * (3.1824 * 6.4550) ** 2 + 9**2)
    assert (mean.value, mean.n) == (25, 4)
    assert (mean.lower, mean.upper) == pytest.approx((25 - half, 25 + half), rel=1e-4)
