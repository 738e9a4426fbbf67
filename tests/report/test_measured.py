"""Does the report say what was measured, with its company, and no more than that?"""

import re

import numpy as np
import pytest
from report_runs import MS, context, rows

from lightrig.harness.record import Context, Row, read_journal
from lightrig.harness.report.estimates import estimate
from lightrig.harness.report.frames import collect, natural
from lightrig.testbeds import parse_limit

MARK = "lr-sim"


def row_of(page, quantity, label=""):
    """The text of the first table row of a test below the heading of a quantity."""
    after = page.fragment.split(f"<b>{quantity}</b>", 1)[1]
    found = next(r for r in re.findall(r"<tr>.*?</tr>", after, re.DOTALL) if label in r)
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_every_testbed_has_its_figures(show, small):
    page = show((context(), rows("small", 20)), (context("other"), rows("other", 20)))
    labels = " | ".join(page.labelled)
    assert "Wiring of small" in labels
    assert "Links of plan straight: 2" in labels
    assert "Links of plan crossed: 2" in labels
    for quantity in ("reconfiguration.signal_recovered", "outage.carrier"):
        assert page.labelled.count(f"Distribution of {quantity}") == 2
    assert sum(label.startswith("Timeline of event 10") for label in page.labelled) == 2


def test_simulated_is_marked_and_hardware_is_not(show):
    real = Context("small", "test_x", ("ocs: Polatis, serial 21877",), False, {})
    page = show((real, rows("small", 20)))
    assert MARK not in page.classes
    assert "simulated" not in page.text.replace("instruments simulated", "").replace(
        "not simulated", ""
    )


def test_each_test_is_marked_separately(show):
    page = show(
        (context(simulated=True), rows("small", 20)),
        (context(simulated=False, test="test_lab"), rows("small", 20)),
    )
    assert "simulated)" in row_of(page, "signal recovered", "moves")
    lab = row_of(page, "signal recovered", "lab")
    assert "hardware" in lab
    assert "simulated" not in lab
    assert "simulated : tests the harness, and says nothing about a device" in page.text


def test_every_figure_of_a_simulation_says_so(show):
    page = show((context(), rows("small", 20)))
    captions = re.findall(r"<figcaption>.*?</figcaption>", page.fragment, re.DOTALL)
    measured = [one for one in captions if "Wiring" not in one and "Links of plan" not in one]
    assert len(measured) >= 3
    for caption in measured:
        assert f'class="{MARK}"' in caption, caption


def test_no_figure_of_hardware_says_simulated(show):
    page = show((context(simulated=False), rows("small", 20)))
    for caption in re.findall(r"<figcaption>.*?</figcaption>", page.fragment, re.DOTALL):
        assert MARK not in caption


def test_a_lower_limit_is_judged_on_the_least_subject(journal):
    one = context()
    for event in range(80):
        for port, value in (("a", 50.0), ("b", 90.0)):
            conditions = {"event": event}
            row = Row(port, "rdma.bandwidth", value, value, value, "bit/s", 0, conditions)
            journal.append(one, row)
    journal.close()
    test = collect(read_journal(journal.path)).testbeds[0].tests[0]
    for least, outcome in (("60 bit/s", "fail"), ("40 bit/s", "pass")):
        found = estimate(test, "rdma.bandwidth", parse_limit("rdma.bandwidth", {"min": least}))
        assert found.verdict.outcome == outcome
    for most, outcome in (("60 bit/s", "fail"), ("95 bit/s", "pass")):
        found = estimate(test, "rdma.bandwidth", parse_limit("rdma.bandwidth", {"max": most}))
        assert found.verdict.outcome == outcome


def test_p99_of_few_events_is_not_shown(show):
    page = show((context(), rows("small", 298)))
    row = row_of(page, "signal recovered")
    assert "not enough data: 299 needed" in row
    assert "p99 of" not in row
    assert "? not enough data" in row
    assert re.search(
        r"\d+(\.\d)? ms \(median of 298; 95 % interval \d+.*? … \d+.*?; simulated\)", row
    )


def test_p99_of_299_events_has_its_bound_and_a_verdict(show):
    page = show((context(), rows("small", 299)))
    row = row_of(page, "signal recovered")
    assert re.search(r"\d ms \(p99 of 299; 95 % upper bound 49\.0 ms; simulated\)", row)
    assert "✓ pass" in row
    assert "✗ fail" in row_of(page, "carrier up")
    assert "exceed the limit" in row_of(page, "carrier up")
    assert "Verdicts: ✗ 1 fail ✓ 1 pass" in page.text


def test_events_without_a_stage_are_counted(show):
    page = show((context(), rows("small", 20, skip={("signal_recovered", 3)})))
    assert "19 of 20" in row_of(page, "signal recovered")
    assert "crossed simulated 20 12" in row_of(page, "carrier up")


def test_closure_is_green_only_if_all_close(show):
    page = show((context(), rows("small", 200, missed={7, 8})))
    assert "✓ closed" in closure_row(page, "signal recovered")
    row = closure_row(page, "carrier up")
    assert "✗ not closed" in row
    assert "2 missed in moves" in row
    assert "398 of 400 (99.5 %)" in row
    assert "198 of 200 (95 % interval 96.4 … 99.9 %; simulated)" in row
    assert "1 ms (mean of 400; simulated)" in row


