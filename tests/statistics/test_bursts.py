"""Bounds and verdicts on bit error ratios whose errors come in bursts."""

import math

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.bit_errors import judge_error_ratio
from lightrig.harness.statistics.bursts import (
    GateErrors,
    burst_bounds,
    dispersion,
    judge_gates,
    pooled,
)
from lightrig.harness.statistics.samples import SampleError

BITS = 7 * 10**12
LIMIT = 1e-12


def gate(*looks, bits=BITS):
    return GateErrors.of_looks(bits, looks)


def of_bursts(sizes, bits=BITS):
    """A gate each of whose bursts was seen at a look of its own."""
    return GateErrors.of_looks(bits, np.cumsum([0, *sizes]).tolist())


def test_looks_show_what_was_added():
    assert gate(0, 0, 3, 3, 4, 9) == GateErrors(9, BITS, 3, 9 + 1 + 25, 5)
    assert gate(0) == GateErrors(0, BITS, 0, 0, 0)
    assert gate(7) == GateErrors(7, BITS, 1, 49, 7)
    with pytest.raises(SampleError, match="never fall"):
        gate(4, 3)


def test_gates_are_pooled():
    both = pooled([gate(2, 5, bits=10), gate(0, 4, bits=7)])
    assert both == GateErrors(9, 17, 3, 4 + 9 + 16, 4)


@pytest.mark.parametrize("errors", [1, 13, 240])
def test_bounds_of_single_errors_are_garwoods(errors):
    lower, upper = burst_bounds(of_bursts([1] * errors), 0.93)
    assert lower * BITS == pytest.approx(scipy.stats.chi2.ppf(0.07, 2 * errors) / 2)
    assert upper * BITS == pytest.approx(scipy.stats.chi2.ppf(0.93, 2 * errors + 2) / 2)


def test_bounds_are_those_of_weighted_counts():
    """Fay and Feuer's formulas with the sizes 2, 2, 7: sum 11, sum of squares 57, largest 7."""
    lower, upper = burst_bounds(of_bursts([2, 2, 7]), 0.95)
    assert lower * BITS == pytest.approx(57 / 22 * scipy.stats.chi2.ppf(0.05, 2 * 121 / 57))
    expected = 106 / 36 * scipy.stats.chi2.ppf(0.95, 2 * 324 / 106)
    assert upper * BITS == pytest.approx(expected)


def wrong_passes(mean, bursts, count, seed):
    """Of tests of a link at its limit with ten bursts or more: wrong passes, fails, and tests."""
    random = np.random.default_rng(seed)
    bits = round(bursts * mean / LIMIT)
    passed = failed = tests = 0
    for number in random.poisson(bursts, count):
        if number >= 10:
            sizes = random.geometric(1 / mean, number)
            outcome = judge_gates([of_bursts(sizes, bits)], LIMIT).outcome
            tests, passed, failed = (
                tests + 1,
                passed + (outcome == "pass"),
                failed + (outcome == "fail"),
            )
    return passed, failed, tests


@pytest.mark.parametrize("mean", [1, 4, 30])
def test_a_link_at_its_limit_rarely_passes(mean):
    passed, failed, tests = wrong_passes(mean, 23, 500, seed=mean)
    assert scipy.stats.binomtest(passed, tests, 0.05).proportion_ci().low <= 0.05
    assert scipy.stats.binomtest(failed, tests, 0.05).proportion_ci().low <= 0.05


@pytest.mark.long
@pytest.mark.parametrize("mean", [1, 2, 4, 10, 30])
@pytest.mark.parametrize("bursts", [14, 37, 110])
def test_at_most_7_percent_of_links_at_their_limit_pass(mean, bursts):
    passed, _, tests = wrong_passes(mean, bursts, 6_000, seed=bursts)
    assert scipy.stats.binomtest(passed, tests, 0.05).proportion_ci().high <= 0.07


