"""Retention: removing runs of old nights, wholly or but for their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

from lightrig.harness.record.places import Place
from lightrig.harness.record.results import Results
from lightrig.harness.record.run_folder import FACTS

_SETTLED = frozenset(("complete", "interrupted", "recovered"))


@dataclass(frozen=True, slots=True)
class Prunable:
    """A run that may be removed: its files, named from the results on, and their size in bytes.

    The first file is its `run.json`, without which it is listed no more.
    """

    run: str
    night: str
    files: tuple[str, ...]
    size: int


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
    for name in place.files("rows"):
        rows.setdefault(unquote(name).rpartition("/")[2].removesuffix(".parquet"), []).append(name)
    found = []
    for facts in Results(location).runs():
        if facts.night >= before or facts.state not in _SETTLED:
            continue
        if not all(fnmatchcase(name, testbed) for name in facts.testbeds):
            continue
        first = f"runs/{facts.run}/{FACTS}"
        folder = [name for name in by_run.get(facts.run, ()) if name != first]
        files = folder if keep_rows else [first, *rows.get(facts.run, ()), *folder]
        if files:
            size = sum(place.size(name) for name in files)
            found.append(Prunable(facts.run, facts.night, tuple(files), size))
    return found


def prune(location: str, runs: Sequence[Prunable]) -> None:
    """Remove the files of `runs`; raises `RecordError` for one that cannot be removed."""
    place = Place(location)
    for run in runs:
        for name in run.files:
            place.remove(name)
        place.remove_empty(f"runs/{run.run}")
