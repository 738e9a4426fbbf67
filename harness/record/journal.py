"""The journal of a run: an append-only file of JSON lines that survives a killed process.

Line 1      {"night":"2026-03-14","run":"r1","schema":3, ...}   the run header
a context   {"context":0,"test":...,"testbed":..., ...}         before its first row
a row       [0,subject,quantity,value,lower,upper,unit,time_ns,{conditions}]
a test      {"test":{"nodeid":...,"outcome":..., ...}}          when it has ended
the end     {"end":{summary}}                                   only after a run that closed

Each line ends with its checksum, the CRC-32 of the line without it: a last field of a row, the last
key "crc" of an object. So a line that was changed on its disk is found, also where it is still
JSON, and what stands around it can be recovered.

Objects have sorted keys and floats their shortest exact form, so equal input gives equal bytes.
Schema 2 is the same without checksums, schema 1 also without the lines of tests; both stay
readable.

The lock of the file tells whether a process writes it; the kernel releases it with the process. A
few network file systems have no locks. There every run seems to have ended, and recovering a run
that has not is harmless: recovery gives the same again when it ends.
"""

import contextlib
import datetime
import fcntl
import functools
import itertools
import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from lightrig.harness.record.row import (
    Context,
    JournalInUseError,
    Number,
    RecordError,
    Row,
    RowError,
    Scalar,
    SharedConditions,
    TestOutcome,
    check_text,
)
from lightrig.testbeds.regular_files import (
    give_to_group,
    make_folder,
    open_regular,
    open_to_change,
)

# ------------------------------------------------------------------------------------------- lines


SCHEMA = 3
READABLE = (1, 2, SCHEMA)
_SEALED = 3
"""The first schema whose lines have checksums."""

Json: TypeAlias = Mapping[str, Any]

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_ROW_FIELDS = 9
_TEST_FIELDS = frozenset(("nodeid", "outcome", "duration_s", "details"))

_encode = json.JSONEncoder(
    separators=(",", ":"), sort_keys=True, allow_nan=False, ensure_ascii=False
).encode


def to_json(name: str, value: object) -> str:
    """Write `value` in one line; raises `RowError` with `name` if JSON or UTF-8 cannot hold it."""
    try:
        text = _encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"{name}: {error}") from error
    return text


def header_line(header: Json) -> str:
    """Write line 1; raises `RowError` if `check_header` does or `header` sets the schema itself."""
    if "schema" in header:
        raise RowError("header: found key 'schema', which the journal sets")
    check_header(header)
    return to_json("header", {**header, "schema": SCHEMA})


def seal(line: str) -> str:
    """Return a line with its checksum, as its last field or key."""
    body, end = line[:-1], line[-1]
    name = ',"crc":' if end == "}" else ","
    return f'{body}{name}"{zlib.crc32(line.encode()):08x}"{end}'


def unseal(line: bytes) -> bytes:
    """Return a line without its checksum and its end; raises `RowError` if it is not as written."""
    line = line.rstrip(b"\r\n")
    end = line[-1:]
    head = line[:-12] if end == b"]" else line[:-18]
    body = head + end
    try:
        written = int(line[-10:-2], 16)
    except ValueError:
        written = -1
    if zlib.crc32(body) != written or len(head) < 1:
        raise RowError("the line is not what was written: its checksum differs")
    return body


def is_sealed(schema: object) -> bool:
    """Whether the lines of a journal of `schema` have checksums."""
    return isinstance(schema, int) and schema >= _SEALED


def check_header(header: Json) -> None:
    """Raise `RowError` unless `header` has a `run` that can name a file, and a `night`.

    `night` is the date, YYYY-MM-DD, that the run counts for. Its `descriptions`, if any, are files
    in the run's folder by the names of testbeds, and its `testbeds` have such names.
    """
    run, night = header.get("run"), header.get("night")
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise RowError(f"header: found run {run!r}, expected letters, digits and ._+-")
    check_text("header: night", night)
    try:
        date = datetime.date.fromisoformat(str(night)).isoformat()
    except ValueError:
        date = ""
    if date != night:
        raise RowError(f"header: found night {night!r}, expected YYYY-MM-DD")
    descriptions = header.get("descriptions", {})
    if not isinstance(descriptions, dict) or not isinstance(header.get("testbeds", {}), dict):
        raise RowError("header: expected testbeds and descriptions by name")
    for file in descriptions.values():
        check_text("header: description", file)
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise RowError(f"header: found {file!r}, expected a file in the run's folder")


