"""The switch's end of TL1: framing, sessions, replies. What commands do is a model's part."""

import datetime as dt
import functools
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from instruments.clock import Clock
from instruments.simulated.peer_server import PeerConnection

PROCESSING = 200_000
"""How long the switch takes to read a command and to word an answer, in ns."""


@dataclass(frozen=True, slots=True)
class Request:
    """One command as it came: `VERB:tid:aid:ctag:block:...;`."""

    verb: str
    tid: str
    aid: str
    tag: str
    blocks: tuple[str, ...]


class Refusal(Exception):  # noqa: N818 - a reply, not a failure of ours
    """The switch denies a command with a four-letter code and words."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Answer:
    """A completed command: data lines, after how many ns, and what to do at that moment.

    More than `page` lines come in several blocks; all but the last end with `>` (GR-831).
    """

    lines: Sequence[str] = ()
    after: int = 0
    then: Callable[[], None] = lambda: None
    page: int = 0


class Tl1Dialogue:
    """One client's TL1 session: commands are carried out one after the other.

    Args:
        connection: where replies go.
        owner: the session's name on the clock's agenda.
        sid: what the switch calls itself.
        execute: carries out a request for this session, or raises `Refusal`.

    Attributes:
        sid: as above; may be changed.
        user: who is logged in.
        reports: whether autonomous messages are sent.
        heard: when the last command came, in ns.
    """

    def __init__(
        self,
        connection: PeerConnection,
        clock: Clock,
        owner: str,
        sid: str,
        execute: Callable[["Tl1Dialogue", Request], Answer],
    ) -> None:
        self.connection = connection
        self.user: str | None = None
        self.reports = True
        self.heard = clock.now()
        self._clock = clock
        self._owner = owner
        self.sid = sid
        self._execute = execute
        self._buffer = ""
        self._waiting: deque[str] = deque()
        self._busy = False
        self._lock = threading.Lock()

    def received(self, data: bytes) -> None:
        """Take bytes; every `;` outside quotes ends a command, line ends do not count."""
        self._buffer += data.decode("ascii", "replace")
        *commands, self._buffer = split_quoted(self._buffer, ";")
        with self._lock:
            self._waiting.extend(command.strip() for command in commands)
            idle, self._busy = not self._busy, self._busy or bool(commands)
        if commands and idle:
            self._next()

    def closed(self) -> None:
        """Forget what the client still wanted, and who it was."""
        self._waiting.clear()
        self.user = None

    def report(self, text: str) -> None:
        """Send an autonomous message, unless the client has inhibited them or is not logged in."""
        if self.reports and self.user is not None:
            self._write(f'A  {self._clock.now() % 1_000_000} REPT EVT EQPT\r\n   "{text}"')

    def _next(self) -> None:
        with self._lock:
            if not self._waiting:
                self._busy = False
                return
            command = self._waiting.popleft()
        self._clock.schedule(
            self._clock.now() + PROCESSING, self._owner, lambda: self._carry_out(command)
        )

    def _carry_out(self, command: str) -> None:
        tag = "0"
        try:
            request = self._parse(command)
            tag = request.tag
            if request.tid.strip('"') not in ("", self.sid):
                raise Refusal("IITA", "Mismatched TID")
            answer = self._execute(self, request)
            self.heard = self._clock.now()
        except Refusal as refusal:
            pages = [f"M  {tag} DENY\r\n   {refusal.code}\r\n   /* {refusal.text} */"]
            answer = Answer()
        else:
            pages = _pages(tag, answer)

        def reply() -> None:
            answer.then()
            for page in pages[:-1]:
                self._write(page, end=">")
            self._write(pages[-1])
            self._next()

        self._clock.schedule(self._clock.now() + answer.after + PROCESSING, self._owner, reply)

    def _parse(self, command: str) -> Request:
        parts = split_quoted(command, ":")
        if len(parts) < 4 or not parts[3]:
            raise Refusal("IICT", f"Parse error at offset {len(command)} in command")
        verb, tid, aid, tag, *blocks = parts
        return Request(verb.upper(), tid, aid, tag, tuple(blocks))

    def _write(self, text: str, end: str = ";") -> None:
        header = f"{self.sid} {_stamp(self._clock.now() // 1_000_000_000)}"
        self.connection.send(f"\r\n\n   {header}\r\n{text}\r\n{end}".encode("ascii", "replace"))


def _pages(tag: str, answer: Answer) -> list[str]:
    size = answer.page or max(len(answer.lines), 1)
    pages = [answer.lines[at : at + size] for at in range(0, len(answer.lines), size)] or [()]
    return ["\r\n".join([f"M  {tag} COMPLD", *(f'   "{line}"' for line in page)]) for page in pages]


def time_of_day(seconds: int) -> dt.datetime:
    """What the switch's own clock says, `seconds` after the world began."""
    return dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


@functools.lru_cache(maxsize=16)
def _stamp(seconds: int) -> str:
    return f"{time_of_day(seconds):%y-%m-%d %H:%M:%S}"


def split_quoted(text: str, separator: str) -> list[str]:
    """`text`, cut at each separator that is not within quotes.

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
    """A value without its quotes."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
