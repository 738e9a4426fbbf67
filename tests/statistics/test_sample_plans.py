"""Plans of two stages err as often as they state, and judge each look by its own numbers."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.limits import judge, sample_plan, samples_needed
from lightrig.harness.statistics.sample_plans import Look, two_stage_plan
from lightrig.testbeds import parse_limit

LIMIT = parse_limit("reconfiguration.carrier_up", {"p95": "250 ns", "confidence": "95 %"})
KEPT, LATE = 240.0, 251.0


def outcome(*late_at, n, least=None):
    """The verdict on n samples, late ones at these places; `least`: their lower bounds."""
    latest = np.full(n, KEPT)
    latest[list(late_at)] = LATE
    earliest = latest if least is None else np.minimum(latest, least)
    return judge(LIMIT, earliest, latest, sample_plan(LIMIT))


def by_joint_distribution(plan, share):
    """Probability of a pass and of a fail at either look, summed over both counts."""
    first, second = plan
    more = second.samples - first.samples
    x = scipy.stats.binom.pmf(np.arange(first.samples + 1), first.samples, share)
    y = scipy.stats.binom.pmf(np.arange(more + 1), more, share)
    joint = np.outer(x, y)
    at_first = np.arange(first.samples + 1)[:, None]
    at_second = at_first + np.arange(more + 1)[None, :]
    passes = (at_first <= first.passes) | (at_second <= second.passes)
    fails = (at_first >= first.fails) | (at_second >= second.fails)
    return joint[passes].sum(), joint[fails].sum()


@pytest.mark.parametrize(
    ("allowed", "error"), [(0.05, 0.05), (0.1, 0.05), (0.5, 0.05), (0.037, 0.013), (0.21, 0.1)]
)
def test_a_plan_errs_at_most_as_stated(allowed, error):
    plan = two_stage_plan(allowed, error)
    wrong_pass, wrong_fail = by_joint_distribution(plan, allowed)
    assert wrong_pass <= error
    assert wrong_fail <= error
    first, second = plan
    one_less = first, second._replace(samples=second.samples - 1)
    assert by_joint_distribution(one_less, allowed)[0] > error
    sooner = first, second._replace(fails=second.fails - 1)
    assert second.fails == first.fails or by_joint_distribution(sooner, allowed)[1] > error


def test_the_plan_of_a_p95():
    assert sample_plan(LIMIT) == (Look(70, 0, 8), Look(198, 4, 17))
    wrong_pass, wrong_fail = by_joint_distribution(sample_plan(LIMIT), 0.05)
    assert wrong_pass == pytest.approx(0.0496, abs=5e-5)
    assert wrong_fail == pytest.approx(0.0393, abs=5e-5)
    right_pass, _ = by_joint_distribution(sample_plan(LIMIT), 0.005)
    assert right_pass == pytest.approx(0.997, abs=5e-4)


@pytest.mark.parametrize(
    "body", [{"p99": "70 ms"}, {"max": "70 ms"}, {"p95": "70 ms", "confidence": "99.99 %"}]
)
def test_no_second_stage_takes_more_than_300(body):
    assert sample_plan(parse_limit("reconfiguration.carrier_up", body)) is None


def test_the_first_look_passes_without_a_late_sample_only():
    assert outcome(n=70).outcome == "pass"
    found = outcome(33, n=70)
    assert (found.outcome, found.needed) == ("not enough data", 128)
    assert outcome(n=69).outcome == "not enough data"
    assert samples_needed(LIMIT) == 59  # which is for a number that was fixed


def test_nothing_passes_between_the_looks():
    """181 samples with four late pass where 181 were fixed beforehand."""
    late = (3, 69, 101, 150)
    assert outcome(*late, n=181).outcome == "not enough data"
    latest = np.full(181, KEPT)
    latest[list(late)] = LATE
    assert judge(LIMIT, latest, latest).outcome == "pass"
    found = outcome(*late, n=198)
    assert (found.outcome, found.possibly_exceeding) == ("pass", 4)


def test_a_look_that_decided_stands():
    assert outcome(*range(70, 90), n=198).outcome == "pass"  # the first one had none late
    assert outcome(*range(1, 70, 9), n=198).outcome == "fail"  # eight


def test_the_second_look_may_leave_it_undecided():
    # Of sixteen, ten of the first 70 would have failed: eight of them.
    found = outcome(*range(1, 70, 7), *range(80, 191, 20), n=198)
    assert found.outcome == "fail"
    seven = range(2, 70, 10)  # at the first look; sixteen at the second
    found = outcome(*seven, *range(75, 180, 13), n=198)
    assert (found.outcome, found.needed, found.exceeding) == ("not enough data", None, 16)
    assert outcome(*seven, *range(75, 193, 13), n=198).outcome == "fail"


def test_a_plan_fails_as_soon_as_it_must():
    assert outcome(*range(8), n=8).outcome == "fail"
    assert outcome(*range(7), n=8).outcome == "not enough data"


def test_intervals_that_hold_the_limit_neither_pass_nor_fail():
    assert outcome(*range(20), n=70, least=249.0).outcome == "not enough data"
    assert outcome(3, 31, 44, n=70, least=249.0).outcome == "not enough data"
    assert outcome(*range(20), n=198, least=249.0).outcome == "not enough data"


@pytest.mark.long
def test_rates_of_simulated_tests():
    """Verdicts over 4,000 tests, taken as a test takes them: the second stage only if needed."""
    random, plan = np.random.default_rng(20), sample_plan(LIMIT)
    for share, passes, fails in ((0.05, 0.0496, 0.0393), (0.01, 0.957, 0.0)):
        counts = {"pass": 0, "fail": 0, "not enough data": 0}
        exact = by_joint_distribution(plan, share)
        for late in random.random((4_000, 198)) < share:
            n = 70 if not late[:70].any() else 198
            counts[outcome(*np.flatnonzero(late[:n]), n=n).outcome] += 1
        assert exact[0] == pytest.approx(passes, abs=0.01)
        for name, expected in (("pass", exact[0]), ("fail", exact[1])):
            wide = 5 * np.sqrt(expected * (1 - expected) / 4_000) + 1e-3
            assert counts[name] / 4_000 == pytest.approx(expected, abs=wide), (share, name)
        assert exact[1] == pytest.approx(fails, abs=0.01)


PAGE = Path(__file__).parents[2] / "docs" / "appendix" / "sample-plans.md"


@pytest.mark.parametrize(("name", "kept"), [("median", 0.5), ("p90", 0.9), ("p95", 0.95)])
def test_the_page_states_what_the_plans_are(name, kept):
    (row,) = re.findall(rf"^\| {name} \| (\d+: .*) \|$", PAGE.read_text(), re.MULTILINE)
    first, second, fifth, tenth, wrong_pass, wrong_fail = row.split(" | ")
    plan = two_stage_plan(1 - kept, 0.05)
    stated = [tuple(map(int, re.findall(r"\d+", look))) for look in (first, second)]
    assert stated == [tuple(look) for look in plan]
    passes = [by_joint_distribution(plan, (1 - kept) / part)[0] for part in (5, 10, 1)]
    rates = *passes, by_joint_distribution(plan, 1 - kept)[1]
    assert [fifth, tenth, wrong_pass, wrong_fail] == [f"{100 * rate:.1f} %" for rate in rates]
