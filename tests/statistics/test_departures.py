"""Last night against the nights before: found where it must be, and at the stated error rate."""

import numpy as np
import pytest

from lightrig.harness.statistics.departures import find_departures

ERROR = 1e-5
"""As on a page of a thousand series."""
NIGHTS = 9


def family(random, series=32, spread=0.04):
    return [np.asarray(random.normal(1.2, spread, NIGHTS + 1)) for _ in range(series)]


def test_a_dirty_connector_is_found_beside_nine_nights_and_alone():
    for seed in range(20):
        nights = family(np.random.default_rng(seed))
        nights[5][-1] += 0.7
        found = find_departures(nights, [0.0] * len(nights), ERROR)
        assert [at for at, one in enumerate(found) if one] == [5]
        assert found[5].before == pytest.approx(1.2, abs=0.1)
        assert found[5].nights == NIGHTS


def test_a_level_that_sinks_departs_like_one_that_rises():
    nights = family(np.random.default_rng(1))
    nights[5][-1] = 1.2 - 0.7
    mirrored = [1 / one for one in nights]  # levels are compared by their ratios
    still = [0.0] * len(nights)
    sunk, risen = find_departures(nights, still, ERROR), find_departures(mirrored, still, ERROR)
    assert [at for at, one in enumerate(sunk) if one] == [5]
    assert sunk[5].p == pytest.approx(risen[5].p, rel=1e-6)


def test_still_nights_depart_at_most_at_the_stated_rate():
    random = np.random.default_rng(3)
    share = np.mean([
        one is not None
        for _ in range(100)
        for one in find_departures(family(random), [0.0] * 32, 0.01)
    ])  # fmt: skip
    assert 0.001 < share < 0.013


def test_a_noisy_series_of_a_quiet_family_keeps_its_scatter():
    random = np.random.default_rng(4)
    alarms = 0
    for _ in range(200):
        nights = family(random, series=8, spread=0.01)
        nights[0] = random.normal(1.2, 0.1, NIGHTS + 1)
        alarms += find_departures(nights, [0.0] * 8, 0.001)[0] is not None
    assert alarms <= 2


def test_copies_and_too_few_nights_say_nothing():
    copies = [np.array([5.0] * 9 + [6.0]), np.array([5.0] * 10)]
    assert find_departures(copies, [0.0, 0.0], ERROR) == [None, None]
    assert find_departures(copies, [0.0, 0.0], 0.2)[1] is None
    assert find_departures([np.array([1.0, 1.1, 9.0])], [0.0], 0.2) == [None]


def test_nights_are_never_closer_than_a_level_is_uncertain():
    nights = [np.array([1.0, 1.0001, 1.0002, 1.0001, 1.0, 1.0001, 1.0, 1.0001, 1.01])]
    assert find_departures(nights, [0.0], ERROR)[0] is not None
    assert find_departures(nights, [0.02], ERROR) == [None]
