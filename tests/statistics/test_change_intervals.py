"""Trends and levels of nights against values from outside: a table of t, scipy, the formulas.

Nights are unequally far apart and segments unequally long.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.changes import find_changes, trend
from lightrig.harness.statistics.steps import find_steps

RISING = [3.1, 2.4, None, 4.0, 5.2, 4.7, 5.9, None, None, 7.3, 6.1, 8.8, 8.2, 9.9, 9.0]
WHEN = [at for at, level in enumerate(RISING) if level is not None]
LEVELS = [level for level in RISING if level is not None]


@pytest.fixture(scope="module")
def found():
    one = trend([[] if level is None else [level] for level in RISING], error=0.05)
    assert one is not None
    return one


def test_the_p_of_a_trend_is_that_of_kendalls_score(found):
    """Mann-Kendall, n = 12: 66 pairs of which 5 fall; the variance is 12 x 11 x 29 / 18."""
    pairs = [(LEVELS[j] - LEVELS[i]) for j in range(12) for i in range(j)]
    score = sum(1 if pair > 0 else -1 for pair in pairs)
    assert (len(pairs), score) == (66, 56)
    expected = 2 * NormalDist().cdf(-(56 - 1) / math.sqrt(12 * 11 * 29 / 18))
    assert found.p == pytest.approx(expected, rel=1e-9)


def test_the_slope_and_its_interval_are_sens(found):
    """Gilbert (1987), 16.5: ranks (N - C) / 2 and (N + C) / 2 + 1, C = 1.960 x 14.583 = 28.58.

    scipy's `theilslopes` takes the whole ranks nearest to these.
    """
    slopes = sorted(
        (LEVELS[j] - LEVELS[i]) / (WHEN[j] - WHEN[i]) for j in range(12) for i in range(j)
    )
    lower, upper = np.interp([18.709, 48.291], np.arange(1, 67), slopes)
    assert found.lower == pytest.approx(lower, rel=1e-4)
    assert found.upper == pytest.approx(upper, rel=1e-4)
    theirs = scipy.stats.theilslopes(LEVELS, WHEN, alpha=0.95)
    assert found.per_night == pytest.approx(theirs.slope, rel=1e-12)
    at = [slopes.index(pytest.approx(slope)) for slope in (theirs.low_slope, theirs.high_slope)]
    assert at == [19 - 1, 48 - 1]
    assert slopes[17] <= found.lower <= slopes[18]
    assert slopes[47] <= found.upper <= slopes[48]


def series():
    """Return 30 nights about 0, 6 about 20 and 30 about -7: each night is 1, 2 or 1.5 off."""
    first = [(-1.0) ** at for at in range(30)]
    second = [20 + 2 * (-1.0) ** at for at in range(6)]
    third = [-7 + 1.5 * (-1.0) ** at for at in range(30)]
    return [*first, *second, *third]


def test_levels_around_a_change_are_of_their_own_nights_alone():
    """Mean and t interval; Student's t at 97.5 %: 2.201 of 12 nights, 2.571 of 6.

    The standard deviation of n nights that are d off is d times the root of n / (n - 1).
    """
    changes = find_changes([[level] for level in series()])
    assert [change.index for change in changes] == [30, 36]
    first, second = changes
    around = 2.201 / math.sqrt(11)
    assert first.before == pytest.approx(0, abs=1e-12)
    assert (first.before_lower, first.before_upper) == pytest.approx((-around, around), rel=1e-3)
    around = 2.571 * 2 / math.sqrt(5)
    for mean, lower, upper in (
        (first.after, first.after_lower, first.after_upper),
        (second.before, second.before_lower, second.before_upper),
    ):
        assert mean == pytest.approx(20)
        assert (lower, upper) == pytest.approx((20 - around, 20 + around), rel=1e-3)
    around = 2.201 * 1.5 / math.sqrt(11)
    assert second.after == pytest.approx(-7)
    assert second.after_upper - second.after == pytest.approx(around, rel=1e-3)


def test_two_steps_three_nights_apart_are_two():
    random = np.random.default_rng(76)
    values = random.normal(0, 0.01, 40)
    values[20:] += 3.0
    values[23:] += 2.0
    assert [step.at for step in find_steps(values, 0.01)] == [20, 23]
