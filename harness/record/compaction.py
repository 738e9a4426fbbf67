"""Compaction: the many small files of nights that are over, as one file a testbed and month.

A compacted file is ROOT/testbed=<name>/<YYYY-MM>.<id>.parquet, with the columns of the data set,
the column `night`, which no longer stands in the path, and `row`, the number of a row in its run.
`compacted.json` beside the testbeds names the compacted files and the runs in each: it is replaced
in one step, and a run that it names is read from there alone. So a reader sees the old files or the
new one, never both, and a process that is killed leaves the data set as it was before or after.

The files that were replaced are removed when nobody reads: readers hold a lock of the folder that
they share. Those that are still read go at the next compaction.
"""

import contextlib
import fcntl
import io
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lightrig.harness.record.places import Place, appearing
from lightrig.harness.record.results import Results
from lightrig.harness.record.row import QuestionError, RecordError
from lightrig.harness.record.rows_check import check_rows
from lightrig.harness.record.rows_files import (
    MANIFEST,
    READERS,
    Manifest,
    RowsFile,
    read_manifest,
    stored_rows,
)
from lightrig.harness.record.run_folder import SETTLED, RunFacts, is_published
from lightrig.testbeds.regular_files import folder_below, open_to_append

_LOCK = "rows/.compacting"


@dataclass(frozen=True, slots=True)
class Compaction:
    """Outcome of a compaction.

    files: the compacted files written, named from the results on. replaced: number of files whose
    rows they have. before, after: bytes of these. left: replaced files that are still read.
    problems: files that could not be compacted, and why; they stay as they are.
    """

    files: tuple[str, ...]
    replaced: int
    before: int
    after: int
    left: int
    problems: tuple[str, ...]


def compact(location: str, testbed: str = "*") -> Compaction:
    """Compact the files of all months that are over: those before the month of the last night.

    Runs that were killed and not recovered, or not yet published, are left as they are. testbed: a
    name or pattern. Raises `QuestionError` for results that are no folder of this machine, and
    `RecordError` for what cannot be read or written.
    """
    from lightrig.harness.record.compacted_file import (  # noqa: PLC0415 - loads pyarrow
        write_compacted,
    )

    place = Place(location)
    folder = _folder(place)
    settled = {facts.run for facts in Results(location).runs() if _is_settled(folder, facts)}
    with compacting(folder):
        groups: dict[tuple[str, str], list[RowsFile]] = {}
        found = [file for file in stored_rows(place) if file.runs is None]
        last = max((file.night for file in found), default="")
        for file in found:
            over = file.run in settled and file.night[:7] < last[:7]
            if over and fnmatchcase(file.testbed, testbed):
                groups.setdefault((file.testbed, file.night[:7]), []).append(file)
        written, problems = [], []
        replaced = before = after = 0
        for (name, month), files in sorted(groups.items()):
            try:
                names = [file.name for file in check_rows(place, files)]
                # One file is compact already; rewriting it would only change its digest.
                if len(names) < 2:
                    continue
                new = write_compacted(folder, name, month, [(one, frozenset()) for one in names])
            except RecordError as error:
                problems.append(f"{name}, {month}: {error}")
                continue
            # Only the manifest says which files count: until it is replaced, in one rename, readers
            # see the old files, and from then on the new one.
            manifest = read_manifest(place)
            _commit(folder, Manifest((*manifest.files, new)))
            written.append(new.name)
            replaced += len(names)
            before += sum(map(place.size, names))
            after += place.size(new.name)
        left = _remove_replaced(place, folder)
    return Compaction(tuple(written), replaced, before, after, left, tuple(problems))


def drop(place: Place, runs: frozenset[str]) -> None:
    """Remove the rows of `runs` from compacted files, which are written anew without them."""
    from lightrig.harness.record.compacted_file import (  # noqa: PLC0415 - loads pyarrow
        write_compacted,
    )

    folder = place.folder
    if folder is None or not any(runs & file.names for file in read_manifest(place).files):
        return
    with compacting(folder):
        for file in read_manifest(place).files:
            if not runs & file.names:
                continue
            rest = tuple(one for one in read_manifest(place).files if one.name != file.name)
            if file.names - runs:
                month = Path(file.name).name[:7]
                check_rows(place, [file.rows_file()])
                new = write_compacted(folder, file.testbed, month, [(file.name, runs)])
                rest = (*rest, new)
            _commit(folder, Manifest(rest))
        _remove_replaced(place, folder)


def _is_settled(folder: Path, facts: RunFacts) -> bool:
    if facts.state not in SETTLED:
        return False
    return not facts.header.get("publish") or is_published(folder / "runs" / facts.run)


def _folder(place: Place) -> Path:
    if place.folder is None:
        raise QuestionError(
            f"{place.name}: results are compacted in a folder; compact there, and bring them to "
            "the object store by `lightrig results push`"
        )
    return place.folder


def _commit(folder: Path, manifest: Manifest) -> None:
    with appearing(folder / MANIFEST, folder) as hidden:
        hidden.write_text(manifest.text(), "utf-8")


def _remove_replaced(place: Place, folder: Path) -> int:
    """Remove what the manifest does not need, unless somebody reads; return how much is left."""
    # Listed before it is asked what is needed: a run that ends meanwhile is not in the list.
    listed = [name for name in place.files("rows") if name.endswith(".parquet")]
    current = {file.name for file in stored_rows(place)}
    useless = [name for name in listed if name not in current]
    useless += [f"rows/{testbed}/{name}" for testbed, name in _drafts(place, folder)]
    with _opened(folder, READERS) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return len(useless)
        except OSError:  # no locks here
            pass
        for name in useless:
            place.remove(name)
        for above, _, night in {name.rpartition("/")[0].rpartition("/") for name in useless}:
            with contextlib.suppress(OSError), folder_below(folder, above) as holding:
                (holding / night).rmdir()  # only where it is empty
    place.remove_drafts("rows", Path(MANIFEST).name)
    return 0


def _drafts(place: Place, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield folder and name of compacted files that their killed writers left."""
    for testbed in place.folders("rows"):
        with folder_below(folder, f"rows/{testbed}") as holding:
            yield from ((testbed, path.name) for path in holding.glob(".*.tmp"))


def _opened(folder: Path, name: str) -> io.BufferedWriter:
    try:
        return open_to_append(folder, name, make=True)
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from error


@contextlib.contextmanager
def compacting(folder: Path) -> Iterator[None]:
    """Hold the folder's lock of those that compact or prune."""
    with _opened(folder, _LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RecordError(f"{folder}: another process compacts these results") from error
        except OSError:  # no locks here
            pass
        yield