def context_line(number: int, context: Context) -> str:
    """Write the line that gives `context` its number."""
    return to_json(
        "context",
        {
            "context": number,
            "testbed": context.testbed,
            "test": context.test,
            "instruments": context.instruments,
            "simulated": context.simulated,
            "conditions": context.conditions,
        },
    )


def parse_context(line: Json) -> tuple[int, Context]:
    """Read the number and the context of a context line; raises `RowError`."""
    number, instruments = line["context"], line.get("instruments")
    if type(number) is not int:
        raise RowError(f"context: found {number!r}, expected an integer")
    if not isinstance(instruments, list):
        raise RowError(f"instruments: found {instruments!r}, expected a list")
    return number, Context(
        testbed=line.get("testbed", ""),
        test=line.get("test", ""),
        instruments=tuple(instruments),
        simulated=line.get("simulated", ""),
        conditions=line.get("conditions", ""),
    )


def row_line(context: int, row: Row) -> str:
    """Write the line of `row` in the context of that number."""
    # Rows are checked when made; encoding them again for `to_json` would halve the rate.
    # Their texts come again and again, and numbers need no encoder.
    value, lower, upper = row.value, row.lower, row.upper
    if type(value) is type(lower) is type(upper) is int:  # nearly all rows: times
        numbers = f"{value},{lower},{upper}"
    else:
        numbers = ",".join(map(_number, (value, lower, upper)))
    conditions = row.conditions
    written = conditions.text if type(conditions) is SharedConditions else ""
    return (
        f"[{context},{_text(row.subject)},{_text(row.quantity)},{numbers},"
        f"{_text(row.unit)},{row.time_ns},{written or conditions_text(conditions)}]"
    )


def _sealed_row(context: int, row: Row) -> bytes:
    """Return the line of `row` as `seal` makes it, with its end, in less time."""
    line = row_line(context, row).encode()
    return b'%b,"%08x"]\n' % (line[:-1], zlib.crc32(line))


def renumbered(line: bytes, context: int) -> bytes:
    """Return a sealed row line with the number of another context, sealed anew."""
    head = b"[%d%b" % (context, line[line.index(b",") : -len(',"01234567"]\n')])
    return b'%b,"%08x"]\n' % (head, zlib.crc32(b"]", zlib.crc32(head)))


def conditions_text(conditions: Mapping[str, Scalar]) -> str:
    """Write checked conditions as JSON."""
    if type(conditions) is SharedConditions:
        conditions.text = conditions.text or _conditions_text(conditions)
        return conditions.text
    return _conditions_text(conditions)


def _conditions_text(conditions: Mapping[str, Scalar]) -> str:
    written = ""
    for name in sorted(conditions):
        value = conditions[name]
        if type(value) is int:  # numbers of events, as good as always
            written += f",{_text(name)}:{value}"
        elif type(value) is str:  # names of plans
            written += f",{_text(name)}:{_text(value)}"
        else:
            return _encode(conditions)
    return f"{{{written[1:]}}}"


@functools.lru_cache(maxsize=10_000)
def _text(text: str) -> str:
    return _encode(text)


def _number(number: Number | None) -> str:
    if number is None:
        return "null"
    # A float may be one of numpy's, whose repr names its type.
    return repr(number) if type(number) is int else float.__repr__(number)


def parse_row(fields: object) -> tuple[int, Row]:
    """Read the number of the context, and the row, of a row line; raises `RowError`."""
    if not isinstance(fields, list) or len(fields) != _ROW_FIELDS:
        raise RowError(f"found {fields!r}, expected a list of {_ROW_FIELDS} fields")
    if type(fields[0]) is not int:
        raise RowError(f"context: found {fields[0]!r}, expected an integer")
    return fields[0], Row(*fields[1:])


