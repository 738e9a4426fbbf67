"""Exceptions of a lab: what a person has put out of service, and which cards are known.

They stand in a file beside the testbed's own, `mine.exceptions.yaml` beside `mine.yaml`. Commands
write it; a person may edit it, and comments stay.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import io
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.model import Testbed
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.plans import Port
from lightrig.testbeds.yaml_positions import MOST_FILE_BYTES

if TYPE_CHECKING:
    from lightrig.testbeds.exceptions_document import EntryPart, ExceptionsDocument

Section: TypeAlias = Literal["out", "known"]

_HEAD = """\
# Written by `lightrig out`, `in` and `known`, and read as a run starts.
"""


class ExceptionsError(LightrigError):
    """The exceptions of a testbed belong to another account, or cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Exceptions:
    """The exceptions of a testbed, by what they are about, in the file's order."""

    path: Path
    out: Mapping[str, Entry]
    known: Mapping[str, Entry]


def exceptions_path(testbed_path: Path) -> Path:
    """Return the path of the exceptions of the testbed at `testbed_path`."""
    return testbed_path.with_suffix(f".exceptions{testbed_path.suffix}")


def load_exceptions(testbed: Testbed) -> Exceptions:
    """Return the exceptions of a testbed; none where it has no such file.

    Raises:
        ExceptionsError: the file belongs neither to the owner of the testbed's file nor to this
            account nor to root, is a link, or cannot be read.
        TestbedError: it has mistakes, each with line and column: among them dates that are none,
            and names that the testbed has not.
    """
    path = exceptions_path(testbed.path)
    try:
        with _opened(path, os.O_RDONLY) as descriptor:
            return _parsed(testbed, path, _content(testbed, path, descriptor))
    except FileNotFoundError:
        return Exceptions(path, {}, {})
    except OSError as error:
        raise ExceptionsError(f"{path} cannot be read: {error.strerror}") from error


