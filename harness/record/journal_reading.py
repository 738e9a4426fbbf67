"""Reading journals: of a run, whole or torn, and of its worker processes.

A worker appends its rows to `journal.WORKER.jsonl` beside the run's journal, so that they survive
a kill of any process. The main process reads them as tests end and appends them to the journal.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from lightrig.harness.quantities import aliases
from lightrig.harness.record.journal import (
    READABLE,
    Journal,
    check_header,
    context_line,
    parse_context,
    parse_row,
    parse_test,
    row_line,
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

# ---------------------------------------------------------------------------------------- of a run


_BATCH = 4096
"""Lines that are parsed at once."""


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

    def rows(self) -> Iterator[tuple[Context, Row]]:
        """Every row with its context, in the order written, read from the file as one goes.

        Rows of a quantity's former name are returned under the present one.

        Rows that were appended after `read_journal` are left out. Raises
        `JournalDamagedError` at a line that is no row, and `RecordError` if the file is gone.
        """
        present = aliases()
        lines = (pair for pair in _lines(self.path, self._size) if pair[1].startswith(b"["))
        while batch := list(islice(lines, _BATCH)):
            parsed = _parse_batch([line for _, line in batch])
            for place, (number, line) in enumerate(batch):
                try:
                    fields = parsed[place] if parsed is not None else _parse(line)
                    reference, row = parse_row(fields)
                except RowError as error:
                    raise JournalDamagedError(self.path, number, str(error)) from error
                context = self.contexts.get(reference)
                if context is None:
                    raise JournalDamagedError(self.path, number, f"no context {reference}")
                if row.quantity in present:
                    row = dataclasses.replace(row, quantity=present[row.quantity])
                yield context, row


def read_journal(path: Path) -> RunRecord:
    """Read all of a journal but its rows, which `RunRecord.rows` reads when asked.

    A last line without its end was being written when the process was killed: it is left
    out, and the record says `torn`. Where that is the header, nothing was recorded, which
    raises `JournalEmptyError`. Any other damage raises `JournalDamagedError` with the line; a
    file that cannot be read, or of another schema, `RecordError`.
    """
    header: Mapping[str, Any] = {}
    contexts: dict[int, Context] = {}
    found: Counter[bytes] = Counter()
    tests: list[TestOutcome] = []
    summary: Mapping[str, Any] | None = None
    torn, size, number = False, 0, 0
    for number, line in _lines(path):
        if summary is not None:
            raise JournalDamagedError(path, number, "found a line after the closing line")
        if not line.endswith(b"\n"):
            torn = True
            break
        size += len(line)
        if line.startswith(b"[") and number > 1:
            found[line[1 : line.find(b",")]] += 1
            continue
        try:
            fields = _parse(line)
            if not isinstance(fields, dict):
                raise RowError(f"found {fields!r}, expected an object")
            if number == 1:
                header = _checked(path, fields)
            elif "context" in fields:
                reference, context = parse_context(fields)
                if reference in contexts:
                    raise RowError(f"context {reference} is defined twice")
                contexts[reference] = context
            elif "test" in fields and header["schema"] > 1:
                tests.append(parse_test(fields))
            elif isinstance(fields.get("end"), dict):
                summary = fields["end"]
            else:
                raise RowError("found an object that is neither context, test nor closing line")
        except RowError as error:
            raise JournalDamagedError(path, number, str(error)) from error
    if size == 0:
        raise JournalEmptyError(path, max(1, number), "the run header is missing or torn")
    counts = {reference: found[b"%d" % reference] for reference in contexts}
    return RunRecord(
        path, header, contexts, counts, tuple(tests), summary, summary is not None, torn, size
    )


def _checked(path: Path, header: Mapping[str, Any]) -> Mapping[str, Any]:
    if "schema" not in header:
        raise RowError("the run header has no schema")
    if header["schema"] not in READABLE:
        raise RecordError(
            f"{path}:1: found journal schema {header['schema']}, expected one of "
            f"{', '.join(map(str, READABLE))}; read it with the version of Lightrig that wrote it"
        )
    check_header(header)
    return header


def _lines(path: Path, size: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1, only of the first `size` bytes if given."""
    read = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                read += len(line)
                if size is not None and read > size:
                    return
                yield number, line
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error


def _parse_batch(lines: Sequence[bytes]) -> list[object] | None:
    """Parse lines at once, in a fifth of the time; None where one is no list by itself."""
    if not all(line.endswith(b"]\n") for line in lines):
        return None
    try:
        values: list[object] = json.loads(b"[%b]" % b",".join(lines))
    except (ValueError, RecursionError):
        return None
    return values if len(values) == len(lines) else None


def _parse(line: bytes) -> object:
    try:
        value: object = json.loads(line.decode().rstrip("\n"))
    except json.JSONDecodeError as error:
        raise RowError(f"no JSON at column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
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
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = self._line = 0
        self._contexts: dict[int, Context] = {}

    def read(self) -> Iterator[tuple[Context, list[Row]]]:
        """Rows since the last call, with their contexts; a line still being written waits.

        Raises `JournalDamagedError` for a line that is no row, `RecordError` if it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RecordError(f"{self.path}: {error.strerror}") from error
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        known, rows = -1, list[Row]()
        for line in whole.splitlines():
            self._line += 1
            try:
                fields = json.loads(line)
                if isinstance(fields, dict):
                    if "context" in fields:
                        number, context = parse_context(fields)
                        self._contexts[number] = context
                    continue
                number, row = parse_row(fields)
            except (ValueError, RowError) as error:
                raise JournalDamagedError(self.path, self._line, str(error)) from error
            if number != known and rows:
                yield self._contexts[known], rows
                rows = []
            known = number
            rows.append(row)
        if rows:
            yield self._contexts[known], rows


def absorb(folder: Path, journal: Path) -> None:
    """Append what workers of a killed run recorded to its journal, and remove their journals.

    Rows that the main process had taken over already are not appended again: a test runs on one
    worker, whose rows are taken over in order. Doing it again does the same again.
    """
    parts = parts_of(folder)
    if not parts:
        return
    record = read_journal(journal)
    if not record.complete:
        present: Counter[str] = Counter()
        for number, context in record.contexts.items():
            present[context_line(0, context)] += record.counts[number]
        number = max(record.contexts, default=-1)
        text = []
        for part in parts:
            for context, rows in PartReader(part).read():
                key = context_line(0, context)
                new = rows[present[key] :]
                present[key] = max(0, present[key] - len(rows))
                if new:
                    number += 1
                    text.append(context_line(number, context))
                    text += [row_line(number, row) for row in new]
        try:
            with journal.open("r+b") as file:
                file.seek(journal.stat().st_size if not record.torn else _whole(journal))
                file.truncate()
                file.write("".join(f"{line}\n" for line in text).encode())
        except OSError as error:
            raise RecordError(f"{journal}: {error.strerror}") from error
    for part in parts:
        part.unlink()


def _whole(journal: Path) -> int:
    """The size of a journal without its torn last line."""
    return journal.read_bytes().rfind(b"\n") + 1


def open_part(folder: Path, worker: str, night: str) -> Journal:
    """The journal that a worker appends to; raises `RecordError`."""
    return Journal(part_path(folder, worker), {"run": folder.name, "night": night})
