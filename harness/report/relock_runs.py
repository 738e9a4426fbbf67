"""Earlier runs with `--relock` on the same testbed, for the page of another one."""

from __future__ import annotations

from dataclasses import replace

from lightrig.harness.record import RecordError, RunRecord, read_journal
from lightrig.harness.record.journal_reading import header_of
from lightrig.harness.record.rows_files import folder_of
from lightrig.harness.report.frames import EarlierRun, TestbedFrame, collect

MOST_RUNS = 20
"""Latest runs that are read."""


def with_earlier_relocks(record: RunRecord, frame: TestbedFrame) -> TestbedFrame:
    """Return the frame with the earlier runs of its testbed, where `record` is with `--relock`.

    Those are read whose instruments were opened alike, from the journals beside its folder. One
    that is damaged is left out.
    """
    if not record.header.get("relock"):
        return frame
    runs, this = record.path.parents[1], record.path.parent.name
    stored = runs.parent / folder_of(frame.name, by_hand=True)
    began: dict[str, str] = {}
    for run in {file.stem for file in stored.glob("night=*/*.parquet")} - {this}:
        try:
            header = header_of(runs / run / record.path.name)
        except RecordError:
            continue
        same = (header.get(key) == record.header.get(key) for key in ("relock", "instruments"))
        if all(same):
            began[run] = str(header.get("started", ""))
    started = str(record.header.get("started", ""))
    earlier = sorted((at, run) for run, at in began.items() if (at, run) < (started, this))
    found = []
    for at, run in earlier[-MOST_RUNS:]:
        try:
            read = collect(read_journal(runs / run / record.path.name)).testbeds
        except RecordError:
            continue
        tests = (one.tests for one in read if one.name == frame.name)
        found += [EarlierRun(run, at.partition("T")[0], each) for each in tests]
    return replace(frame, earlier=tuple(found))
