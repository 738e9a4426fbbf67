"""Verdicts: error rates at the boundary, exact needs, and sentences for people."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.verdicts import judge_maximum, judge_quantile

LIMIT = 100


def samples(kept, straddling, over):
    low = [LIMIT] * kept + [LIMIT - 5] * straddling + [LIMIT + 1] * over
    high = [LIMIT] * kept + [LIMIT + 5] * straddling + [LIMIT + 9] * over
    return low, high


COUNTS = st.tuples(st.integers(0, 400), st.integers(0, 5), st.integers(0, 5))
CLAIMS = st.tuples(
    st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999]), st.sampled_from([0.5, 0.8, 0.95, 0.99])
)


def test_299_good_ones_pass_a_p99_and_298_do_not():
    passed = judge_quantile(*samples(299, 0, 0), LIMIT, 0.99)
    assert (passed.outcome, passed.needed, passed.n) == ("pass", None, 299)
    assert passed.reason == (
        "0 of 299 samples exceed the limit, so at least 99 % keep the limit with 95 % confidence."
    )
    undecided = judge_quantile(*samples(298, 0, 0), LIMIT, 0.99)
    assert (undecided.outcome, undecided.needed) == ("not enough data", 1)
    assert undecided.reason.endswith(": 1 more needed if all of them keep it.")


def test_no_samples_need_as_many_as_the_claim_takes():
    verdict = judge_quantile([], [], LIMIT, 0.99)
    assert (verdict.outcome, verdict.n, verdict.needed) == ("not enough data", 0, 299)
    assert verdict.reason.startswith("Nothing was measured, ")


def test_a_flood_of_exceedances_fails():
    verdict = judge_quantile(*samples(90, 0, 10), LIMIT, 0.99)
    assert (verdict.outcome, verdict.exceeding, verdict.needed) == ("fail", 10, None)
    assert "fewer than 99 %" in verdict.reason


def test_doubt_neither_passes_nor_fails():
    verdict = judge_quantile(*samples(0, 500, 0), LIMIT, 0.99)
    assert verdict.outcome == "not enough data"
    assert (verdict.exceeding, verdict.possibly_exceeding) == (0, 500)
    assert "0 of 500 samples exceed the limit and 500 more may" in verdict.reason


@settings(deadline=None)
@given(COUNTS, CLAIMS)
def test_needed_is_exact(counts, claim):
    kept, straddling, over = counts
    verdict = judge_quantile(*samples(kept, straddling, over), LIMIT, *claim)
    if verdict.outcome != "not enough data":
        assert verdict.needed is None
        return
    enough = judge_quantile(*samples(kept + verdict.needed, straddling, over), LIMIT, *claim)
    assert enough.outcome == "pass"
    fewer = judge_quantile(*samples(kept + verdict.needed - 1, straddling, over), LIMIT, *claim)
    assert fewer.outcome != "pass"


@settings(deadline=None)
@given(COUNTS, CLAIMS)
def test_a_good_sample_never_hurts_and_a_bad_one_never_helps(counts, claim):
    rank = {"fail": 0, "not enough data": 1, "pass": 2}
    kept, straddling, over = counts
    here = rank[judge_quantile(*samples(kept, straddling, over), LIMIT, *claim).outcome]
    better = rank[judge_quantile(*samples(kept + 1, straddling, over), LIMIT, *claim).outcome]
    worse = rank[judge_quantile(*samples(kept, straddling, over + 1), LIMIT, *claim).outcome]
    assert worse <= here <= better


@settings(deadline=None)
@given(COUNTS, CLAIMS)
def test_verdicts_are_the_clopper_pearson_bounds(counts, claim):
    kept, straddling, over = counts
    q, confidence = claim
    n = kept + straddling + over
    if n == 0:
        return
    both = 1 - 2 * (1 - confidence)
    upper = clopper_pearson(straddling + over, n, both)[1]
    lower = clopper_pearson(over, n, both)[0]
    verdict = judge_quantile(*samples(kept, straddling, over), LIMIT, q, confidence)
    if not math.isclose(upper, 1 - q, rel_tol=1e-9):
        assert (verdict.outcome == "pass") == (upper < 1 - q)
    if not math.isclose(lower, 1 - q, rel_tol=1e-9):
        assert (verdict.outcome == "fail") == (lower > 1 - q)


def clearly(share):
    return share + 3 * math.sqrt(share * (1 - share) / 4000)


@pytest.mark.long
@pytest.mark.parametrize(("q", "n"), [(0.9, 60), (0.95, 59), (0.99, 299), (0.99, 1000)])
def test_false_verdicts_at_the_boundary_are_rare(q, n):
    """The exceeding share is a hair over 1 - q for a false pass, exactly that for a false fail."""
    rng = np.random.default_rng(22)
    outcomes = []
    for values in rng.uniform(0, 1, (4000, n)):
        width = 0.002
        outcomes.append(judge_quantile(values - width, values + width, q, q).outcome)
    assert outcomes.count("pass") / 4000 <= clearly(0.05)
    assert outcomes.count("fail") / 4000 <= clearly(0.05)


def test_the_false_pass_rate_is_spent_and_not_hoarded():
    rng = np.random.default_rng(23)
    passes = sum(
        judge_quantile(v, v, 0.99, 0.99).outcome == "pass" for v in rng.uniform(0, 1, (4000, 299))
    )
    assert 0.035 <= passes / 4000 <= clearly(0.05)


def test_a_maximum_is_about_the_samples_themselves():
    assert judge_maximum([], [], LIMIT).outcome == "not enough data"
    assert judge_maximum([], [], LIMIT).needed == 1
    passed = judge_maximum(*samples(16, 0, 0), LIMIT)
    assert (passed.outcome, passed.reason) == ("pass", "0 of 16 samples exceed the limit.")
    failed = judge_maximum(*samples(16, 2, 1), LIMIT)
    assert (failed.outcome, failed.exceeding, failed.possibly_exceeding) == ("fail", 1, 3)
    assert failed.reason == "1 of 19 samples exceed the limit and 2 more may, and none may."
    doubtful = judge_maximum(*samples(16, 2, 0), LIMIT)
    assert (doubtful.outcome, doubtful.possibly_exceeding) == ("not enough data", 2)
    lenient = judge_maximum(*samples(16, 2, 0), LIMIT, decision="lenient")
    assert (lenient.outcome, lenient.possibly_exceeding) == ("pass", 0)


@pytest.mark.parametrize(
    "judge", [lambda x: judge_maximum([1], [1], x), lambda x: judge_quantile([1], [1], x, 0.5)]
)
def test_a_limit_is_a_number(judge):
    with pytest.raises(SampleError, match="limit: found NaN"):
        judge(math.nan)


@pytest.mark.parametrize(("q", "confidence"), [(1, 0.95), (0, 0.95), (0.5, 0.1)])
def test_shares_out_of_range_are_refused(q, confidence):
    with pytest.raises(SampleError):
        judge_quantile([1], [1], LIMIT, q, confidence)
