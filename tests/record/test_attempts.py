"""Repeated tests: every reader of rows has those of a test's last attempt in each run."""

from pathlib import Path

import numpy as np
import pytest
from record.recorded import MS, TEST, begin, context, times

from lightrig.harness.record import Context, Results, read_journal, settle
from lightrig.harness.record.attempts import superseded
from lightrig.harness.record.earlier_nights import values_before
from lightrig.harness.record.openmetrics import openmetrics
from lightrig.harness.report.comparison import compare
from lightrig.harness.report.frames import collect
from lightrig.harness.report.nights.cells import COLUMNS, TEXTS, cells_of, night_of_number
from lightrig.harness.report.nights.source import Source

QUANTITY = "reconfiguration.signal_recovered"
OTHER = Context("opus", "suites/test_other.py::test_other[opus]", ("ocs: Polatis",), True)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two nights; in the first run one test had three attempts, of 9, 11 and 5 rows."""
    attempts = ((1, 9, 900.0), (2, 11, 700.0), (3, 5, 60.0))
    for run, night, of_run in (("r1", "2026-03-14", attempts), ("r2", "2026-03-15", ())):
        journal = begin(tmp_path, run, night)
        for attempt, count, middle in of_run:
            journal.append_many(context(attempt=attempt), times(count, middle))
        if not of_run:
            journal.append_many(context(), times(7, 64.0))
        # A test that was not repeated, in the same runs.
        journal.append_many(OTHER, times(3, 30.0))
        journal.close({"exit": 0})
        settle(journal.path.parent)
    return tmp_path


def medians(results: Path) -> dict[tuple[str, str], tuple[float, int]]:
    """Return median and number of the samples of each night and test, as the nights page has."""
    source = Source(results)
    found = {}
    for table in source.parts("opus", COLUMNS, TEXTS, 1_000):
        cells = cells_of(table)
        for place, (series, night) in enumerate(zip(cells.series, cells.night, strict=True)):
            values = cells.value[cells.offsets[place] : cells.offsets[place + 1]]
            date = str(night_of_number(int(night)))
            found[date, cells.keys[series].test] = (float(np.median(values)), len(values))
    return found


def test_a_report_has_the_last_attempt(results: Path) -> None:
    run = collect(read_journal(results / "runs" / "r1" / "journal.jsonl"))
    (testbed,) = run.testbeds
    assert {test.name: test.series[QUANTITY].value.size for test in testbed.tests} == {
        TEST: 5,
        OTHER.test: 3,
    }
    assert run.rows == 9 + 11 + 5 + 3
    repeated = next(test for test in testbed.tests if test.name == TEST)
    assert repeated.series[QUANTITY].value.max() == 64 * MS
    assert "attempt" not in repeated.label


def test_nights_have_the_last_attempt_of_each_run(results: Path) -> None:
    assert medians(results) == {
        ("2026-03-14", TEST): (62 * MS, 5),
        ("2026-03-14", OTHER.test): (31 * MS, 3),
        ("2026-03-15", TEST): (67 * MS, 7),
        ("2026-03-15", OTHER.test): (31 * MS, 3),
    }


def test_comparisons_have_the_last_attempt_and_one_case(results: Path) -> None:
    found = {one.case.test: one for one in compare(Results(results), "r1", "r2")}
    assert (found[TEST].before.n, found[TEST].after.n) == (5, 7)
    assert found[TEST].case.conditions == '{"before": "east-west"}'


def test_metrics_have_the_last_attempt(results: Path) -> None:
    journal = begin(results, "r3", "2026-03-16")
    journal.append_many(context(attempt=1), times(9, 900.0))
    journal.append_many(context(attempt=2), times(5, 60.0))
    journal.close({"exit": 0})
    settle(journal.path.parent)
    lines = openmetrics(Results(results)).splitlines()
    (median,) = (line for line in lines if line.startswith("lightrig_median{"))
    (samples,) = (line for line in lines if line.startswith("lightrig_samples{"))
    assert (float(median.split()[-1]), int(samples.split()[-1])) == (0.062, 5)


def test_earlier_nights_have_the_last_attempt_whatever_the_attempt_now(results: Path) -> None:
    for now in (context(), context(attempt=2)):
        found = values_before(results / "runs" / "r2", "2026-03-15", now, QUANTITY)
        assert found == [{"opus": 64 * MS}]


def test_frames_have_all_rows_with_their_attempts(results: Path) -> None:
    frame = Results(results).frame(run="r1")
    of_test = frame[frame["test"] == TEST]
    assert list(of_test["attempt"]) == 9 * [1] + 11 * [2] + 5 * [3]
    assert set(frame[frame["test"] == OTHER.test]["attempt"]) == {1}
    assert "attempt" not in Results(results).frame(run="r2")


def test_attempts_of_one_test_on_two_testbeds_are_apart() -> None:
    contexts = dict(
        enumerate((context("opus", attempt=1), context("opus", attempt=2), context("mixnet")))
    )
    assert superseded(contexts) == {0}
