"""The logbook of a lab: what persons noted of its ports, fibers, instruments and runs.

Notes lie in the folder of results, one file an account and host, a line of JSON each. Lines are
only added.
"""

import fcntl
import getpass
import json
import operator
import os
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightrig.harness.record.places import Place
from lightrig.harness.record.row import RecordError
from lightrig.instruments.clock import wall_time
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.plans import without_first_port
from lightrig.testbeds.regular_files import open_to_append

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "notes"
_SUFFIX = ".jsonl"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_HEAD = b'{"at_utc": "'
_LONGEST = 4000
"""Characters of a note: an entry of a logbook, not a report."""


@dataclass(frozen=True, slots=True)
class Note:
    """One entry of the logbook.

    Attributes:
        at_utc: when it was written: "2026-03-14 02:00:00".
        account, host: who wrote it, and where.
        testbed: the testbed's name.
        subject: the part of it that the words are about, or the name of a run.
        text: what was noted.
    """

    at_utc: str
    account: str
    host: str
    testbed: str
    subject: str
    text: str


_FIELDS = operator.itemgetter(*Note.__dataclass_fields__)
_AT = operator.attrgetter("at_utc")


def new_note(testbed: str, subject: str, text: str) -> Note:
    """Return a note that this account writes now; raises `RecordError` for words that are none."""
    if not text.strip():
        raise RecordError("a note without words says nothing")
    for each in (testbed, subject, text):
        if not each.isascii() and each != each.encode("utf-8", "replace").decode():
            raise RecordError(f"found {each[:80]!r}, expected text in UTF-8")
    if len(text) > _LONGEST:
        raise RecordError(f"found {len(text)} characters, expected at most {_LONGEST} in a note")
    try:
        account = getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        account = f"account {os.getuid()}"
    return Note(f"{wall_time():%F %T}", account, socket.gethostname(), testbed, subject, text)


def add(results: Path, note: Note) -> Path:
    """Append a note to the logbook in a folder of results; return its file.

    Raises `RecordError` where it cannot be written, and where its file is a link or another's.
    """
    folder = results / FOLDER
    name = f"{_UNSAFE.sub('_', note.account)}@{_UNSAFE.sub('_', note.host)}{_SUFFIX}"
    line = json.dumps(asdict(note), ensure_ascii=False) + "\n"
    try:
        with open_to_append(results, f"{FOLDER}/{name}", make=True) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RecordError(f"the note was not written: {folder / name}: {error.strerror}") from error
    return folder / name


def read_notes(place: Place, since: str = "", until: str = "") -> list[Note]:
    """Return all notes of a place of results, the oldest first.

    since, until: moments as of `Note.at_utc`, empty for none; notes from before or after may be
    left out unread.

    A last line without its end is of a writer that was cut, and is left out. Raises `RecordError`
    for a line that is no note, with its file and number.
    """
    begin, end = (_HEAD + each.encode() for each in (since, until or "~"))
    names = [name for name in place.files(FOLDER) if name.endswith(_SUFFIX)]
    notes = []
    for name, data in place.read(names).items():
        whole, _, _cut = data.rpartition(b"\n")
        lines = whole.splitlines()
        # Of a line as `add` writes it, what stands first is its time.
        chosen = [each for each in lines if begin <= each <= end or not each.startswith(_HEAD)]
        if chosen:
            notes += _parsed_at_once(chosen) or [
                _parsed(f"{place.name}/{name}:{number}", line)
                for number, line in enumerate(lines, start=1)
            ]
    return sorted(notes, key=_AT)


def notes_of(notes: Iterable[Note], testbed: str, subject: str = "") -> list[Note]:
    """Return the notes of a testbed; with a subject those of it and of what is below it.

    The only port of a NIC has two names, see `without_first_port`.
    """
    plain = without_first_port(subject)
    return [
        note
        for note in notes
        if note.testbed == testbed
        and (
            not subject
            or without_first_port(note.subject) == plain
            or note.subject.startswith(f"{subject}.")
        )
    ]


def notes_table(notes: Sequence[Note]) -> "pa.Table":
    """One line a note, for queries."""
    import pyarrow as pa  # a note is written without it

    columns = Note.__dataclass_fields__
    return pa.table(
        {name: pa.array(map(operator.attrgetter(name), notes), pa.string()) for name in columns}
    )


def _parsed_at_once(lines: Sequence[bytes]) -> list[Note]:
    """Return the notes of lines in a third of the time; none where a line is no note by itself."""
    if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        return []
    try:
        found: Any = from_json(b"[%b]" % b",".join(lines))
        if len(found) != len(lines):
            return []
        stated = [_FIELDS(each) for each in found]
    except (ValueError, KeyError, TypeError):
        return []
    if {type(each) for fields in stated for each in fields} - {str}:
        return []
    return [Note(*fields) for fields in stated]


def _parsed(where: str, line: bytes) -> Note:
    try:
        found: Any = from_json(line)
        stated = {name: found[name] for name in Note.__dataclass_fields__}
        if not all(isinstance(each, str) for each in stated.values()):
            raise TypeError
        return Note(**stated)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{where}: this line is no note; mend or remove it") from error
