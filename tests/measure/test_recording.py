"""Judging by limits: unknown names, and one sample an event by the quantity's direction."""

import pytest

from lightrig.harness.measure.recording import LimitExceededError, Recording
from lightrig.harness.quantities.registry import UnknownQuantityError
from lightrig.harness.record import Row
from lightrig.testbeds import parse_limit

IGNORED = [].extend
"""A store of rows that no test reads."""


@pytest.mark.parametrize(
    ("family", "suggestion"),
    [
        ("reconfigurations", "did you mean 'reconfiguration'?"),
        ("reconfiguration.signal_recovred", "did you mean 'reconfiguration.signal_recovered'?"),
        ("typo", "expected one of "),
        ("", "expected one of "),
    ],
)
def test_unknown_quantity_is_an_error_with_a_suggestion(family, suggestion):
    with pytest.raises(UnknownQuantityError) as caught:
        Recording(IGNORED).judge(family)
    assert suggestion in str(caught.value)


@pytest.mark.parametrize("family", ["reconfiguration", "rdma.recovered", "module_power", "bypass"])
def test_known_quantity_without_a_limit_passes(family):
    Recording(IGNORED).judge(family)


def test_quantity_of_a_limit_is_known():
    limit = parse_limit("jitter", {"max": "3 ms"})
    with pytest.raises(Exception, match="Nothing was measured"):
        Recording(IGNORED, {"jitter": limit}).judge("jitter")


class Judging(Recording):
    """Judges values of one quantity by one limit."""

    def __init__(self, quantity: str, body: dict[str, object]) -> None:
        super().__init__(IGNORED, {quantity: parse_limit(quantity, body)})
        self.quantity = quantity

    def take(self, unit: str, *values: tuple[int, float]) -> None:
        self.record(
            Row(f"port{n}", self.quantity, value, None, None, unit, 0, {"event": event})
            for n, (event, value) in enumerate(values)
        )


def test_the_subjects_of_one_event_are_one_sample():
    judged = Judging("outage.carrier", {"p99": "70 ms"})
    judged.take("ns", *((event, 1e6 * port) for event in range(298) for port in range(2)))
    ((_, verdict),) = judged.verdicts("outage")
    assert (verdict.outcome, verdict.n) == ("not enough data", 298)
    judged.take("ns", (298, 1e6))
    judged.judge("outage")


def test_a_lower_limit_is_on_the_least_subject():
    judged = Judging("collective.utilization", {"min": "50 %"})
    judged.take("share", (0, 0.35), (0, 0.60))
    with pytest.raises(LimitExceededError, match=r"collective\.utilization min"):
        judged.judge("collective")


def test_an_event_that_is_given_for_all_rows_is_each_rows_own():
    stored, elsewhere = [], []

    def store_on(bench, conditions):
        return lambda rows: elsewhere.append((conditions, rows))

    limit = parse_limit("outage.carrier", {"max": "70 ms"})
    measure = Recording(stored.extend, {limit.quantity: limit}, store_on=store_on)
    for event in range(3):
        rows = [Row(f"p{n}", "outage.carrier", 1e6 * n, None, None, "ns", 0) for n in range(5)]
        measure.record(rows, {"event": event})
    assert [row.conditions for row in stored] == [{"event": n} for n in range(3) for _ in range(5)]
    assert elsewhere == []
    assert measure.verdict(limit).n == 3


def test_events_without_a_number_are_samples_of_their_own():
    """Two named events and two numbered ones are four; three rows of no event are three."""
    judged = Judging("outage.carrier", {"max": "70 ms"})
    judged.take("ns", ("x", 1e6), ("x", 2e6), ("y", 1e6), (0, 3e6), (1, 1e6), ("y", 2e6), (0, 1e6))
    ((_, verdict),) = judged.verdicts("outage")
    assert verdict.n == 4
    alone = Judging("outage.carrier", {"max": "70 ms"})
    alone.record(Row(f"p{n}", "outage.carrier", 1e6, None, None, "ns", 0) for n in range(3))
    ((_, verdict),) = alone.verdicts("outage")
    assert verdict.n == 3


def test_events_of_one_number_under_other_conditions_are_samples_of_their_own():
    found = []

    def store_on(bench, conditions):
        return lambda rows: found.append((conditions, [row.conditions for row in rows]))

    limit = parse_limit("outage.carrier", {"max": "70 ms"})
    measure = Recording(IGNORED, {limit.quantity: limit}, store_on=store_on)
    for temperature in (20, 45):
        for event in range(2):
            rows = [Row(f"p{n}", "outage.carrier", 1e6, None, None, "ns", 0) for n in range(5)]
            measure.record(rows, {"temperature_c": temperature, "event": event})
    assert measure.verdict(limit).n == 4
    assert found[1] == ({"temperature_c": 20}, [{"event": 1}] * 5)
