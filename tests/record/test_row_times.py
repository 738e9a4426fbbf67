"""Calendar times of rows: from the anchor in a run's header."""

import datetime

import pytest
from record.recorded import record

from lightrig.harness.record import Context, Journal, Results, Row
from lightrig.harness.record.recovery import recover
from lightrig.harness.record.row_times import ANCHOR, clock_anchor, time_of_row
from lightrig.instruments.clock import SystemClock, wall_time

HEADER = {ANCHOR: {"utc": "2026-03-14T23:59:58.250000", "ns": 7_000_000_000}}


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (7_000_000_000, "2026-03-14 23:59:58.250000"),
        (9_000_001_000, "2026-03-15 00:00:00.250001"),
        (6_999_999_999, None),  # of virtual time, or of another machine
    ],
)
def test_a_row_has_the_time_of_its_runs_clock(time_ns, text):
    found = time_of_row(HEADER, time_ns)
    assert (found and f"{found:%F %T.%f}") == text


@pytest.mark.parametrize("anchor", [{}, {ANCHOR: None}, {ANCHOR: {"utc": "soon", "ns": 1}}])
def test_a_header_without_an_anchor_has_no_times(anchor):
    assert time_of_row(anchor, 10**12) is None


def test_the_anchor_is_now():
    before = SystemClock().now(), wall_time()
    found = time_of_row({ANCHOR: clock_anchor()}, SystemClock().now())
    assert before[1] - datetime.timedelta(microseconds=1) <= found <= wall_time()


def test_a_query_has_the_time_of_each_row(tmp_path):
    record(tmp_path, "20260314-010000-old", "2026-03-14", rows=3)
    folder = tmp_path / "runs" / "20260315-010000-new"
    folder.mkdir(parents=True)
    header = {"run": folder.name, "night": "2026-03-15", **HEADER}
    with Journal(folder / "journal.jsonl", header) as journal:
        context = Context("lab", "test_a", (), simulated=False)
        times = (7_000_000_500, 8_500_000_000, 12)
        rows = [Row("ocs.3", "optical.power", -1.0, None, None, "dBm", at) for at in times]
        journal.append_many(context, rows)
    recover(folder)
    found = Results(tmp_path).query("SELECT run, at_utc FROM rows ORDER BY run, time_ns")
    texts = [None if str(at) == "NaT" else f"{at:%F %T.%f}" for at in found["at_utc"]]
    assert texts == [
        *[None] * 4,
        "2026-03-14 23:59:58.250000",
        "2026-03-14 23:59:59.750000",
    ]
    assert found["run"].tolist()[:3] == ["20260314-010000-old"] * 3
