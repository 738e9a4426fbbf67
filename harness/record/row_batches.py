"""Columns of many rows of a journal, parsed and checked together.

A row by itself costs an object and a dozen checks; a long run has millions. The eight fields before
the conditions are plain enough for Arrow's parser of comma-separated values; texts and conditions,
which come again and again, are kept once. What this parser might read in another way than JSON,
such as a text with a backslash, is left to the parser of single rows.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.record.row import Row, RowError, check_scalars, check_text

Floats: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.int32]

_NAMES = ("context", "subject", "quantity", "value", "lower", "upper", "unit", "time_ns")
_QUOTES = 6
"""Quotation marks of a row before its conditions: those of three texts."""
_CHECKSUM = len(',"01234567"]\n')
_MOST = float(2**63)


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts, or of conditions, of which few differ: `names[codes[row]]`."""

    codes: Codes
    names: Sequence[Any]

    def take(self, places: npt.NDArray[np.intp]) -> "Texts":
        """Return the rows at `places`; names that no row has any more stay."""
        return Texts(self.codes[places], self.names)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows that follow each other in a journal, by columns of one length.

    contexts: the number that the journal gave each row's context.
    value, lower, upper: as doubles, in the row's unit; NaN where there is no bound.
    time_ns: on the clock of the run.
    conditions: mappings of the row's own conditions.
    """

    contexts: npt.NDArray[np.int64]
    subject: Texts
    quantity: Texts
    value: Floats
    lower: Floats
    upper: Floats
    unit: Texts
    time_ns: npt.NDArray[np.int64]
    conditions: Texts

    def __len__(self) -> int:
        return len(self.contexts)

    def take(self, places: npt.NDArray[np.intp]) -> "RowBatch":
        """Return the rows at `places`, in that order."""
        return RowBatch(
            self.contexts[places],
            self.subject.take(places),
            self.quantity.take(places),
            self.value[places],
            self.lower[places],
            self.upper[places],
            self.unit.take(places),
            self.time_ns[places],
            self.conditions.take(places),
        )


def batch_of_rows(rows: Iterable[tuple[int, Row]]) -> RowBatch:
    """Return the columns of `rows`, each with the number of its context."""
    pairs = list(rows)
    found = [row for _, row in pairs]

    def texts(values: Sequence[str]) -> Texts:
        numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
        return Texts(np.array([numbers[value] for value in values], np.int32), list(numbers))

    return RowBatch(
        np.array([number for number, _ in pairs], dtype=np.int64),
        texts([row.subject for row in found]),
        texts([row.quantity for row in found]),
        np.array([row.value for row in found], dtype=np.float64),
        np.array([row.lower for row in found], dtype=np.float64),
        np.array([row.upper for row in found], dtype=np.float64),
        texts([row.unit for row in found]),
        np.array([row.time_ns for row in found], dtype=np.int64),
        Texts(np.arange(len(found), dtype=np.int32), [row.conditions for row in found]),
    )


def parse_rows(
    lines: Sequence[bytes],
    contexts: Iterable[int],
    present: Mapping[str, str],
    *,
    sealed: bool,
) -> RowBatch | None:
    """Return the rows of `lines`, or None where one must be parsed by itself.

    Every row returned is as `Row` demands, and what was written by its checksum.

    contexts: the numbers that are defined. present: the present name of each former quantity.
    """
    heads = _checked(lines) if sealed else [line[:-2] for line in lines]
    if heads is None:
        return None
    # The conditions are the only object of a line; one whose text holds ",{" is no JSON then.
    parts = [head[1:].rpartition(b",{") for head in heads]
    fields = b"\n".join([part[0] for part in parts])
    if b"\\" in fields or b'""' in fields or fields.count(b'"') != _QUOTES * len(lines):
        return None
    numbers: dict[bytes, int] = {}
    codes = [numbers.setdefault(part[2], len(numbers)) for part in parts]
    try:
        conditions = [json.loads(b"{" + text) for text in numbers]
        for each in conditions:
            check_scalars("conditions", each)
        return _columns(
            _parsed(fields, len(lines)),
            contexts,
            present,
            Texts(np.array(codes, dtype=np.int32), conditions),
        )
    except (ValueError, RecursionError, RowError):
        return None


def _checked(lines: Sequence[bytes]) -> list[bytes] | None:
    """Return the lines without their ends, or None where a checksum differs."""
    heads = [line[:-_CHECKSUM] for line in lines]
    crc = zlib.crc32
    found = b"".join([b"%08x" % crc(b"]", crc(head)) for head in heads])
    return heads if found == b"".join([line[-11:-3] for line in lines]) else None


def _parsed(fields: bytes, count: int) -> Any:
    """Return `count` lines as a record batch; raises `ValueError` for what does not parse."""
    import pyarrow as pa  # takes long to load, and short journals need none
    import pyarrow.csv

    text, number = pa.dictionary(pa.int32(), pa.string()), pa.float64()
    kinds = (pa.int64(), text, text, number, number, number, text, pa.int64())
    table = pa.csv.read_csv(
        pa.BufferReader(fields),
        read_options=pa.csv.ReadOptions(
            column_names=list(_NAMES), use_threads=False, block_size=len(fields) + 1
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(zip(_NAMES, kinds, strict=True)),
            null_values=["null"],
            strings_can_be_null=False,
        ),
    )
    batches = table.to_batches()
    if len(batches) != 1 or len(batches[0]) != count:
        raise ValueError(f"found {table.num_rows} rows, expected {count}")
    return batches[0]


def _columns(
    found: Any, contexts: Iterable[int], present: Mapping[str, str], conditions: Texts
) -> RowBatch | None:
    numbers = _array(found, "context", np.int64)
    times = _array(found, "time_ns", np.int64)
    value, lower, upper = (_bounds(found, name) for name in ("value", "lower", "upper"))
    if found["context"].null_count or found["time_ns"].null_count or np.isnan(value).any():
        return None
    if not set(np.unique(numbers).tolist()) <= set(contexts):
        return None
    if (lower > value).any() or (upper < value).any() or times.min() == np.iinfo(np.int64).min:
        return None
    for each in (value, lower, upper):
        if (np.abs(each) >= _MOST).any():
            return None
    subject, quantity, unit = (_texts(found, name) for name in ("subject", "quantity", "unit"))
    names = [present.get(name, name) for name in quantity.names]
    return RowBatch(
        contexts=numbers,
        subject=subject,
        quantity=Texts(quantity.codes, names),
        value=value,
        lower=lower,
        upper=upper,
        unit=unit,
        time_ns=times,
        conditions=conditions,
    )


def _array(found: Any, name: str, kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(found[name].buffers()[1], kind, len(found))


def _bounds(found: Any, name: str) -> Floats:
    """Return doubles, NaN where missing; raises `ValueError` for one that is not finite."""
    numbers = _array(found, name, np.float64)
    bits = found[name].buffers()[0]
    if bits is not None and found[name].null_count:
        there = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(found), bitorder="little")
        numbers = np.where(there, numbers, np.nan)
    if np.count_nonzero(~np.isfinite(numbers)) != found[name].null_count:
        raise ValueError(f"{name} is not finite")
    return numbers


def _texts(found: Any, name: str) -> Texts:
    """Return a column of texts; raises `RowError` for one that no record may hold."""
    column = found[name]
    names = column.dictionary.to_pylist()
    for each in names:
        check_text(name, each)
    return Texts(np.frombuffer(column.indices.buffers()[1], np.int32, len(found)), names)
