"""An instrument that answers as a recorded one did: the same words, after the same time.

A question is recognised by its bytes; in TL1 whatever its ctag, which the answer then bears. Of
several answers to one question the next in the order of the recording is given, and when none is
left, the last one again. What the recorded instrument was never asked is not answered; TL1 has a
denial for that, and a shell knows no such program.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.transcript import (
    REPLAYED,
    Piece,
    Transcript,
    TranscriptError,
    read_printed,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection, SessionFactory
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome, no_such_program

_MASK = b"***"
_MASKED = re.compile(rb"\*{3,}")
_HIDDEN = rb"[^:;\r\n]"
"""What a mask stands for any number of."""
"""Stands in a recording for a secret; anything may be said in its place."""


@dataclass(slots=True)
class Exchanged:
    """One query of a recording, and its replies.

    Attributes:
        question: as it was sent, without its ctag; empty for what came before any question.
        tag: its ctag, empty where there are none.
        at: when it was sent, in ns of the recording.
        answers: what came, each after how many ns.
        ends: after how many ns the instrument hung up, None if it did not.
        abruptly: whether it did so by resetting the connection.
    """

    question: bytes
    tag: bytes
    at: int
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    ends: int | None = None
    abruptly: bool = False


_LOGINS = (b"ACT-USER", b"CANC-USER")


class _Language(Protocol):
    """Framing of queries and replies."""

    def parse(self, question: bytes) -> tuple[bytes, bytes]:
        """Return a query without its tag, and the tag."""

    def tag_of(self, answer: bytes) -> bytes | None:
        """Return the tag of a reply, None if it has none."""

    def tagged(self, answer: bytes, old: bytes, new: bytes) -> bytes:
        """Return a reply with another tag."""

    def cut(self, buffer: bytes, known: "_Known") -> tuple[bytes, bytes] | None:
        """Return the first query and the rest; None while the query may be incomplete."""

    def unknown(self, tag: bytes) -> bytes:
        """Return the reply to a query that was never recorded."""


class _Tl1:
    _HEAD = re.compile(rb"(^|\n)(M[ \t]+)(\S+)([ \t])")

    def parse(self, question: bytes) -> tuple[bytes, bytes]:
        parts = question.strip().split(b":")
        tag = parts[3].rstrip(b";") if len(parts) > 3 else b""
        if (verb := parts[0].strip().upper()) in _LOGINS:
            return verb, tag  # whoever asks has another account than the recorded one
        return b":".join([*parts[:3], b"", *parts[4:]]).rstrip(b";"), tag

    def tag_of(self, answer: bytes) -> bytes | None:
        head = self._HEAD.search(answer)
        return head[3] if head is not None else None

    def tagged(self, answer: bytes, old: bytes, new: bytes) -> bytes:
        def retagged(head: re.Match[bytes]) -> bytes:
            return head[1] + head[2] + (new if head[3] == old else head[3]) + head[4]

        return self._HEAD.sub(retagged, answer)

    def cut(self, buffer: bytes, known: "_Known") -> tuple[bytes, bytes] | None:
        question, end, rest = buffer.partition(b";")
        return (question, rest) if end else None

    def unknown(self, tag: bytes) -> bytes:
        denial = b"M  %b DENY\r\n   IICC\r\n   /* Not in the recording */" % tag
        return b"\r\n\n   replay 00-01-01 00:00:00\r\n%b\r\n;" % denial


class _Untagged:
    def parse(self, question: bytes) -> tuple[bytes, bytes]:
        return question, b""

    def tag_of(self, answer: bytes) -> bytes | None:
        return None

    def tagged(self, answer: bytes, old: bytes, new: bytes) -> bytes:
        return answer

    def cut(self, buffer: bytes, known: "_Known") -> tuple[bytes, bytes] | None:
        length = known.longest_at_start(buffer)
        if not length:
            if known.may_become_one(buffer):
                return None
            length = buffer.find(b"\n") + 1 or len(buffer)
        return buffer[:length], buffer[length:]

    def unknown(self, tag: bytes) -> bytes:
        return b""


class _Grpc:
    """Messages of calls: `#CALL METHOD`, a line end, a message; the call's number is the tag."""

    _HEAD = re.compile(rb"#(\d+) ?")

    def parse(self, question: bytes) -> tuple[bytes, bytes]:
        head = self._HEAD.match(question)
        return (question, b"") if head is None else (question[head.end() :], head[1])

    def tag_of(self, answer: bytes) -> bytes | None:
        head = self._HEAD.match(answer)
        return head[1] if head is not None else None

    def tagged(self, answer: bytes, old: bytes, new: bytes) -> bytes:
        return answer.partition(b"\n")[2]  # each call has a session of its own

    def cut(self, buffer: bytes, known: "_Known") -> tuple[bytes, bytes] | None:
        return (buffer, b"") if buffer.partition(b"\n")[2] else None

    def unknown(self, tag: bytes) -> bytes:
        trailers = b"grpc-status:12\r\ngrpc-message:not in the recording\r\n"
        return b"\x80" + len(trailers).to_bytes(4, "big") + trailers