def change_exceptions(
    testbed: Testbed,
    section: Section,
    *,
    add: Mapping[str, Entry] | None = None,
    remove: frozenset[str] = frozenset(),
) -> Exceptions:
    """Add entries to a section, in place of those of the same name, and remove others.

    One writer at a time; a reader sees all of a change or nothing. Raises what `load_exceptions`
    raises and `UnknownPartError`, and then changes nothing.
    """
    path = exceptions_path(testbed.path)
    for what, entry in (add or {}).items():
        if not entry.because.strip():
            raise ExceptionsError(f"{what} has no reason: state one, such as a ticket")
        if escape_line(entry.because) != entry.because:
            raise ExceptionsError(f"the reason for {what} is not one line of text")
        if section == "out":
            ports_named(testbed, what)
    try:
        with _locked(path) as descriptor:
            before = _content(testbed, path, descriptor)
            _parsed(testbed, path, before)
            content = _edited(before, section, add or {}, remove)
            found = _parsed(testbed, path, content)
            _replace(path, content, stat.S_IMODE(os.fstat(descriptor).st_mode))
            return found
    except OSError as error:
        raise ExceptionsError(f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file that is no link: it could name any file that this account may read."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "is a link, and none is followed here") from error
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file, empty if there was none, as its only writer.

    Each change puts another file in its place, so a lock counts only on the file that has it now.
    """
    while True:
        with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                present = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if os.path.samestat(os.fstat(descriptor), present):
                yield descriptor
                return


def _content(testbed: Testbed, path: Path, descriptor: int) -> bytes:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "is no regular file")
    if found.st_uid not in {0, os.geteuid(), testbed.path.stat().st_uid}:
        raise ExceptionsError(
            f"{path} is not used: it belongs to account {found.st_uid}, who is neither the owner "
            f"of {testbed.path} nor this account nor root\n"
            "  try       have its owner remove it, and write it anew with `lightrig out`"
        )
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise OSError(0, f"is longer than {MOST_FILE_BYTES >> 20} MiB")
    return content


def _parsed(testbed: Testbed, path: Path, content: bytes) -> Exceptions:
    if not content.strip():  # made for its lock, by a writer that was killed
        return Exceptions(path, {}, {})
    # Most testbeds have no such file, and no command should load its schema then.
    from lightrig.testbeds.exceptions_document import ExceptionsDocument  # noqa: PLC0415

    document, located, findings = read_as(ExceptionsDocument, path, content)
    sections: dict[Section, dict[str, Entry]] = {"out": {}, "known": {}}
    parts: dict[Section, dict[str, EntryPart]] = {"out": document.out, "known": document.known}
    for section, entries in parts.items():
        for what, part in entries.items():
            place = located.place((section, what), of_key=True)
            sections[section][what] = Entry(
                what,
                part.because,
                datetime.date.fromisoformat(part.until),
                part.who,
                part.at,
                place.line,
                place.column,
            )
    _check_names(testbed, document, findings)
    findings.raise_if_any()
    return Exceptions(path, sections["out"], sections["known"])


def _check_names(testbed: Testbed, document: ExceptionsDocument, findings: Findings) -> None:
    for what in document.out:
        try:
            ports_named(testbed, what)
        except UnknownPartError as error:
            findings.add(("out", what), str(error), of_key=True)
    for section, entries in (("out", document.out), ("known", document.known)):
        for what, part in entries.items():
            if not part.because.strip():
                findings.add((section, what, "because"), "found no reason, expected e.g. LAB-123")


class UnknownPartError(LightrigError, LookupError):
    """The testbed has no port, fiber, NIC or server of that name."""


def ports_named(testbed: Testbed, what: str) -> frozenset[Port]:
    """Return the ports that a port, a fiber's label, a NIC or a server names.

    Of a label these are both ends of each fiber that has it. Raises `UnknownPartError`.
    """
    nic_ports = {str(spec.port): spec.port for spec in testbed.nic_ports}
    if what in nic_ports:
        return frozenset([nic_ports[what]])
    ends = [end for fiber in testbed.fibers for end in (fiber.source, fiber.sink)]
    cabled = {str(end): end for end in ends if end.owner in testbed.switches}
    if what in cabled:
        return frozenset([cabled[what]])
    labels = [fiber for fiber in testbed.fibers if fiber.label and fiber.label == what]
    below = [port for name, port in nic_ports.items() if name.startswith(f"{what}.")]
    if labels and below:
        raise UnknownPartError(f"{what!r} is a server and the label of a fiber: name its ports")
    if found := [*below, *(end for fiber in labels for end in (fiber.source, fiber.sink))]:
        return frozenset(found)
    if what in testbed.switches:
        raise UnknownPartError(
            f"{what!r} is a whole switch, without which nothing is measured: name ports, e.g. "
            f"{next((name for name in cabled if name.startswith(f'{what}.')), f'{what}.1')}"
        )
    known = [*nic_ports, *testbed.servers, *cabled, *(f.label for f in testbed.fibers if f.label)]
    raise UnknownPartError(
        f"{testbed.path} has no port, fiber, NIC or server {what!r}{did_you_mean(what, known)}"
    )


def _edited(
    content: bytes, section: Section, add: Mapping[str, Entry], remove: frozenset[str]
) -> bytes:
    """Return the file with its entries changed; comments and the order of the others stay."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - no run writes this file

    parser: Any = YAML()
    parser.width = 4096
    document = parser.load(content.decode("utf-8-sig")) if content.strip() else {}
    entries = document.setdefault(section, {})
    for what in remove:
        entries.pop(what, None)
    for what, entry in add.items():
        entries[what] = {
            "because": entry.because,
            "until": entry.until,
            "who": entry.who,
            "at": entry.at,
        }
    if not entries:
        del document[section]
    if not document:
        return b""
    written = io.BytesIO()
    parser.dump(document, written)
    return (b"" if content.strip() else _HEAD.encode()) + written.getvalue()


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Put `content` in the place of a file, or remove it where nothing is left of it."""
    if not content:
        path.unlink()
        return
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.draft")
    try:
        with _opened(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            os.fchmod(descriptor, mode)
            with open(os.dup(descriptor), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
