"""Departures and changes: what one odd night, three in a row and nights with heavy tails are."""

import numpy as np
import pytest

from benchmarks.alarms import KINDS, STATED, alarms, first_mornings
from lightrig.harness.statistics.departures import find_departures, find_reaches

FACTORS = {
    (1.3,): "departed, unconfirmed",
    (1.3, 1.3): "departed, unconfirmed",
    (1.3, 1.3, 1.3): "changed",
    (1.3, 1.3, 1.3, 1.3): "changed",
    (0.75, 0.75, 0.75): "changed",
    (1.3, 1.0, 1.0): None,
    (1.3, 0.75, 1.3): None,
}


def lab(factors, seed=4, scatter=0.02):
    """Ten nights alike, then one for each factor: 40 samples that scatter by 5 %."""
    random = np.random.default_rng(seed)
    levels = np.array([1.0] * 10 + list(factors)) * np.exp(
        random.normal(0, scatter, 10 + len(factors))
    )
    return list(levels[:, None] * np.exp(random.normal(0, 0.05, (len(levels), 40))))


@pytest.mark.parametrize(("factors", "word"), FACTORS.items(), ids=str)
def test_three_nights_in_a_row_make_a_change(factors, word):
    levels = np.array([np.median(night) for night in lab(factors)])
    (found,) = find_departures([levels], [0.01], 0.05 / 57)
    if word is None:
        assert found is None
        return
    assert found.confirmed is (word == "changed")
    assert found.level == levels[-1]
    assert found.lower < found.level < found.upper
    assert not found.lower <= found.before <= found.upper
    if word == "changed":
        assert (found.run, found.nights) == (len(factors), 10)
        assert found.level / found.before == pytest.approx(factors[-1], rel=0.1)


def test_a_change_that_would_be_seen_is_seen_in_four_of_five_nights():
    """x 1.2 is planted where it would have been seen, and where it might have been missed."""
    error = 0.05 / 57
    seen = {True: [], False: []}
    for seed in range(160):
        levels = np.array([np.median(night) for night in lab([1.0], seed, (0.01, 0.04)[seed % 2])])
        (reach,) = find_reaches([levels], [0.0], error)
        levels[-1] *= 1.2
        (found,) = find_departures([levels], [0.0], error)
        seen[reach.above <= 1.2 * reach.before].append(found is not None)
    assert min(map(len, seen.values())) >= 60
    assert np.mean(seen[True]) >= 0.8
    assert np.mean(seen[False]) < 0.8


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_as_rare_as_stated_where_nights_are_not_normal(kind):
    for stated in STATED:
        changed, _, judged = alarms(kind, 5, stated)
        assert changed <= 2 * stated * judged + 2 * (2 * stated * judged) ** 0.5


def test_odd_nights_are_not_changes():
    """With 3 % of nights off by 25 %, most last nights have a departure, and none a change."""
    found = alarms("3 % of nights off by 25 %", 1, 0.01)
    assert found[0] == 0
    assert found[1] >= 5


def test_a_third_slower_is_changed_on_the_third_morning():
    mornings = first_mornings(4, 0.01)
    assert [each.split("; ")[-1] for each in mornings].count("changed") >= 3
