"""Published against ours, as plain values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.claims.published import PrintedFigure
from lightrig.harness.claims.verdicts import (
    FEWEST,
    Estimate,
    compare,
    estimate,
    tolerance_of,
    verdict_text,
)
from lightrig.harness.statistics.quantiles import NotEnough, quantile

ABOUT_200 = PrintedFigure("≈ 200 ms", 150e6, 250e6, "ns")
WITHIN_100 = PrintedFigure("within 100 ms", -math.inf, 100e6, "ns")
EXACT = PrintedFigure("41.44 ms", 41.435e6, 41.445e6, "ns")


@pytest.mark.parametrize(
    ("figure", "lower", "upper", "outcome"),
    [
        (ABOUT_200, 196e6, 198e6, "agrees"),
        (ABOUT_200, 140e6, 160e6, "cannot tell"),
        (ABOUT_200, 240e6, 300e6, "cannot tell"),
        (ABOUT_200, 251e6, 300e6, "differs"),
        (ABOUT_200, 100e6, 149e6, "differs"),
        (EXACT, 41.436e6, 41.444e6, "agrees"),
        (EXACT, 41.2e6, 41.6e6, "cannot tell"),
        (EXACT, 41.5e6, 41.6e6, "differs"),
        (WITHIN_100, 40e6, 60e6, "agrees"),
        (WITHIN_100, 90e6, 110e6, "cannot tell"),
        (WITHIN_100, 101e6, 110e6, "differs"),
        (EXACT, 0, 100e6, "cannot tell"),
        (WITHIN_100, 50e6, math.inf, "cannot tell"),
    ],
)
def test_an_interval_agrees_only_within_the_printed_range(figure, lower, upper, outcome):
    assert compare(figure, Estimate((lower + upper) / 2, lower, upper, 60))[0] == outcome


def test_without_rows_or_with_too_few_there_is_no_verdict():
    assert compare(EXACT, None)[0] == "not measured"
    outcome, reason = compare(EXACT, NotEnough(7, 368))
    assert (outcome, reason) == ("not enough data", "7 events, 368 needed.")


@pytest.mark.parametrize(
    ("figure", "lower", "upper", "tolerance", "outcome"),
    [
        (EXACT, 41.2e6, 41.6e6, 0.01, "agrees"),
        (EXACT, 41.2e6, 42.0e6, 0.01, "cannot tell"),
        (EXACT, 42.0e6, 43.0e6, 0.01, "differs"),
        (PrintedFigure("62.84 %", 0.62835, 0.62845, "share"), 0.6285, 0.6285, 0.01, "agrees"),
        (PrintedFigure("60 to 80 µs", 60e3, 80e3, "ns"), 64e3, 115e3, 0.01, "cannot tell"),
        (WITHIN_100, 100.5e6, 100.9e6, 0.01, "agrees"),
        (PrintedFigure("-3 dB", -3.05, -2.95, "dB"), -3.07, -3.06, 0.01, "agrees"),
    ],
)
def test_a_tolerance_widens_the_printed_range(figure, lower, upper, tolerance, outcome):
    found = Estimate((lower + upper) / 2, lower, upper, 60)
    assert compare(figure, found, tolerance)[0] == outcome


@given(st.floats(1, 1e9), st.floats(0, 1), st.floats(1, 1e9), st.floats(0, 1), st.floats(0.01, 0.5))
def test_a_wider_interval_agrees_no_more_than_a_narrow_one(low, width, lower, spread, more):
    figure = PrintedFigure("x", low, low * (1 + width), "ns")
    narrow = Estimate(lower, lower, lower * (1 + spread), 60)
    wide = Estimate(lower, lower * (1 - more), lower * (1 + spread + more), 60)
    assert compare(figure, wide)[0] != "agrees" or compare(figure, narrow)[0] == "agrees"


@pytest.mark.parametrize("kind", ["closure", "printed", "released", "fitted"])
def test_only_what_could_have_differed_agrees(kind):
    assert verdict_text(kind, "agrees") != "agrees"
    assert verdict_text(kind, "differs") != "differs"
    assert verdict_text("hardware", "agrees") == verdict_text("computed", "agrees") == "agrees"
    assert verdict_text("tested", "agrees") == verdict_text("emulated", "agrees") == "agrees"


@given(st.floats(1, 1e9), st.floats(0, 1), st.floats(1, 1e9), st.floats(0, 1))
def test_they_never_differ_where_a_value_is_common_to_both(low, width, lower, spread):
    figure = PrintedFigure("x", low, low * (1 + width), "ns")
    ours = Estimate(lower, lower, lower * (1 + spread), 60)
    apart = ours.lower > figure.high or ours.upper < figure.low
    assert (compare(figure, ours)[0] == "differs") == apart


def test_a_median_and_a_p99_are_those_of_the_statistics():
    low = np.arange(400) * 1.0
    for statistic, q in (("median", 0.5), ("p99", 0.99)):
        found, ours = quantile(low, low + 3, q), estimate(statistic, low, low + 3)
        assert (ours.value, ours.lower, ours.upper) == (found.value, found.lower, found.upper)
    assert isinstance(estimate("p99", low[:367], low[:367]), NotEnough)
    assert isinstance(estimate("p99", low[:368], low[:368]), Estimate)


def test_the_interval_of_a_mean_covers_it_at_its_confidence():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        sample = random.normal(5, 2, 20)
        found = estimate("mean", sample, sample)
        covered += found.lower <= 5 <= found.upper
    assert 930 <= covered <= 970


def test_the_observers_uncertainty_widens_a_mean():
    sample = np.random.default_rng(1).normal(5, 2, 20)
    sharp, blurred = estimate("mean", sample, sample), estimate("mean", sample - 1, sample + 1)
    assert blurred.lower == pytest.approx(sharp.lower - 1)
    assert blurred.upper == pytest.approx(sharp.upper + 1)
    assert blurred.value == pytest.approx(sharp.value)
    never = estimate("mean", sample, np.append(sample[1:], math.inf))
    assert never.upper == math.inf


def test_a_mean_takes_a_few_samples():
    assert estimate("mean", [1.0] * (FEWEST - 1), [1.0] * (FEWEST - 1)) == NotEnough(9, FEWEST)


@pytest.mark.parametrize(
    ("kind", "upper", "n", "tolerance"),
    [
        *((kind, 1.0, 20, 0.01) for kind in ("hardware", "namespaces", "closure", "emulated")),
        ("computed", 1.0, 1, 0.0),  # exact
        ("computed", 1.1, 1, 0.01),  # by bounds
        ("computed", 1.0, 20, 0.01),  # by draws
        *((kind, 1.1, 20, 0.0) for kind in ("printed", "released", "fitted", "tested")),
    ],
)
def test_each_kind_has_one_tolerance(kind, upper, n, tolerance):
    assert tolerance_of(kind, Estimate(1.0, 1.0, upper, n)) == tolerance
