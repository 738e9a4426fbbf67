"""Relocks on a run's page: one change drawn, stages by hardware, prices, and earlier runs."""

import re

import pytest
from drawings import corners
from report_runs import HEADER, MS, Page, context

from lightrig.harness.record import Journal, Row, read_journal
from lightrig.harness.report import sections

TIMES = {
    "light lost": (3, 9),
    "signal recovered": (20, 31),
    "signal detected": (40, 66),
    "lock": (300, 350),
    "carrier up": (2900, 2901),
}
"""Bounds of moments in ms after the command: output and firmware were not seen."""
NEXT = {
    "light lost": "",
    "signal recovered": "signal detection",
    "signal detected": "clock recovery",
    "lock": "module output + firmware + driver",
    "carrier up": "",
}
PARTS = {
    "signal_detection": (9, 27, 46),
    "clock_recovery": (234, 272, 310),
    "between": (2550, 2575, 2601),
}
TEST = "test_stages_of_relock"


def port_rows(port, firmware, changes):
    stated = {"transceiver": "FINISAR FTCC", "nic": "ConnectX-7", "firmware": firmware}
    return Row(port, "relock.port", changes, changes, changes, "1", 0, stated)


def change(port, peer, event, stretch=1.0, source="module"):
    """Rows of one port in one change, whose stage after the lock is longer than the others'."""
    of_event = {"event": event, "source": source}
    for name, (low, high) in TIMES.items():
        ends = (round(each * MS * (stretch if name == "carrier up" else 1)) for each in (low, high))
        low_ns, high_ns = ends
        stated = {**of_event, "moment": name, "peer": peer, "next": NEXT[name]}
        middle = (low_ns + high_ns) // 2
        yield Row(port, "relock.moment", middle, low_ns, high_ns, "ns", event, stated)
    total = [0, 0, 0]
    for name, bounds in PARTS.items():
        scaled = [round(each * MS * (stretch if name == "between" else 1)) for each in bounds]
        total = [a + b for a, b in zip(total, scaled, strict=True)]
        low, value, high = scaled
        stated = of_event
        if name == "between":
            more = {"stages": "module output, firmware, driver", "between": "lock and carrier up"}
            stated = {**of_event, **more}
        yield Row(port, f"relock.{name}", value, low, high, "ns", event, stated)
    low, value, high = total
    yield Row(port, "relock.whole", value, low, high, "ns", event, of_event)


def a_run(changes=9, stretch=1.0):
    """Two links; the ports of server1 have another firmware and take a tenth longer."""
    found = []
    for event in range(changes):
        for number in range(2):
            first, last = f"server0.nic0.p{number}", f"server1.nic0.p{number}"
            found += change(first, last, event, stretch * (1 + event / 100))
            found += change(last, first, event, stretch * (1.1 + event / 100))
    for number in range(2):
        found.append(port_rows(f"server0.nic0.p{number}", "28.39.1002", changes))
        found.append(port_rows(f"server1.nic0.p{number}", "28.42.1000", changes))
    return found


def test_both_ends_are_drawn_with_what_is_certain_and_what_may_be(show, svg_of):
    page = show((context(test=TEST), a_run()))
    drawing = svg_of(page, "Stages and light of both ends in change 4")
    assert "server0.nic0.p0" in drawing
    assert "server1.nic0.p0" in drawing
    # The middle change: 3,155 ms is the width, 632 pixels from 112 on, to the later carrier.
    last = 2901 * 1.14

    def across(ms):
        return pytest.approx(112 + 632 * ms / last, abs=0.1)

    bars = re.findall(r'class="(lr-bar|lr-area) lr-k(\d) lr-d0" d="(.*?)"', drawing)
    spans = {
        (kind, int(colour), min(x for x, _ in corners(d)), max(x for x, _ in corners(d)))
        for kind, colour, d in bars
    }
    by_kind = {kind: [one for one in spans if one[0] == kind] for kind in ("lr-bar", "lr-area")}
    certain = sorted({one[1:] for one in by_kind["lr-bar"]})
    possible = sorted({one[1:] for one in by_kind["lr-area"]})
    assert certain == [
        (0, across(31), across(40)),
        (1, across(66), across(300)),
        (2, across(350), across(2900 * 1.04)),
        (2, across(350), across(2900 * 1.14)),
        (5, across(0), across(3)),
        (5, across(31), across(last)),
    ]
    assert possible == [
        (0, across(20), across(66)),
        (1, across(40), across(350)),
        (2, across(300), across(2901 * 1.04)),
        (2, across(300), across(2901 * 1.14)),
        (5, across(0), across(9)),
        (5, across(20), across(last)),
    ]


