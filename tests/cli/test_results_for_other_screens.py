"""`lightrig results watch` and `metrics`: a run while it goes on, and as OpenMetrics."""

import json
import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli import watching
from lightrig.harness.cli.app import application
from lightrig.harness.record import Context, Journal, Row, TestOutcome
from lightrig.harness.record.recovery import settle

WHY = "carrier_up p95 exceeds 250 ms\n  try to clean it"
CONTEXT = Context("bench", "test_it", ("ocs: x",), True, {})


@pytest.fixture
def journal(tmp_path):
    """A journal that is written now, with a failed test and three rows."""
    header = {"run": "r1", "night": "2026-03-14", "testbeds": {"bench": "bench.yaml"}}
    path = tmp_path / "runs" / "r1" / "journal.jsonl"
    with Journal(path, header) as journal:
        for at, value in enumerate((1e6, 2e6, 9e6)):
            row = Row('a "port"', "carrier_up", value, value, value, "ns", 1, {"event": at})
            journal.append(CONTEXT, row)
        journal.note_test(TestOutcome("test_ok", "passed", 1.0, {}))
        journal.note_test(TestOutcome("test_<bad>", "failed", 1.0, {"why": WHY}))
        yield journal


def run(tmp_path, *arguments):
    place = ("--results", str(tmp_path))
    return CliRunner().invoke(application("results"), ["results", *arguments, *place])


def test_a_running_run_is_followed_on_a_terminal_and_a_page(tmp_path, journal):
    page = tmp_path / "live.html"
    ended = run(tmp_path, "watch", "--once", "--page", str(page))
    assert ended.exit_code == 1
    assert "failed test_<bad>  carrier_up p95 exceeds 250 ms\n" in ended.output
    assert "r1 running: 1 failed, 1 passed; 3 rows" in ended.output
    assert '<meta http-equiv="refresh" content="5">' in page.read_text()
    assert "test_&lt;bad&gt;" in page.read_text()
    journal.close()
    document = json.loads(run(tmp_path, "watch", "r1", "--page", str(page), "--json").output)
    assert document["goes_on"] is False
    assert document["rows"] == {"bench": 3}
    assert "http-equiv" not in page.read_text()
    assert run(tmp_path, "watch", "r2").exit_code == 2


def test_a_run_is_followed_until_it_ends_and_each_problem_is_written_once(
    tmp_path, journal, monkeypatch
):
    waits = []

    def sleep(ns):
        waits.append(ns)
        journal.note_test(TestOutcome("test_late", "inconclusive", 1.0, {"why": "too few"}))
        journal.close()

    monkeypatch.setattr(watching, "SystemClock", lambda: SimpleNamespace(sleep=sleep))
    ended = run(tmp_path, "watch", "--every", "3")
    assert waits == [3 * 10**9]
    assert ended.exit_code == 1
    assert ended.output.splitlines() == [
        "failed test_<bad>  carrier_up p95 exceeds 250 ms",
        "r1 running: 1 failed, 1 passed; 3 rows",
        "inconclusive test_late  too few",
        "r1 ended: 1 failed, 1 inconclusive, 1 passed; 3 rows",
    ]


def test_metrics_of_the_newest_run(tmp_path, journal):
    journal.close()
    settle(journal.path.parent)
    lines = run(tmp_path, "metrics").output.splitlines()
    assert lines[-1] == "# EOF"
    assert 'lightrig_tests{testbed="bench",run="r1",outcome="failed"} 1' in lines
    (median,) = (line for line in lines if line.startswith("lightrig_median{"))
    assert median.endswith(" 0.002")
    assert 'subject="a \\"port\\""' in median
    assert 'simulated="true"' in median
    sample = re.compile(r'lightrig_\w+\{(\w+="([^"\\]|\\.)*",?)+\} [\d.e+-]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)
