"""The first table of a run's page: the worst answer by quantity, failures first."""

import html
import re
from dataclasses import replace

import pytest
from report_runs import MS, Page, context, rows

from lightrig.harness.record import Row, read_journal
from lightrig.harness.report import sections
from lightrig.testbeds import parse_limit


def answers_of(page):
    """Return the cells of each row of the table, as text."""
    (table,) = re.findall(r'id="lr-answers">.*?</section>', page.fragment, re.DOTALL)
    found = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]
    return [
        [
            " ".join(re.sub(r"<[^>]+>", " ", cell).split())
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        ]
        for row in found
    ]


def by_quantity(page):
    return {cells[0]: cells[1:] for cells in answers_of(page)}


def test_a_failure_is_first_with_its_reason_and_its_test(show):
    page = show((context(), rows("small", 320)))
    first = answers_of(page)[0]
    assert first[0] == "reconfiguration: carrier up small"
    assert "✗ 1 fail" in first[1]
    assert "320 of 320 samples exceed" in first[1]
    assert re.match(r"1[23]\d ms \(p99 of 320; 95 % upper bound .* simulated\)", first[2])
    assert html.unescape(first[3]).startswith("p99 <= 100 ms")
    assert first[4] == "moves: straight → crossed"
    assert "1 pass" in by_quantity(page)["reconfiguration: signal recovered small"][0]


def test_the_worst_of_several_tests_answers(show):
    slow = [
        Row("small", "reconfiguration.signal_recovered", *[at * MS] * 3, "ns", n, {"event": n})
        for n, at in enumerate(50 + 37 * event % 320 for event in range(320))
    ]
    page = show((context(), rows("small", 320)), (context(test="test_slow"), slow))
    verdicts, value, _, test = by_quantity(page)["reconfiguration: signal recovered small"]
    assert value.startswith("366 ms")
    assert "1 fail" in verdicts
    assert "1 pass" in verdicts
    assert test == "slow: straight → crossed of 2"


def test_a_limit_on_all_samples_is_answered_by_the_sample_that_exceeds_it(show, small):
    limit = parse_limit("insertion_loss", {"max": "2 dB"})
    limited = replace(small, limits={"insertion_loss": limit})
    measured = [
        Row(f"ocs {n}>{n + 4}", "insertion_loss", loss, loss - 0.1, loss + 0.1, "dB", n)
        for n, loss in enumerate([1.0] * 9 + [2.6])
    ]
    page = show((context(), measured), described={"small": limited})
    verdicts, value, *_ = by_quantity(page)["insertion loss small"]
    assert "✗ 1 fail" in verdicts
    assert value == "2.60 dB (greatest of 10; known within 2.50 … 2.70; simulated)"


@pytest.mark.parametrize(
    ("events", "answer"),
    [
        (100, r"94.5 ms \(p95 of 100; 95 % upper bound 98 ms; simulated\)$"),
        (58, r"28.5 ms \(median of 58; .*\) p95: not enough data: 59 needed"),
    ],
)
def test_a_limit_on_a_p95_is_answered_by_the_p95(show, small, events, answer):
    limit = parse_limit("reconfiguration.carrier_up", {"p95": "80 ms", "confidence": "95 %"})
    limited = replace(small, limits={limit.quantity: limit})
    measured = [
        Row("small", limit.quantity, *[at * 37 % events * MS] * 3, "ns", at, {"event": at})
        for at in range(events)
    ]
    page = show((context(), measured), described={"small": limited})
    assert re.match(answer, by_quantity(page)["reconfiguration: carrier up small"][1])


def test_a_p99_of_too_few_events_is_answered_by_their_median_too(show):
    page = show((context(), rows("small", 40)))
    value = by_quantity(page)["reconfiguration: carrier up small"][1]
    assert re.match(r"1\d\d\.\d ms \(median of 40; .*\) p99: not enough data: 299 needed", value)


def test_missing_samples_are_stated_beside_the_value_alone(show):
    page = show((context(), rows("small", 40)))
    verdicts, value, *_ = by_quantity(page)["reconfiguration: signal recovered small"]
    assert verdicts == "? 1 not enough data"
    assert "299 needed" in value


def test_few_samples_of_another_test_do_not_hide_the_answer(show):
    page = show((context(), rows("small", 320)), (context(test="test_few"), rows("small", 3)))
    verdicts, value, _, _ = by_quantity(page)["reconfiguration: signal recovered small"]
    assert "p99 of 320" in value
    assert "1 not enough data" in verdicts


