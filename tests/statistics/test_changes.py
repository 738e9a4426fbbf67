"""Changes in a series of nights: found where they are, and not where nights merely drift."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.changes import (
    LevelChange,
    NightGap,
    find_changes,
    gaps,
    trend,
)
from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.steps import FEWEST

SCATTER = 0.03


def nights(random, count, drift=0.0, samples=20):
    levels = np.exp(random.normal(0, SCATTER, count) + drift * np.arange(count))
    return list(40 * levels[:, None] * random.lognormal(0, 0.05, (count, samples)))


def raised(series, index, by):
    return [night * by if at >= index else night for at, night in enumerate(series)]


def test_a_change_is_found_on_its_night_with_both_levels():
    random = np.random.default_rng(60)
    (change,) = find_changes(raised(nights(random, 90), 50, 1.3))
    assert change.index == 50
    assert change.up
    assert change.p < 1e-3
    assert change.before_lower < 40 < change.before_upper
    assert change.after_lower < 52 < change.after_upper
    assert change.before_lower < change.before < change.before_upper < change.after_lower
    (down,) = find_changes(raised(nights(random, 90), 20, 0.7))
    assert (down.index, down.up) == (20, False)


def test_two_changes_and_a_return():
    random = np.random.default_rng(61)
    series = raised(raised(nights(random, 90), 30, 1.4), 45, 1 / 1.4)
    assert [(change.index, change.up) for change in find_changes(series)] == [
        (30, True),
        (45, False),
    ]


def test_a_change_shows_once_it_has_lasted():
    random = np.random.default_rng(62)
    series = raised(nights(random, 60), 60 - FEWEST, 2)
    assert [change.index for change in find_changes(series)] == [60 - FEWEST]
    assert find_changes(series[:-1]) == []


def test_among_thirty_nights_a_large_change_is_one_change():
    random = np.random.default_rng(73)
    found = [
        [change.index for change in find_changes(raised(nights(random, 30), 15, 1.3))]
        for _ in range(60)
    ]
    assert found.count([15]) >= 54


@pytest.mark.parametrize("count", [30, 90])
@pytest.mark.parametrize("drift", [0, 0.01], ids="drift of {}".format)
def test_false_changes_of_a_whole_series_are_as_rare_as_stated(count, drift):
    random = np.random.default_rng(63)
    series = 400
    false = 0
    for _ in range(series):
        levels = np.exp(random.normal(0, SCATTER, count) + drift * np.arange(count))
        false += bool(find_changes(levels[:, None]))
    assert false / series <= 0.015


def autocorrelated(random, count):
    drawn = random.normal(0, SCATTER, count)
    for at in range(1, count):
        drawn[at] = 0.3 * drawn[at - 1] + math.sqrt(1 - 0.3**2) * drawn[at]
    return drawn


def wandering(random, count):
    return random.normal(0, SCATTER, count) + np.cumsum(random.normal(0, SCATTER / 3, count))


def swinging(random, count):
    wave = 2 * np.pi * (np.arange(count) / 60 + random.random())
    return random.normal(0, SCATTER / 2, count) + 0.05 * np.sin(wave)


def far_out(random, count):
    return SCATTER * random.standard_t(3, count)


def two_levels(random, count):
    return random.normal(0, SCATTER / 10, count) + 0.2 * (random.random(count) < 0.5)


@pytest.mark.parametrize(
    ("draw", "most"),
    [
        (autocorrelated, 0.035),
        (wandering, 0.025),
        (swinging, 0.02),
        (far_out, 0.01),
        (two_levels, 0.02),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nights_that_do_not_scatter_as_they_should_alarm_a_few_times_as_often(draw, most):
    random = np.random.default_rng(64)
    false = sum(bool(find_changes(np.exp(draw(random, 60))[:, None])) for _ in range(300))
    assert false / 300 <= most


def test_a_drift_is_a_trend_and_no_change():
    random = np.random.default_rng(65)
    series = nights(random, 90, drift=0.01)
    assert find_changes(series) == []
    found = trend(series)
    assert found is not None
    assert found.lower < found.per_night < found.upper
    assert found.per_night == pytest.approx(40 * (math.exp(0.9) - 1) / 90, rel=0.3)
    assert found.p < 1e-6
    assert found.n == 90


def test_false_trends_are_as_rare_as_stated():
    random = np.random.default_rng(66)
    found = sum(trend(random.normal(size=(60, 1)), 0.05) is not None for _ in range(600))
    assert 0.03 <= found / 600 <= 0.055 + 0.02


def test_the_slopes_interval_holds_the_slope():
    random = np.random.default_rng(67)
    when = np.arange(40)
    found = [trend((0.5 * when + random.normal(0, 2, 40))[:, None]) for _ in range(200)]
    held = sum(one.lower <= 0.5 <= one.upper for one in found)
    assert 0.9 <= held / 200 <= 0.99


def test_a_step_is_no_trend_once_it_is_known():
    random = np.random.default_rng(68)
    series = raised(nights(random, 90), 45, 1.3)
    assert trend(series) is not None
    assert trend(series, changes=find_changes(series)) is None


def test_the_first_night_of_a_new_level_is_compared_with_those_after_it():
    """Six nights that rise by 1 each, then six from far below: all slopes within a level are 1.

    Kendall's score is 15 for each six, of variance 6 * 5 * 17 / 18 each: z = 29 / sqrt(56.67).
    """
    levels = [10, 11, 12, 13, 14, 15, 1, 2, 3, 4, 5, 6]
    change = LevelChange(6, 12.5, 3.5, *[math.nan] * 4, p=0.001)
    found = trend([[level] for level in levels], changes=[change])
    assert found is not None
    assert (found.per_night, found.lower, found.upper, found.n) == (1, 1, 1, 12)
    assert found.p == pytest.approx(1.17e-4, rel=0.01)


def test_nights_without_data_are_passed_over_and_named():
    random = np.random.default_rng(72)
    series = raised(nights(random, 60), 30, 1.4)
    for lost in (0, 1, 28, 29, 30, 59):
        series[lost] = np.array([])
    assert gaps(series) == [NightGap(0, 2), NightGap(28, 3), NightGap(59, 1)]
    (change,) = find_changes(series)
    assert change.index == 31
    assert gaps([]) == []
    assert find_changes([[]] * 40) == []
    assert trend([[]] * 40) is None


def test_too_few_nights_say_nothing():
    series = [[1.0]] * 5 + [[2.0]] * 4
    assert find_changes(series) == []
    assert trend(series) is None


def test_nights_that_never_differ():
    assert find_changes([[5.0, 5.0]] * 40) == []
    assert find_changes([[0]] * 40) == []
    assert trend([[5.0]] * 40) is None
    (change,) = find_changes([[0]] * 20 + [[1]] * 20)
    assert (change.index, change.before, change.after) == (20, 0, 1)


def test_an_interval_is_taken_at_its_middle():
    random = np.random.default_rng(70)
    series = raised(nights(random, 40), 20, 1.4)
    pairs = [np.stack([night - 1, night + 1]) for night in series]
    assert find_changes(pairs) == find_changes([pair.mean(axis=0) for pair in pairs])
    with pytest.raises(SampleError, match="NaN"):
        find_changes([[1.0]] * 20 + [[math.nan]])


def test_medians_of_nights_of_many_lengths():
    random = np.random.default_rng(71)
    series = [random.normal(40, 3, random.integers(1, 50)) for _ in range(30)]
    medians = [[float(np.median(night))] for night in series]
    assert find_changes(series) == find_changes(medians)
    assert trend(series, 1.0) == trend(medians, 1.0)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(1e-9, 1e9))
def test_the_unit_does_not_matter(seed, factor):
    series = raised(nights(np.random.default_rng(seed), 40), 25, 1.3)
    one, other = find_changes(series), find_changes([night * factor for night in series])
    assert [change.index for change in one] == [change.index for change in other]
    for here, there in zip(one, other, strict=True):
        assert there.after == pytest.approx(here.after * factor)
        assert there.p == pytest.approx(here.p, rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_backwards_in_time_a_rise_is_a_fall(seed):
    series = raised(nights(np.random.default_rng(seed), 60), 30, 1.5)
    forward, backward = find_changes(series), find_changes(series[::-1])
    assert [60 - change.index for change in backward[::-1]] == [c.index for c in forward]
    assert [not change.up for change in backward[::-1]] == [c.up for c in forward]
