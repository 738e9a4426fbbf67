"""Samples that follow each other are found, and count as fewer."""

import dataclasses

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.independence import (
    below_together,
    effective_samples,
    rank_samples,
    runs_p,
    serial_p,
)
from lightrig.harness.statistics.limits import judge, sample_plan
from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.testbeds import Limit


def following(random, n, rho):
    """A process of the first order with unit variance."""
    values = [random.normal()]
    for _ in range(n - 1):
        values.append(rho * values[-1] + np.sqrt(1 - rho**2) * random.normal())
    return np.array(values)


@pytest.mark.parametrize("test", [serial_p, runs_p])
def test_independent_samples_are_rarely_taken_for_dependent(test):
    random = np.random.default_rng(3)
    alarms = sum(test(random.lognormal(0, 1, 60)) < 0.05 for _ in range(1000))
    assert scipy.stats.binomtest(alarms, 1000, 0.05).proportion_ci().low <= 0.05


def test_samples_that_follow_each_other_and_a_change_of_level_are_found():
    random = np.random.default_rng(4)
    assert sum(serial_p(following(random, 60, 0.6)) < 0.005 for _ in range(100)) >= 90
    stepped = np.concatenate([random.normal(0, 1, 30), random.normal(3, 1, 30)])
    assert runs_p(stepped) < 1e-4


def test_samples_to_and_fro_keep_their_number():
    random = np.random.default_rng(5)
    alternating = np.tile([0.0, 5.0], 30) + random.normal(0, 1, 60)
    assert effective_samples(alternating, 0.5) == 60


def test_few_exceedances_at_an_end_are_no_dependence():
    for high in ([0], [0, 30], [69], [0, 69]):
        values = np.full(70, 50.0)
        values[high] = 65.0
        assert effective_samples(values, 0.95) == 70


def test_ranks_are_those_of_scipy_where_samples_are_equal():
    values = [3.5, -1, 3.5, 0, 3.5, 9, -1, 2]
    assert rank_samples(np.array(values)).tolist() == scipy.stats.rankdata(values).tolist()


def test_serial_p_is_bartels_table():
    # Bartels (1982), example 1: changes of stock levels 1968-1977, ratio 1.3 by ranks.
    values = [528, 348, 264, -20, -167, 575, 410, -4, 430, -122]
    ranks = scipy.stats.rankdata(values)
    ratio = (np.diff(ranks) ** 2).sum() / ((ranks - ranks.mean()) ** 2).sum()
    exact = _by_permutations(ratio)
    assert serial_p(values) == pytest.approx(exact, abs=0.02)


def _by_permutations(ratio):
    random, ranks = np.random.default_rng(6), np.arange(1, 11)
    shuffled = random.permuted(np.tile(ranks, (20_000, 1)), axis=1)
    spread = ((ranks - ranks.mean()) ** 2).sum()
    return float(((np.diff(shuffled, axis=1) ** 2).sum(axis=1) / spread <= ratio + 1e-9).mean())


@pytest.mark.parametrize(
    ("q", "rho", "least"),
    [
        (0.5, 0.0, 0.93),
        (0.9, 0.6, 0.92),
        pytest.param(0.5, 0.6, 0.92, marks=pytest.mark.long),
    ],
)
def test_intervals_of_quantiles_hold_with_effective_samples(q, rho, least):
    random = np.random.default_rng(7)
    truth = scipy.special.ndtri(q)
    held = counted = plain = 0
    for _ in range(400):
        values = following(random, 150, rho)
        found = quantile(values, values, q, effective=effective_samples(values, q))
        naive = quantile(values, values, q)
        counted += not isinstance(found, NotEnough)
        held += isinstance(found, NotEnough) or found.lower <= truth <= found.upper
        plain += naive.lower <= truth <= naive.upper
    assert held / 400 >= least
    assert counted > 380
    if rho:
        assert plain / 400 < 0.92


@pytest.mark.parametrize("q", [0.5, 0.2, 0.95])
def test_what_follows_is_the_correlation_of_being_below_a_quantile(q):
    """The orthant probability of scipy, and Sheppard's 2 asin(r) / pi at the median."""
    r = np.array([0.05, 0.6, 0.97])
    z = scipy.special.ndtri(q)
    normal = scipy.stats.multivariate_normal
    both = np.array([normal([0, 0], [[1, each], [each, 1]]).cdf([z, z]) for each in r])
    assert below_together(r, q) == pytest.approx((both - q * q) / (q * (1 - q)), abs=1e-4)
    assert below_together(r, 0.5) == pytest.approx(2 * np.arcsin(r) / np.pi, abs=1e-9)


@pytest.mark.long
def test_exceedances_of_a_high_quantile_follow_each_other_less():
    """Counted in a long process: the variance of the share of samples below each quantile."""
    random = np.random.default_rng(8)
    many = np.array([following(random, 400, 0.6) for _ in range(1_500)])
    for q in (0.5, 0.95):
        below = (many <= scipy.special.ndtri(q)).mean(axis=1)
        true = q * (1 - q) / below.var()
        counted = np.median([effective_samples(one, q) for one in many[:200]])
        assert 0.6 * true < counted < true


