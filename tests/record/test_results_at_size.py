"""Results of many runs: what is read for an answer does not grow with what it does not need."""

import pytest
from record.recorded import record
from record.test_comparison import night

from lightrig.harness.record import QuestionError, Results, RowError, rows_files
from lightrig.harness.record.places import Place
from lightrig.harness.record.row import TestOutcome
from lightrig.harness.record.run_folder import Outcomes
from lightrig.harness.report.comparison import compare


def test_a_comparison_lists_the_files_of_rows_once_for_all_nights_before(tmp_path, monkeypatch):
    for number in range(1, 14):
        night(tmp_path, number)
    lists = []
    listed = rows_files.stored_rows
    monkeypatch.setattr(
        "lightrig.harness.report.nights.source.stored_rows",
        lambda *arguments: lists.append(arguments) or listed(*arguments),
    )
    (found,) = compare(Results(tmp_path), "n12", "n13")
    assert found.drift.nights == 12
    assert len(lists) == 3  # for each of the two runs, and for the nights before


def test_a_query_reads_the_facts_of_runs_only_where_it_names_them(tmp_path, monkeypatch):
    record(tmp_path, "r1", "2026-03-14")
    results = Results(tmp_path)
    assert results.query('SELECT outcome FROM "Tests" ORDER BY 1')["outcome"].tolist() == [
        "failed",
        "passed",
        "skipped",
    ]
    assert results.query("SELECT run FROM RUNS").iloc[0].tolist() == ["r1"]
    monkeypatch.setattr(Results, "runs", lambda _self: pytest.fail("it read the facts"))
    assert results.query("SELECT count(*) FROM rows").iloc[0].tolist() == [20]
    with pytest.raises(QuestionError, match="it_is_none"):
        results.query("SELECT * FROM it_is_none")


def test_files_are_listed_and_read_by_name_without_hidden_ones(tmp_path):
    for name in ("runs/b/run.json", "runs/a/run.json", "runs/.c/run.json", "runs/d/.run.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    place = Place(tmp_path)
    assert place.files("runs") == ["runs/a/run.json", "runs/b/run.json"]
    assert list(place.read_each("runs", "run.json").items()) == [
        ("runs/a/run.json", b"runs/a/run.json"),
        ("runs/b/run.json", b"runs/b/run.json"),
    ]
    assert place.read_each("none", "run.json") == {}
    assert place.files("none") == []


def test_outcomes_are_those_of_their_lines():
    lines = [["a", "passed", 1], ["b", "failed", 0.5], ["ä", "skipped", 0]]
    assert Outcomes(lines) == [TestOutcome(*line) for line in lines]
    assert Outcomes(lines)[1:] == [TestOutcome("b", "failed", 0.5), TestOutcome("ä", "skipped", 0)]
    assert len(Outcomes([])) == 0


@pytest.mark.parametrize(
    "line",
    [
        ("a", "passed", -1.0),
        ("a", "passed", float("nan")),
        ("a", "passed", float("inf")),
        ("a", "passed", True),
        ("a", "passed", 1 << 63),
        ("a", "passed", "1"),
        ("", "passed", 1.0),
        ("a", "", 1.0),
        (1, "passed", 1.0),
        ("\ud800", "passed", 1.0),
        ("a", "passed"),
        ("a",),
    ],
)
def test_no_outcome_holds_what_a_record_may_not(line):
    with pytest.raises((RowError, TypeError)):
        Outcomes([("b", "passed", 1.0), line])


def test_a_comparison_reads_the_facts_of_runs_whose_rows_it_reads_once(tmp_path, monkeypatch):
    for number in range(1, 14):
        night(tmp_path, number)
    read = []
    whole = Place.read_each

    def noted(place, below, name, folders=None):
        read.append((name, folders and sorted(folders)))
        return whole(place, below, name, folders)

    monkeypatch.setattr(Place, "read_each", noted)
    compare(Results(tmp_path), "n12", "last")
    every = [f"n{number:02}" for number in range(1, 14)]
    assert sorted(read) == [
        *(("quantities.json", names) for names in (every, ["n12"], ["n13"])),
        ("run.json", every[:11]),
        *[("run.json", ["n12"])] * 2,
        *[("run.json", ["n13"])] * 2,
    ]
