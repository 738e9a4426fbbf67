"""Faults injected in a matrix of losses are found in place, and none where there is none."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.loss_matrix import (
    Effects,
    at_ceiling,
    outliers,
    outliers_since,
    slope,
    standing_still,
    take_apart,
)
from lightrig.harness.statistics.samples import SampleError


def clean(seed, size=16, port=0.1, cell=0.1):
    random = np.random.default_rng(seed)
    rows, columns = random.normal(0, port, (size, 1)), random.normal(0, port, (1, size))
    return 1.2 + rows + columns + random.normal(0, cell, (size, size))


@settings(max_examples=20)
@given(st.integers(0, 999), st.integers(2, 7), st.integers(2, 7))
def test_the_parts_are_the_whole(seed, high, wide):
    matrix = np.random.default_rng(seed).normal(1, 1, (high, wide))
    found = take_apart(matrix)
    whole = found.whole + found.rows[:, None] + found.columns + found.rest
    assert whole == pytest.approx(matrix)
    assert np.median(found.rows) == pytest.approx(0, abs=1e-9)


def test_high_rows_and_cells_do_not_move_the_others():
    matrix = np.add.outer(np.arange(7.0), np.arange(9.0) / 10)
    spoiled = matrix.copy()
    spoiled[2] += 5
    spoiled[4, 4] += 9
    before, after = take_apart(matrix), take_apart(spoiled)
    others = [0, 1, 3, 4, 5, 6]
    assert after.columns == pytest.approx(before.columns)
    assert np.diff(after.rows[others]) == pytest.approx(np.diff(before.rows[others]))
    assert after.rest[4, 4] == pytest.approx(9)


def test_unmeasured_circuits_are_left_out():
    matrix = clean(1)
    matrix[3] = np.nan
    matrix[:, 5] = np.nan
    found = take_apart(matrix)
    assert np.isnan(found.rows[3])
    assert np.isnan(found.columns[5])
    assert np.isfinite(np.delete(found.rows, 3)).all()


@pytest.mark.parametrize("bad", [[1.0, 2.0], [[np.nan, np.nan]]])
def test_an_invalid_matrix_is_refused(bad):
    with pytest.raises(SampleError, match="no matrix"):
        take_apart(bad)


@pytest.mark.parametrize("seed", range(4))
def test_a_row_a_column_and_a_cell_are_each_named_once(seed):
    matrix = clean(seed)
    matrix[4] += 1.5
    matrix[:, 9] += 1.2
    matrix[11, 2] += 2.0
    found = {(one.row, one.column): one for one in outliers(take_apart(matrix))}
    assert found.keys() >= {(4, None), (None, 9), (11, 2)}
    assert len(found) <= 4  # one false alarm may be, by chance


def test_intervals_of_what_is_named_hold_what_was_planted():
    held = [
        one.lower <= 2.0 <= one.upper
        for seed in range(60)
        for one in outliers(take_apart(clean(seed) + 2.0 * (np.arange(16) == 7)[:, None]))
        if one.row == 7
    ]
    assert len(held) >= 59
    assert np.mean(held) >= 0.93


def test_normal_ports_are_seldom_named():
    named = sum(bool(outliers(take_apart(clean(seed)), least=0.0)) for seed in range(60))
    assert named <= 8  # three kinds, each with a chance of 1 % and a little more


def test_nobody_stands_out_among_three():
    assert outliers(take_apart([[1.0, 1.0, 9.0]])) == []


@pytest.mark.parametrize("rate", [-0.1, 0.1])
def test_a_level_that_moves_is_told_from_one_that_does_not(rate):
    random = np.random.default_rng(3)
    seconds = np.arange(32) / 4
    noise = random.normal(0, 0.05, 32)
    moving = slope(seconds, -1 + rate * seconds + noise)
    assert moving.lower < rate < moving.upper
    assert moving.lower * moving.upper > 0
    still = slope(seconds, -1 + noise)
    assert still.lower < 0 < still.upper


def test_single_readings_do_not_turn_a_slope():
    levels = 0.1 * np.arange(20.0)
    levels[[3, 15]] = [-40.0, 30.0]
    assert slope(np.arange(20.0), levels).value == pytest.approx(0.1)
    with pytest.raises(SampleError, match="4 levels"):
        slope([0, 1, 2, 3, 4], [0, 1, np.nan, 3, 4])


def readings(settings=8, repeats=6, monitors=5):
    random = np.random.default_rng(5)
    levels = random.normal(-2, 1, (settings, 1, monitors))
    return levels + random.normal(0, 0.03, (settings, repeats, monitors))


def test_a_monitor_that_stands_still_is_found_and_no_other():
    found = readings()
    found[:, :, 3] = -1.25
    assert standing_still(found) == [3]


def test_a_quiet_monitor_whose_light_changes_does_not_stand_still():
    found = readings()
    found[:, :, 3] = found[:, :1, 3]
    assert standing_still(found) == []


def test_nothing_is_said_of_monitors_without_noise_or_with_few_readings():
    quiet = np.zeros((8, 6, 5))
    assert standing_still(quiet) == []
    few = readings(settings=2)
    few[:, :, 3] = -1.25
    assert standing_still(few) == []
    unseen = readings()
    unseen[:, :, 3] = np.nan
    assert standing_still(unseen) == []


def monitored(seed: int) -> np.ndarray:
    """Readings in steps of 0.01 dB of six monitors in eight settings, four of each."""
    draws = np.random.default_rng(seed)
    levels = draws.normal(-1, 0.6, (8, 1, 6))
    return np.round(levels + draws.normal(0, 0.03, (8, 4, 6)), 2)


def test_readings_that_are_cut_off_are_at_a_ceiling() -> None:
    whole = monitored(3)
    cut = np.minimum(whole, -0.7)
    found = at_ceiling(cut)
    assert found is not None
    greatest, reached = found
    assert greatest == -0.7
    assert reached.tolist() == (whole >= -0.7).any(axis=1).tolist()
    assert 5 < reached.sum() < 40


def test_readings_with_noise_are_at_no_ceiling() -> None:
    assert [seed for seed in range(1_000) if at_ceiling(monitored(seed)) is not None] == []


def test_monitors_that_never_scatter_tell_nothing_of_a_ceiling() -> None:
    assert at_ceiling(np.full((8, 4, 6), -3.0)) is None
    assert at_ceiling(np.full((8, 4, 6), np.nan)) is None
    one = monitored(5)
    one[2, :, 4] = 2.0  # one setting of one monitor says nothing
    assert at_ceiling(one) is None


def test_median_polish_of_parachuting_deaths() -> None:
    """Example of R's `medpolish` (Velleman and Hoaglin, ABC of EDA, ch. 8), also by hand."""
    found = take_apart([[14, 15, 14], [7, 4, 7], [8, 2, 10], [15, 9, 10], [0, 2, 0]])
    assert found.whole == 8
    assert found.rows.tolist() == [6, -1, 0, 2, -8]
    assert found.columns.tolist() == [0, -1, 0]
    assert found.rest.tolist() == [[0, 2, 0], [0, -2, 0], [0, -5, 2], [5, 0, 0], [0, 3, 0]]


