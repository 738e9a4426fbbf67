"""Limits held against samples: warnings before failures, and lower bounds in their own words."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.statistics.limits import judge, samples_needed
from lightrig.testbeds import parse_limit

P99 = parse_limit("outage", {"p99": "70 ns", "warn": "60 ns", "confidence": "95 %"})
MAX = parse_limit("insertion_loss", {"max": "3 dB", "warn": "2.5 dB"})
MIN = parse_limit("received_power", {"min": "-10 dBm", "warn": "-9 dBm"})


def test_a_value_between_warning_and_limit_is_marginal():
    assert judge(P99, [50] * 299, [50] * 299).outcome == "pass"
    near = [65] + [50] * 298
    verdict = judge(P99, near, near)
    assert (verdict.outcome, verdict.exceeding, verdict.needed) == ("marginal", 0, None)
    assert verdict.reason == (
        "0 of 299 samples exceed the limit, so at least 99 % keep the limit with 95 % confidence."
        " But 1 of 299 samples exceed the warning level, which does not decide whether 99 % keep"
        " the warning level with 95 % confidence: 174 more needed if all of them keep it."
    )
    assert judge(P99, [75] * 299, [75] * 299).outcome == "fail"
    assert judge(P99, [65] * 200, [65] * 200).outcome == "not enough data"


def test_single_samples_warn_too():
    assert judge(MAX, [2.4], [2.4]).outcome == "pass"
    verdict = judge(MAX, [2.4, 2.7], [2.4, 2.7])
    assert verdict.outcome == "marginal"
    assert verdict.reason == (
        "0 of 2 samples exceed the limit. But 1 of 2 samples exceed the warning level, and none "
        "may."
    )
    assert judge(MAX, [3.1], [3.1]).outcome == "fail"


def test_a_lower_bound_is_fallen_below():
    assert judge(MIN, [-5], [-4]).outcome == "pass"
    assert judge(MIN, [-9.5], [-9.2]).outcome == "marginal"
    verdict = judge(MIN, [-12, -11, -5], [-11, -9, -4])
    assert (verdict.outcome, verdict.exceeding, verdict.possibly_exceeding) == ("fail", 1, 2)
    assert verdict.reason == "1 of 3 samples fall below the limit and 1 more may, and none may."
    assert judge(MIN, [], []).outcome == "not enough data"


def test_an_unbounded_sample_does_not_fall_below_a_limit():
    bound = parse_limit("outage", {"min": "10 ns"})
    assert judge(bound, [5], [math.inf]).possibly_exceeding == 1
    assert judge(bound, [11], [math.inf]).outcome == "pass"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 100), max_size=400), st.sampled_from([P99, MAX, MIN]))
def test_a_warning_changes_nothing_but_what_passes(samples, limit):
    values = [value - 50 for value in samples] if limit is MIN else samples
    bare = judge(dataclasses.replace(limit, warn=None), values, values).outcome
    warned = judge(limit, values, values).outcome
    assert warned == bare or (bare, warned) == ("pass", "marginal")


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_both_sides_mirror_each_other(side):
    values = [-30, -5, 0, 4, 9]
    if side == "upper":
        limit = parse_limit("gain", {"max": "3 dB"})
        found = judge(limit, values, [value + 1 for value in values])
    else:
        limit = parse_limit("gain", {"min": "-3 dB"})
        found = judge(limit, [-value - 1 for value in values], [-value for value in values])
    assert (found.outcome, found.exceeding, found.possibly_exceeding) == ("fail", 2, 2)


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        ({"p99": "70 ms"}, 299),
        ({"p95": "70 ms"}, 59),
        ({"p99": "70 ms", "confidence": "99 %"}, 459),
        ({"max": "70 ms"}, None),
        ({"max": "70 ms", "confidence": "95 %"}, None),
    ],
)
def test_the_samples_that_a_limit_needs_pass_it_and_one_less_does_not(body, needed):
    limit = parse_limit("reconfiguration.carrier_up", body)
    assert samples_needed(limit) == needed
    if needed is not None:
        assert judge(limit, [0.0] * needed, [0.0] * needed).outcome == "pass"
        assert judge(limit, [0.0] * (needed - 1), [0.0] * (needed - 1)).outcome == "not enough data"
