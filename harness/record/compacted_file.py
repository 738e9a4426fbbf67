"""Writing a compacted file: the rows of other files together, read back and compared with them."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from lightrig.harness.record.dataset import COLUMNS, COMPACTED_COLUMNS
from lightrig.harness.record.digests import digest_of
from lightrig.harness.record.places import appearing
from lightrig.harness.record.row import RecordError
from lightrig.harness.record.rows_files import Compacted, folder_of
from lightrig.testbeds.regular_files import open_regular

RUNS = b"lightrig.runs"
"""Metadata of a compacted file: header, summary and completeness of each run, by its name."""

ROW_GROUP = 1 << 16
_COUNTED = ("row", "time_ns")
"""Columns that grow from row to row: stored as differences."""
_DICTIONARY_BYTES = 1 << 16
"""A column with more distinct values in a row group is stored without a dictionary.

Of measured values, which hardly ever repeat, a dictionary takes a third more than the values.
"""


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
        COMPACTED_COLUMNS.with_metadata({RUNS: json.dumps(metadata)}),
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=[name for name in COMPACTED_COLUMNS.names if name not in _COUNTED],
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
    if schema.equals(COMPACTED_COLUMNS):
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
        yield pa.Table.from_arrays([*batch.columns, nights, numbers], schema=COMPACTED_COLUMNS)
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
