"""Parts of a rows file that do not fit each other, each by itself; what a process answers."""

import io
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pyarrow as pa


HEADER = {"run": "r1", "host": "a", "seed": 7}


def table(rows: int = 3, run: str = "r1") -> "pa.Table":
    import pyarrow as pa

    from lightrig.harness.record.dataset import COLUMNS

    values: list[dict[str, Any]] = [
        {
            "run": run,
            "test": "t",
            "subject": f"p{n}",
            "quantity": "q",
            "value": 1.5 * n,
            "lower": None if n == 1 else 1.0,
            "upper": 9.0,
            "unit": "ns",
            "time_ns": n,
            "simulated": n > 0,
            "instruments": ["a", "b"],
            "conditions": "{}",
        }
        for n in range(rows)
    ]
    return pa.Table.from_pylist(values, schema=COLUMNS)


def write(
    path: Path, rows: "pa.Table", header: object = HEADER, key: str = "lightrig.header"
) -> Path:
    import pyarrow.parquet as pq

    metadata = {} if header is None else {key: json.dumps(header)}
    pq.write_table(
        rows.replace_schema_metadata(metadata), path, row_group_size=2, write_page_checksum=True
    )
    return path


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_whole_file_has_no_problem(tmp_path: Path, rows: int) -> None:
    from lightrig.harness.record.rows_inspection import inspect

    path = str(write(tmp_path / "r1.parquet", table(rows)))
    inspect(path, "r1", {"r1": HEADER})
    inspect(path, "r1", {})  # a run that was killed has no run.json
    inspect(str(write(tmp_path / "none.parquet", table(rows), None)), "r1", {"r1": HEADER})


def retyped(rows: "pa.Table") -> "pa.Table":
    import pyarrow as pa

    return rows.set_column(8, "time_ns", rows["time_ns"].cast(pa.float64()))


def of_two_runs() -> "pa.Table":
    import pyarrow as pa

    return pa.concat_tables([table(), table(run="r9")])


@pytest.mark.parametrize(
    ("made", "run", "headers", "problem"),
    [
        (lambda: table().append_column("night", [[1, 2, 3]]), "r1", {}, "'night' is none"),
        (lambda: table().append_column("value", table()["value"]), "r1", {}, "the same name"),
        (lambda: retyped(table()), "r1", {}, "column 'time_ns' is none of rows"),
        (table, "r2", {}, "its header is of run 'r1', not of 'r2'"),
        (table, "r1", {"r1": {**HEADER, "seed": 8}}, "header of run 'r1' is another"),
        (lambda: table(run="r9"), "r1", {}, "it has rows of another run"),
        (of_two_runs, "r1", {}, "rows of another run"),
    ],
)
def test_parts_that_do_not_fit_are_named(
    tmp_path: Path, made: Callable[[], "pa.Table"], run: str, headers: Any, problem: str
) -> None:
    from lightrig.harness.record.rows_inspection import InspectionError, inspect

    path = write(tmp_path / "r.parquet", made())
    with pytest.raises(InspectionError, match=problem):
        inspect(str(path), run, headers)


@pytest.mark.parametrize(
    ("known", "testbed", "night", "problem"),
    [
        (False, "a", "2026-03-14", ""),
        (False, "a", "2026-03-15", "of the night '2026-03-14', not of 2026-03-15"),
        (False, "b", "2026-03-14", "of a run on other testbeds than 'b'"),
        (True, "b", "2026-03-14", ""),  # `run.json` was asked
    ],
)
def test_a_header_is_of_the_folder(
    tmp_path: Path, known: bool, testbed: str, night: str, problem: str
) -> None:
    from lightrig.harness.record.rows_inspection import MisplacedError, inspect

    header = {**HEADER, "night": "2026-03-14", "testbeds": {"a": "a.yaml"}}
    asked = (
        str(write(tmp_path / "r1.parquet", table(), header)),
        "r1",
        {"r1": header} if known else {},
    )
    if not problem:
        inspect(*asked, testbed, night)
        return
    with pytest.raises(MisplacedError, match=problem):
        inspect(*asked, testbed, night)


