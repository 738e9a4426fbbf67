"""Reading journals: of a run, whole or torn, and of its worker processes.

A worker appends its rows to `journal.WORKER.jsonl` beside the run's journal, so that they survive
a kill of any process. The main process reads them as tests end and appends them to the journal.
"""

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO

from lightrig.harness.quantities.registry import aliases
from lightrig.harness.record.journal import (
    READABLE,
    SCHEMA,
    Journal,
    check_header,
    context_line,
    is_sealed,
    parse_context,
    parse_row,
    parse_test,
    row_line,
    seal,
    unseal,
)
from lightrig.harness.record.row import (
    Context,
    JournalDamagedError,
    JournalEmptyError,
    RecordError,
    Row,
    RowError,
    TestOutcome,
)
from lightrig.harness.record.row_batches import RowBatch, batch_of_rows, parse_rows
from lightrig.testbeds.regular_files import folder_below, open_regular, open_to_change

# ---------------------------------------------------------------------------------------- of a run


_BLOCK = 1 << 20
"""Bytes of lines that are parsed at once."""
_ROW, _END = b"[\n"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The content of a journal.

    header: the run header, with `run`, `night` and `schema`.
    contexts: by the number that the journal gave them.
    counts: how many rows each context has, by its number; the rows are not looked at.
    tests: those that have ended, in that order.
    summary: of the closing line; None without one.
    complete: whether there is a closing line: the run ended by itself.
    torn: whether the last line was cut short, and left out.
    damage: lines that are not what was written and are left out, where the record was salvaged.
    """

    path: Path
    header: Mapping[str, Any]
    contexts: Mapping[int, Context]
    counts: Mapping[int, int]
    tests: tuple[TestOutcome, ...]
    summary: Mapping[str, Any] | None
    complete: bool
    torn: bool
    _size: int = field(repr=False)
    damage: tuple[str, ...] = ()
    _below: Path | None = field(default=None, repr=False)

    def rows(self) -> Iterator[tuple[Context, Row]]:
        """Every row with its context, in the order written, read from the file as one goes.

        Rows of a quantity's former name are returned under the present one.

        Rows that were appended after `read_journal` are left out. Raises
        `JournalDamagedError` at a line that is no row, and `RecordError` if the file is gone.
        """
        for first, lines in _blocks(self.path, self._size, self._below):
            for number, row in self._each(first, lines):
                yield self.contexts[number], row

    def batches(self) -> Iterator[RowBatch]:
        """Every row as `rows` has it, some thousands at a time as columns.

        Costs a fifth of the time, and no memory beyond the batch. Raises as `rows` does, when the
        rows before the damage have been returned.
        """
        present, sealed = aliases(), is_sealed(self.header["schema"])
        for first, lines in _blocks(self.path, self._size, self._below):
            whole = [line for line in lines if line[0] == _ROW]
            batch = parse_rows(whole, self.contexts, present, sealed=sealed) if whole else None
            if batch is not None:
                yield batch
                continue
            rows: list[tuple[int, Row]] = []
            try:
                rows.extend(self._each(first, lines))
            finally:
                if rows:
                    yield batch_of_rows(rows)

    def _each(self, first: int, lines: Sequence[bytes]) -> Iterator[tuple[int, Row]]:
        """Yield each row of `lines`, the first of that number, with the number of its context."""
        present, sealed = aliases(), is_sealed(self.header["schema"])
        batch = [pair for pair in enumerate(lines, first) if pair[1][0] == _ROW]
        parsed = _parse_batch([line for _, line in batch], sealed=sealed)
        for place, (number, line) in enumerate(batch):
            try:
                fields = parsed[place] if parsed is not None else _parse(line, sealed=sealed)
                reference, row = parse_row(fields)
                if reference not in self.contexts:
                    raise RowError(f"no context {reference}")
            except RowError as error:
                if self.damage:
                    continue
                raise JournalDamagedError(self.path, number, str(error)) from error
            if row.quantity in present:
                row = dataclasses.replace(row, quantity=present[row.quantity])
            yield reference, row


def read_journal(path: Path, *, salvage: bool = False, below: Path | None = None) -> RunRecord:
    """Read all of a journal but its rows, which `RunRecord.rows` reads when asked.

    A last line without its end was being written when the process was killed: it is left
    out, and the record says `torn`. Where that is the header, nothing was recorded, which
    raises `JournalEmptyError`. Any other damage raises `JournalDamagedError` with the line; a
    file that cannot be read, or of another schema, `RecordError`.

    salvage: leave damaged lines out, and say so in `damage`. A run whose header is damaged has the
    name and night of its folder. below: a folder above `path`; no link between them is followed.
    """
    header: Mapping[str, Any] = {}
    contexts: dict[int, Context] = {}
    found: Counter[bytes] = Counter()
    tests: list[TestOutcome] = []
    summary: Mapping[str, Any] | None = None
    damage: list[str] = []
    torn, size, number = False, 0, 0
    for number, line in _lines(path, below=below):
        # Nearly all lines are rows, which are counted here and parsed by whoever needs them.
        if line[0] == _ROW and line[-1] == _END and header and not salvage and summary is None:
            size += len(line)
            found[line[1 : line.find(b",")]] += 1
            continue
        try:
            if summary is not None:
                raise RowError("found a line after the closing line")
            if not line.endswith(b"\n"):
                torn = True
                break
            size += len(line)
            sealed = number > 1 and is_sealed(header["schema"])
            if line.startswith(b"[") and number > 1:
                reference = line[1 : line.find(b",")]
                if salvage:
                    row = parse_row(_parse(line, sealed=sealed))
                    if row[0] not in contexts:
                        raise RowError(f"no context {row[0]}")
                found[reference] += 1
                continue
            if number == 1:
                header = _checked(path, line)
                continue
            fields = _parse(line, sealed=sealed)
            if not isinstance(fields, dict):
                raise RowError(f"found {fields!r}, expected an object")
            if "context" in fields:
                known, context = parse_context(fields)
                if known in contexts:
                    raise RowError(f"context {known} is defined twice")
                contexts[known] = context
            elif "test" in fields and header["schema"] > 1:
                tests.append(parse_test(fields))
            elif isinstance(fields.get("end"), dict):
                summary = fields["end"]
            else:
                raise RowError("found an object that is neither context, test nor closing line")
        except RowError as error:
            problem = JournalDamagedError(path, number, str(error))
            if not salvage:
                raise problem from error
            damage.append(str(problem))
            if number == 1:
                header = _named_by_folder(path, problem)
    if size == 0:
        raise JournalEmptyError(path, max(1, number), "the run header is missing or torn")
    counts = {reference: found[b"%d" % reference] for reference in contexts}
    record = (path, header, contexts, counts, tuple(tests), summary, summary is not None, torn)
    return RunRecord(*record, size, tuple(damage), below)


def header_of(path: Path) -> Mapping[str, Any]:
    """Return the header of a journal, which may still be written; raises `RecordError`."""
    for number, line in _lines(path):
        try:
            return _checked(path, line)
        except RowError as error:
            raise JournalDamagedError(path, number, str(error)) from error
    raise JournalEmptyError(path, 1, "the run header is missing or torn")


def _named_by_folder(path: Path, problem: JournalDamagedError) -> Mapping[str, Any]:
    """Return the header that a run's folder tells: its name begins with its night."""
    run = path.parent.name
    match = re.match(r"(\d{4})(\d{2})(\d{2})-", run)
    header = {"run": run, "night": "-".join(match.groups()) if match else ""}
    try:
        check_header(header)
    except RowError:
        raise problem from None
    return {**header, "schema": SCHEMA}