def _pattern(question: bytes) -> re.Pattern[bytes]:
    """Return what matches a question with masks.

    Each part between two masks is taken where it comes first, and no other place is tried: a later
    one leaves less for the parts behind it. Else a question with many masks takes for ever.
    """
    first, *middle, last = map(re.escape, _MASKED.split(question))
    parts = b"".join(b"(?>%b*?%b)" % (_HIDDEN, part) for part in middle)
    return re.compile(b"%b%b%b*%b" % (first, parts, _HIDDEN, last))


class _Known:
    """The queries of a recording, by their bytes."""

    def __init__(self, recording: Iterable[Exchanged]) -> None:
        self._recording = list(recording)
        self._places: dict[bytes, list[int]] = {}
        for place, each in enumerate(self._recording):
            self._places.setdefault(each.question, []).append(place)
        self._questions = sorted(self._places, key=len, reverse=True)
        self._masked = {
            question: _pattern(question) for question in self._questions if _MASK in question
        }
        self._next = 0

    def longest_at_start(self, buffer: bytes) -> int:
        """Return the length of the longest recorded query at the start of `buffer`, or 0."""
        plain = (len(known) for known in self._questions if buffer.startswith(known))
        masked = (match.end() for p in self._masked.values() if (match := p.match(buffer)))
        return max([*plain, *masked], default=0)

    def may_become_one(self, buffer: bytes) -> bool:
        """Whether a recorded query begins with `buffer`."""
        return any(known.startswith(buffer) for known in self._questions)

    def find(self, question: bytes) -> Exchanged | None:
        """Return the next record of `question` in the order of the recording, else the last one."""
        if question not in self._places:
            matches = (known for known, p in self._masked.items() if p.fullmatch(question))
            question = next(matches, question)
        places = self._places.get(question)
        if places is None:
            return None
        place = next((place for place in places if place >= self._next), places[-1])
        self._next = place + 1
        return self._recording[place]


