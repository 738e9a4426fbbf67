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

from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from lightrig.harness.record.journal import conditions_text, to_json
from lightrig.harness.record.places import appearing
from lightrig.harness.record.row import Context, RecordError
from lightrig.harness.record.row_batches import Codes, RowBatch, Texts
from lightrig.harness.record.rows_files import MANIFEST, parse_manifest, plain_file
from lightrig.testbeds.regular_files import read_regular

if TYPE_CHECKING:
    from lightrig.harness.record.journal_reading import RunRecord

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
COMPACTED_COLUMNS = pa.schema(
    [*COLUMNS, pa.field("night", pa.date32(), nullable=False), pa.field("row", pa.int64())]
)
"""Of a compacted file: with the night, which no longer stands in its path."""

PARTITIONS = pa.schema([("testbed", pa.string()), ("night", pa.date32())])

_BATCH = 1 << 16
"""Rows of a row group, at least: what a reader that filters passes over as one."""


def write_dataset(journal: "Path | RunRecord", root: Path) -> tuple[Path, ...]:
    """Write the rows of a journal, or of its record, below `root`; return one file a testbed.

    A journal written again replaces its files, with the same bytes if it has not changed.
    Each file appears whole or not at all, and has the run's name: any number of runs may be
    written at once, from any number of hosts, and read meanwhile. A run that has been compacted
    has its rows there already, and nothing is written. Raises
    `JournalDamagedError` for a damaged journal, before any file is replaced, and
    `RecordError` for a file that cannot be written.
    """
    # It knows all quantities, which the inspection of a file, a process of its own, needs not.
    from lightrig.harness.record.journal_reading import read_journal  # noqa: PLC0415

    record = read_journal(journal) if isinstance(journal, Path) else journal
    run = str(record.header["run"])
    if compacted := _compacted(root, run):
        return compacted
    schema = COLUMNS.with_metadata(_metadata(record))
    parts: dict[str, _Part] = {}
    try:
        with ExitStack() as stack:
            for batch in record.batches():
                for testbed, rows in _by_testbed(record.contexts, batch):
                    part = parts.get(testbed)
                    if part is None:
                        named = plain_file(testbed, str(record.header["night"]), run)
                        path = root.joinpath(*named.parts[1:])
                        hidden = stack.enter_context(appearing(path, root.parent))
                        part = parts[testbed] = _Part(path, hidden, run, record.contexts, schema)
                        stack.callback(part.close)
                    part.add(rows)
            for part in parts.values():
                part.finish()
        return tuple(sorted(part.path for part in parts.values()))
    except OSError as error:
        raise RecordError(f"{root}: {error}") from error


def _compacted(root: Path, run: str) -> tuple[Path, ...]:
    """Return the compacted files that have rows of `run`."""
    try:
        text = read_regular(MANIFEST, None, root.parent)
    except OSError:
        return ()
    files = parse_manifest(str(root), text).files
    return tuple(root.parent / file.name for file in files if run in file.names)


def _by_testbed(contexts: Mapping[int, Context], batch: RowBatch) -> Iterator[tuple[str, RowBatch]]:
    """Yield the rows of each testbed of `batch`."""
    numbers = np.unique(batch.contexts)
    names = list(dict.fromkeys(contexts[number].testbed for number in numbers.tolist()))
    if len(names) == 1:
        yield names[0], batch
        return
    testbeds = np.array([names.index(contexts[number].testbed) for number in numbers.tolist()])
    of_row = testbeds[np.searchsorted(numbers, batch.contexts)]
    for place, name in enumerate(names):
        yield name, batch.take(np.flatnonzero(of_row == place))