def test_independent_errors_would_pass_it_too_often():
    """The rate that the bounds for bursts replace, at a mean of 4 errors in a burst."""
    random = np.random.default_rng(4)
    errors = [int(random.geometric(1 / 4, n).sum()) for n in random.poisson(23, 500)]
    passed = [judge_error_ratio(k, round(92 / LIMIT), LIMIT).outcome == "pass" for k in errors]
    assert np.mean(passed) > 0.2


def test_a_declared_burst_takes_as_many_times_the_bits():
    enough = math.ceil(-math.log(0.05) / LIMIT) + 10
    assert judge_gates([gate(0, bits=enough)], LIMIT).outcome == "pass"
    found = judge_gates([gate(0, bits=enough)], LIMIT, burst=4)
    assert (found.outcome, round(found.needed / enough, 3)) == ("not enough data", 3)
    found = judge_gates([gate(0, bits=4 * enough)], LIMIT, burst=4)
    assert found.outcome == "pass"
    assert "4 errors in a declared burst" in found.reason
    assert "independent" not in found.reason


def test_bursts_that_are_seen_larger_than_declared_count_against_a_pass():
    """Three looks with errors: the bound is 7.754 bursts (Garwood)."""
    small, large = gate(3, 7, 10, bits=10**14), gate(10, 22, 30, bits=10**14)
    for one, size in ((small, 4), (large, 10)):
        most = 7.754 * size / 1e14
        assert judge_gates([one], 1.01 * most, burst=4).outcome == "pass"
        assert judge_gates([one], 0.99 * most, burst=4).outcome == "not enough data"


def test_without_a_declared_burst_independence_is_assumed_and_stated():
    found = judge_gates([gate(0), gate(1), gate(0, 1)], LIMIT)
    assert found.outcome == "pass"
    assert found.reason.endswith("Errors are assumed to be independent.")


def test_gates_that_differ_too_much_do_not_pass_as_independent():
    """13 errors in one gate of six, each of which keeps 3e-12 by itself."""
    gates = [gate(0, bits=10**13)] * 5 + [gate(13, bits=10**13)]
    found = judge_gates(gates, 3e-12)
    assert found.outcome == "not enough data"
    assert "6 gates differ" in found.reason
    even = [gate(k, bits=10**13) for k in (2, 3, 2, 2, 1, 3)]
    assert judge_gates(even, 3e-12).outcome == "pass"


def test_one_gate_that_is_bad_by_itself_fails():
    good = gate(0, bits=10**14)
    bad = of_bursts([1, 2, 1, 1, 3, 1, 1, 2, 1, 1, 2, 1], bits=10**12)
    assert judge_gates([good], 1e-12).outcome == "pass"
    assert judge_gates([good, bad], 1e-12).outcome == "fail"


@pytest.mark.parametrize(("looks", "words"), [(10, "also in bursts"), (9, "assumed")])
def test_ten_looks_with_errors_show_bursts(looks, words):
    found = judge_gates([of_bursts([2] * looks)], 1e-10)
    assert found.outcome == "pass"
    assert words in found.reason


@pytest.mark.parametrize("counts", [(50, 71, 38), (400, 440, 380, 415)])
def test_dispersion_of_many_errors_is_pearsons(counts):
    bits = [10**12, 2 * 10**12, 10**12, 10**12][: len(counts)]
    errors = [k * n // 10**12 for k, n in zip(counts, bits, strict=True)]
    share = np.array(bits) / sum(bits)
    expected = scipy.stats.chisquare(errors, share * sum(errors)).pvalue
    found = dispersion([gate(k, bits=n) for k, n in zip(errors, bits, strict=True)])
    assert found == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / 9_999))


def test_dispersion_of_few_errors_is_exact():
    """All three errors in one of six gates: 6 of 216 ways."""
    found = dispersion([gate(0)] * 5 + [gate(3)])
    assert found == pytest.approx(1 / 36, abs=0.005)
    assert dispersion([gate(3)]) == dispersion([gate(0), gate(1)]) == 1.0
