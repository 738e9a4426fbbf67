"""Many write at once, and whoever reads meanwhile sees whole runs only."""

import multiprocessing
from pathlib import Path

import pytest
from record.recorded import record

from lightrig.harness.record import Results

WRITERS, RUNS, ROWS = 3, 5, 400


def write(results, writer):
    for number in range(RUNS):
        record(Path(results), f"w{writer}-{number}", rows=ROWS)


@pytest.mark.long
def test_readers_see_whole_runs_while_processes_write(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lightrig.harness.record"])
    writers = [context.Process(target=write, args=(str(tmp_path), n)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    results, seen = Results(tmp_path), set()
    counts = "SELECT run, count(*) AS n FROM rows GROUP BY run"
    while any(writer.is_alive() for writer in writers):
        found = results.query(counts).set_index("run")["n"].to_dict()
        assert set(found.values()) <= {ROWS}
        shown = {one.run for one in results.runs() if one.state == "complete"}
        assert all(len(results.frame(run=run)) == ROWS for run in shown - seen)
        assert results.damaged() == []
        seen |= shown
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    assert len(results.frame()) == WRITERS * RUNS * ROWS
    assert {one.state for one in results.runs()} == {"complete"}
    lock_of_readers = tmp_path / "rows" / ".readers"
    assert [path for path in tmp_path.rglob(".*") if path.is_file()] == [lock_of_readers]
