"""Compacted results read as before, whenever their writer is killed."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import preloaded
import pytest

from lightrig.harness.record import Context, Journal, RecordError, Results, Row, settle
from lightrig.harness.record.compaction import compact, compacting
from lightrig.harness.record.places import Place
from lightrig.harness.record.retention import find_prunable, prune
from lightrig.harness.record.rows_files import reading, stored_rows
from lightrig.harness.report.nights.source import Source

if TYPE_CHECKING:
    import pandas as pd


NIGHTS = ("2026-01-03", "2026-01-04", "2026-01-30", "2026-02-01", "2026-02-02", "2026-03-01")
TESTBEDS = ("bench", "b/2")

COMPACT = """
import os, sys
from lightrig.harness.record import compaction, places
steps = int(sys.argv[2])
def step(function):
    def counted(*arguments, **options):
        global steps
        steps -= 1
        if steps < 0:
            os._exit(9)
        return function(*arguments, **options)
    return counted
compaction.Place.remove = step(compaction.Place.remove)
places.Path.replace = step(places.Path.replace)
places._sync = step(places._sync)
compaction.compact(sys.argv[1])
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for number, night in enumerate(NIGHTS):
        record(tmp_path, night, number)
    return tmp_path


def record(results: Path, night: str, number: int) -> Path:
    folder = results / "runs" / f"{night.replace('-', '')}-000000-a"
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.jsonl", {"run": folder.name, "night": night})
    for testbed in TESTBEDS:
        context = Context(testbed, "test", (f"ocs {number}",), True, {"clock": "virtual"})
        rows = [
            Row("ocs", "insertion_loss", 1.5 + n, None, 9.0, "dB", n, {"event": n})
            for n in range(3 + number)
        ]
        journal.append_many(context, rows)
    journal.close({})
    settle(folder)
    return folder


def frames(results: Path) -> "list[pd.DataFrame]":
    found = Results(results)
    return [
        found.frame(),
        found.frame(night="2026-01-0*", testbed="bench"),
        found.frame(run="20260130-000000-a"),
        found.frame(run="*-a", testbed="b*2", quantity="insertion_*"),
        found.query("SELECT * FROM rows ORDER BY testbed, night, time_ns"),
        of_nights_page(results),
    ]


def of_nights_page(results: Path) -> "pd.DataFrame":
    with Source(results).connected() as connection:
        return connection.sql(
            "SELECT testbed, night, run, value, lower, upper, conditions, instruments,"
            " file_row_number FROM found ORDER BY testbed, night, file_row_number"
        ).df()


def test_rows_are_the_same_and_files_fewer(results: Path) -> None:
    import pandas as pd

    before = frames(results)

    done = compact(str(results))

    assert (len(done.files), done.replaced, done.left, done.problems) == (4, 10, 0, ())
    for one, other in zip(before, frames(results), strict=True):
        pd.testing.assert_frame_equal(one, other)
    names = [path.name for path in (results / "rows").rglob("*.parquet")]
    assert len(names) == 4 + 2, "the last month is not over"
    assert compact(str(results)).replaced == 0


def test_the_month_of_the_last_night_is_left_as_it_is(results: Path) -> None:
    record(results, "2026-03-07", 4)
    single = {path.name for path in results.glob("rows/*/night=2026-03-*/*.parquet")}
    assert compact(str(results)).replaced == 10
    after = {path.name for path in results.glob("rows/*/night=2026-03-*/*.parquet")}
    assert after == single == {"20260301-000000-a.parquet", "20260307-000000-a.parquet"}


def test_results_that_another_process_compacts_are_left_alone(results: Path) -> None:
    before = sorted(results.rglob("*.parquet"))
    with compacting(results), pytest.raises(RecordError, match="another process compacts these"):
        compact(str(results))
    assert sorted(results.rglob("*.parquet")) == before


def test_a_damaged_file_is_not_compacted(results: Path) -> None:
    """Only its testbed's month is left as it is."""
    (path,) = results.glob("rows/testbed=bench/night=2026-01-04/*.parquet")
    data = bytearray(path.read_bytes())
    data[data.index(b"parquet-cpp-arrow")] ^= 1
    path.write_bytes(data)
    done = compact(str(results))
    assert (done.replaced, len(done.problems)) == (7, 1)
    assert f"{path.name} is damaged: its SHA-256 digest differs" in done.problems[0]
    assert path.read_bytes() == data


def test_a_run_that_is_settled_again_has_its_rows_once(results: Path) -> None:
    import pandas as pd

    before = Results(results).frame()
    compact(str(results))
    settle(results / "runs" / "20260103-000000-a")
    pd.testing.assert_frame_equal(before, Results(results).frame())


def test_pruned_runs_leave_compacted_files(results: Path) -> None:
    compact(str(results))
    prune(str(results), find_prunable(str(results), "2026-01-30"))
    found = Results(results).frame()
    assert [f"{night:%F}" for night in found["night"].unique()] == list(NIGHTS[2:])
    assert len(stored_rows(Place(results))) == 6


def test_files_that_are_read_stay_until_the_next_compaction(results: Path) -> None:
    with reading(Place(results)):
        assert compact(str(results)).left == 10
        assert len(Results(results).frame()) == 2 * sum(range(3, 9))
    assert compact(str(results)).left == 0
    assert len(list((results / "rows").rglob("*.parquet"))) == 6


@pytest.mark.parametrize(
    "after",
    [
        pytest.param((4, 14), id="amid"),
        pytest.param(range(0, 24, 2), id="anywhere", marks=pytest.mark.long),
    ],
)
def test_a_killed_compaction_leaves_all_rows(results: Path, after: Sequence[int]) -> None:
    import pandas as pd

    before = Results(results).frame()
    ended = []
    for steps in after:
        ended.append(preloaded.run(["python", "-c", COMPACT, results, steps]).returncode)
        pd.testing.assert_frame_equal(before, Results(results).frame())
    assert ended[0] == 9, "killed"
    assert set(ended) <= {0, 9}
    compact(str(results))
    pd.testing.assert_frame_equal(before, Results(results).frame())
    assert len([p for p in (results / "rows").rglob("*") if p.suffix in (".parquet", ".tmp")]) == 6


def test_a_later_run_of_a_compacted_month_stands_in_its_place(results: Path) -> None:
    compact(str(results))
    record(results, "2026-01-20", 1)
    nights = Results(results).frame(testbed="bench")["night"]
    assert nights.is_monotonic_increasing
    assert datetime.datetime(2026, 1, 20) in nights.tolist()
