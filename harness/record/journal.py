"""The journal of a run: an append-only file of JSON lines that survives a killed process."""

import itertools
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.record.errors import RecordError
from harness.record.format import SCHEMA, context_line, header_line, row_line, test_line, to_json
from harness.record.locks import lock
from harness.record.outcome import TestOutcome
from harness.record.row import Context, Row

__all__ = ["SCHEMA", "Journal"]


class Journal:
    """Appends rows to a new file at `path`; see `harness.record.format` for its lines.

    `header` describes the run: `run`, a name that can be a file's; `night`, the date
    YYYY-MM-DD that it counts for; and whatever else JSON can hold.

    When `append` returns, the kernel has the row: a process killed after that loses nothing.
    A power failure can, until `close`. An `append` that raises leaves no part of its rows.
    May be shared by threads. As a context manager it is closed at the end, and left without
    its closing line after an exception. While it is open, others can tell by its lock.

    Raises `RecordError` if the file exists or cannot be written, `RowError` for a bad header.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._known: dict[str, int] = {}
        self._recent: tuple[Context | None, int] = (None, -1)
        self._file: int | None = None
        first = header_line(header)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError as error:
            raise RecordError(f"{path}: exists, and a journal is never overwritten") from error
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from error
        lock(self._file)
        self._write(first + "\n")

    def append(self, context: Context, row: Row) -> None:
        """Append `row`; raises `RecordError` if the journal is closed or the disk is full."""
        self.append_many(context, (row,))

    def append_many(self, context: Context, rows: Iterable[Row]) -> None:
        """Append `rows` with one write: all of them, or none and a `RecordError`."""
        with self._lock:
            if self._recent[0] is context:
                number = self._recent[1]
                self._write("".join([row_line(number, row) + "\n" for row in rows]))
                return
            key = context_line(0, context)
            known = self._known.get(key)
            # A number is never used twice, even if this write is interrupted.
            number = next(self._numbers) if known is None else known
            head = context_line(number, context) + "\n" if known is None else ""
            self._write(head + "".join([row_line(number, row) + "\n" for row in rows]))
            self._known[key] = number
            self._recent = (context, number)

    def note_test(self, outcome: TestOutcome) -> None:
        """Append how a test has ended; raises like `append`, and `RowError` for its details."""
        line = test_line(outcome) + "\n"
        with self._lock:
            self._write(line)

    def close(self, summary: Mapping[str, Any] | None = None) -> None:
        """Write the closing line, with `summary`, to the disk itself, and close the file.

        Raises `RecordError` if it is closed already or cannot be written, `RowError` if JSON
        cannot hold the summary.
        """
        with self._lock:
            self._write(to_json("summary", {"end": dict(summary or {})}) + "\n")
            try:
                os.fsync(self._descriptor())
            except OSError as error:
                raise RecordError(f"{self.path}: {error.strerror}") from error
            finally:
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is None:
            return
        if kind is None:
            self.close()
        else:
            self._release()

    def _descriptor(self) -> int:
        if self._file is None:
            raise RecordError(f"{self.path}: the journal is closed")
        return self._file

    def _write(self, text: str) -> None:
        file, data = self._descriptor(), memoryview(text.encode())
        start = os.lseek(file, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(file, data) :]
        except BaseException as error:
            self._withdraw(file, start)
            if isinstance(error, OSError):
                raise RecordError(f"{self.path}: {error.strerror}") from error
            raise

    def _withdraw(self, file: int, start: int) -> None:
        try:
            os.ftruncate(file, start)
        except OSError as error:
            # The next line would be glued to this torn one, so there must be none.
            self._release()
            raise RecordError(f"{self.path}: torn at byte {start}: {error.strerror}") from error

    def _release(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)