def _checked(path: Path, line: bytes) -> Mapping[str, Any]:
    """Read the header. Its checksum is known by its key: the schema may be what is damaged."""
    header = _parse(line, sealed=b',"crc":"' in line)
    if not isinstance(header, dict):
        raise RowError(f"found {header!r}, expected an object")
    if "schema" not in header:
        raise RowError("the run header has no schema")
    if header["schema"] not in READABLE:
        raise RecordError(
            f"{path}:1: found journal schema {header['schema']}, expected one of "
            f"{', '.join(map(str, READABLE))}; read it with the version of Lightrig that wrote it"
        )
    if is_sealed(header["schema"]) and b',"crc":"' not in line:
        raise RowError("the run header has no checksum")
    check_header(header)
    return header


def _lines(path: Path, below: Path | None = None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1."""
    blocks = _blocks(path, below=below)
    return chain.from_iterable(enumerate(lines, first) for first, lines in blocks)


def _blocks(
    path: Path, size: int | None = None, below: Path | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """Lines, some thousands at a time, with the number of the first of them."""
    read, first = 0, 1
    try:
        with open_regular(path if below is None else path.relative_to(below), below) as file:
            while lines := file.readlines(_BLOCK):
                read += sum(map(len, lines))
                while size is not None and read > size and lines:
                    read -= len(lines.pop())
                yield first, lines
                first += len(lines)
                if read == size:
                    return
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error


def _parse_batch(lines: Sequence[bytes], *, sealed: bool) -> list[object] | None:
    """Parse lines at once, in a fifth of the time; None where one is no list by itself."""
    if not all(line.endswith(b"]\n") for line in lines):
        return None
    try:
        whole = [unseal(line) for line in lines] if sealed else lines
        values: list[object] = json.loads(b"[%b]" % b",".join(whole))
    except (ValueError, RecursionError, RowError):
        return None
    return values if len(values) == len(lines) else None


def _parse(line: bytes, *, sealed: bool) -> object:
    try:
        value: object = json.loads((unseal(line) if sealed else line).decode().rstrip("\n"))
    except json.JSONDecodeError as error:
        raise RowError(f"no JSON at column {error.colno}: {error.msg}") from error
    except RowError:
        raise
    except RecursionError as error:  # whose text differs between versions of Python
        raise RowError("no JSON: maximum recursion depth exceeded") from error
    except ValueError as error:
        raise RowError(f"no JSON: {error}") from error
    return value


# -------------------------------------------------------------------------------------- of workers


def part_path(folder: Path, worker: str) -> Path:
    """The journal of a worker in a run's folder."""
    return folder / f"journal.{worker}.jsonl"


def parts_of(folder: Path) -> list[Path]:
    """The journals of workers that are left in a run's folder."""
    return sorted(folder.glob("journal.*.jsonl"))


class PartReader:
    """Reads a worker's journal as it grows.

    Args:
        path: of the journal; it may not exist yet.
        salvage: whether damaged lines are left out.
        below: a folder above `path`; no link between them is followed.
    """

    def __init__(self, path: Path, *, salvage: bool = False, below: Path | None = None) -> None:
        self.path = path
        self._name = path if below is None else path.relative_to(below)
        self._below = below
        self._salvage = salvage
        self._sealed = True
        self._offset = self._line = 0
        self._contexts: dict[int, Context] = {}

    def read(self) -> Iterator[tuple[Context, list[Row], list[bytes]]]:
        """Rows since the last call with their context and their lines; a line still written waits.

        Raises `JournalDamagedError` for a line that is no row, `RecordError` if it cannot be read.
        """
        try:
            with open_regular(self._name, self._below) as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RecordError(f"{self.path}: {error.strerror}") from error
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for is_row, lines in groupby(whole.splitlines(keepends=True), lambda line: line[0] == _ROW):
            if is_row:
                yield from self._rows(list(lines))
            else:
                for line in lines:
                    self._line += 1
                    self._context(line)

    def _context(self, line: bytes) -> None:
        """Read the header, or a context; other lines tell nothing here."""
        try:
            if self._line == 1:
                self._sealed = is_sealed(_checked(self.path, line)["schema"])
                return
            fields = _parse(line, sealed=self._sealed)
            if isinstance(fields, dict) and "context" in fields:
                number, context = parse_context(fields)
                self._contexts[number] = context
        except RowError as error:
            if not self._salvage:
                raise JournalDamagedError(self.path, self._line, str(error)) from error

    def _rows(self, lines: Sequence[bytes]) -> Iterator[tuple[Context, list[Row], list[bytes]]]:
        """Read rows that follow each other, and group them by their context."""
        parsed = _parse_batch(lines, sealed=self._sealed)
        known, rows, of_rows = -1, list[Row](), list[bytes]()
        for place, line in enumerate(lines):
            self._line += 1
            try:
                fields = parsed[place] if parsed else _parse(line, sealed=self._sealed)
                number, row = parse_row(fields)
                if number not in self._contexts:
                    raise RowError(f"no context {number}")
            except RowError as error:
                if self._salvage:
                    continue
                raise JournalDamagedError(self.path, self._line, str(error)) from error
            if number != known and rows:
                yield self._contexts[known], rows, of_rows
                rows, of_rows = [], []
            known = number
            rows.append(row)
            of_rows.append(line)
        if rows:
            yield self._contexts[known], rows, of_rows


def absorb(folder: Path, journal: Path, results: Path) -> None:
    """Append what workers of a killed run recorded to its journal, and remove their journals.

    Damaged lines of a worker's journal are left out. Rows that the main process had taken over
    already are not appended again: a test runs on one worker,
    whose rows are taken over in order. Doing it again does the same again. No link below `results`
    is followed.
    """
    parts = parts_of(folder)
    if not parts:
        return
    record = read_journal(journal, salvage=True, below=results)
    if not record.complete:
        finished = seal if is_sealed(record.header["schema"]) else str
        present: Counter[str] = Counter()
        for number, context in record.contexts.items():
            present[context_line(0, context)] += record.counts[number]
        number = max(record.contexts, default=-1)
        text = []
        for part in parts:
            for context, rows, _lines in PartReader(part, salvage=True, below=results).read():
                key = context_line(0, context)
                new = rows[present[key] :]
                present[key] = max(0, present[key] - len(rows))
                if new:
                    number += 1
                    text.append(context_line(number, context))
                    text += [row_line(number, row) for row in new]
        try:
            with open_to_change(results, journal.relative_to(results)) as file:
                file.seek(_whole(file) if record.torn else file.seek(0, os.SEEK_END))
                file.truncate()
                file.write("".join(f"{finished(line)}\n" for line in text).encode())
        except OSError as error:
            raise RecordError(f"{journal}: {error.strerror}") from error
    try:
        with folder_below(results, folder.relative_to(results)) as opened:
            for part in parts:
                (opened / part.name).unlink()
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from error


def _whole(journal: BinaryIO) -> int:
    """The size of a journal without its torn last line."""
    return journal.read().rfind(b"\n") + 1


def open_part(folder: Path, worker: str, night: str) -> Journal:
    """The journal that a worker appends to; raises `RecordError`."""
    return Journal(part_path(folder, worker), {"run": folder.name, "night": night})
