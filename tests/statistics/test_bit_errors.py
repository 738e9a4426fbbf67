"""Bit error ratios: intervals cover, planned gates suffice, verdicts keep their word."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from lightrig.harness.statistics.bit_errors import (
    bits_needed,
    error_ratio,
    judge_error_ratio,
    lower_bound,
    upper_bound,
)
from lightrig.harness.statistics.samples import SampleError

counts = st.integers(1, 10**18).flatmap(
    lambda bits: st.tuples(st.integers(0, min(bits, 10**6)), st.just(bits))
)


def test_no_errors_bound_what_the_textbook_says() -> None:
    assert upper_bound(0, 10**12) == pytest.approx(-math.log(0.05) / 1e12, rel=1e-9)
    assert error_ratio(0, 10**12).upper == pytest.approx(-math.log(0.025) / 1e12, rel=1e-9)
    assert error_ratio(0, 10**12).lower == 0.0
    assert bits_needed(1e-12) == pytest.approx(2.9957e12, rel=1e-4)


@given(counts, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_value_lies_in_its_interval(count: tuple[int, int], confidence: float) -> None:
    ratio = error_ratio(*count, confidence)
    assert 0 <= ratio.lower <= ratio.value <= ratio.upper <= 1


@given(st.integers(0, 200), st.sampled_from([0.9, 0.95, 0.99]))
def test_both_arithmetics_agree_where_they_meet(errors: int, confidence: float) -> None:
    below, above = 10**9 - 1, 10**9
    assert upper_bound(errors, below, confidence) == pytest.approx(
        upper_bound(errors, above, confidence), rel=1e-6
    )
    assert lower_bound(errors, below, confidence) == pytest.approx(
        lower_bound(errors, above, confidence), rel=1e-6
    )


@pytest.mark.parametrize("exponent", range(-15, -2))
def test_the_interval_holds_the_truth_often_enough(exponent: int) -> None:
    truth = 10.0**exponent
    generator = np.random.default_rng(-exponent)
    for expected in (0.5, 3, 40):
        bits = math.ceil(expected / truth)
        errors = generator.binomial(bits, truth, size=10_000)
        values, times = np.unique(errors, return_counts=True)
        held = 0
        for value, count in zip(values, times, strict=True):
            ratio = error_ratio(int(value), bits)
            held += int(count) * (ratio.lower <= truth <= ratio.upper)
        assert held >= 9_500 - 3 * math.sqrt(10_000 * 0.95 * 0.05)


@given(st.floats(1e-15, 1e-2), st.integers(0, 30), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_planned_gate_is_the_shortest_that_passes(
    limit: float, errors: int, confidence: float
) -> None:
    bits = bits_needed(limit, confidence, errors)
    assert upper_bound(errors, bits, confidence) <= limit * (1 + 1e-9)
    fewer = int(bits * (1 - 1e-6)) - 1
    assume(fewer > errors)
    assert upper_bound(errors, fewer, confidence) > limit * (1 - 1e-9)


@given(counts, st.floats(1e-12, 0.5))
def test_the_stated_further_bits_suffice_for_a_verdict(
    count: tuple[int, int], limit: float
) -> None:
    errors, bits = count
    verdict = judge_error_ratio(errors, bits, limit)
    if verdict.outcome == "pass":
        assert errors / bits <= limit
    elif verdict.outcome == "fail":
        assert errors / bits > limit
    else:
        assert verdict.needed is not None
        assert verdict.needed > 0
        assert judge_error_ratio(errors, bits + verdict.needed, limit).outcome == "pass"


def test_a_lost_pattern_is_not_zero_errors() -> None:
    verdict = judge_error_ratio(0, 10**15, 1e-12, sync_lost=True)
    assert verdict.outcome == "fail"
    assert "lost the pattern" in verdict.reason
    assert judge_error_ratio(0, 0, 1e-12).outcome == "not enough data"


@pytest.mark.parametrize(("errors", "bits"), [(0, 0), (-1, 10), (11, 10)])
def test_counts_that_cannot_be_are_refused(errors: int, bits: int) -> None:
    with pytest.raises(SampleError):
        error_ratio(errors, bits)


@pytest.mark.parametrize("bits", [10**3, 10**9, 10**12])
@pytest.mark.parametrize("share", [0.0, 1e-9, 1e-3, 0.5, 0.999, 1.0])
def test_bounds_are_ratios(bits, share):
    errors = min(round(bits * share), bits)
    for each in {errors, max(errors - 1, 0)}:
        lower, upper = lower_bound(each, bits), upper_bound(each, bits)
        assert 0 <= lower <= each / bits <= upper <= 1


@pytest.mark.parametrize(
    ("errors", "bits"), [(999_999_999, 10**9), (5 * 10**8, 10**9), (3 * 10**4, 10**9)]
)
def test_bounds_leave_as_much_on_each_side_as_stated(errors, bits):
    upper, lower = upper_bound(errors, bits), lower_bound(errors, bits)
    from scipy.stats import binom  # slow to import: not where tests are only collected

    assert binom.cdf(errors, bits, upper) == pytest.approx(0.05, rel=1e-3)
    assert binom.sf(errors - 1, bits, lower) == pytest.approx(0.05, rel=1e-3)


def test_a_verdict_is_by_the_bound_and_not_by_the_ratio() -> None:
    assert judge_error_ratio(0, 10**12, 1e-12).outcome == "not enough data"
    assert judge_error_ratio(0, 3 * 10**12, 1e-12).outcome == "pass"
    assert judge_error_ratio(2, 10**12, 1e-12).outcome == "not enough data"
    assert judge_error_ratio(5, 10**12, 1e-12).outcome == "fail"
