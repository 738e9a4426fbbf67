"""Plans for events that follow each other, by arithmetic and by draws."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.independence import follow_more_closely
from lightrig.harness.statistics.limits import judge, sample_plan, samples_needed
from lightrig.harness.statistics.sample_plans import (
    Look,
    fail_probability,
    pass_probability,
    two_stage_plan,
)
from lightrig.harness.statistics.serial_counts import at_least, at_most
from lightrig.testbeds import parse_limit
from lightrig.testbeds.limits import LimitError


def limit_of(bound, correlation, value="5 ms"):
    body = {bound: value, "correlation": correlation}
    return parse_limit("reconfiguration.carrier_up", body)


def draws(seed, count, n, rho):
    """A process of the first order: one test a row."""
    random = np.random.default_rng(seed)
    values = np.empty((count, n))
    values[:, 0] = random.normal(size=count)
    for k in range(1, n):
        fresh = random.normal(size=count)
        values[:, k] = rho * values[:, k - 1] + np.sqrt(1 - rho**2) * fresh
    return values


def test_the_plan_of_a_median_whose_events_follow_each_other():
    assert sample_plan(limit_of("median", 0.6)) == (Look(11, 0, 11), Look(24, 4, 20))
    assert sample_plan(limit_of("median", 0)) == (Look(6, 0, 6), Look(16, 4, 12))
    assert samples_needed(limit_of("median", 0.6)) == 9  # where their number is fixed
    assert sample_plan(limit_of("p95", 0.9)) is None  # 509


def test_the_tails_are_those_of_the_normal_distribution():
    """Two of two: by Sheppard, a quarter and asin(r) / 2 pi; four by scipy's orthant."""
    assert at_most(0, 2, 0.5, 0.6) == pytest.approx(0.25 + np.arcsin(0.6) / 2 / np.pi, abs=1e-9)
    place = np.arange(4)
    covariance = 0.6 ** np.abs(place[:, None] - place)
    none = scipy.stats.multivariate_normal(np.zeros(4), covariance).cdf(np.full(4, 1.2816))
    assert at_most(0, 4, 0.1, 0.6) == pytest.approx(none, abs=3e-5)
    for k in range(5):
        total = at_most(k, 4, 0.1, 0.6) + at_least(k + 1, 4, 0.1, 0.6)
        assert total == pytest.approx(1, abs=1e-9)
    assert at_most(2, 9, 0.3, 1e-6) == pytest.approx(at_most(2, 9, 0.3), abs=1e-5)


@pytest.mark.parametrize(("kept", "rho"), [(0.5, 0.3), (0.5, 0.6), (0.9, 0.6)])
def test_a_plan_for_a_correlation_errs_as_it_states(kept, rho):
    first, second = two_stage_plan(1 - kept, 0.05, rho)
    beyond = (draws(5, 40_000, second.samples, rho) > scipy.special.ndtri(kept)).cumsum(axis=1)
    at_first, at_second = beyond[:, first.samples - 1], beyond[:, second.samples - 1]
    passes = ((at_first <= first.passes) | (at_second <= second.passes)).mean()
    fails = ((at_first >= first.fails) | (at_second >= second.fails)).mean()
    # Four standard deviations of 40,000 draws are 0.44 %.
    assert 0.04 < passes < 0.0544
    assert 0.04 < fails < 0.0544


@pytest.mark.parametrize("rho", [0.3, 0.6])
def test_medians_of_few_events_are_wrongly_decided_in_5_percent(rho):
    """Through the verdict; 99.9 % of 600 draws at 5 % allow 47."""
    limit = limit_of("median", rho, "0 ns")
    plan = sample_plan(limit)
    outcomes = []
    for values in draws(6, 600, plan[1].samples, rho):
        found = judge(limit, values[: plan[0].samples], values[: plan[0].samples], plan)
        if found.outcome == "not enough data":
            found = judge(limit, values, values, plan)
        outcomes.append(found.outcome)
    assert outcomes.count("pass") <= 47
    assert outcomes.count("fail") <= 47
    assert outcomes.count("pass") >= 12  # the error that is stated is used


def test_the_reason_states_the_correlation_and_what_contradicts_it():
    limit = limit_of("median", 0.3, "0.3 ns")
    (values,) = draws(8, 1, 60, 0.3)
    found = judge(limit, values - 1, values - 1)
    assert found.outcome == "pass"
    assert found.reason.endswith("Events are taken to follow each other by 0.3, as it states.")
    assert "assumes independent" not in found.reason
    held = np.repeat(draws(9, 1, 6, 0)[0], 10)  # six levels, each ten times
    assert follow_more_closely(held, 0.3)
    assert "depend on each other" in judge(limit, held - 1, held - 1).reason


def test_samples_of_the_declared_correlation_seldom_contradict_it():
    closer = sum(follow_more_closely(values, 0.6) for values in draws(10, 2_000, 24, 0.6))
    assert closer <= 36  # 1 % of 2,000, and 3.6 standard deviations


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"median": "5 ms", "correlation": 0.95}, "expected a number from 0 to 0.9"),
        ({"median": "5 ms", "correlation": "60 %"}, "expected a number from 0 to 0.9"),
        ({"median": "5 ms", "correlation": True}, "expected a number from 0 to 0.9"),
        ({"max": "5 ms", "correlation": 0.6}, "beside median, p90 or p99"),
    ],
)
def test_a_correlation_that_makes_no_sense_is_refused(body, said):
    with pytest.raises(LimitError, match=said):
        parse_limit("reconfiguration.carrier_up", body)


def test_a_limit_is_printed_with_its_correlation():
    assert str(limit_of("median", 0.6)).endswith("5 ms, events correlated by 0.6 (95 % confident)")


@pytest.mark.parametrize("rho", ["0.3", "0.6", "0.9"])
def test_the_page_states_what_the_plans_for_a_correlation_are(rho):
    page = (Path(__file__).parents[2] / "docs" / "appendix" / "sample-plans.md").read_text()
    (row,) = re.findall(rf"^\| {rho} \| (\d+: .*) \|$", page, re.MULTILINE)
    stated = row.split(" | ")
    plan = two_stage_plan(0.5, 0.05, float(rho))
    assert [tuple(map(int, re.findall(r"\d+", one))) for one in stated[:2]] == list(plan)
    tenth, wrong_pass, wrong_fail = (float(one.removesuffix(" %")) / 100 for one in stated[2:])
    assert pass_probability(plan, 0.05, float(rho)) == pytest.approx(tenth, abs=6e-4)
    assert pass_probability(plan, 0.5, float(rho)) == pytest.approx(wrong_pass, abs=6e-4)
    assert fail_probability(plan, 0.5, float(rho)) == pytest.approx(wrong_fail, abs=6e-4)
