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
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from lightrig.harness.record.dataset import COLUMNS
from lightrig.harness.record.digests import digest_of
from lightrig.harness.record.places import Place, appearing
from lightrig.harness.record.results import Results
from lightrig.harness.record.row import QuestionError, RecordError
from lightrig.harness.record.rows_check import check_rows
from lightrig.harness.record.rows_files import (
    MANIFEST,
    READERS,
    Compacted,
    Manifest,
    RowsFile,
    folder_of,
    read_manifest,
    stored_rows,
)
from lightrig.harness.record.run_folder import SETTLED, RunFacts, is_published
from lightrig.testbeds.regular_files import folder_below, open_regular, open_to_append

RUNS = b"lightrig.runs"
"""Metadata of a compacted file: header, summary and completeness of each run, by its name."""

SCHEMA = pa.schema(
    [*COLUMNS, pa.field("night", pa.date32(), nullable=False), pa.field("row", pa.int64())]
)
ROW_GROUP = 1 << 16
_COUNTED = ("row", "time_ns")
"""Columns that grow from row to row: stored as differences."""
_DICTIONARY_BYTES = 1 << 16
"""A column with more distinct values in a row group is stored without a dictionary.

Of measured values, which hardly ever repeat, a dictionary takes a third more than the values.
"""
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


def write_compacted(
    folder: Path, testbed: str, month: str, sources: Sequence[tuple[str, frozenset[str]]]
) -> Compacted:
    """Write one file below `folder` of `sources`, each without some runs, and compare it with them.

    sources: names of files from `folder` on; no link below it is followed.
    Raises `RecordError` for what cannot be read or written, or is not what was written.
    """
    try:
        return _written(folder, testbed, month, sources)
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise RecordError(f"{folder}: {error}") from error


def _written(
    folder: Path, testbed: str, month: str, sources: Sequence[tuple[str, frozenset[str]]]
) -> Compacted:
    path = folder / folder_of(testbed) / f"{month}.{uuid.uuid4().hex[:8]}.parquet"
    metadata: dict[str, Any] = {}
    for source, without in sources:
        metadata |= {r: m for r, m in _metadata(folder, source).items() if r not in without}
    counted: dict[str, dict[str, int]] = {}
    with appearing(path, folder) as hidden:
        with writer_of(hidden, metadata) as writer:
            for table in _tables(folder, sources):
                writer.write_table(table, row_group_size=len(table))
                for night, run, rows in _counts(table):
                    runs = counted.setdefault(night, {})
                    runs[run] = runs.get(run, 0) + rows
        # The sources are removed later on the strength of this file alone, so it is read back and
        # compared row for row before anything refers to it.
        file = pa.parquet.ParquetFile(hidden, page_checksum_verification=True)
        for group, wanted in enumerate(_tables(folder, sources)):
            if not file.read_row_group(group).equals(wanted):
                raise RecordError(f"{path}: rows {group} differ from those they were written from")
        digest = digest_of(hidden)
    return Compacted(path.relative_to(folder).as_posix(), counted, digest)


def writer_of(path: Path, metadata: Mapping[str, Any]) -> pa.parquet.ParquetWriter:
    """Return a writer of a compacted file; metadata: header and so on of each run, by its name."""
    return pa.parquet.ParquetWriter(
        path,
        SCHEMA.with_metadata({RUNS: json.dumps(metadata)}),
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=[name for name in SCHEMA.names if name not in _COUNTED],
        column_encoding=dict.fromkeys(_COUNTED, "DELTA_BINARY_PACKED"),
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
    )


def _tables(folder: Path, sources: Sequence[tuple[str, frozenset[str]]]) -> Iterator[pa.Table]:
    """Yield all rows in row groups, with the columns of a compacted file."""
    waiting: list[pa.Table] = []
    for source, without in sources:
        for table in _read(folder, source):
            runs = table["run"].to_pylist() if without else ()
            waiting.append(
                table.filter(pa.array([run not in without for run in runs])) if without else table
            )
            if sum(map(len, waiting)) >= ROW_GROUP:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting = []
    if sum(map(len, waiting)):
        yield pa.concat_tables(waiting).combine_chunks()


def _read(folder: Path, source: str) -> Iterator[pa.Table]:
    with open_regular(source, folder) as stream:
        file = pa.parquet.ParquetFile(stream, page_checksum_verification=True)
        yield from _with_all_columns(source, file)


def _with_all_columns(source: str, file: pa.parquet.ParquetFile) -> Iterator[pa.Table]:
    schema = file.schema_arrow.remove_metadata()
    if schema.equals(SCHEMA):
        for batch in file.iter_batches(ROW_GROUP):
            yield pa.Table.from_batches([batch]).replace_schema_metadata(None)
        return
    if not schema.equals(COLUMNS):
        raise RecordError(f"{source}: its columns are of another version")
    night = date.fromisoformat(unquote(Path(source).parent.name).removeprefix("night="))
    start = 0
    for batch in file.iter_batches(ROW_GROUP):
        nights = pa.array([night] * len(batch), pa.date32())
        numbers = pa.array(range(start, start + len(batch)), pa.int64())
        yield pa.Table.from_arrays([*batch.columns, nights, numbers], schema=SCHEMA)
        start += len(batch)


def _counts(table: pa.Table) -> Iterator[tuple[str, str, int]]:
    counted = table.group_by(["night", "run"]).aggregate([([], "count_all")])
    for each in counted.to_pylist():
        yield each["night"].isoformat(), each["run"], each["count_all"]


def _metadata(folder: Path, source: str) -> dict[str, Any]:
    with open_regular(source, folder) as stream:
        found = pa.parquet.read_schema(stream).metadata or {}
    if RUNS in found:
        runs: dict[str, Any] = json.loads(found[RUNS])
        return runs
    texts = {k.decode(): v.decode() for k, v in found.items() if k.startswith(b"lightrig.")}
    run = Path(source).name.removesuffix(".parquet")
    return {run: {name.removeprefix("lightrig."): json.loads(t) for name, t in texts.items()}}


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