class _Part:
    """The file of one testbed, written at `hidden` until it is whole."""

    def __init__(
        self,
        path: Path,
        hidden: Path,
        run: str,
        contexts: Mapping[int, Context],
        schema: pa.Schema,
    ) -> None:
        self.path = path
        self._run = run
        self._contexts = contexts
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._writer = pa.parquet.ParquetWriter(
            hidden, schema, compression="zstd", write_page_checksum=True
        )

    def add(self, batch: RowBatch) -> None:
        self._waiting.append(self._columns(batch))
        self._rows += len(batch)
        if self._rows >= _BATCH:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def close(self) -> None:
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting.clear()
            self._rows = 0

    def _columns(self, batch: RowBatch) -> pa.RecordBatch:
        numbers, of_row = np.unique(batch.contexts, return_inverse=True)
        codes = of_row.astype(np.int32)
        contexts = [self._contexts[number] for number in numbers.tolist()]
        instruments = [
            [i if isinstance(i, str) else to_json("instruments", i) for i in context.instruments]
            for context in contexts
        ]
        simulated = np.array([context.simulated for context in contexts])
        arrays = [
            _texts(Texts(np.zeros(len(batch), np.int32), [self._run])),
            _texts(Texts(codes, [context.test for context in contexts])),
            _texts(batch.subject),
            _texts(batch.quantity),
            _numbers(batch.value),
            _numbers(batch.lower),
            _numbers(batch.upper),
            _texts(batch.unit),
            _numbers(batch.time_ns),
            _truths(simulated[of_row]),
            _lists([instruments[place] for place in codes.tolist()]),
            _texts(_merged(contexts, codes, batch.conditions)),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._writer.schema)


def _merged(contexts: Sequence[Context], codes: Codes, conditions: Texts) -> Texts:
    """Return the conditions of each row and its context as JSON; `codes` are of the contexts."""
    pairs = codes.astype(np.int64) * len(conditions.names) + conditions.codes
    distinct, of_row = np.unique(pairs, return_inverse=True)
    texts = []
    for pair in distinct.tolist():
        context, place = divmod(pair, len(conditions.names))
        merged = {**contexts[context].conditions, **conditions.names[place]}
        texts.append(conditions_text(merged))
    return Texts(of_row.astype(np.int32), texts)


# `pa.array` makes these columns too, and loads pandas, which takes longer than a short run.


def _texts(values: Texts) -> pa.Array:
    encoded = [name.encode() for name in values.names]
    names = pa.Array.from_buffers(
        pa.string(), len(encoded), [None, _ends(encoded), pa.py_buffer(b"".join(encoded))]
    )
    kind = pa.dictionary(pa.int32(), pa.string())
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values.codes))]
    column = pa.DictionaryArray.from_buffers(kind, len(values.codes), buffers, names)
    return column.dictionary_decode()


def _numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return doubles, of which NaN are missing, or integers, as a column."""
    kind = pa.float64() if values.dtype == np.float64 else pa.int64()
    missing = np.isnan(values)
    mask = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    # Below a missing number stands 0, so that equal rows make equal bytes.
    plain = np.ascontiguousarray(np.where(missing, 0, values) if mask else values)
    return pa.Array.from_buffers(kind, len(values), [mask, pa.py_buffer(plain)])


def _truths(values: npt.NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def _lists(values: Sequence[Sequence[str]]) -> pa.Array:
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(item, len(numbers)) for value in values for item in value]
    items = _texts(Texts(np.array(codes, np.int32), list(numbers)))
    kind = pa.list_(pa.string())
    return pa.Array.from_buffers(kind, len(values), [None, _ends(values)], children=[items])


def _ends(parts: Sequence[Sized]) -> pa.Buffer:
    """Return where each of `parts` begins when they follow each other, and where the last ends."""
    ends = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise RecordError(f"rows hold more text than a column takes: {ends[-1]} bytes")
    return pa.py_buffer(ends.astype(np.int32))


def _metadata(record: "RunRecord") -> dict[str, str]:
    return {
        "lightrig.schema": str(record.header["schema"]),
        "lightrig.header": to_json("header", record.header),
        "lightrig.summary": to_json("summary", record.summary),
        "lightrig.complete": "true" if record.complete else "false",
    }
