"""Recording of the wires of one instrument, as a file that can be replayed (docs/traces.md).

JSON lines: first a description, then the pieces in the order of their times, and between them
more of the description, as it became known.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from lightrig.testbeds import LightrigError
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.regular_files import read_regular

FORMAT = "lightrig trace"
VERSION = 1

REPLAYED = ("tl1", "scpi", "serial", "simserv", "ssh", "visa", "gnmi")
"""Wires on which a recording can be replayed; the others' have no framing."""

Kind = Literal[">", "<", "!", "open", "end"]
"""To the instrument, from it, a note of the wire layer; the session was opened, or it ended."""

_PLAIN = bytes((*b"\t\r\n", *range(0x20, 0x7F)))
"""Bytes that a recording writes as text."""
_ESCAPED = ((b"\\", rb"\\"), (b'"', rb"\""), (b"\t", rb"\t"), (b"\n", rb"\n"), (b"\r", rb"\r"))


class TranscriptError(LightrigError):
    """Raised for a file that is no transcript."""


_LATEST = 1 << 62
"""Nanoseconds, 146 years: no clock waits for longer times."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a recording.

    Attributes:
        at: nanoseconds of the bench's clock.
        session: which of the instrument's sessions it belongs to, from 1.
        kind: its direction, or an event of the session.
        data: the bytes, or the text of a note.
    """

    at: int
    session: int
    kind: Kind
    data: bytes

    def line(self) -> bytes:
        """Return the line of a file, with its line feed."""
        head = b'{"at": %d, "session": %d, "kind": "%b", ' % (
            self.at,
            self.session,
            self.kind.encode(),
        )
        if self.data.translate(None, _PLAIN):
            return b'%b"base64": "%b"}\n' % (head, base64.b64encode(self.data))
        # As `json.dumps` writes it, which takes thirty times as long for an answer of 100 kB.
        text = self.data
        for character, escaped in _ESCAPED:
            text = text.replace(character, escaped)
        return b'%b"text": "%b"}\n' % (head, text)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A recording of one instrument.

    Attributes:
        about: `instrument`, `when` (calendar time), `clock` (`system` or `virtual`), and where
            known `model`, `identity`, `wire` (its address).
        pieces: oldest first.
    """

    about: Mapping[str, str]
    pieces: tuple[Piece, ...]

    @property
    def wire(self) -> str:
        """The address that it was recorded at, as far as it is known."""
        opened = (piece.data.decode("latin-1") for piece in self.pieces if piece.kind == "open")
        return self.about.get("wire") or next(opened, "")


def printed(stdout: str, stderr: str, status: int) -> bytes:
    """Encode output and exit status of a program, as the reply to its command line."""
    return json.dumps({"status": status, "stdout": stdout, "stderr": stderr}).encode()


def read_printed(answer: bytes) -> tuple[str, str, int]:
    """Decode the result of `printed`; raises `TranscriptError`."""
    try:
        found = from_json(answer)
        return str(found["stdout"]), str(found["stderr"]), int(found["status"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise TranscriptError(f"{answer[:80]!r} is no output of a program") from error


def first_line(about: Mapping[str, str]) -> str:
    """Return the first line of a file."""
    return json.dumps({FORMAT: VERSION, **about})


def about_line(about: Mapping[str, str]) -> str:
    """Return a line that adds to the description."""
    return json.dumps({"about": dict(about)})


def read(path: Path) -> Transcript:
    """Read a file; ignore a last line that was cut short, as by a kill.

    Raises:
        TranscriptError: it is no transcript; names the line.
        OSError: it cannot be read.
    """
    about: dict[str, str] = {}
    pieces: list[Piece] = []
    lines = read_regular(path).split(b"\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = from_json(text)
            if number == 1:
                about |= _header(line)
            elif "about" in line:
                about |= line["about"]
            else:
                pieces.append(_piece(line))
        except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
            if number == len(lines) and number > 1:
                break
            raise TranscriptError(f"{path}:{number}: no line of a trace: {error}") from error
    if not about:
        raise TranscriptError(f"{path}:1: no line of a trace: the file is empty")
    return Transcript(about, tuple(pieces))


def _header(line: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if line.get(FORMAT) != VERSION:
        raise ValueError(f"the first line says no {FORMAT!r} of version {VERSION}")
    return ((key, str(value)) for key, value in line.items() if key != FORMAT)


def _piece(line: dict[str, Any]) -> Piece:
    kind = line["kind"]
    if kind not in get_args(Kind):
        raise ValueError(f"unknown kind {kind!r}")
    text = line.get("text")
    data = base64.b64decode(line["base64"], validate=True) if text is None else text.encode()
    at = int(line["at"])
    if not 0 <= at <= _LATEST:
        raise ValueError("a time that is none of a clock")
    return Piece(at, int(line["session"]), kind, data)
