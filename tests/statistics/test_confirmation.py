"""Departures and changes: what one odd night, three in a row and nights with heavy tails are."""

import numpy as np
import pytest

from benchmarks.alarms import KINDS, alarms, first_mornings
from lightrig.harness.statistics.confirmation import judge_nights
from lightrig.harness.statistics.departures import find_departures
from lightrig.harness.statistics.drift import DriftRule

RULE = DriftRule(nights=10).in_unit("ns")
FACTORS = {
    (1.3,): "departed, unconfirmed",
    (1.3, 1.3): "departed, unconfirmed",
    (1.3, 1.3, 1.3): "changed",
    (1.3, 1.3, 1.3, 1.3): "changed",
    (0.75, 0.75, 0.75): "changed",
    (1.3, 1.0, 1.0): "cannot tell",
    (1.3, 0.75, 1.3): "cannot tell",
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
    *before, tonight = lab(factors)
    found = judge_nights(before, tonight, RULE, corrected_error=0.05 / 57)
    assert found.outcome == word
    if word == "changed":
        assert found.run == len(factors)
        assert found.effect == pytest.approx(factors[-1], rel=0.1)
        assert f"last {len(factors)} nights" in found.reason


@pytest.mark.parametrize(("factors", "word"), FACTORS.items(), ids=str)
def test_the_page_uses_the_same_words(factors, word):
    levels = np.array([np.median(night) for night in lab(factors)])
    (found,) = find_departures([levels], [0.01], 0.05 / 57)
    if word == "cannot tell":
        assert found is None
    else:
        assert found.confirmed is (word == "changed")
        assert found.level == levels[-1]
    if word == "changed":
        assert (found.run, found.nights) == (len(factors), 10)


def test_unchanged_means_that_the_stated_change_is_seen_in_four_of_five_nights():
    """x 1.2 is planted where "unchanged" had been said, and where "cannot tell" had."""
    error = 0.05 / 57
    seen = {"unchanged": [], "cannot tell": []}
    for seed in range(160):
        *before, tonight = lab([1.0], seed, (0.012, 0.04)[seed % 2])
        said = judge_nights(before, tonight, RULE, corrected_error=error).outcome
        if said in seen:
            planted = judge_nights(before, 1.2 * tonight, RULE, corrected_error=error)
            seen[said].append(planted.p <= error)
    assert min(map(len, seen.values())) >= 60
    assert np.mean(seen["unchanged"]) >= 0.8
    assert np.mean(seen["cannot tell"]) < 0.8


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_as_rare_as_stated_where_nights_are_not_normal(kind):
    for name, stated in (("compare", 0.05), ("page", 0.01)):
        changed, _, judged = alarms(kind, 5)[name]
        assert changed <= 2 * stated * judged + 2 * (2 * stated * judged) ** 0.5


def test_odd_nights_are_not_changes():
    """With 3 % of nights off by 25 %, most last nights have a departure, and none a change."""
    found = alarms("3 % of nights off by 25 %", 1, names=("page",))["page"]
    assert found[0] == 0
    assert found[1] >= 5


def test_a_third_slower_is_changed_on_the_third_morning():
    mornings = first_mornings(4, names=("page",))["page"]
    assert [each.split("; ")[-1] for each in mornings].count("changed") >= 3
