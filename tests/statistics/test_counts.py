"""Counts of a night against those of the nights before."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics.counts import count_departure


def departure(*counts, error=1e-4):
    return count_departure(np.array(counts, dtype=float), error)


def test_what_never_happened_departs_once_it_happens_often():
    """k events, all of them in one of eleven nights: (1 / 11) ** k."""
    found = departure(*[0] * 10, 4)
    assert found.p == pytest.approx(11**-4)
    assert (found.before, found.level, found.nights, found.run) == (0, 4, 10, 1)
    assert departure(*[0] * 10, 3) is None
    assert departure(*[0] * 10, 3, error=1e-3).p == pytest.approx(11**-3)


def test_the_rate_before_is_compared_with():
    """Of 30 events, 20 or more in one of six nights, counted by combinations."""
    found = departure(2, 2, 2, 2, 2, 20)
    ways = sum(math.comb(30, k) * 5 ** (30 - k) for k in range(20, 31))
    assert found.p == pytest.approx(ways / 6**30)
    assert departure(2, 2, 2, 2, 2, 3) is None
    assert departure(20, 21, 19, 20, 0) is None  # fewer are no fault


def test_events_in_groups_count_as_fewer():
    assert departure(2, 2, 2, 2, 2, 2, 14) is not None
    assert departure(0, 12, 0, 0, 0, 0, 14) is None


def test_three_nights_in_a_row_confirm():
    alone, third = departure(0, 0, 0, 0, 6, error=1e-3), departure(0, 0, 0, 0, 6, 7, 9, error=1e-3)
    assert (alone.run, alone.confirmed) == (1, False)
    assert (third.run, third.confirmed, third.nights) == (3, True, 4)
    assert departure(0, 0, 50) is None  # of two nights nothing is known


def test_a_change_of_five_nights_is_found_and_one_of_six_is_the_new_level():
    """Two events, both in one of nine nights: (1 / 9) ** 2; of three nights or more, ** 4 / 3."""
    found = departure(*[0] * 8, *[2] * 5, error=0.01)
    assert found.run == 5
    assert found.p == pytest.approx(9 ** (-2 * 4 / 3))
    assert departure(*[0] * 8, *[2] * 6, error=0.01) is None


def test_where_nothing_changes_few_depart():
    draws = np.random.default_rng(5)
    found = [count_departure(draws.poisson(3, 11).astype(float), 0.01) for _ in range(1_000)]
    # 1 % for each of five lengths of the run at most; 23 is above what 1 % gives in 1 of 5,000.
    assert sum(one is not None for one in found) <= 23
