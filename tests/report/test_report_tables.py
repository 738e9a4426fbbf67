"""Cells of the report's tables on runs of several tests of which one differs."""

import re

import pytest
from report_runs import MS, Page, context

from lightrig.harness.record import Row, TestOutcome, read_journal
from lightrig.harness.report import sections
from lightrig.harness.report.run_page import Results, document


def closure(stage, shares, n=4):
    """Yield rows of closure: of each event, the share of `n` intervals that hold the truth."""
    for event, share in enumerate(shares):
        conditions = {"event": event, "n": n}
        yield Row("small", f"closure.{stage}", share, share, share, "1", event, conditions)


def test_closure_counts_intervals_and_events_of_all_tests(show):
    page = show(
        (context(test="test_a"), [*closure("los", [1, 1, 1])]),
        (context(test="test_b", simulated=False), [*closure("los", [1, 0.75])]),
        (context(test="test_c"), [*closure("los", [0.25, 1, 1, 0.5])]),
    )
    text = page.text[page.text.index("Intervals and the ground truth") :]
    # Of 9 events 36 intervals: 1 is missed in b, 3 + 2 in c; 6 events are closed.
    assert "not closed 6 missed in b: straight → crossed; c: straight → crossed" in text
    assert re.search(r"\b30 of 36 [( ]+83\.33 %\)", text)
    assert "6 of 9 (95 % interval 29 … 93 %; simulated)" in text


def test_closure_of_losses_by_test(show):
    def losses(inside, closed):
        share = inside / 50
        shut = {"n": 50, "closed": float(closed)}
        return [
            Row("ocs 1>9", "insertion_loss", 1.0, 0.9, 1.1, "dB", 0, {}),
            Row("ocs", "loss.closure", share, share, share, "1", 0, shut),
        ]

    text = show(
        (context(test="test_a"), losses(50, True)),
        (context(test="test_b"), losses(41, False)),
        (context(test="test_c"), losses(47, True)),
    ).text
    found = re.findall(r"([✓✗]) (closed|not closed) (\d+ of \d+)", text)
    assert found == [
        ("✓", "closed", "50 of 50"),
        ("✗", "not closed", "41 of 50"),
        ("✓", "closed", "47 of 50"),
    ]


@pytest.mark.parametrize(("collected", "note"), [(7, "4 of 7 tests were not run."), (3, None)])
def test_tests_that_were_not_run_are_counted(journal, small, collected, note):
    for name in "abc":
        journal.note_test(TestOutcome(f"t.py::{name}", "passed", 1.0, {}))
    journal.close({"exit": 0, "tests": collected})
    text = Page(sections(read_journal(journal.path), {"small": small})).text
    assert (note in text) if note else ("were not run" not in text)


def test_outcomes_are_in_the_order_of_their_weight():
    outcomes = {"passed": 5, "failed": 2, "skipped": 0, "inconclusive": 1, "error": 3, "odd": 1}
    page = document("a", "b", "", Results(outcomes, "{}", {}))
    text = re.sub(r"<[^>]+>", " ", page[page.index("<body") :])
    found = re.findall(r"\b(\d+) (odd|error|failed|inconclusive|skipped|passed)\b", text)
    assert found[:5] == [
        *(("1", "odd"), ("3", "error"), ("2", "failed"), ("1", "inconclusive"), ("5", "passed"))
    ]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(500, 490, 520), (900, 880, 910), (300, 290, 340)], "290 … 910 ms (all of 3; simulated)"),
        ([(500 + 7 * n, 499, 900) for n in (3, 0, 5, 1, 4, 2)], "ms (median of 6;"),
    ],
)
def test_recovery_has_a_median_or_the_range_of_few_samples(show, times, expected):
    rows = []
    for event, (first, low, high) in enumerate(times):
        given = {"event": event, "size": 1 << 20, "tool": "Gloo"}
        rows.append(Row("rings", "recovery.survived", 1, 1, 1, "1", 0, given))
        ends = (round(each * MS) for each in (first, low, high))
        rows.append(Row("rings", "recovery.first_collective", *ends, "ns", 0, given))
    assert expected in show((context(), rows)).text


def test_losses_by_temperature_are_medians_of_each_cell(show, svg_of):
    def losses(celsius, of_circuits):
        return [
            Row(f"ocs {circuit}", "insertion_loss", value, value - 0.1, value + 0.1, "dB", 0,
                {"temperature_c": celsius})
            for circuit, values in of_circuits.items()
            for value in values
        ]  # fmt: skip

    page = show(
        (context(test="test_a"), losses(24.6, {"10>17": (1.0, 3.0, 1.5), "9>17": (2.0,)})),
        (context(test="test_b", simulated=False), losses(69.8, {"10>17": (2.5,)})),
    )
    drawing = svg_of(page, "Heat map of insertion loss by temperature")
    assert re.findall(r"<title>(.*?)</title>", drawing) == [
        *("ocs 9&gt;17, 25 °C: 2 dB", "ocs 9&gt;17, 70 °C: not measured"),
        *("ocs 10&gt;17, 25 °C: 1.5 dB", "ocs 10&gt;17, 70 °C: 2.5 dB"),
    ]
    (caption,) = [one for one in page.captions if "by temperature" in one]
    assert "lr-sim" in caption


def test_losses_of_one_temperature_have_no_map(show):
    rows = [
        Row(f"ocs {n}>17", "insertion_loss", 1, 1, 1, "dB", 0, {"temperature_c": 25})
        for n in (1, 2)
    ]
    assert "by temperature" not in " ".join(show((context(), rows)).labelled)


def test_worst_ports_are_the_six_with_the_greatest_medians(show):
    extra = {2: 1.0, 4: 3.0, 5: 2.0, 7: 0.5}
    grid = [
        Row(f"ocs {a}>{b}", "insertion_loss", loss, loss - 0.1, loss + 0.1, "dB", 0, {})
        for a in range(1, 9)
        for b in range(9, 17)
        for loss in [1.0 + extra.get(a, 0.0) + b / 1000]
    ]
    text = show((context(), grid)).text.partition("Worst ports of insertion loss")[2]
    found = re.findall(r"ocs\.(\d+) (ingress|egress) ([\d.]+) dB \(median of 8", text)
    # Egress ports have circuits of all ingress ports: half of 8 are at 1 dB, so the median is low.
    assert [(port, side) for port, side, _ in found[:4]] == [
        *(("4", "ingress"), ("5", "ingress"), ("2", "ingress"), ("7", "ingress"))
    ]
    assert len(found) == 6
    assert float(found[0][2]) == pytest.approx(4.01, abs=0.006)