def parts(rows: list[float], columns: list[float]) -> Effects:
    rest = np.zeros((len(rows), len(columns)))
    return Effects(1.0, np.array(rows), np.array(columns), rest)


def half(values: int, fitted: int, deviation: float) -> float:
    """Half of a 95 % interval: 1.4826 median deviations; 0.37 of the degrees of freedom."""
    return float(scipy.stats.t.ppf(0.975, 0.37 * (values - fitted))) * 1.4826 * deviation


def test_the_interval_of_a_port_by_hand() -> None:
    """Nine ports, two of which are the medians; the others' median deviation is 0.12 dB."""
    rows, columns = [0.0, 0.1, -0.2, 5.0], [-0.12, 0.0, 0.05, 0.15, -0.03]
    (one,) = outliers(parts(rows, columns))
    assert (one.row, one.column, one.value) == (3, None, 5.0)
    assert one.upper - one.value == pytest.approx(half(9, 2, 0.12))
    assert one.value - one.lower == pytest.approx(half(9, 2, 0.12))
    (same,) = outliers(parts(rows[:3], [*columns, 5.0]))
    assert (same.row, same.column) == (None, 5)
    (first,) = outliers(parts(rows[:3], [5.0, *columns]))
    assert (first.row, first.column) == (None, 0)


def test_the_interval_of_a_cell_by_hand() -> None:
    """Of 3 x 5 cells, 3 + 5 - 1 medians leave eight; the middle two deviate by 0.2 and 0.3 dB."""
    found = parts([0.0] * 3, [0.0] * 5)
    found.rest[0] = [-0.1, 0.2, -0.3, 0.0, 0.3]
    found.rest[2] = [0.4, 0.1, 0.0, 9.0, 0.0]
    (one,) = outliers(found)
    assert (one.row, one.column, one.value) == (2, 3, 9.0)
    assert one.upper - one.value == pytest.approx(half(15, 7, 0.2 + 0.05))
    assert one.lower + one.upper == pytest.approx(18.0)
    found.rows[2] = 9.0  # the row is named, so its cell is not
    assert [(each.row, each.column) for each in outliers(found)] == [(2, None)]


def test_a_port_stands_out_by_more_than_chance_and_by_more_than_least() -> None:
    rows, columns = [0.0, 0.1, -0.2, 5.0], [-0.12, 0.0, 0.05, 0.15, -0.03]
    reach = float(scipy.stats.t.ppf(1 - 0.01 / 9, 0.37 * 7)) * 1.4826 * 0.12
    for excess, named in ((reach * 1.001, 1), (reach * 0.999, 0)):
        assert len(outliers(parts([*rows[:3], excess], columns))) == named
    for least, named in ((4.9, 1), (5.1, 0)):
        assert len(outliers(parts(rows, columns), least=least)) == named
    assert outliers(parts([0.0, 0.1], [0.0, -0.1, 99.0])) == []  # five ports
    assert len(outliers(parts([0.0, 0.01, -0.01], [0.0, -0.01, 999.0]))) == 1  # six