def test_a_limit_without_a_measurement_precedes_the_passes(show):
    measured = [row for row in rows("small", 320) if "carrier_up" not in row.quantity]
    found = answers_of(show((context(), measured)))
    assert [cells[0] for cells in found[:2]] == [
        "reconfiguration: carrier up small",
        "reconfiguration: signal recovered small",
    ]
    assert found[0][2] == "not measured"


def test_headline_quantities_without_limits_come_last(show):
    found = answers_of(show((context(), rows("small", 20))))
    assert found[-1][0] == "reconfiguration: acknowledged small"
    assert (found[-1][1], found[-1][3]) == ("", "")
    assert not any("los" in cells[0].split() for cells in found)


def test_measured_losses_and_rdma_have_an_answer_without_a_limit(show):
    losses = [
        Row(f"ocs {n}>{n + 8}", "insertion_loss", 1 + n / 8, 0.9 + n / 8, 1.1 + n / 8, "dB", 1, {})
        for n in range(1, 8)
    ]
    latency = [Row("a <-> b", "rdma.latency", 1900 + n, 1900, 1910, "ns", n, {}) for n in range(7)]
    found = by_quantity(show((context(), [*losses, *latency])))
    assert found["insertion loss small"][1].startswith("1.50 dB (median of 7")
    assert found["rdma: latency small"][1].startswith("1.9030 µs (median of 7")
    assert "rdma: latency p99 small" not in found


def test_without_rows_and_limits_there_is_no_table(show):
    assert "lr-answers" not in show(described={}).fragment


@pytest.mark.parametrize(("count", "folded"), [(3, False), (4, True)])
def test_many_notes_are_folded(journal, small, count, folded):
    journal.append_many(context(), rows("small", 3))
    journal.close({"exit": 0, "notes": {"small": [f"note {n}" for n in range(count)]}})
    page = Page(sections(read_journal(journal.path), {"small": small}))
    assert all(f"note {n}" in page.text for n in range(count))
    assert (f"{count} notes of tests" in page.text) == folded


def test_a_test_of_several_conditions_counts_once(show):
    warm, cold = context(temperature_c=75), context(temperature_c=25)
    page = show((warm, rows("small", 320)), (cold, rows("small", 3)))
    verdicts, _, _, test = by_quantity(page)["reconfiguration: signal recovered small"]
    assert verdicts == "✓ 1 pass"
    assert " of " not in test


@pytest.mark.parametrize(
    ("limit", "losses", "interval", "value", "limit_at"),
    [
        # From 0 to 2.7 dB over 142 of 150 units, behind 4: the greatest, known within 0.1 dB.
        ({"max": "2 dB"}, [1.0] * 9 + [2.6], (135.5, 146.0), 140.7, 109.2),
        # From 0 to 4 dB: the limit is the greatest; too few for an interval have their range.
        ({"p95": "4 dB", "confidence": "95 %"}, [1.0, 2.0, 3.0], (35.95, 114.05), 75.0, 146.0),
    ],
)
def test_an_answer_is_drawn_against_its_limit(
    show, small, limit, losses, interval, value, limit_at
):
    stated = parse_limit("insertion_loss", limit)
    measured = [
        Row(f"ocs {n}>{n + 4}", "insertion_loss", loss, loss - 0.1, loss + 0.1, "dB", n)
        for n, loss in enumerate(losses)
    ]
    limited = replace(small, limits={"insertion_loss": stated})
    page = show((context(), measured), described={"small": limited})
    (drawing,) = re.findall(r'<svg class="lr-interval".*?</svg>', page.fragment, re.DOTALL)
    ends = re.search(r'class="lr-i-(?:interval|all)" d="M([\d.]+) [\d.]+H([\d.]+)"', drawing)
    assert tuple(map(float, ends.groups())) == pytest.approx(interval, abs=0.06)
    assert float(re.search(r'cx="([\d.]+)"', drawing)[1]) == pytest.approx(value, abs=0.06)
    at = float(re.search(r'lr-i-limit" d="M([\d.]+)', drawing)[1])
    assert at == pytest.approx(limit_at, abs=0.06)
    assert ("lr-i-all" in drawing) == ("p95" in limit)
