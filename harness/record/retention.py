"""Retention: removing runs of old nights, wholly or but for their rows."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lightrig.harness.record.places import Place
from lightrig.harness.record.results import Results
from lightrig.harness.record.rows_files import stored_rows
from lightrig.harness.record.run_folder import FACTS, SETTLED


@dataclass(frozen=True, slots=True)
class Prunable:
    """A run that may be removed: its files, named from the results on, and their size in bytes.

    The first file is its `run.json`, without which it is listed no more. Rows in compacted files
    have no file of their own and are not in `size`; with_rows: whether they go too.
    """

    run: str
    night: str
    files: tuple[str, ...]
    size: int
    with_rows: bool


def find_prunable(
    location: str, before: str, testbed: str = "*", *, keep_rows: bool = False
) -> list[Prunable]:
    """Return the runs of nights before the date `before`, YYYY-MM-DD, the oldest first.

    Only runs whose testbeds all match the pattern `testbed`, and whose rows are in the data set:
    what was killed and not recovered is never removed. keep_rows: leave rows and `run.json`, so
    that the run stays in lists, queries and trends; its journal, report and descriptions go.
    Raises `RecordError` for what cannot be read.
    """
    place = Place(location)
    by_run: dict[str, list[str]] = {}
    for name in place.files("runs"):
        by_run.setdefault(name.split("/")[1], []).append(name)
    rows: dict[str, list[str]] = {}
    for file in stored_rows(place, by_hand=True):
        if file.runs is None:
            rows.setdefault(file.run, []).append(file.name)
    found = []
    for facts in Results(location).runs():
        if facts.night >= before or facts.state not in SETTLED:
            continue
        if not all(fnmatchcase(name, testbed) for name in facts.testbeds):
            continue
        first = f"runs/{facts.run}/{FACTS}"
        folder = [name for name in by_run.get(facts.run, ()) if name != first]
        files = folder if keep_rows else [first, *rows.get(facts.run, ()), *folder]
        if files:
            size = sum(place.size(name) for name in files)
            found.append(Prunable(facts.run, facts.night, tuple(files), size, not keep_rows))
    return found


def find_older(
    location: str, days: int, testbed: str = "*", *, keep_rows: bool = False
) -> list[Prunable]:
    """Return the runs more than `days` nights before the last one; see `find_prunable`."""
    runs = [facts for facts in Results(location).runs() if not facts.by_hand]
    if not runs:
        return []
    first = datetime.date.fromisoformat(runs[-1].night) - datetime.timedelta(days)
    return find_prunable(location, first.isoformat(), testbed, keep_rows=keep_rows)


def prune(location: str, runs: Sequence[Prunable]) -> None:
    """Remove the files of `runs`; raises `RecordError` for one that cannot be removed."""
    place = Place(location)
    for run in runs:
        for name in run.files:
            place.remove(name)
        place.remove_empty(f"runs/{run.run}")
    if dropped := frozenset(run.run for run in runs if run.with_rows):
        from lightrig.harness.record.compaction import drop  # noqa: PLC0415 - loads pyarrow

        drop(place, dropped)