def test_a_compacted_file_has_the_headers_of_several_runs(tmp_path: Path) -> None:
    import pyarrow as pa

    from lightrig.harness.record.rows_inspection import InspectionError, inspect

    rows = pa.concat_tables([table(), table(2, "r2")])
    runs = {name: {"header": {"run": name, "seed": n}} for n, name in enumerate(("r1", "r2"))}
    path = str(write(tmp_path / "c.parquet", rows, runs, "lightrig.runs"))
    headers = {name: each["header"] for name, each in runs.items()}
    inspect(path, "", headers)
    inspect(path, "", {"r2": headers["r2"]})
    with pytest.raises(InspectionError, match="header of run 'r2' is another"):
        inspect(path, "", {"r2": headers["r1"]})


def group(**other: Any) -> Any:
    """Return a file whose row group 4 states its statistics, or `other` ones, of `lower`."""
    rows = table().select(["lower", "instruments"])
    known = {
        "has_null_count": True,
        "null_count": 1,
        "num_values": 2,
        "has_min_max": True,
        "min": 1.0,
        "max": 1.0,
    }
    columns = [
        SimpleNamespace(path_in_schema="lower", statistics=SimpleNamespace(**known | other)),
        SimpleNamespace(
            path_in_schema="instruments.list.element",
            statistics=SimpleNamespace(**known | {"num_values": 99}),
        ),
    ]
    stated = SimpleNamespace(
        num_rows=other.get("num_rows", 3), num_columns=2, column=columns.__getitem__
    )
    return SimpleNamespace(
        read_row_group=lambda number: {4: rows}[number],
        metadata=SimpleNamespace(row_group=lambda number: {4: stated}[number]),
    )


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"num_rows": 2}, "row group 4: 2 rows are stated"),
        ({"null_count": 0}, "lower has another number of gaps"),
        ({"num_values": 3}, "lower has another number of values"),
        ({"min": 0.5}, "lower is not within its bounds"),
        ({"max": 1.5}, "lower is not within its bounds"),
        ({}, None),
        ({"has_null_count": False, "null_count": 0}, None),
        ({"has_min_max": False, "min": 0.5}, None),
    ],
)
def test_statistics_of_a_row_group_are_those_of_its_rows(
    other: dict[str, Any], problem: str | None
) -> None:
    from lightrig.harness.record.rows_inspection import InspectionError, checked_group

    if problem is None:
        assert len(checked_group(group(**other), 4)) == 3
        return
    with pytest.raises(InspectionError, match=problem):
        checked_group(group(**other), 4)


def test_each_path_is_answered_by_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lightrig.harness.record import rows_inspection
    from lightrig.harness.record.rows_inspection import main

    whole = write(tmp_path / "r1.parquet", table())
    broken = tmp_path / "r2.parquet"
    broken.write_bytes(b"PAR1" * 9)
    missing = tmp_path / "r3.parquet"
    limits: list[int] = []
    monkeypatch.setattr(rows_inspection, "limit_time", limits.append)
    asked = [[str(whole), "r1", {}], [str(broken), "r2", {}], [str(missing), "r3", {}]]
    lines = "".join(f"{json.dumps(each)}\n" for each in [*asked, [str(whole), "r2", {}]])
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    main()
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first == ""
    assert second.startswith("ArrowInvalid: ")
    assert third.startswith("FileNotFoundError: ")
    assert fourth == "MisplacedError: its header is of run 'r1', not of 'r2'"
    assert limits == [whole.stat().st_size, 36, whole.stat().st_size]


@pytest.mark.parametrize(
    ("hard", "limits"),
    [(resource.RLIM_INFINITY, (10, resource.RLIM_INFINITY)), (60, (10, 60)), (8, (8, 8))],
)
def test_reading_may_take_5_s_and_a_second_a_megabyte(
    monkeypatch: pytest.MonkeyPatch, hard: int, limits: tuple[int, int]
) -> None:
    """1.75 s were used before, so 3 MB have until 9.75 s."""
    from lightrig.harness.record import rows_inspection

    set_to: list[object] = []
    used = SimpleNamespace(ru_utime=1.25, ru_stime=0.5)
    monkeypatch.setattr(resource, "getrusage", {resource.RUSAGE_SELF: used}.__getitem__)
    monkeypatch.setattr(resource, "getrlimit", {resource.RLIMIT_CPU: (3, hard)}.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", lambda *what: set_to.append(what))
    rows_inspection.limit_time(3_000_000)
    assert set_to == [(resource.RLIMIT_CPU, limits)]
