"""Reading a journal back, whole or torn."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.record.errors import JournalDamagedError, JournalEmptyError, RecordError, RowError
from harness.record.format import READABLE, check_header, parse_context, parse_row, parse_test
from harness.record.outcome import TestOutcome
from harness.record.row import Context, Row


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a journal holds.

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

        Rows that were appended after `read_journal` are left out. Raises
        `JournalDamagedError` at a line that is no row, and `RecordError` if the file is gone.
        """
        for number, line in _lines(self.path, self._size):
            if not line.startswith(b"["):
                continue
            try:
                reference, row = parse_row(_parse(line))
            except RowError as error:
                raise JournalDamagedError(self.path, number, str(error)) from error
            context = self.contexts.get(reference)
            if context is None:
                raise JournalDamagedError(self.path, number, f"no context {reference}")
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


def _parse(line: bytes) -> object:
    try:
        value: object = json.loads(line.decode().rstrip("\n"))
    except json.JSONDecodeError as error:
        raise RowError(f"no JSON at column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise RowError(f"no JSON: {error}") from error
    return value
