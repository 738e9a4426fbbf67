"""A damaged file of results is named before any reader uses it; nothing else is read or removed."""

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from record.recorded import record

from lightrig.harness.record import RecordError, Results, recover, rows_check
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.rows_files import MANIFEST, parse_manifest
from lightrig.harness.record.run_folder import FACTS, RunFacts, parse_facts
from lightrig.harness.report.nights.source import Source

RUN = "20260105-021500-a"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for day, rows in ((3, 31), (5, 17)):
        record(tmp_path, f"2026010{day}-021500-a", f"2026-01-0{day}", rows=rows)
    return tmp_path


def rows_file(results: Path) -> Path:
    return next(results.glob(f"rows/*/*/{RUN}.parquet"))


def flip(path: Path, at: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def without(path: Path, *fields: str) -> None:
    """Leave out fields that earlier versions did not write."""
    document = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in document.items() if k not in fields}))


def of_frame(results: Path) -> object:
    return Results(results).frame()


def of_query(results: Path) -> object:
    return Results(results).query("SELECT max(value) FROM rows")


def of_nights(results: Path) -> object:
    with Source(results).connected() as connection:
        return connection.sql("SELECT max(value) FROM found").fetchall()


def of_parts(results: Path) -> object:
    return list(Source(results).parts("opus", ["value"], [], 1))


@pytest.mark.parametrize("read", [of_frame, of_query, of_nights, of_parts])
def test_a_rows_file_is_compared_with_its_digest(
    results: Path, read: Callable[[Path], object]
) -> None:
    import pyarrow.parquet as pq

    # The name of the writing program: no checksum of Parquet is over it, and no reader minds.
    path = rows_file(results)
    flip(path, path.read_bytes().index(b"parquet-cpp-arrow"))
    pq.read_table(path)
    with pytest.raises(
        RecordError, match=rf"{RUN}.parquet is damaged: its SHA-256 .* recover {RUN}"
    ):
        read(results)
    assert len(Results(results).frame(night="2026-01-03")) == 31, "other files are read"
    recover(results / "runs" / RUN)
    read(results)
    assert len(Results(results).frame()) == 31 + 17


def test_a_file_that_has_changed_since_it_was_checked_is_checked_again(results: Path) -> None:
    assert len(Results(results).frame()) == 48
    path = rows_file(results)
    flip(path, path.read_bytes().index(b"parquet-cpp-arrow"))
    with pytest.raises(RecordError, match="is damaged"):
        Results(results).frame()


def test_a_compacted_file_is_compared_with_its_digest(results: Path) -> None:
    record(results, "20260201-021500-a", "2026-02-01", rows=5)
    compact(str(results))
    (path,) = results.glob("rows/testbed=opus/2026-01.*.parquet")
    assert len(Results(results).frame()) == 48 + 5
    flip(path, path.read_bytes().index(b"parquet-cpp-arrow"))
    with pytest.raises(RecordError, match=rf"{path.name} is damaged: its SHA-256 .* copy"):
        Results(results).frame()
    assert len(Results(results).frame(night="2026-02-01")) == 5


def undigested(results: Path) -> Path:
    for path in results.glob("runs/*/run.json"):
        without(path, "digests", "sha256")
    return rows_file(results)


def test_rows_without_a_digest_are_read(results: Path) -> None:
    before = Results(results).frame()
    undigested(results)
    assert Results(results).frame().equals(before)
    (results / "runs" / RUN / "run.json").unlink()
    assert Results(results).frame().equals(before)


@pytest.mark.parametrize(
    "named",
    [
        pytest.param(b"lower", id="column"),
        pytest.param(b'"seed":7', id="header", marks=pytest.mark.long),
        pytest.param(b"\x03run%", id="type", marks=pytest.mark.long),
    ],
)
def test_damage_that_no_checksum_shows_is_named(results: Path, named: bytes) -> None:
    """A column `lowdr` would read as one without values, a header as that of another run.

    Behind the name of `run` its type is that of a text: one of two readers would see bytes.
    """
    import pyarrow.parquet as pq

    path = undigested(results)
    flip(path, path.read_bytes().rindex(named) + len(named) - 1, 0)
    pq.read_table(path)
    with pytest.raises(RecordError, match=rf"{RUN}.parquet is damaged: .*recover {RUN}"):
        Results(results).frame()


def test_a_file_that_ends_its_reader_is_an_error(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undigested(results)
    aborting = "import os, sys; sys.stdin.readline(); os.abort()"
    monkeypatch.setattr(rows_check, "INSPECTION", [sys.executable, "-c", aborting])
    with pytest.raises(RecordError, match="is damaged: reading it ends the reading process"):
        Results(results).frame()


@pytest.mark.long
def test_a_reader_that_does_not_end_is_ended(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undigested(results)
    endless = """
from lightrig.harness.record import rows_inspection
rows_inspection._LONGEST_S = 0.0
def inspect(*_):
    while True:
        pass
rows_inspection.inspect = inspect
rows_inspection.main()
"""
    monkeypatch.setattr(rows_check, "INSPECTION", [sys.executable, "-c", endless])
    with pytest.raises(RecordError, match="is damaged: reading it ends the reading process"):
        Results(results).frame()


@pytest.mark.parametrize("name", [f"runs/{RUN}/{FACTS}", MANIFEST])
def test_no_bit_of_a_file_with_digests_changes_silently(results: Path, name: str) -> None:
    record(results, "20260201-021500-a", "2026-02-01", rows=5)
    compact(str(results))
    whole = (results / name).read_bytes()

    def read(text: bytes) -> object:
        if name == MANIFEST:
            return parse_manifest("results", text)
        return vars_of(parse_facts(name, text))

    wanted, named = read(whole), 0
    for at in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        try:
            assert read(bytes(changed)) == wanted
        except RecordError:
            named += 1
    assert named > len(whole) // 3 - 10


def vars_of(facts: RunFacts) -> list[object]:
    return [getattr(facts, each.name) for each in fields(facts)]


def test_files_of_earlier_versions_have_no_digests(results: Path) -> None:
    path = results / "runs" / RUN / FACTS
    assert set(parse_facts("x", path.read_bytes()).digests) == {"opus"}
    undigested(results)
    assert parse_facts("x", path.read_bytes()).digests == {}


def test_a_compacted_run_that_is_settled_again_keeps_its_digest(results: Path) -> None:
    record(results, "20260201-021500-a", "2026-02-01", rows=5)
    path = results / "runs" / RUN / FACTS
    before = path.read_bytes()
    compact(str(results))
    recover(path.parent)
    assert path.read_bytes() == before
