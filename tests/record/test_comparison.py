"""Two runs side by side, and drift by the nights before."""

import pytest
from record.recorded import MS, begin, context, description, record

from lightrig.harness.record import QuestionError, Results, Row, settle, store_descriptions
from lightrig.harness.report.comparison import compare
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.testbeds import TestbedError


def night(results, number, *, rows=40, shift_ms=0.0, simulated=True, run=None, **header):
    """A run of one night; nights differ by a little, as they do."""
    middle = 60.0 + 0.1 * (number % 3) + shift_ms
    name, date = run or f"n{number:02}", f"2026-03-{number:02}"
    return record(results, name, date, rows=rows, middle_ms=middle, simulated=simulated, **header)


@pytest.fixture
def nights(tmp_path):
    for number in range(1, 12):
        night(tmp_path, number)
    return tmp_path


def test_nights_alike_are_unchanged_and_one_apart_has_departed(nights):
    night(nights, 12)
    night(nights, 13, shift_ms=28)
    results = Results(nights)
    (alike,) = compare(results, "n11", "n12")
    (apart,) = compare(results, "n12", "n13")
    assert alike.case.quantity == "reconfiguration.signal_recovered"
    assert (alike.case.testbed, alike.case.unit, alike.case.simulated) == ("opus", "ns", True)
    assert alike.case.conditions == '{"before": "east-west"}'
    # Observers may be 5 ms off, but are so on every night: the medians lie within 0.1 ms.
    assert (alike.drift.outcome, alike.drift.sees) == ("unchanged", True)
    assert 1 < alike.drift.detectable < 1.1
    assert apart.drift.outcome == "departed, unconfirmed"
    assert (apart.drift.nights, apart.drift.n) == (12, 40)
    assert apart.before == alike.after
    assert (apart.after.value - apart.before.value) == pytest.approx(28.1 * MS)
    assert apart.after.lower <= apart.after.value <= apart.after.upper
    assert apart.drift.effect == pytest.approx(91.1 / 63.1, rel=0.01)
    assert 1.2 < apart.drift.lower < apart.drift.effect < apart.drift.upper


def test_few_nights_and_few_samples_are_not_enough(tmp_path):
    night(tmp_path, 1, rows=3)
    night(tmp_path, 2, shift_ms=30)
    (found,) = compare(Results(tmp_path), "n01", "n02")
    assert found.drift.outcome == "not enough data"
    assert found.drift.needed_nights == 2
    assert "1 nights before that count, 2 more needed" in found.drift.reason
    assert isinstance(found.before, NotEnough)
    assert found.after.n == 40


def test_a_simulated_run_is_never_compared_with_hardware(nights):
    night(nights, 12, simulated=False)
    results = Results(nights)
    with pytest.raises(QuestionError, match="n11 and n12 have nothing in common"):
        compare(results, "n11", "n12")
    night(nights, 13, simulated=False, shift_ms=8)
    (found,) = compare(results, "n12", "n13")
    assert (found.drift.nights, found.drift.needed_nights) == (1, 2)


def test_the_runs_of_one_night_are_one_night(nights):
    night(nights, 11, run="n11b", rows=10, shift_ms=1)
    night(nights, 12)
    (found,) = compare(Results(nights), "n11b", "n12")
    assert found.drift.nights == 11
    assert found.before.n == 10


def test_the_rules_are_those_stored_with_the_run(nights, tmp_path):
    file = description(tmp_path / "lab")
    rules = file.with_name("opus.baselines.yaml")
    rules.write_text("quantities:\n  reconfiguration.*: {guard: {max: 50 ms}}\n")

    def ruled(number):
        run = f"n{number}"
        stored = store_descriptions({"opus": str(file)}, nights / "runs" / run)
        return night(nights, number, descriptions=stored)

    ruled(12)
    (found,) = compare(Results(nights), "n11", "n12")
    assert found.drift.outcome == "guard broken"
    rules.write_text("quantities:\n  outage.*: {}\n")
    ruled(13)
    (found,) = compare(Results(nights), "n11", "n13")  # by the rule of its declaration
    assert found.drift.outcome != "guard broken"
    rules.write_text("quantities:\n  outage.*: {nights: 1}\n")
    ruled(14)
    with pytest.raises(TestbedError, match="expected at least 5"):
        compare(Results(nights), "n11", "n14")


def write(results, run, date, quantities):
    journal = begin(results, run, date)
    rows = [
        Row(f"port{port}", quantity, value, value, value, unit, 0, {"event": event})
        for quantity, unit, scale in quantities
        for event in range(35)
        for port in range(2)
        for value in [scale * (10 * event + port)]
    ]
    journal.append_many(context(), rows)
    journal.close()
    settle(journal.path.parent)


def test_series_are_those_of_the_page_and_nothing_is_compared_without_a_rule(tmp_path):
    quantities = [
        ("carrier_up", "ns", 1),
        ("closure.carrier_up", "1", 1),
        ("harness.carrier_stamp", "ns", 1),
        ("sensitivity", "dBm", -0.25),
        ("outage.carrier", "ns", 0),
    ]
    for number in range(10, 22):
        write(tmp_path, f"n{number}", f"2026-03-{number}", quantities)
    results = Results(tmp_path)
    found = {
        (one.case.quantity, one.case.subject, one.case.statistic): one
        for one in compare(results, "n20", "n21")
    }
    assert set(found) == {
        (quantity, port, statistic)
        for quantity, statistics in (
            ("carrier_up", ["median"]),
            ("sensitivity", ["median"]),
            ("outage.carrier", ["median", "greatest"]),
        )
        for port in ("port0", "port1")
        for statistic in statistics
    }
    assert found["carrier_up", "port1", "median"].after.n == 35
    first, second = compare(results, "n20", "n21", quantity="sensitivity")
    assert first == found["sensitivity", "port0", "median"]
    assert second.drift.outcome == "unchanged"
    assert "agree to the last digit" in second.drift.reason
    assert found["outage.carrier", "port0", "median"].drift.outcome == "unchanged"


def test_a_bound_that_is_missing_is_no_bound(tmp_path):
    for run in ("n1", "n2"):
        journal = begin(tmp_path, run)
        for number in range(20):
            journal.append(context(), Row("ocs", "reconfiguration.x", 5, None, None, "ns", number))
            journal.append(context(), Row("ocs", "insertion_loss", 1.5, None, None, "dB", number))
        journal.close()
        settle(journal.path.parent)
    loss, time = compare(Results(tmp_path), "n1", "n2")
    assert (time.after.lower, time.after.upper, time.after.n) == (0, float("inf"), 20)
    assert (loss.after.lower, loss.after.upper, loss.after.n) == (1.5, 1.5, 20)
