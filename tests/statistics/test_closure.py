"""Closure: the truth inside what was recorded."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.closure import Closure, closure, judge_bounds, judge_deviations
from lightrig.harness.statistics.samples import SampleError


def test_ends_are_inside_and_widths_are_averaged():
    found = closure([1, 2, 3, 9], [1, 0, 4, 5], [3, 2, 6, 9])
    assert (found.n, found.inside, found.share) == (4, 3, 0.75)
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


def test_bounds_close_only_if_all_hold_the_truth():
    assert judge_bounds([True] * 7).closed
    missed = judge_bounds([True] * 999 + [False])
    assert (missed.closed, missed.n, missed.inside) == (False, 1000, 999)
    assert missed.reason == "999 of 1,000 bounds hold the true value."
    with pytest.raises(SampleError):
        judge_bounds([])


def deviations(random, shared, n=64):
    """Of intervals of 95 % that share a part of their variance."""
    common = random.normal(0, math.sqrt(shared))
    return (common + random.normal(0, math.sqrt(1 - shared), n)) / 1.96


@pytest.mark.parametrize("shared", [0, 0.5, 1])
def test_intervals_as_good_as_stated_close_however_they_depend(shared):
    random = np.random.default_rng(60)
    verdicts = [judge_deviations(deviations(random, shared)) for _ in range(2000)]
    assert sum(not each.closed for each in verdicts) <= 2
    # By the number of misses, one in twenty would not.
    assert np.mean([each.share for each in verdicts]) == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("shared", [0, 0.5])
def test_biased_intervals_do_not_close(shared):
    random = np.random.default_rng(61)
    for _ in range(200):
        found = deviations(random, shared)
        assert not judge_deviations(found + 4).closed
        assert not judge_deviations(found - 4).closed
        one_off = found.copy()
        one_off[17] = -4.5
        assert not judge_deviations(one_off).closed
    verdict = judge_deviations(np.array([4.0, -0.5]))
    assert (verdict.n, verdict.inside, verdict.closed) == (2, 1, False)
    assert verdict.reason.startswith("1 of 2 intervals of 95 % hold the true value; in standard")


def test_a_bias_that_all_share_does_not_close_though_none_is_far_off_by_itself():
    """4.2 standard uncertainties: one of 64 may be as far off, and not the mean of them all."""
    shared = np.full(64, 4.2 / 1.96)
    assert not judge_deviations(shared).closed
    assert not judge_deviations(-shared).closed
    assert judge_deviations([*shared[:1], *np.zeros(63)]).closed
