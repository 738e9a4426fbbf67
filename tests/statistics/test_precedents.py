"""Rare events of nights of tails: their share, and changes that are no more than such events."""

import numpy as np
import pytest

from lightrig.harness.statistics.changes import LevelChange, find_changes, unprecedented
from lightrig.harness.statistics.precedents import deviations, share_of_nights

ERROR = 1e-4
NIGHTS = 24
STILL = 3.3 + np.array([1, -1, 3, 0, -2, 2, 0, 1, -1, 0, 2, -3] * 2) / 100
RETRY = 1.6
"""Factor of a night of which an event needed a second try."""


def with_retries(*nights: int) -> np.ndarray:
    return np.where(np.isin(np.arange(NIGHTS), nights), RETRY * STILL, STILL)


def changes(levels: np.ndarray, *others: np.ndarray) -> list[int]:
    """Return the nights of the changes that are left, of those that are found."""
    found = find_changes([np.array([level]) for level in levels], ERROR)
    return [change.index for change in unprecedented(found, levels, others, ERROR)]


def risen_and_fallen(up: int, down: int) -> list[LevelChange]:
    low, high = 3.3, 3.3 * RETRY
    return [
        LevelChange(up, low, high, low, low, high, high, 1e-9),
        LevelChange(down, high, low, high, high, low, low, 1e-9),
    ]


# Two nights of each of three, none of a fourth.
OTHERS = [with_retries(3, 11), with_retries(0, 13), with_retries(7, 18), STILL]


def test_the_share_is_that_of_one_night_more() -> None:
    own = np.array([0.0, 0.1, 0.2, 0.1])
    others = [np.array([0.0, 0.1, 2.0]), np.array([0.1, 0.0])]
    # Of nine nights one lay out by at least 3/4 of 2.6, and none of its own four.
    assert share_of_nights(2.6, own, others) == pytest.approx(max(1 / 5, 2 / 10))
    assert share_of_nights(2.7, own, others) == 0
    often = [*others, np.full(10, 2.0)]
    assert share_of_nights(2.6, own, often) == pytest.approx(12 / 20)
    assert share_of_nights(0.2, own, []) == pytest.approx(2 / 5)
    assert share_of_nights(1.0, own, []) == 0


def test_a_night_lies_out_on_either_side_of_the_median() -> None:
    assert deviations(np.array([5.0, 1.0, 4.0, 4.5, 2.0])).tolist() == [1.0, 3.0, 0.0, 0.5, 2.0]
    assert deviations(np.empty(0)).size == 0


def test_some_rare_events_in_a_row_are_no_change() -> None:
    three = with_retries(21, 22, 23)
    assert changes(three) == [21]  # nothing is known of such events
    assert changes(three, STILL, STILL) == [21]
    assert changes(three, *OTHERS) == []


def test_some_rare_events_in_a_row_that_are_over_are_no_changes() -> None:
    levels, found = with_retries(12, 13, 14), risen_and_fallen(12, 15)
    assert list(unprecedented(found, levels, [STILL] * 4, ERROR)) == found
    assert list(unprecedented(found, levels, OTHERS, ERROR)) == []


def test_a_change_that_lasts_is_one_beside_rare_events() -> None:
    assert changes(with_retries(*range(16, NIGHTS)), *OTHERS) == [16]
    # Where it ends is one, too, though the nights before the end are far out.
    levels, found = with_retries(*range(9, 18)), risen_and_fallen(9, 18)
    assert list(unprecedented(found, levels, OTHERS, ERROR)) == found


def test_a_change_beyond_rare_events_is_one_at_once() -> None:
    farther = np.where(np.arange(NIGHTS) >= 21, 2.2 * STILL, STILL)
    assert changes(farther, *OTHERS) == [21]


def test_levels_that_are_not_positive_are_compared_by_difference() -> None:
    three = with_retries(21, 22, 23) - 3.3
    assert changes(three, STILL - 3.3) == [21]
    assert changes(three, *(each - 3.3 for each in OTHERS)) == []


def test_nights_without_data_are_neither_precedents_nor_events() -> None:
    gaps = [np.where(np.arange(NIGHTS) % 5 == 2, np.nan, each) for each in OTHERS]
    three = with_retries(20, 21, 22, 23)
    three[21] = np.nan
    found = find_changes([level[np.isfinite(level)] for level in three[:, None]], ERROR)
    assert [change.index for change in found] == [20]
    assert list(unprecedented(found, three, gaps, ERROR)) == []
    assert list(unprecedented(found, three, [np.full(NIGHTS, np.nan)], ERROR)) == found
