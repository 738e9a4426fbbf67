"""Corrections for many metrics: worked examples, the rates kept, and verdicts of one night."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.statistics.corrections import benjamini_hochberg, correct, holm
from lightrig.harness.statistics.drift import DriftVerdict

P = st.lists(st.floats(0, 1), max_size=20)
ERROR = st.sampled_from([0.01, 0.05, 0.2])

PUBLISHED = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
PUBLISHED += [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
"""The fifteen hypotheses of Benjamini and Hochberg (1995), section 4."""


def test_the_example_of_benjamini_and_hochberg():
    assert benjamini_hochberg(PUBLISHED, 0.05) == [True] * 4 + [False] * 11
    assert holm(PUBLISHED, 0.05) == [True] * 3 + [False] * 12


def test_order_is_kept():
    assert holm([0.5, 0.001, 0.02], 0.05) == [False, True, True]
    assert benjamini_hochberg([0.9, 0.04, 0.03], 0.06) == [False, True, True]
    assert holm([], 0.05) == benjamini_hochberg([], 0.05) == []


def test_holm_stops_at_the_first_that_is_not_significant():
    """The second and third keep their own steps, and stand behind one that does not keep its."""
    assert holm([0.02, 0.04, 0.021], 0.05) == [False] * 3


@given(P, ERROR)
def test_holm_step_by_step(p, error):
    expected = [False] * len(p)
    for left, index in zip(
        range(len(p), 0, -1), sorted(range(len(p)), key=p.__getitem__), strict=True
    ):
        if p[index] * left > error:
            break
        expected[index] = True
    assert holm(p, error) == expected


@given(P, ERROR)
def test_benjamini_hochberg_finds_all_that_holm_finds(p, error):
    for strict, mild, value in zip(holm(p, error), benjamini_hochberg(p, error), p, strict=True):
        assert mild or not strict
        assert value <= error or not mild


def test_the_family_is_right_as_often_as_stated():
    random = np.random.default_rng(80)
    false = sum(any(holm(random.uniform(size=40).tolist(), 0.05)) for _ in range(2000))
    assert 0.03 <= false / 2000 <= 0.06


def verdict(outcome, p=None):
    return DriftVerdict(outcome, "It was so.", 30, 10, 300, p=p)


def test_one_surprise_among_many_is_none():
    night = {f"same {index}": verdict("unchanged", 0.5) for index in range(20)}
    night |= {
        "slow": verdict("changed", 0.0001),
        "lucky": verdict("changed", 0.009),
        "broken": verdict("guard broken"),
        "new": verdict("not enough data"),
    }
    found = correct(night, "holm", 0.05)
    assert list(found) == list(night)
    assert found["slow"] is night["slow"]
    assert found["lucky"].outcome == "unchanged"
    assert found["lucky"].reason == (
        "It was so. Among 22 quantities that is no surprise (holm, 5 %)."
    )
    assert found["broken"].outcome == "guard broken"
    assert found["new"].outcome == "not enough data"
    assert correct(night, "none", 0.05) == night
    mild = correct(night | {"slower": verdict("changed", 0.003)}, "benjamini-hochberg", 0.05)
    assert mild["slower"].outcome == "changed"
    assert mild["lucky"].outcome == "unchanged"


def test_a_quantity_keeps_its_own_error_too():
    night = {"one": verdict("unchanged", 0.02)}
    assert correct(night, "holm", 0.05) == night


def test_what_only_seemed_to_change_is_not_called_unchanged_where_a_change_may_be_missed():
    seeing = DriftVerdict("changed", "Seemed.", 30, 10, 300, p=0.009, sees=True)
    blind = dataclasses.replace(seeing, sees=False)
    others = {n: dataclasses.replace(seeing, outcome="unchanged", p=0.5) for n in range(9)}
    found = correct({**others, "seeing": seeing, "blind": blind}, "holm", 0.05)
    assert (found["seeing"].outcome, found["blind"].outcome) == ("unchanged", "cannot tell")
