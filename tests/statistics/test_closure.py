"""Closure: the truth inside what was recorded."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics import Closure, SampleError, closure
from lightrig.harness.statistics.binomial import clopper_pearson


def test_ends_are_inside_and_widths_are_averaged():
    found = closure([1, 2, 3, 9], [1, 0, 4, 5], [3, 2, 6, 9])
    assert (found.n, found.inside, found.share, found.mean_width) == (4, 3, 0.75, 2.5)
    assert isinstance(found, Closure)


def test_the_interval_is_the_textbooks():
    """0 and 1 of 10 at 95 %: Clopper and Pearson's own table."""
    assert clopper_pearson(0, 10, 0.95) == pytest.approx((0, 0.3085), abs=1e-4)
    assert clopper_pearson(1, 10, 0.95) == pytest.approx((0.0025, 0.4450), abs=1e-4)
    assert clopper_pearson(10, 10, 0.95) == pytest.approx((0.6915, 1), abs=1e-4)


def test_the_interval_covers_the_share():
    rng = np.random.default_rng(24)
    trials = 2000
    covered = 0
    for draws in rng.uniform(0, 1, (trials, 40)):
        found = closure(draws, np.full(40, 0.0), np.full(40, 0.9))
        covered += found.lower <= 0.9 <= found.upper
    assert covered / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize(
    ("true", "low", "high", "says"),
    [
        ([], [], [], "no event"),
        ([1], [1, 2], [1, 2], "1 true values and 2 intervals"),
        ([math.nan], [1], [2], "true: found NaN"),
        ([1], [2], [1], "after latest"),
    ],
)
def test_incomparable_values_are_refused(true, low, high, says):
    with pytest.raises(SampleError, match=says):
        closure(true, low, high)