def test_a_limit_is_not_decided_by_samples_that_follow_each_other():
    """A p95 takes 59 independent samples; ten levels, each seven times, are worth far fewer."""
    random = np.random.default_rng(9)
    held = np.repeat(random.permutation(10), 7) + random.uniform(0, 0.1, 70)
    limit = Limit("reconfiguration", "upper", 0.95, 20.0, "1", 0.95)
    shuffled = random.permutation(held)
    assert judge(limit, shuffled, shuffled).outcome == "pass"
    dependent = judge(limit, held, held + 0.5)
    assert dependent.outcome == "not enough data"
    assert dependent.needed is not None
    assert dependent.needed > 70
    assert "depend on each other" in dependent.reason
    few = judge(dataclasses.replace(limit, value=4.5), held, held)
    assert few.outcome == "fail"


def test_a_verdict_says_where_too_few_samples_cannot_show_dependence():
    random = np.random.default_rng(4)
    median = Limit("reconfiguration", "upper", 0.5, 3.0, "1", 0.95)
    assumed = " It assumes independent events; too few to tell."
    for n, value, outcome in ((16, 3.0, "pass"), (16, -3.0, "fail"), (69, 3.0, "pass")):
        events = random.normal(size=n)
        found = judge(dataclasses.replace(median, value=value), events, events)
        assert (found.outcome, found.reason.endswith(assumed)) == (outcome, True)
    events = random.normal(size=70)
    found = judge(median, events, events)
    assert (found.outcome, found.reason.endswith(assumed)) == ("pass", False)
    # None may be beyond: that speaks of these samples alone.
    found = judge(
        dataclasses.replace(median, confidence=None, quantile=1.0), events[:9], events[:9]
    )
    assert assumed not in found.reason


@pytest.mark.parametrize(("q", "n"), [(0.5, 70), (0.9, 98), (0.95, 198)])
@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_a_limit_at_the_true_quantile_is_wrongly_decided_in_5_percent(q, n, rho):
    """From 70 events on, whether they depend on each other or not; 99.9 % of 300 draws allow 28."""
    random, limit = np.random.default_rng(21), scipy.special.ndtri(q)
    asked = Limit("reconfiguration", "upper", q, float(limit), "1", 0.95)
    outcomes = []
    for _ in range(300):
        events = following(random, n, rho)
        outcomes.append(judge(asked, events, events).outcome)
    assert outcomes.count("pass") <= 28
    assert outcomes.count("fail") <= 28


def by_plan(random, q, above, rho):
    """A limit judged as a test does: more events for as long as the verdict asks for them.

    above: of the limit over the true quantile, in standard deviations.
    """
    limit = float(scipy.special.ndtri(q)) + above
    asked = Limit("reconfiguration", "upper", q, limit, "1", 0.95)
    plan = sample_plan(asked)
    events = following(random, plan[-1].samples, rho)
    n = plan[0].samples
    while True:
        found = judge(asked, events[:n], events[:n], plan)
        if found.outcome != "not enough data" or not found.needed:
            return found.outcome, n
        n += found.needed
        if n > plan[-1].samples:
            return found.outcome, n - found.needed


@pytest.mark.parametrize(("rho", "least"), [(0.3, 0.95), (0.6, 0.95)])
def test_a_plan_goes_on_where_events_depend_on_each_other(rho, least):
    """70 such events are few for a p95: without more of them, 35 % of tests (rho 0.3) end so."""
    random = np.random.default_rng(22)
    far = [by_plan(random, 0.95, 6, rho) for _ in range(100)]
    assert sum(outcome == "pass" for outcome, _ in far) >= 100 * least
    assert {n for _, n in far} - {70, 198}  # as many as are missing, not a whole second stage
    wrong = [by_plan(random, 0.95, 0, rho)[0] for _ in range(300)]
    assert wrong.count("pass") <= 28  # 99.9 % of draws at 5 %
    assert wrong.count("fail") <= 28


def test_p_values_by_hand():
    """Bartels' variance of ten ranks is 4 x 8 x 471 / (5 x 10 x 11 x 81); runs of 5 and 7."""
    values = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 9.0, 7.0, 10.0, 8.0])
    steps = sum(each**2 for each in (2, 1, 3, 1, 2, 3, 2, 3, 2))
    ratio, variance = steps / 82.5, 4 * 8 * 471 / (5 * 10 * 11 * 81)
    expected = scipy.stats.norm.cdf((ratio - 2) / variance**0.5)
    assert serial_p(values) == pytest.approx(expected)
    assert serial_p(values[:9]) == 1.0
    # Seven below, three at the median, five above: runs of 3, 2, 4 and 3.
    ordered = [1, 2, 3, 5, 8, 9, 1, 5, 2, 3, 1, 7, 5, 6, 8]
    mean, square = 1 + 70 / 12, (70 / 12) * (70 / 12 - 1) / 11
    assert runs_p(ordered) == pytest.approx(scipy.stats.norm.cdf((4.5 - mean) / square**0.5))
    assert runs_p([1, 2, 3, 4, 5, 5, 6, 7, 8, 9]) == 1.0  # four above
    assert runs_p([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) < 0.05
