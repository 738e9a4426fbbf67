"""Quantiles: bounds that cover, whatever the distribution, and widen with censoring."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile, samples_needed
from lightrig.harness.statistics.samples import SampleError

SHARES = st.floats(0.01, 0.99)
CONFIDENCES = st.floats(0.5, 0.999)
NANOSECONDS = st.integers(-(2**50), 2**50)


@st.composite
def intervals(draw, least=1, most=60):
    low = draw(st.lists(NANOSECONDS, min_size=least, max_size=most))
    width = draw(st.lists(st.integers(0, 10**9), min_size=len(low), max_size=len(low)))
    return low, [a + b for a, b in zip(low, width, strict=True)]


@pytest.mark.parametrize(
    ("q", "confidence", "sides", "needed"),
    [
        (0.99, 0.95, "upper", 299),
        (0.95, 0.95, "upper", 59),
        (0.5, 0.95, "two", 6),
        (0.5, 0.75, "upper", 2),
        (0.99, 0.95, "two", 368),
        (0.01, 0.95, "two", 368),
        (0.999, 0.99, "upper", 4603),
    ],
)
def test_samples_needed(q, confidence, sides, needed):
    assert samples_needed(q, confidence, sides) == needed
    values = np.arange(needed)
    assert isinstance(quantile(values, values, q, confidence, sides), Quantile)
    one_fewer = quantile(values[1:], values[1:], q, confidence, sides)
    assert one_fewer == NotEnough(needed - 1, needed)
    assert "needed" in str(one_fewer)


@settings(deadline=None)
@given(SHARES, CONFIDENCES)
def test_needed_is_the_first_number_whose_largest_sample_is_a_bound(q, confidence):
    n = samples_needed(q, confidence, "upper")
    assert q**n <= 1 - confidence
    assert n == 1 or q ** (n - 1) > 1 - confidence


def test_ranks_of_the_textbook():
    """Median of 1..100 at 95 %: the 40th and the 61st (Conover, table A3)."""
    found = quantile(range(1, 101), range(1, 101), 0.5)
    assert (found.lower, found.value, found.upper) == (40, 50.5, 61)


def test_a_rank_that_arithmetic_misses_is_still_the_rank():
    values = np.arange(1, 101)
    assert quantile(values, values, 0.29).value == 29.5


@settings(deadline=None)
@given(intervals(), SHARES, CONFIDENCES, st.sampled_from(["two", "upper"]))
def test_the_value_lies_inside_and_the_interval_is_made_of_samples(pair, q, confidence, sides):
    low, high = pair
    found = quantile(low, high, q, confidence, sides)
    if isinstance(found, NotEnough):
        assert found.n < found.needed == samples_needed(q, confidence, sides)
        return
    assert found.value <= found.upper
    assert found.upper in high
    if sides == "two":
        assert found.lower in low
        assert found.lower <= found.value
    else:
        assert found.lower is None


@settings(deadline=None)
@given(intervals(least=6), st.integers(0, 10**9))
def test_censoring_only_widens(pair, wider):
    low, high = pair
    exact = quantile(low, high, 0.5)
    blurred = quantile([x - wider for x in low], [x + wider for x in high], 0.5)
    assert (blurred.lower, blurred.upper) == (exact.lower - wider, exact.upper + wider)
    assert blurred.value == exact.value


@settings(deadline=None)
@given(intervals(least=12), SHARES, SHARES)
def test_quantiles_grow_with_their_share(pair, a, b):
    first, second = (quantile(*pair, q, 0.5, "upper") for q in sorted((a, b)))
    if isinstance(second, Quantile) and isinstance(first, Quantile):
        assert first.value <= second.value
        assert first.upper <= second.upper


@settings(deadline=None)
@given(intervals(least=8), CONFIDENCES, CONFIDENCES)
def test_more_confidence_is_wider(pair, a, b):
    less, more = (quantile(*pair, 0.5, c) for c in sorted((a, b)))
    if isinstance(more, Quantile):
        assert more.lower <= less.lower
        assert less.upper <= more.upper


@pytest.mark.long
@pytest.mark.parametrize("n", [6, 7, 30, 101])
@pytest.mark.parametrize("window", [0.0, 2.0])
def test_the_median_interval_covers(n, window):
    rng = np.random.default_rng(20)
    trials = 3000
    true = rng.lognormal(0, 1, (trials, n))
    shift = rng.uniform(0, 1, (trials, n)) * window
    covered = sum(
        found.lower <= 1.0 <= found.upper
        for found in (
            quantile(t - s, t - s + window, 0.5) for t, s in zip(true, shift, strict=True)
        )
    )
    assert covered / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize(("q", "n"), [(0.9, 29), (0.9, 100), (0.99, 299), (0.99, 1000)])
def test_the_upper_bound_of_a_tail_covers_and_is_not_idle(q, n):
    rng = np.random.default_rng(21)
    trials = 2000
    truth = -math.log(1 - q)
    covered = sum(
        quantile(t, t, q, sides="upper").upper >= truth for t in rng.exponential(1, (trials, n))
    )
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials) <= covered / trials < 0.99


def test_input_is_left_as_it_was():
    low = np.arange(10)[::-1].copy()
    quantile(low, low, 0.5)
    assert low[0] == 9


def test_an_event_never_seen_is_later_than_all_that_were():
    found = quantile([1.0] * 7, [2.0] * 6 + [math.inf], 0.5)
    assert (found.value, found.upper) == (1.5, math.inf)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        ([1], [1, 2], "1 earliest and 2 latest"),
        ([1, 3], [2, 2], "index 1: earliest 3 is after latest 2"),
        ([1.0, math.nan], [1, 2], "NaN at index 1"),
        ([-math.inf], [1.0], "infinity at index 0"),
        (["1"], ["2"], "expected integers or floats"),
        ([[1]], [[1]], "2 dimensions"),
    ],
)
def test_samples_that_make_no_sense_are_named(low, high, says):
    with pytest.raises(SampleError, match=says):
        quantile(low, high, 0.5)


@pytest.mark.parametrize("q", [0, 1, -0.1, 1e-30, math.nan])
def test_a_share_is_between_nothing_and_all(q):
    with pytest.raises(SampleError, match="q: found"):
        quantile([1], [1], q)


@pytest.mark.parametrize("confidence", [0.4, 1, math.nan, 95])
def test_a_confidence_is_at_least_a_half(confidence):
    with pytest.raises(SampleError, match="confidence: found"):
        samples_needed(0.5, confidence)


def test_ranks_of_effective_samples_are_spread_outwards():
    """Of 10 independent values the 2nd and 9th bound a median (97.9 %, by the binomial).

    33 that count as 10 are ten parts of 3.3: the 2nd begins after the 3rd, the 9th ends in the
    30th.
    """
    samples = list(range(1, 34))
    alone, spread = (
        quantile(samples[:10], samples[:10], 0.5),
        quantile(samples, samples, 0.5, effective=10),
    )
    assert isinstance(alone, Quantile)
    assert (alone.lower, alone.upper) == (2, 9)
    assert isinstance(spread, Quantile)
    assert (spread.lower, spread.upper, spread.effective) == (3, 30, 10)
