"""Tests that pytest-rerunfailures repeats: rows of all attempts stay, and the last one counts."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
from bench.served_lab import describe
from report.pages import above, packed
from runs.running import Ended, started

from lightrig.harness.record.openmetrics import openmetrics
from lightrig.harness.record.results import Results
from lightrig.harness.report.comparison import compare
from lightrig.harness.statistics.quantiles import Quantile

DECLARATION = """
from lightrig.api import Quantity, declare
declare(Quantity(name="isolation", unit="dB", meaning="power below that at a lit egress",
                 better="higher", section="Isolation"))
"""
SUITE = """
import pathlib
from lightrig.api import Row

def test_isolation(testbed, measure):
    # In its first attempt the lab is disturbed.
    count = pathlib.Path(__file__).with_name("disturbed")
    value = 60.0 if count.exists() else 10.0
    count.touch()
    for event in range(6):
        measure.record([
            Row("ocs.9", "isolation", value + event / 10, None, None, "dB", 0, {"event": event})
        ])
    measure.judge("isolation")
"""
MEDIAN = 60.25
"""Of 60.0, 60.1, ... 60.5, the rows of the last attempt; of all twelve it is 35.25."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reruns")
    (folder / "conftest.py").write_text(DECLARATION)
    (folder / "test_isolation.py").write_text(SUITE)
    lab = describe(folder)
    lab.write_text(lab.read_text().replace("limits:\n", "limits:\n  isolation: {min: 30 dB}\n"))
    return folder


@pytest.fixture(scope="module")
def ended(folder: Path) -> Iterator[Ended]:
    """A run in which the first attempt fails and the second passes."""
    given = ("--testbed", folder / "lab.yaml", "--instruments", "simulated", "--reruns", 1)
    arguments = (folder, *given, "--json", folder / "events.jsonl")
    with started(arguments, folder / "results", page=True) as run:
        yield run.end()


@pytest.fixture(scope="module")
def results(ended: Ended) -> Results:
    assert ended.code == 0, ended.output
    return Results(ended.results)


def test_rows_of_all_attempts_stay_and_have_their_number(results: Results) -> None:
    frame = results.frame(quantity="isolation")
    assert list(frame["attempt"]) == 6 * [1] + 6 * [2]
    assert list(frame["event"]) == 2 * [*range(6)]
    sql = "SELECT conditions->>'attempt' AS attempt, count(*) AS n FROM rows GROUP BY ALL"
    assert set(results.query(sql).itertuples(index=False, name=None)) == {("1", 6), ("2", 6)}


def test_the_report_has_the_last_attempt(ended: Ended, results: Results) -> None:
    assert results.runs()[0].counted() == {"passed": 1}
    page = above(ended.page)
    assert re.search(r"isolation +simulated.* 60\.25 dB \(median of 6", page), page
    assert "10.25 dB" not in page
    assert "below the limit" not in page


def test_nights_have_the_last_attempt(ended: Ended, results: Results) -> None:
    report = preloaded.run(["lightrig", "report", "--results", ended.results])
    assert report.returncode == 0, report.stderr
    page = above(ended.results / "nights.html")
    assert "60.25 dB" in page
    assert "35.25 dB" not in page


def test_metrics_and_comparisons_have_the_last_attempt(results: Results) -> None:
    lines = openmetrics(results).splitlines()
    (median,) = (line for line in lines if line.startswith("lightrig_median{"))
    (samples,) = (line for line in lines if line.startswith("lightrig_samples{"))
    assert (float(median.split()[-1]), int(samples.split()[-1])) == (MEDIAN, 6)
    (run,) = (facts.run for facts in results.runs())
    (found,) = compare(results, run, run, "isolation")
    assert isinstance(found.after, Quantile)
    assert (found.after.value, found.after.n) == (MEDIAN, 6)


def test_a_rerun_is_counted_once(ended: Ended, folder: Path) -> None:
    assert re.search(r"^0/1 +rerun ", ended.output, re.MULTILINE), ended.output
    assert re.search(r"^1/1 +passed ", ended.output, re.MULTILINE), ended.output
    page = above(ended.page)
    assert " 1 test took " in page
    assert re.search(r"\b1 +rerun +1 +passed\b", page), page
    assert [entry["result"] for entry in packed(ended.page)["html"]["tests"].popitem()[1]] == [
        "Rerun",
        "Passed",
    ]
    assert [one["attempts"] for one in packed(ended.page)["added"].values()] == [2]
    lines = (folder / "events.jsonl").read_text().splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    outcomes = [event["outcome"] for event in events if event["event"] == "test_finished"]
    assert outcomes == ["rerun", "passed"]