def test_line(outcome: TestOutcome) -> str:
    """Write the line of a test that has ended; raises `RowError` if no JSON holds its details."""
    fields = {
        "nodeid": outcome.nodeid,
        "outcome": outcome.outcome,
        "duration_s": outcome.duration_s,
        "details": outcome.details,
    }
    return to_json("test", {"test": fields})


def parse_test(line: Json) -> TestOutcome:
    """Read the line of a test; raises `RowError`."""
    fields = line["test"]
    if not isinstance(fields, dict) or set(fields) != _TEST_FIELDS:
        raise RowError(
            f"test: found {fields!r}, expected the fields {', '.join(sorted(_TEST_FIELDS))}"
        )
    return TestOutcome(**fields)


# ------------------------------------------------------------------------------------------- locks


def lock(file: int) -> None:
    """Take the lock of an open journal, where its file system knows locks."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_written(journal: Path) -> bool:
    """Whether a process, on this host or another, has `journal` open to write."""
    try:
        with open_regular(journal) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def locked(journal: Path, results: Path) -> Iterator[None]:
    """Hold a journal in `results` that nobody writes; raises `JournalInUseError` if somebody does.

    No link between the two is followed.
    """
    try:
        file = open_to_change(results, journal.relative_to(results))
    except OSError as error:
        raise RecordError(f"{journal}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalInUseError(f"{journal}: its run still goes on") from error
        except OSError:  # no locks here
            pass
        yield


# ------------------------------------------------------------------------------------- the journal


class Journal:
    """Appends rows to a new file at `path`; see `harness.record.journal` for its lines.

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
            make_folder(path.parent)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            give_to_group(self._file, os.stat(path.parent).st_mode)
        except FileExistsError as error:
            raise RecordError(f"{path}: exists, and a journal is never overwritten") from error
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from error
        lock(self._file)
        self._write((seal(first) + "\n").encode())

    def append(self, context: Context, row: Row) -> None:
        """Append `row`; raises `RecordError` if the journal is closed or the disk is full."""
        self.append_many(context, (row,))

    def append_many(self, context: Context, rows: Iterable[Row]) -> None:
        """Append `rows` with one write: all of them, or none and a `RecordError`."""
        self._append(
            context,
            lambda number: b"".join([_sealed_row(number, row) for row in rows]),
        )

    def append_lines(self, context: Context, lines: Iterable[bytes]) -> None:
        """Append row lines that another journal has, whole and sealed, as `append_many` does."""
        self._append(context, lambda number: b"".join([renumbered(line, number) for line in lines]))

    def _append(self, context: Context, of_context: Callable[[int], bytes]) -> None:
        """Append what `of_context` returns for the number of `context`, with one write."""
        with self._lock:
            if self._recent[0] is context:
                self._write(of_context(self._recent[1]))
                return
            key = context_line(0, context)
            known = self._known.get(key)
            # A number is never used twice, even if this write is interrupted.
            number = next(self._numbers) if known is None else known
            head = seal(context_line(number, context)) + "\n" if known is None else ""
            self._write(head.encode() + of_context(number))
            self._known[key] = number
            self._recent = (context, number)

    def note_test(self, outcome: TestOutcome) -> None:
        """Append how a test has ended; raises like `append`, and `RowError` for its details."""
        line = (seal(test_line(outcome)) + "\n").encode()
        with self._lock:
            self._write(line)

    def close(self, summary: Mapping[str, Any] | None = None) -> None:
        """Write the closing line, with `summary`, to the disk itself, and close the file.

        Raises `RecordError` if it is closed already or cannot be written, `RowError` if JSON
        cannot hold the summary.
        """
        with self._lock:
            self._write((seal(to_json("summary", {"end": dict(summary or {})})) + "\n").encode())
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

    def _write(self, lines: bytes) -> None:
        file, data = self._descriptor(), memoryview(lines)
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
