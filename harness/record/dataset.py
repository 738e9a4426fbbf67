"""The Parquet data set: ROOT/testbed=<name>/night=<YYYY-MM-DD>/<run>.parquet.

One file for each testbed of a run, queried in place by DuckDB, pandas or any other engine.
Columns are those of `COLUMNS`; `testbed` and `night` come from the path. Numbers are doubles:
an integer beyond 2**53 is rounded here and exact in the journal. `conditions` is a JSON object
of the context's conditions and the row's, the row's where both name one; `instruments` holds
texts, and JSON objects for identities with fields.

Each page has a checksum, which is verified when it is read. The file's metadata holds
`lightrig.schema`, `lightrig.header`, `lightrig.summary` (JSON) and
`lightrig.complete` ("true" where the run ended by itself).

Files of earlier versions have former names of quantities; reading gives the present ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from lightrig.harness.record.journal import to_json
from lightrig.harness.record.journal_reading import RunRecord, read_journal
from lightrig.harness.record.places import appearing
from lightrig.harness.record.row import Context, RecordError, Row

COLUMNS = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("test", pa.string(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("quantity", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("lower", pa.float64()),
        pa.field("upper", pa.float64()),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("simulated", pa.bool_(), nullable=False),
        pa.field("instruments", pa.list_(pa.string()), nullable=False),
        pa.field("conditions", pa.string(), nullable=False),
    ]
)
PARTITIONS = pa.schema([("testbed", pa.string()), ("night", pa.date32())])

_BATCH = 1 << 16


def write_dataset(journal: Path | RunRecord, root: Path) -> tuple[Path, ...]:
    """Write the rows of a journal, or of its record, below `root`; return one file a testbed.

    A journal written again replaces its files, with the same bytes if it has not changed.
    Each file appears whole or not at all, and has the run's name: any number of runs may be
    written at once, from any number of hosts, and read meanwhile. Raises
    `JournalDamagedError` for a damaged journal, before any file is replaced, and
    `RecordError` for a file that cannot be written.
    """
    record = read_journal(journal) if isinstance(journal, Path) else journal
    run = str(record.header["run"])
    schema = COLUMNS.with_metadata(_metadata(record))
    parts: dict[str, _Part] = {}
    try:
        with ExitStack() as stack:
            for context, row in record.rows():
                part = parts.get(context.testbed)
                if part is None:
                    path = (
                        root
                        / f"testbed={quote(context.testbed, safe='')}"
                        / f"night={record.header['night']}"
                        / f"{run}.parquet"
                    )
                    hidden = stack.enter_context(appearing(path))
                    part = parts[context.testbed] = _Part(path, hidden, run, schema)
                    stack.callback(part.close)
                part.add(context, row)
            for part in parts.values():
                part.finish()
        return tuple(sorted(part.path for part in parts.values()))
    except OSError as error:
        raise RecordError(f"{root}: {error}") from error


class _Part:
    """The file of one testbed, written at `hidden` until it is whole."""

    def __init__(self, path: Path, hidden: Path, run: str, schema: pa.Schema) -> None:
        self.path = path
        self._run = run
        self._rows: list[tuple[Context, Row]] = []
        self._contexts: dict[int, tuple[list[str], str]] = {}
        self._writer = pa.parquet.ParquetWriter(
            hidden, schema, compression="zstd", write_page_checksum=True
        )

    def add(self, context: Context, row: Row) -> None:
        self._rows.append((context, row))
        if len(self._rows) == _BATCH:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def close(self) -> None:
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            columns = zip(*self._records(), strict=True)
            arrays = [_column(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._writer.schema))
            self._rows.clear()

    def _records(self) -> Iterator[tuple[object, ...]]:
        for context, row in self._rows:
            instruments, conditions = self._shared(context)
            if row.conditions:
                merged = {**context.conditions, **row.conditions}
                conditions = to_json("conditions", merged)
            yield (
                self._run,
                context.test,
                row.subject,
                row.quantity,
                float(row.value),
                None if row.lower is None else float(row.lower),
                None if row.upper is None else float(row.upper),
                row.unit,
                row.time_ns,
                context.simulated,
                instruments,
                conditions,
            )

    def _shared(self, context: Context) -> tuple[list[str], str]:
        # By identity, since 1 == True and JSON tells them apart.
        known = self._contexts.get(id(context))
        if known is None:
            known = self._contexts[id(context)] = (
                [
                    i if isinstance(i, str) else to_json("instruments", i)
                    for i in context.instruments
                ],
                to_json("conditions", context.conditions),
            )
        return known


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return `values`, of which None are missing, as a column of one of the types of `COLUMNS`.

    `pa.array` does the same and loads pandas, which takes longer than a short run.
    """
    if pa.types.is_list(kind):
        items = _column([item for value in values for item in value], kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [None, _ends(values)], children=[items])
    present = np.array([value is not None for value in values], dtype=bool)
    missing = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    if pa.types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in values]
        buffers = [missing, _ends(texts), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(kind, len(texts), buffers)
    numbers = np.array(
        [0 if value is None else value for value in values], dtype=kind.to_pandas_dtype()
    )
    if pa.types.is_boolean(kind):
        numbers = np.packbits(numbers, bitorder="little")
    return pa.Array.from_buffers(kind, len(values), [missing, pa.py_buffer(numbers)])


def _ends(parts: Sequence[Any]) -> pa.Buffer:
    """Return where each of `parts` begins when they follow each other, and where the last ends."""
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        raise RecordError(f"rows hold more text than a column takes: {ends[-1]} bytes")
    return pa.py_buffer(ends.astype(np.int32))


def _metadata(record: RunRecord) -> dict[str, str]:
    return {
        "lightrig.schema": str(record.header["schema"]),
        "lightrig.header": to_json("header", record.header),
        "lightrig.summary": to_json("summary", record.summary),
        "lightrig.complete": "true" if record.complete else "false",
    }
