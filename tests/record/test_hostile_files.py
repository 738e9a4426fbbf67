"""Files of results and descriptions that are none: each is an error that names it, soon."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from record.recorded import record

from lightrig.harness.night.outcomes import not_run
from lightrig.harness.record import RecordError, Results, read_journal
from lightrig.harness.record.digests import with_digest
from lightrig.harness.record.places import Place
from lightrig.harness.record.rows_files import MANIFEST, stored_rows
from lightrig.harness.record.run_folder import parse_facts
from lightrig.harness.report.nights.source import Source
from lightrig.instruments.core.transcript import read as read_trace
from lightrig.testbeds import LightrigError, load
from lightrig.testbeds.baselines import load_baselines
from lightrig.testbeds.fault_plan import load_fault_plan
from lightrig.testbeds.references import load_references

RUN = "20260105-021500-a"
NIGHT = "nights/20260105-021500/lab.json"

READERS: dict[str, Callable[[Path], object]] = {
    f"runs/{RUN}/run.json": lambda path: Results(path.parents[2]).damaged()[0].args[0],
    f"runs/{RUN}/journal.jsonl": read_journal,
    MANIFEST: lambda path: stored_rows(Place(path.parents[1])),
    NIGHT: lambda path: not_run(path.parents[2]),
    "trace.jsonl": read_trace,
    "lab.yaml": load,
    "lab.baselines.yaml": load_baselines,
    "lab.references.yaml": load_references,
    "faults.yaml": load_fault_plan,
}


@pytest.fixture(params=READERS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param.startswith("runs/"):
        record(tmp_path, RUN, "2026-01-05", rows=3)
    path = tmp_path / str(request.param)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def problem(file: Path, tmp_path: Path) -> str:
    """Return what the file's reader says."""
    name = str(file.relative_to(tmp_path))
    if name.endswith("run.json"):  # which does not hide the other runs
        return str(READERS[name](file))
    with pytest.raises((LightrigError, OSError)) as caught:
        READERS[name](file)
    return str(caught.value)


def test_a_named_pipe_is_not_waited_for(file: Path, tmp_path: Path) -> None:
    os.mkfifo(file)
    if file.name == "run.json":
        with pytest.raises(RecordError, match="is no regular file"):
            Results(tmp_path).runs()
        return
    assert "is no regular file" in problem(file, tmp_path)


@pytest.mark.parametrize("bracket", ["[", '{"a":'], ids=["list", "object"])
def test_deep_files_are_errors(file: Path, tmp_path: Path, bracket: str) -> None:
    text = bracket * 200_000
    file.write_text(text)
    assert file.name.partition(".")[0] in problem(file, tmp_path)
    assert file.read_text() == text


def test_an_endless_device_is_not_read(file: Path, tmp_path: Path) -> None:
    file.symlink_to("/dev/zero")
    if file.name == "run.json":
        with pytest.raises(RecordError, match="is no regular file"):
            Results(tmp_path).runs()
        return
    assert "is no regular file" in problem(file, tmp_path)


@pytest.mark.parametrize(
    ("start", "repeated", "times", "expected"),
    [
        pytest.param(
            *("a:\n", "  - {b: [1, 2], c: x}\n", 60_000),
            "has more than 100000 values",
            marks=pytest.mark.long,
            id="values",
        ),
        pytest.param("a: ", "x", 5 << 20, "is longer than 4 MiB", id="bytes"),
        pytest.param("a:\n", "\t- x\n", 60_000, "more than 128 KiB would take", id="tabs"),
    ],
)
def test_a_description_that_is_too_large_is_not_parsed(
    tmp_path: Path, start: str, repeated: str, times: int, expected: str
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(start + repeated * times)
    assert expected in problem(path, tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "asleep"),
        ("rows", "many"),
        ("passed", -1),
        ("exit", 0.5),
        ("duration_s", float("nan")),
        ("reason", None),
        ("colour", "red"),
    ],
)
def test_an_outcome_of_a_night_has_values_of_its_types(
    tmp_path: Path, field: str, value: object
) -> None:
    path = tmp_path / NIGHT
    path.parent.mkdir(parents=True)
    outcome = {"testbed": "lab", "state": "not run", "reason": "lost"}
    path.write_text(json.dumps(outcome))
    assert not_run(tmp_path) == {"lab": ("2026-01-05", "lost")}
    path.write_text(json.dumps({**outcome, field: value}))
    with pytest.raises(RecordError, match=rf"{NIGHT} is damaged"):
        not_run(tmp_path)


def test_a_folder_that_is_no_night_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nights/yesterday/lab.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(RecordError, match="nights/yesterday is no night"):
        not_run(tmp_path)
    rows = tmp_path / "rows/testbed=lab/night=2026-99-99/r.parquet"
    rows.parent.mkdir(parents=True)
    rows.touch()
    with pytest.raises(RecordError, match=r"night=2026-99-99/r\.parquet is of no night"):
        Source(tmp_path)


@pytest.mark.parametrize("file", ["/etc/passwd", "../../other/lab.yaml"])
def test_a_description_is_a_file_of_the_runs_folder(file: str) -> None:
    header = {"run": RUN, "night": "2026-01-05", "descriptions": {"lab": file}}
    document = {"schema": 1, "state": "complete", "torn": False, "testbeds": {}, "tests": None}
    text = with_digest({**document, "summary": None, "header": header}).encode()
    with pytest.raises(RecordError, match="expected a file in the run's folder"):
        parse_facts("run.json", text)


def test_a_manifest_names_files_and_nights_of_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / MANIFEST
    path.parent.mkdir()
    good = "rows/testbed=lab/2026-01.x.parquet"
    night = {"2026-01-05": {RUN: 3}}
    for files in (
        {"rows/x": night},
        {"rows/testbed=lab/../../x.parquet": night},
        {good: {}},
        {good: {"2026-1-5": {RUN: 3}}},
        {good: {"2026-01-05": {RUN: "3"}}},
        {good: night, good.replace("x", "y"): night},
        {good: [1]},
    ):
        path.write_text(with_digest({"schema": 1, "files": files}))
        with pytest.raises(RecordError, match=r"compacted\.json is damaged"):
            stored_rows(Place(tmp_path))
    path.write_text(with_digest({"schema": 1, "files": {good: night}}))
    assert [file.name for file in stored_rows(Place(tmp_path))] == [good]