def closure_row(page, stage):
    table = page.fragment.split('aria-label="Intervals and the ground truth"', 1)[1]
    found = next(r for r in table.split("</tr>") if f"<b>{stage}</b>" in r)
    return " ".join(re.sub(r"<[^>]+>", " ", found).split()).replace("( ", "(")


def test_no_share_of_closure_is_rounded_up_to_all(show):
    """699 of 700 is 99.857 %: rounded down, as 29,999 of 30,000 would be."""
    page = show((context(), rows("small", 350, missed={7})))
    assert "699 of 700 (99.85 %)" in closure_row(page, "carrier up")


def test_delays_are_shown_by_stamp_and_by_event(show):
    page = show((context(), rows("small", 300, cost=True)))
    text = page.text
    assert "Delays of the harness" in text
    assert "each stamp (600)" in text
    assert "worst of each event (300)" in text


def test_delays_without_measurement_are_left_out(show):
    assert "Delays of the harness" not in show((context(), rows("small", 3))).text


@pytest.mark.parametrize(
    ("quantity", "unit", "side", "bounds"),
    [
        ("outage.carrier", "ns", None, [[4], [np.inf]]),
        ("outage.carrier", "ns", "lower", [[1], [5]]),
        ("rdma.bandwidth", "bit/s", None, [[1], [5]]),
        ("rdma.bandwidth", "bit/s", "upper", [[4], [np.inf]]),
        ("recovery.bus_bandwidth", "bit/s", None, [[1, 4, 2], [9, 5, np.inf]]),
    ],
    ids=["lower is better", "at least", "higher is better", "at most", "not combined"],
)
def test_the_worst_subject_of_an_event_is_its_sample(journal, quantity, unit, side, bounds):
    one = context()
    for port, low, high in (("a", 1, 9), ("b", 4, 5), ("c", 2, 1e308)):
        value = 4 if port != "c" else 3
        journal.append(one, Row(port, quantity, value, low, high, unit, 0, {"event": 0}))
    journal.close()
    test = collect(read_journal(journal.path)).testbeds[0].tests[0]
    found = [np.where(bound > 1e300, np.inf, bound) for bound in test.samples(quantity, side)]
    assert [bound.tolist() for bound in found] == bounds


def test_time_without_upper_bound_is_drawn_and_marked(show):
    lost = [
        Row("small", "reconfiguration.carrier_up", MS, MS, None, "ns", k, {"event": k})
        for k in range(9)
    ]
    assert "no bound" in row_of(show((context(), lost)), "carrier up")


def test_ports_are_ordered_as_people_count():
    assert sorted(["ocs.10", "ocs.9", "ocs"], key=natural) == ["ocs", "ocs.9", "ocs.10"]


def lights(events, late):
    """Rows of light that comes back, at these events later than the limit of a p99 of 60 ms."""
    for event in range(events):
        at = (80 if event in late else 40) * MS
        quantity = "reconfiguration.signal_recovered"
        yield Row("small", quantity, at, at, at, "ns", event, {"event": event})


def looks(*of):
    for n, passes, fails in of:
        decides = {"passes": passes, "fails": fails}
        subject = "reconfiguration.signal_recovered"
        yield Row(subject, "sampling.look", n, n, n, "1", 0, decides)


@pytest.mark.parametrize(
    ("plan", "events", "verdict"),
    [
        ((), 500, "✓ pass"),  # one late of 500 that were fixed beforehand
        (((300, 0, 9), (700, 4, 17)), 500, "? not enough data 200 more needed"),
        (((300, 0, 9), (700, 4, 17)), 700, "✓ pass"),
        (((320, 0, 9), (700, 0, 17)), 700, "? not enough data"),
    ],
)
def test_a_report_judges_by_the_plan_of_the_test(show, plan, events, verdict):
    page = show((context(), [*looks(*plan), *lights(events, {17})]))
    assert verdict in row_of(page, "signal recovered")


def test_events_set_aside_are_named(show):
    aside = [
        Row(f"server{n}.nic0.p1", "set_aside.delay", by, by, by, "ns", n, {"event": n})
        for n, by in ((3, 60 * MS), (8, 73 * MS))
    ]
    page = show((context(), [*rows("small", 20), *aside]))
    text = page.text.partition("Events set aside")[2]
    assert "moves: straight → crossed 2 20 73 ms (server8.nic0.p1; simulated)" in text


def test_without_events_set_aside_none_are_reported(show):
    text = show((context(), rows("small", 3))).text
    assert "Events set aside" not in text
    assert "Events without times" not in text


def test_events_without_times_are_named_with_the_servers(show):
    jumped = [
        Row(f"server{server}", "set_aside.clock", 1, 1, 1, "1", event, {"event": event})
        for event, server in ((20, 3), (21, 1), (22, 3))
    ]
    text = show((context(), [*rows("small", 20), *jumped])).text.partition("Events without times")[
        2
    ]
    assert "moves: straight → crossed 3 20 server1, server3" in text
