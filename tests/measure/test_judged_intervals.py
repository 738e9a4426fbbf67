"""Limits judge the intervals of rows, the worst direction, and the decision rule that is stated."""

import pytest

from lightrig.harness.measure.recording import (
    LimitExceededError,
    NotEnoughDataError,
    Recording,
)
from lightrig.harness.record import Row
from lightrig.harness.statistics.limits import judge
from lightrig.testbeds import LimitError, parse_limit


def judged(limit, *spans, quantity="insertion_loss"):
    found = Recording(lambda rows: None, {quantity: parse_limit(quantity, limit)})
    found.record(
        Row(f"ocs {n}", quantity, (low + high) / 2, low, high, "dB", n, {"event": n})
        for n, (low, high) in enumerate(spans)
    )
    return found


def test_an_interval_that_holds_the_limit_does_not_pass():
    with pytest.raises(NotEnoughDataError, match="their intervals hold the limit"):
        judged({"max": "3 dB"}, (2.6, 3.2)).judge("insertion_loss")
    with pytest.raises(NotEnoughDataError, match="1 more may"):
        judged({"max": "4 dB"}, (3.99, 4.19), (1.0, 1.2)).judge("insertion_loss")
    judged({"max": "3 dB"}, (2.6, 3.0)).judge("insertion_loss")
    with pytest.raises(LimitExceededError):
        judged({"max": "3 dB"}, (3.1, 3.2)).judge("insertion_loss")


@pytest.mark.parametrize(
    ("decision", "span", "outcome"),
    [
        ("guarded", (2.9, 3.05), "not enough data"),
        ("guarded", (2.8, 2.99), "pass"),
        ("guarded", (3.01, 3.2), "fail"),
        ("simple", (2.9, 3.05), "pass"),
        ("simple", (2.95, 3.1), "fail"),
        ("lenient", (2.95, 3.1), "pass"),
        ("lenient", (3.01, 3.1), "fail"),
    ],
)
def test_the_decision_rule_says_what_such_an_interval_means(decision, span, outcome):
    found = judged({"max": "3 dB", "decision": decision}, span)
    ((limit, verdict),) = found.verdicts("insertion_loss")
    assert verdict.outcome == outcome
    assert (f"{decision} acceptance" in str(limit)) == (decision != "guarded")


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [("guarded", "not enough data"), ("simple", "pass"), ("lenient", "pass")],
)
def test_the_decision_rule_holds_for_quantiles_as_well(decision, outcome):
    limit = {"p99": "3 dB", "confidence": "95 %", "decision": decision}
    spans = [(1.0, 2.0)] * 298 + [(2.0, 3.5)]
    ((_, verdict),) = judged(limit, *spans).verdicts("insertion_loss")
    assert verdict.outcome == outcome


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [("guarded", "not enough data"), ("simple", "fail"), ("lenient", "pass")],
)
def test_an_event_that_was_not_seen_to_end_may_be_beyond_an_upper_limit(decision, outcome):
    limit = parse_limit("outage", {"max": "3 ns", "decision": decision})
    assert judge(limit, [2.0], [float("inf")]).outcome == outcome


def test_an_unknown_decision_rule_is_refused():
    with pytest.raises(LimitError, match="expected guarded, simple or lenient"):
        parse_limit("insertion_loss", {"max": "3 dB", "decision": "generous"})
