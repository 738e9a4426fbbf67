"""The switch's end of TL1: framing, sessions, replies. What commands do is a model's part."""

import datetime as dt
import functools
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
    """A completed command: data lines, after how many ns, and what to do at that moment."""

    lines: Sequence[str] = ()
    after: int = 0
    then: Callable[[], None] = lambda: None


class Tl1Dialogue:
    """One client's TL1 session: commands are carried out one after the other.

    Args:
        connection: where replies go.
        owner: the session's name on the clock's agenda.
        sid: what the switch calls itself.
        execute: carries out a request for this session, or raises `Refusal`.
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
        self._clock = clock
        self._owner = owner
        self._sid = sid
        self._execute = execute
        self._buffer = ""
        self._waiting: deque[str] = deque()
        self._busy = False

    def received(self, data: bytes) -> None:
        """Take bytes; every `;` ends a command, line ends do not count."""
        self._buffer += data.decode("ascii", "replace")
        *commands, self._buffer = self._buffer.split(";")
        for command in commands:
            self._waiting.append(command.strip())
        if commands and not self._busy:
            self._next()

    def closed(self) -> None:
        """Forget what the client still wanted."""
        self._waiting.clear()

    def report(self, text: str) -> None:
        """Send an autonomous message, unless the client has inhibited them."""
        if self.reports:
            self._write(f'A  {self._clock.now() % 1_000_000} REPT EVT EQPT\r\n   "{text}"')

    def _next(self) -> None:
        if not self._waiting:
            self._busy = False
            return
        self._busy = True
        command = self._waiting.popleft()
        self._clock.schedule(
            self._clock.now() + PROCESSING, self._owner, lambda: self._carry_out(command)
        )

    def _carry_out(self, command: str) -> None:
        tag = "0"
        try:
            request = self._parse(command)
            tag = request.tag
            if request.tid.strip('"') not in ("", self._sid):
                raise Refusal("IITA", "Mismatched TID")
            answer = self._execute(self, request)
        except Refusal as refusal:
            text = f"M  {tag} DENY\r\n   {refusal.code}\r\n   /* {refusal.text} */"
            answer = Answer()
        else:
            text = "\r\n".join([f"M  {tag} COMPLD", *(f'   "{line}"' for line in answer.lines)])

        def reply() -> None:
            answer.then()
            self._write(text)
            self._next()

        self._clock.schedule(self._clock.now() + answer.after + PROCESSING, self._owner, reply)

    def _parse(self, command: str) -> Request:
        # A colon inside quotes is text: rejoin what the plain split has torn.
        parts: list[str] = []
        for piece in command.split(":"):
            if parts and parts[-1].count('"') % 2:
                parts[-1] += f":{piece}"
            else:
                parts.append(piece)
        if len(parts) < 4 or not parts[3]:
            raise Refusal("IICT", f"Parse error at offset {len(command)} in command")
        verb, tid, aid, tag, *blocks = parts
        return Request(verb.upper(), tid, aid, tag, tuple(blocks))

    def _write(self, text: str) -> None:
        header = f"{self._sid} {_time_of_day(self._clock.now() // 1_000_000_000)}"
        self.connection.send(f"\r\n\n   {header}\r\n{text}\r\n;".encode("ascii", "replace"))


@functools.lru_cache(maxsize=16)
def _time_of_day(seconds: int) -> str:
    time = dt.datetime(2000, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    return f"{time:%y-%m-%d %H:%M:%S}"
