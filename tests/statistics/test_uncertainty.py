"""Uncertainties combine as the GUM says, and intervals hold as often as they claim."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.uncertainty import (
    Component,
    combine,
    coverage_factor,
    margin,
    pooled,
    readings_needed,
)


def test_independent_components_add_as_squares():
    found = combine([Component("a", 0.03), Component("b", 0.04)])
    assert found.standard == pytest.approx(0.05)
    assert found.degrees == math.inf
    assert found.factor == pytest.approx(1.959964, abs=1e-5)
    assert found.expanded == pytest.approx(0.05 * 1.959964, abs=1e-6)


@pytest.mark.parametrize(("degrees", "factor"), [(1, 12.71), (4, 2.78), (10, 2.23), (50, 2.01)])
def test_few_degrees_of_freedom_widen_as_table_g2_of_the_gum(degrees, factor):
    assert coverage_factor(degrees) == pytest.approx(factor, abs=0.005)


def test_effective_degrees_are_those_of_the_example_in_the_gum():
    # G.4.1: 0.25, 0.57 and 0.82 with 9, 4 and 14 degrees have 19.0 effective ones.
    parts = [Component("a", 0.25, 9), Component("b", 0.57, 4), Component("c", 0.82, 14)]
    assert combine(parts).standard == pytest.approx(1.03, abs=0.005)
    assert combine(parts).degrees == pytest.approx(19.0, abs=0.3)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=5), st.floats(0, 10))
def test_another_component_never_makes_it_surer(sizes, more):
    parts = [Component(str(n), size) for n, size in enumerate(sizes)]
    assert combine([*parts, Component("more", more)]).standard >= combine(parts).standard - 1e-12


def test_nothing_uncertain_is_certain():
    assert combine([Component("none", 0.0)]).expanded == 0.0


def test_intervals_of_few_samples_hold_as_often_as_they_say():
    random = np.random.default_rng(7)
    trials, n, stated, held = 4000, 4, 0.5, 0
    for _ in range(trials):
        samples = random.normal(0, 1, n)
        mean = samples.mean() + random.normal(0, stated)
        noise = pooled([samples], "noise")
        parts = [Component("noise", noise.standard / math.sqrt(n), noise.degrees)]
        held += abs(mean) <= combine([*parts, Component("reference", stated)]).expanded
    assert held / trials == pytest.approx(0.95, abs=0.015)


def test_groups_are_pooled_about_their_own_means():
    found = pooled([[1.0, 3.0], [11.0, 13.0], [5.0]], "noise")
    assert (found.standard, found.degrees) == (pytest.approx(math.sqrt(2)), 2)
    with pytest.raises(SampleError, match="noise: found no two samples"):
        pooled([[1.0], []], "noise")


def test_readings_are_as_many_as_the_noise_asks_for():
    assert readings_needed(0.03, 0.01) == 9
    assert readings_needed(0.0, 0.01) == 2
    assert readings_needed(5.0, 0.01, most=64) == 64
    with pytest.raises(SampleError, match="target"):
        readings_needed(0.03, 0.0)


@pytest.mark.parametrize("bad", [-0.1, math.inf, math.nan])
def test_an_invalid_uncertainty_is_refused(bad):
    with pytest.raises(SampleError):
        Component("a", bad)
    with pytest.raises(SampleError):
        Component("a", 0.1, 0)


@pytest.mark.parametrize(
    ("sent", "losses", "closes"),
    [
        ((0.0, 0.5), [(1.2, 0.05), (1.4, 0.05)], True),
        ((0.0, 0.5), [(1.2, 0.05), (9.0, 0.05)], None),
        ((0.0, 0.5), [(1.2, 0.05), (12.0, 0.05)], False),
    ],
)
def test_a_path_through_stages_closes_or_not_or_nobody_knows(sent, losses, closes):
    found = margin(sent, losses, (-10.0, 0.0))
    assert found.value == pytest.approx(sent[0] - sum(loss for loss, _ in losses) + 10.0)
    assert found.expanded == pytest.approx(1.96 * math.hypot(0.5, 0.05, 0.05), abs=1e-3)
    assert found.closes is closes