def test_a_slope_is_that_of_theil_and_sen() -> None:
    """scipy.stats.theilslopes, which takes the confidence and the lower end first."""
    draws = np.random.default_rng(4)
    seconds = np.cumsum(draws.uniform(0.5, 2.0, 15))
    levels = -2 + 0.03 * seconds + draws.normal(0, 0.2, 15)
    expected = scipy.stats.theilslopes(levels, seconds, alpha=0.99)
    found = slope(seconds, levels)
    assert found.value == pytest.approx(expected.slope)
    assert found.lower == pytest.approx(expected.low_slope)
    assert found.upper == pytest.approx(expected.high_slope)
    few = slope(seconds[:5], [*levels[:5]], error=0.2)
    again = scipy.stats.theilslopes(levels[:5], seconds[:5], alpha=0.8)
    assert (few.lower, few.upper) == pytest.approx((again.low_slope, again.high_slope))


def test_a_monitor_stands_still_that_scatters_by_less_than_a_tenth() -> None:
    """Three settings of five repeats; others scatter by 0.1 dB, this one by a share of that."""
    pattern = np.array([-0.1, -0.1, 0.0, 0.1, 0.1])
    found = np.zeros((3, 5, 4)) + pattern[:, None] + np.array([0.0, -3.0, 4.0])[:, None, None]
    for share, still in ((0.09, [2]), (0.11, [])):
        found[:, :, 2] = -2 + share * pattern
        assert standing_still(found) == still
    found[:, :, 2] = -2 + 0.05 * pattern
    assert standing_still(found[:, 1:]) == []  # nine readings to spare
    found[0, 0, 2] = found[1, 0, 2] = np.nan
    assert standing_still(found) == [2]  # ten
    assert standing_still(np.concatenate([found[:2], found[:2, ::-1]], axis=1)) == []
    found[2, :, 2] += 0.5
    assert standing_still(found) == []


def test_two_settings_of_three_equal_readings_are_a_ceiling() -> None:
    found = np.full((4, 3, 2), -5.0) + np.arange(24.0).reshape(4, 3, 2) / 10
    found[1, :, 0] = 2.0
    assert at_ceiling(found) is None
    found[3, :2, 1] = 2.0
    assert at_ceiling(found) is None
    found[3, 2, 1] = 2.0
    limit = at_ceiling(found)
    assert limit is not None
    assert limit[0] == 2.0
    assert limit[1].tolist() == [[False, False], [True, False], [False, False], [False, True]]
    assert at_ceiling(np.full((4, 3, 2), 2.0)) is None


def few_ports(seed: int, nights: int) -> list[np.ndarray]:
    """Matrices of 4 x 4 ports that differ always by 0.3 dB, and each night by 0.05 dB."""
    draws = np.random.default_rng(seed)
    usual = draws.normal(1.2, 0.3, (4, 4))
    return [usual + draws.normal(0, 0.05, (4, 4)) for _ in range(nights)]


@pytest.mark.parametrize("nights", [3, pytest.param(8, marks=pytest.mark.long)])
def test_a_lossy_port_of_four_is_found_by_the_nights_before(nights: int) -> None:
    found = []
    for seed in range(50):
        *before, tonight = few_ports(seed, nights + 1)
        tonight[2] += 1.2
        (one,) = outliers_since(tonight, before)
        assert (one.row, one.column) == (2, None)
        assert outliers(take_apart(tonight)) == [] or nights == 3
        found.append(one.lower <= 1.2 <= one.upper)
    assert sum(found) >= 45  # of 95 %: fewer happen in 4 of 100 tries


@pytest.mark.long
def test_nights_that_scatter_show_no_outlier() -> None:
    nights = (few_ports(seed, 6) for seed in range(1_000, 1_300))
    found = [outliers_since(last, before, least=0) for *before, last in nights]
    # 1 % of ports and 1 % of cells: above 13 in 2 of 1,000 tries.
    assert sum(map(bool, found)) <= 13


def test_a_fault_of_one_night_before_and_unmeasured_circuits_are_no_matter() -> None:
    *before, tonight = few_ports(4, 6)
    before[3][:, 1] += 3
    before[1][0] = np.nan
    tonight[:, 3] += 1.2
    tonight[0] = np.nan
    (one,) = outliers_since(tonight, before)
    assert (one.row, one.column) == (None, 3)
    assert outliers_since(np.full((4, 4), np.nan), before) == []


def test_a_slope_of_few_levels_has_no_interval_at_a_small_error() -> None:
    """Kendall's distribution: five levels in order by chance, 2 in 120, are likelier than 1 %."""
    rising = slope(np.arange(5.0), np.arange(5.0))
    assert (rising.value, rising.lower, rising.upper) == (1.0, -np.inf, np.inf)
    fair = slope(np.arange(5.0), np.arange(5.0), error=0.05)
    assert (fair.lower, fair.upper) == (1.0, 1.0)
    # Eight in order, 2 in 40,320, are not.
    assert slope(np.arange(8.0), np.arange(8.0)).lower == 1.0
