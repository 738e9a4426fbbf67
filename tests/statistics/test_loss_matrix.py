"""Faults injected in a matrix of losses are found in place, and none where there is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.loss_matrix import (
    at_ceiling,
    outliers,
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