def test_what_was_not_seen_is_between_two_moments_in_picture_and_table(show):
    text = show((context(test=TEST), a_run())).text
    assert "module output, firmware, driver (between lock and carrier up)" in text
    assert re.search(r"light at the receiver", text)


def test_the_time_is_divided_by_transceiver_nic_and_firmware(show):
    text = show((context(test=TEST), a_run())).text
    groups = [
        "transceiver FINISAR FTCC, NIC ConnectX-7, firmware 28.39.1002 2 ports",
        "transceiver FINISAR FTCC, NIC ConnectX-7, firmware 28.42.1000 2 ports",
    ]
    first, last = (text.index(group) for group in groups)
    of_first, of_last = text[first:last], text[last : text.index("From light to carrier")]
    # Nine changes of two ports: the middle stretch is 1.04 and 1.14, of 2.575 s.
    assert re.search(r"between lock and carrier up\) 2\.68 s \(\s*median of 18", of_first)
    assert re.search(r"between lock and carrier up\) 2\.94 s \(\s*median of 18", of_last)
    assert "as 9 independent ones" in of_first
    assert "18 of 18, in 9 changes" in of_first
    # 2.678 s of 2.977 s, and 2.9355 s of 3.2345 s.
    assert "90%" in of_first
    assert "91%" in of_last


def test_changes_without_readings_are_in_no_stage(show):
    rows = a_run(6)
    rows += [
        row
        for event in range(6, 12)
        for row in change("server0.nic0.p0", "server1.nic0.p0", event, 7, source="none")
        if row.quantity == "relock.whole"
    ]
    text = show((context(test=TEST), rows)).text
    where = text[text.index("Where the time goes") : text.index("From light to carrier")]
    assert "12 of 12, in 6 changes" in where
    assert "18 of" not in where


def test_a_price_has_its_interval_and_its_count(show):
    stated = {"source": "module", "confidence": 0.95, "n": 20}
    price = Row("small", "relock.price", 310 * MS, 120 * MS, 490 * MS, "ns", 0, stated)
    text = show((context(test=TEST), [*a_run(), price])).text
    assert re.search(r"module 310 ms \(\s*95 % interval 120 … 490 ?;\s*20 changes", text)


def test_a_port_without_an_other_end_is_drawn_alone(show, svg_of):
    rows = [*change("server0.nic0.p0", "not known", 0), port_rows("server0.nic0.p0", "1", 1)]
    drawing = svg_of(show((context(test=TEST), rows)), "Stages and light")
    assert "no carrier or light was seen" in drawing


def stored(results, name, stretch, relock=True, instruments="simulated"):
    """Store a run by hand as a run's end does, of which the page reads the journal."""
    header = {**HEADER, "run": name, "started": f"2026-03-{name[-2:]}T01:00:00Z", "by_hand": True}
    header |= {"instruments": instruments} | ({"relock": True} if relock else {})
    journal = Journal(results / "runs" / name / "journal.jsonl", header)
    journal.append_many(context(test=TEST), a_run(stretch=stretch))
    journal.close({"exit": 0})
    rows = results / "by_hand" / "testbed=small" / "night=2026-03-14"
    rows.mkdir(parents=True, exist_ok=True)
    (rows / f"{name}.parquet").touch()
    return journal.path


def test_earlier_runs_with_relock_are_a_trend_and_others_are_not(tmp_path, small, svg_of):
    stored(tmp_path, "run-02", 1.0)
    stored(tmp_path, "run-03", 2.0)
    stored(tmp_path, "run-04", 9.0, relock=False)
    stored(tmp_path, "run-05", 9.0, instruments="hardware")
    last = stored(tmp_path, "run-06", 1.0)
    stored(tmp_path, "run-07", 9.0)  # later than the page's
    torn = stored(tmp_path, "run-01", 9.0)
    torn.write_text("no journal\n")
    page = Page(sections(read_journal(last), {"small": small}))
    assert "3 runs since 2026-03-02, this one last" in page.text
    drawing = svg_of(page, "Medians of stages over runs with --relock")
    dots = re.findall(r'class="lr-dot lr-k(\d) lr-d0" d="(.*?)"', drawing)
    heights = {
        int(colour): [float(at) for at in re.findall(r"M[\d.]+ ([\d.]+)h0", d)]
        for colour, d in dots
    }
    assert {len(each) for each in heights.values()} == {3}
    # What is twice as long is as much higher on a logarithmic axis, and the rest stays.
    first, second, third = heights[3]
    assert second < first == pytest.approx(third)
    assert len(set(heights[1])) == 1


def test_a_run_of_a_night_has_no_trend(show):
    page = show((context(test=TEST), a_run()))
    assert "Runs with --relock" not in page.text
