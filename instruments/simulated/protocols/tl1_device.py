"""Device side of TL1: a base class for switches, declared by command table.

A switch class lists its commands by verb, as its manual does:

    @command("ENT-PATCH")
    def connect(self, request: Tl1Request) -> Tl1Reply: ...

Framing, sessions, the login and the form of replies are here. Written from Telcordia GR-831.
"""

import datetime as dt
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.commands import (
    CommandQueue,
    command,
    declared_commands,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection, SessionFactory

PROCESSING = 200_000
"""Time that the switch takes to read a command, and to write a reply, in ns."""


@dataclass(frozen=True, slots=True)
class Tl1Request:
    """One command: `VERB:tid:aid:ctag:block:...;`, and the session that it came from."""

    session: "Tl1ServerSession"
    verb: str
    tid: str
    aid: str
    tag: str
    blocks: tuple[str, ...]


class Tl1Denial(Exception):  # noqa: N818 - a reply, not a failure of ours
    """The switch denies a command with a four-letter code and a text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Tl1Reply:
    """A completed command.

    Attributes:
        lines: data lines.
        after: delay in ns.
        then: called at that moment.
        page: lines per block; all blocks but the last end with `>` (GR-831). 0 for one block.
    """

    lines: Sequence[str] = ()
    after: int = 0
    then: Callable[[], None] = lambda: None
    page: int = 0


class Tl1Device:
    """Base of simulated TL1 switches: sessions, login, and the verbs that a subclass declares.

    Where `tag_required` is False, a command without ctag is answered with the ctag 0, and its
    trailing fields may be missing.

    Args:
        name: name of the switch in the testbed, and its first source identifier (SID).
        login: user and password that it accepts.

    Attributes:
        prompt: written when a client connects, and after each reply; empty for none.
        echo: whether a client's bytes are sent back, as on a terminal.
    """

    login_verb: ClassVar[str] = "ACT-USER"
    tag_required: ClassVar[bool] = True
    not_logged_in: ClassVar[str] = "Not logged in"

    def __init__(self, name: str, clock: Clock, login: tuple[str, str]) -> None:
        self.name = name
        self.sid = name
        self.clock = clock
        self.login = login
        self.prompt = ""
        self.echo = False
        self._handlers: dict[str, Callable[[Tl1Request], Tl1Reply]] = {
            verb: getattr(self, method) for verb, method in declared_commands(type(self)).items()
        }

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of TL1 on a raw socket."""
        return {"tl1": self.session}

    def session(self, connection: DeviceConnection, index: int) -> "Tl1ServerSession":
        """Open the session of a new client."""
        return Tl1ServerSession(self, connection, f"{self.name}#{index:04d}")

    def execute(self, request: Tl1Request) -> Tl1Reply:
        """Carry out one command; raise `Tl1Denial`."""
        if request.session.user is None and request.verb != self.login_verb:
            raise Tl1Denial("PLNA", self.not_logged_in)
        handler = self._handlers.get(request.verb)
        if handler is None:
            raise Tl1Denial("IICM", "Invalid command")
        return handler(request)

    @command("ACT-USER")
    def log_in(self, request: Tl1Request) -> Tl1Reply:
        """Log the user of a session in; raise `Tl1Denial`."""
        raise NotImplementedError


class Tl1ServerSession:
    """Device end of one client's TL1 session.

    Args:
        connection: where replies are written.
        owner: name of the session on the clock's agenda.

    Attributes:
        user: the user who is logged in.
        reports: whether autonomous messages are sent.
        last_command: time of the last command, in ns.
    """

    def __init__(self, device: Tl1Device, connection: DeviceConnection, owner: str) -> None:
        self.connection = connection
        self.user: str | None = None
        self.reports = True
        self.last_command = device.clock.now()
        self.sid = device.sid
        self._device = device
        self._clock = device.clock
        self._owner = owner
        self._buffer = ""
        self._queue = CommandQueue(device.clock, owner, PROCESSING, self._execute)
        self._write_prompt()

    def received(self, data: bytes) -> None:
        """Take bytes; every `;` outside quotes ends a command, line ends are ignored."""
        if self._device.echo:
            self.connection.send(data)
        self._buffer += data.decode("ascii", "replace")
        *commands, self._buffer = split_quoted(self._buffer, ";")
        self._queue.add(text.strip() for text in commands)

    def closed(self) -> None:
        """Discard commands that were not begun, and log out."""
        self._queue.clear()
        self.user = None

    def report(self, text: str) -> None:
        """Send an autonomous message, unless the client inhibits them or is not logged in."""
        if self.reports and self.user is not None:
            self._write(f'A  {self._clock.now() % 1_000_000} REPT EVT EQPT\r\n   "{text}"')

    def _execute(self, text: str) -> None:
        tag = "0"
        try:
            request = self._parse(text)
            tag = request.tag
            if request.tid.strip('"') not in ("", self.sid):
                raise Tl1Denial("IITA", "Mismatched TID")
            reply = self._device.execute(request)
            self.last_command = self._clock.now()
        except Tl1Denial as denial:
            pages = [f"M  {tag} DENY\r\n   {denial.code}\r\n   /* {denial.text} */"]
            reply = Tl1Reply()
        else:
            pages = _pages(tag, reply)

        def finish() -> None:
            reply.then()
            for page in pages[:-1]:
                self._write(page, end=">")
            self._write(pages[-1])
            self._write_prompt()
            self._queue.done()

        self._clock.schedule(self._clock.now() + reply.after + PROCESSING, self._owner, finish)

    def _write_prompt(self) -> None:
        if self._device.prompt:
            self.connection.send(f"\r\n{self._device.prompt}".encode())

    def _parse(self, text: str) -> Tl1Request:
        parts = split_quoted(text, ":")
        if not self._device.tag_required:
            parts += [""] * (4 - len(parts))
            parts[3] = parts[3] or "0"
        if len(parts) < 4 or not parts[3]:
            raise Tl1Denial("IICT", f"Parse error at offset {len(text)} in command")
        verb, tid, aid, tag, *blocks = parts
        return Tl1Request(self, verb.upper(), tid, aid, tag, tuple(blocks))

    def _write(self, text: str, end: str = ";") -> None:
        header = f"{self.sid} {_stamp(self._clock.now() // 1_000_000_000)}"
        self.connection.send(f"\r\n\n   {header}\r\n{text}\r\n{end}".encode("ascii", "replace"))


def _pages(tag: str, reply: Tl1Reply) -> list[str]:
    size = reply.page or max(len(reply.lines), 1)
    pages = [reply.lines[at : at + size] for at in range(0, len(reply.lines), size)] or [()]
    return ["\r\n".join([f"M  {tag} COMPLD", *[f'   "{line}"' for line in page]]) for page in pages]


def time_of_day(seconds: int) -> dt.datetime:
    """Return the time of the switch's own clock, `seconds` after the world began."""
    return dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


@functools.lru_cache(maxsize=16)
def _stamp(seconds: int) -> str:
    return f"{time_of_day(seconds):%y-%m-%d %H:%M:%S}"


def split_quoted(text: str, separator: str) -> list[str]:
    """Split `text` at each separator that is not within quotes.

    A quote opens where a value begins; within it a backslash takes the next character as it is
    (Telcordia GR-831).
    """
    if '"' not in text:
        return text.split(separator)
    parts, begin, quoted, escaped = [], 0, False, False
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = char == "\\", char != '"'
        elif char == '"':
            quoted = text[at - 1 : at] in {":", ",", "=", "&"} or (at == 0 and separator in ",&")
        elif char == separator:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def unquoted(text: str) -> str:
    """Return a value without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