class ReplayDevice:
    """A recorded instrument, for any number of sessions.

    Args:
        transcript: the recording.
        on_unknown: told of questions that are not in it.

    Attributes:
        scheme: the wire that it was recorded on, as addresses name it.
        resource: its VISA resource or serial device, empty elsewhere.

    Raises:
        TranscriptError: it was recorded on a wire that cannot be replayed.
    """

    def __init__(
        self,
        transcript: Transcript,
        clock: Clock,
        on_unknown: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self.name = transcript.about.get("instrument", "replay")
        wire = transcript.wire
        self.scheme, _, self.resource = wire.partition("://")
        if self.scheme not in REPLAYED:
            raise TranscriptError(
                f"{self.name} was recorded on {wire or 'a wire that is not named'}; "
                f"what can be replayed is {', '.join(REPLAYED)}"
            )
        self._clock = clock
        self._on_unknown = on_unknown
        languages: dict[str, type[_Language]] = {"tl1": _Tl1, "gnmi": _Grpc}
        self._language: _Language = languages.get(self.scheme, _Untagged)()
        recording = exchanges(transcript.pieces, self._language)
        self._greetings = [each for each in recording if not each.question]
        self._known = _Known(each for each in recording if each.question)

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the factory of the recorded wire; VISA uses that of SCPI, SSH runs commands."""
        if self.scheme == "ssh":
            return {}
        return {"scpi" if self.scheme == "visa" else self.scheme: self.session}

    def run_command(self, argv: Sequence[str]) -> ProgramOutcome:
        """Return the recorded output of a program."""
        question = shlex.join(argv).encode()
        found = self._known.find(question)
        if found is None:
            self._on_unknown(question)
            return no_such_program(argv)
        if not found.answers:
            return ProgramOutcome("", hangs_up=True)
        after, answer = found.answers[0]
        return ProgramOutcome(*read_printed(answer), after)

    def session(self, connection: DeviceConnection, index: int) -> "ReplaySession":
        """Open the session of a new client."""
        owner = f"{self.name}#{index:04d}"
        session = ReplaySession(
            connection, self._clock, owner, self._language, self._known, self._on_unknown
        )
        if self._greetings:
            session.play(self._greetings[min(index, len(self._greetings) - 1)], b"")
        return session


def exchanges(pieces: Iterable[Piece], language: _Language) -> list[Exchanged]:
    """Return the queries of a recording in their order, each with its replies."""
    found: list[Exchanged] = []
    latest: dict[int, Exchanged] = {}
    by_tag: dict[tuple[int, bytes], Exchanged] = {}
    for piece in pieces:
        session = piece.session
        if piece.kind in {">", "open"}:
            asked = piece.data if piece.kind == ">" else b""
            question, tag = language.parse(asked) if asked else (b"", b"")
            latest[session] = by_tag[session, tag] = Exchanged(question, tag, piece.at)
            found.append(latest[session])
        elif piece.kind != "!" and session in latest:
            of = latest[session]
            if piece.kind == "end":
                of.ends, of.abruptly = piece.at - of.at, b"reset" in piece.data
                continue
            of = by_tag.get((session, language.tag_of(piece.data) or b"?"), of)
            of.answers.append((piece.at - of.at, piece.data))
    return found


@dataclass(eq=False)
class ReplaySession:
    """Device end of one client's session with a recorded instrument."""

    _connection: DeviceConnection
    _clock: Clock
    _owner: str
    _language: _Language
    _known: _Known
    _on_unknown: Callable[[bytes], None]
    _buffer: bytes = field(default=b"", init=False)

    def received(self, data: bytes) -> None:
        """Take bytes, and reply to every query that they complete."""
        self._buffer += data
        while self._buffer and (cut := self._language.cut(self._buffer, self._known)):
            asked, self._buffer = cut
            question, tag = self._language.parse(asked)
            found = self._known.find(question)
            if found is not None:
                self.play(found, tag)
            elif question.strip():
                self._on_unknown(asked)
                self._later(0, self._language.unknown(tag))

    def closed(self) -> None:
        """Do nothing: scheduled replies are discarded by the closed connection."""

    def play(self, recorded: Exchanged, tag: bytes) -> None:
        """Schedule the recorded replies, under another tag."""
        for after, answer in recorded.answers:
            self._later(after, self._language.tagged(answer, recorded.tag, tag))
        if recorded.ends is not None:
            self._schedule(
                recorded.ends, lambda: self._connection.close(abruptly=recorded.abruptly)
            )

    def _later(self, after: int, answer: bytes) -> None:
        if answer:
            self._schedule(after, lambda: self._connection.send(answer))

    def _schedule(self, after: int, action: Callable[[], None]) -> None:
        self._clock.schedule(self._clock.now() + after, self._owner, action)
