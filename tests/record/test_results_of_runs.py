"""Results in one place: runs listed, rows as tidy frames, queries in place, exports."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from record.recorded import MS, TEST, begin, context, record, times
from uneven import ROWS, write_results

from lightrig.harness.record import (
    Journal,
    Measured,
    QuestionError,
    RecordError,
    Results,
    Row,
    settle,
)

SCHEMA_1 = Path(__file__).with_name("schema1")
OLD = "20260314-021500-1f3a"


@pytest.fixture
def lab(tmp_path):
    return write_results(tmp_path)


def test_every_run_is_listed_with_how_it_ended(lab):
    goes_on = begin(lab, "r7", "2026-03-17")
    one, two, three, killed, five, _, running = Results(lab).runs()
    assert (one.run, one.night, one.state, one.torn) == ("r1", "2026-03-14", "complete", False)
    assert one.testbeds == {
        "opus": Measured(20, simulated=True),
        "mixnet": Measured(3, simulated=False),
    }
    assert (one.rows, one.simulated, one.duration_s) == (23, True, 12.5)
    assert (one.count("passed"), one.count("failed"), one.count("skipped")) == (1, 0, 1)
    assert two.testbeds == {"opus": None, "mixnet": Measured(5, simulated=False)}
    assert (two.simulated, five.simulated) == (False, False)
    assert (three.count("inconclusive"), three.count("passed", "failed")) == (2, 2)
    assert (killed.run, killed.state, killed.rows) == ("r4", "killed", ROWS["r4"])
    assert killed.duration_s is None
    assert (running.run, running.state, running.simulated) == ("r7", "running", None)
    goes_on.close()
    assert Results(lab).runs()[-1].state == "ended"


def test_nothing_there_is_no_run_and_no_row(tmp_path):
    results = Results(tmp_path / "none")
    assert results.runs() == results.damaged() == []
    assert len(results.frame()) == 0
    counts = "SELECT (SELECT count(*) FROM rows), (SELECT count(*) FROM runs)"
    assert results.query(counts).iloc[0].tolist() == [0, 0]


def test_an_unreadable_run_hides_no_readable_one(lab):
    (lab / "runs" / "r1" / "run.json").write_text('{"schema": 1}')
    begin(lab, "r0").close()
    (lab / "runs" / "r0" / "journal.jsonl").write_text("{}\n")
    (lab / "runs" / "r8").mkdir()
    (lab / "runs" / "r8" / "journal.jsonl").write_text("")
    results = Results(lab)
    assert [one.run for one in results.runs()] == [*ROWS]  # r1 by its journal
    first, second = map(str, results.damaged())
    assert first.startswith("runs/r1/run.json is damaged: KeyError(")
    assert "r0/journal.jsonl:1: the run header has no schema" in second
    (lab / "runs" / "r1" / "run.json").write_text('{"schema": 9}')
    assert "schema 9, expected 1; read it with the version" in str(results.damaged()[0])


def test_a_run_is_found_by_its_name_its_beginning_or_as_the_last(lab):
    record(lab, "r10", "2026-03-13")
    results = Results(lab)
    assert results.find("r1").run == "r1"
    assert results.find("r10").run == "r10"
    assert results.find("last").run == "r6"
    with pytest.raises(QuestionError, match="'r' is the beginning of r2, r3, r4, r5, r6"):
        results.find("r")
    with pytest.raises(QuestionError, match="'x' is no run; the last are r2, r3, r4, r5, r6"):
        results.find("x")
    with pytest.raises(QuestionError, match="'last' is no run; the last are none at all"):
        Results(lab / "none").find("last")


def test_a_beginning_of_two_runs_that_have_ended_names_both(tmp_path):
    for name, night in (("r1", "2026-03-14"), ("r2", "2026-03-13")):
        record(tmp_path, name, night)
    with pytest.raises(QuestionError, match="'r' is the beginning of r2, r1"):
        Results(tmp_path).find("r")


def test_one_call_gives_a_tidy_frame(tmp_path):
    import pandas as pd

    journal = begin(tmp_path, "r1")
    journal.append_many(context(moving=4, warm=True), times(2))
    dark = Row(
        "opus.35", "insertion_loss", 1.25, None, 1.5, "dB", 7, {"unit": "x", "celsius": 23.5}
    )
    journal.append(context("mixnet", simulated=False), dark)
    journal.close()
    settle(tmp_path / "runs" / "r1")
    frame = Results(tmp_path).frame()
    assert list(frame)[:13] == [
        *("run", "night", "testbed", "test", "subject", "quantity", "value", "lower", "upper"),
        *("unit", "simulated", "instruments", "time_ns"),
    ]
    loss, *moved = frame.to_dict("records")
    assert (loss["testbed"], loss["quantity"], loss["unit"]) == ("mixnet", "insertion_loss", "dB")
    assert (loss["value"], loss["upper"], loss["celsius"]) == (1.25, 1.5, 23.5)
    assert pd.isna(loss["lower"])
    assert loss["condition_unit"] == "x"
    assert pd.isna(loss["moving"])
    assert loss["night"] == pd.Timestamp("2026-03-14")
    assert (loss["simulated"], loss["test"], loss["run"]) == (False, TEST, "r1")
    assert loss["instruments"] == "ocs: Polatis, serial SIM-ocs; server0: Linux 6.8"
    assert [(r["event"], r["moving"], r["warm"]) for r in moved] == [(0, 4, True), (1, 4, True)]
    assert [(r["lower"], r["upper"]) for r in moved] == [(55e6, 65e6), (56e6, 66e6)]
    types = {name: str(frame[name].dtype) for name in ("event", "warm", "celsius", "before")}
    assert types == {"event": "Int64", "warm": "boolean", "celsius": "float64", "before": "string"}
    assert frame.groupby("instruments")["value"].count().tolist() == [3]


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ({}, 48),
        ({"run": "r1"}, 23),
        ({"run": "r?"}, 48),
        ({"run": "1"}, 0),
        ({"night": "2026-03-15"}, 7),
        ({"night": "2026-03-*"}, 48),
        ({"testbed": "mix*"}, 8),
        ({"quantity": "reconfiguration.*"}, 48),
        ({"quantity": "signal_recovered"}, 0),
        ({"quantity": "reconfiguration?signal_recovered", "testbed": "opus"}, 40),
        ({"quantity": "reconfiguration[.]signal_recovered"}, 0),
    ],
)
def test_a_frame_is_filtered_by_names_and_patterns(lab, wanted, rows):
    assert len(Results(lab).frame(**wanted)) == rows


def test_foreign_files_are_no_part_of_the_data_set(lab):
    part = lab / "rows" / "testbed=opus" / "night=2026-03-14"
    for name in ("r1.parquet.old", ".r1.parquet.123.tmp", "notes.txt"):
        (part / name).write_text("no Parquet")
    assert len(Results(lab).frame()) == 48


def test_rows_come_as_written_run_by_run(lab):
    record(lab, "r0", "2026-03-14", rows=300)
    frame = Results(lab).frame(testbed="opus", night="2026-03-14")
    assert frame["run"].tolist() == ["r0"] * 300 + ["r1"] * 20
    assert frame["event"].tolist() == [*range(300), *range(20)]


def test_a_query_joins_rows_runs_and_tests_in_place(lab):
    found = Results(lab).query(
        """
        SELECT run, any_value(runs.state) AS state, count(*) AS n, max(value) AS slowest,
               any_value(CAST(header->>'seed' AS INT)) AS seed
        FROM rows JOIN runs USING (run) GROUP BY run ORDER BY run
        """
    )
    assert found.to_dict("records") == [
        {"run": "r1", "state": "complete", "n": 23, "slowest": 69e6, "seed": 7},
        {"run": "r2", "state": "complete", "n": 5, "slowest": 69e6, "seed": 7},
        {"run": "r3", "state": "complete", "n": 7, "slowest": 69e6, "seed": 7},
        {"run": "r5", "state": "complete", "n": 11, "slowest": 69e6, "seed": 7},
        {"run": "r6", "state": "complete", "n": 2, "slowest": 61e6, "seed": 7},
    ]
    tests = Results(lab).query("SELECT test, outcome, duration_s FROM tests WHERE run = 'r1'")
    assert tests["outcome"].tolist() == ["failed", "passed", "skipped"]
    states = Results(lab).query("SELECT state, rows FROM runs WHERE run = 'r4'")
    assert states.to_dict("records") == [{"state": "killed", "rows": ROWS["r4"]}]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELEC 1", "the query failed: Parser Error"),
        ("SELECT x FROM rows", "the query failed: Binder Error"),
        ("SELECT 1 FROM pg_data", "the views are rows, runs, tests and notes"),
        ("SELECT 1; SELECT 2", "expected one SELECT"),
        ("", "expected one SELECT"),
        ("COPY (SELECT 1) TO 'here.csv'", "expected one SELECT"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'here.csv'", "expected one SELECT"),
        ("DROP VIEW rows", "expected one SELECT"),
        ("INSTALL httpfs", "expected one SELECT"),
    ],
)
def test_a_query_only_reads(lab, monkeypatch, sql, says):
    monkeypatch.chdir(lab)
    with pytest.raises(QuestionError, match=says):
        Results(lab).query(sql)
    assert not (lab / "here.csv").exists()


def test_an_export_equals_the_frame(lab):
    import pyarrow.parquet as pq

    results = Results(lab)
    frame = results.frame(run="r1")
    assert pq.read_table(io.BytesIO(results.export("r1", "parquet"))).to_pandas().equals(frame)
    exported = json.loads(results.export("r1", "json"))
    assert len(exported) == 23
    assert exported[5]["night"] == "2026-03-14"
    assert (exported[5]["value"], exported[5]["event"]) == (69 * MS, 2)
    assert (exported[5]["lower"], exported[5]["upper"]) == (64 * MS, 72 * MS)
    lines = list(csv.DictReader(io.StringIO(results.export("r1", "csv").decode())))
    assert [line["value"] for line in lines] == [str(value) for value in frame["value"]]
    assert lines[3]["night"] == "2026-03-14"


def test_a_tiny_number_is_exported_as_it_is(tmp_path):
    journal = begin(tmp_path, "r1")
    ratio = 1.2345678901234567e-16
    journal.append(context(), Row("server0.nic0", "bit_error_ratio", ratio, 0.0, None, "1", 0))
    journal.close()
    settle(journal.path.parent)
    exported = json.loads(Results(tmp_path).export("r1", "json"))
    assert (exported[0]["value"], exported[0]["upper"]) == (ratio, None)
    assert repr(ratio) in Results(tmp_path).export("r1", "csv").decode()


def test_results_of_the_first_schema_stay_readable(tmp_path):
    root = shutil.copytree(SCHEMA_1, tmp_path / "results")
    record(root, "20260401-000000-000000", "2026-04-01")
    results = Results(root)
    old, new = results.runs()
    assert (old.run, old.state, old.rows, old.simulated) == (OLD, "complete", 16, True)
    assert old.count("passed") is None
    assert old.duration_s is None
    frame = results.frame(quantity="reconfiguration.signal_recovered")
    assert frame["run"].value_counts().to_dict() == {OLD: 8, new.run: 20}
    assert frame["value"].tolist()[:2] == [62e6, 63e6]
    assert results.query("SELECT run, passed FROM runs ORDER BY run")["passed"].isna().tolist() == [
        *(True, False)
    ]


def test_a_data_set_that_is_none_is_named(lab):
    broken = lab / "rows" / "testbed=opus" / "night=2026-03-14" / "r9.parquet"
    broken.write_text("no Parquet")
    with pytest.raises(RecordError, match=r"r9\.parquet"):
        Results(lab).frame()
    with pytest.raises(RecordError, match=r"r9\.parquet") as caught:
        Results(lab).query("SELECT sum(value) FROM rows")
    assert not isinstance(caught.value, QuestionError)
    assert len(Results(lab).frame(night="2026-03-15")) == 7


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("nosuch://lab", "nosuch://lab: Protocol not known"),
        ("sftp://me:secret@lab.invalid/results", "names a password"),
    ],
)
def test_an_impossible_place_is_reported(location, says):
    with pytest.raises(QuestionError, match=says) as caught:
        Results(location)
    assert "secret" not in str(caught.value)


def test_a_journal_alone_is_a_run(tmp_path):
    path = tmp_path / "runs" / "r1" / "journal.jsonl"
    with Journal(path, {"run": "r1", "night": "2026-03-14"}):
        pass
    (one,) = Results(tmp_path).runs()
    assert (one.state, one.rows, one.testbeds) == ("ended", 0, {})


@pytest.mark.parametrize("header", ["{}", "[]", '{"run": 7, "night": "x"}', "null"])
def test_facts_whose_header_is_damaged_hide_no_run(lab, header):
    facts = lab / "runs" / "r1" / "run.json"
    document = json.loads(facts.read_text())
    facts.write_text(json.dumps({**document, "header": json.loads(header)}))
    results = Results(lab)
    assert [one.run for one in results.runs()] == [*ROWS]
    assert "runs/r1/run.json is damaged" in str(results.damaged()[0])
