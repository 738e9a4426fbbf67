"""TL1 over TCP (Telcordia GR-831): framing, tags, timeouts, autonomous messages.

A command is `VERB:[tid]:[aid]:ctag:[block]...;`. Its answer is a block that ends with
`;` at the start of a line and repeats the command's ctag, so that an answer can never be
taken for another command's, however late it comes. Blocks without a known ctag are set
aside: reports that the switch sends on its own, and answers that came after their timeout.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from instruments.clock import Clock, Span
from instruments.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    UnreachableError,
)
from instruments.wire.tagged import DEFAULT_TIMEOUT, Pending, TaggedSession
from instruments.wire.tcp import TcpConnection, connect
from instruments.wire.turns import Turns

LONGEST_BLOCK = 1 << 20
_TAGS = 1_000_000
_END_OF_BLOCK = re.compile(rb"\n([;>])")
_HEAD = re.compile(
    r"^(?:M[ \t]+(\S+)[ \t]+(COMPLD|DENY|PRTL|DELAY|RTRV)\b"
    r"|(?:\*C|\*\*|\*|A)[ \t]+\S+[ \t]+REPT\b)[^\n]*",
    re.MULTILINE,
)
_HEADER = re.compile(r'^[^"]*\d\d-\d\d-\d\d +\d\d:\d\d:\d\d$')
_CODE = re.compile(r"^[A-Z]{4}$")


@dataclass(frozen=True, slots=True)
class Reply:
    """A completed command's answer.

    Attributes:
        lines: the data lines, without their quotes.
        received: when its last byte was read.
    """

    lines: tuple[str, ...]
    received: int


@dataclass(slots=True)
class _Unfinished:
    """An answer that has begun and may go on in the next block."""

    tag: str
    status: str
    lines: list[str]


class Tl1Session(TaggedSession[Reply]):
    """One TL1 session with a switch; several commands may be under way at once.

    It connects and logs in with the first command, and again with the first one after
    the connection was lost. `reports` holds the newest autonomous messages.

    Args:
        instrument: the switch's name in error messages.
        host: name or address.
        port: TCP port, 3082 on most switches.
        clock: the bench's clock.
        login: user and password, or None where the switch asks for none.
        meanings: what the switch's error codes mean, and what to try, by code.
        connect_timeout: seconds of real time to wait for the connection.
    """

    _advice = "is the switch busy, is its session limit reached? `RTRV-HDR` by hand"

    def __init__(
        self,
        instrument: str,
        host: str,
        port: int,
        clock: Clock,
        login: tuple[str, str] | None = None,
        *,
        meanings: Mapping[str, tuple[str, str]] | None = None,
        connect_timeout: float = 3.0,
    ) -> None:
        super().__init__(instrument, clock, meanings)
        self._address = (host, port)
        self._login = login
        self._connect_timeout = connect_timeout
        self._opening = Turns(clock)
        self._connection: TcpConnection | None = None
        self._buffer = b""
        self._unfinished: _Unfinished | None = None
        self._last_tag = 0
        if login:
            self.trace.mask(login[1])
            self.trace.mask(_escaped(login[1]))

    # ------------------------------------------------------------------------ commands

    def command(
        self, verb: str, aid: str = "", *blocks: str, timeout: int = DEFAULT_TIMEOUT
    ) -> Reply:
        """Send one command and wait for its answer; see `submit` and `Pending.result`."""
        return self.submit(verb, aid, *blocks).result(timeout)

    def submit(self, verb: str, aid: str = "", *blocks: str) -> Pending[Reply]:
        """Send one command and return at once.

        `blocks` are what follows the ctag: the general block, then payload blocks.

        Raises:
            UnreachableError: the session was down and could not be opened.
            DisconnectedError: it broke while the command was written.
        """
        with self._opening:
            if self._connection is None:
                self._open()
        return self._send(verb, aid, blocks)

    def close(self) -> None:
        """End the session; the next command would open it again."""
        self._drop(self._connection, "had its session closed before it answered")

    def _drop(self, connection: TcpConnection | None, problem: str) -> None:
        """End `connection`; only after that may another be opened."""
        if connection is None:
            return
        connection.close()
        lost: list[Pending[Reply]] = []
        with self._lock:
            if self._connection is connection:
                self._connection = None
                lost = self._all_taken()
        self._fail(lost, DisconnectedError, problem)

    # --------------------------------------------------------------------- the opening

    def _open(self) -> None:
        """Connect and log in; whoever else has a command waits until that is done."""
        try:
            self._connect()
            self._log_in()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        host, port = self._address
        connection = connect(self.instrument, host, port, self._connect_timeout, self._clock)
        self.trace.opened(f"connected to {host}:{port}", f"tl1://{host}:{port}")
        with self._lock:  # a peer that hangs up at once is heard of only after this
            self._buffer, self._unfinished = b"", None
            self._connection = TcpConnection(connection, self, self._clock)

    def _log_in(self) -> None:
        if self._login is None:
            return
        host, port = self._address
        user, password = self._login
        try:
            self._send("ACT-USER", quoted(user), ("", quoted(password))).result()
        except DeniedError as error:
            if "already logged in" not in error.text.lower():
                raise UnreachableError(
                    self.instrument,
                    f"refused the login at {host}:{port}",
                    command=error.command,
                    details=[
                        ("answered", f"DENY {error.code} {error.text}"),
                        ("try", "the credentials that `login:` names; case counts in user names"),
                    ],
                    trace=self.trace.tail(),
                ) from error

    def _send(self, verb: str, aid: str, blocks: Sequence[str]) -> Pending[Reply]:
        failure = None
        with self._lock:
            self._last_tag = self._last_tag % _TAGS + 1
            tag = str(self._last_tag)
            text = f"{verb}::{aid}:{tag}:{':'.join(blocks)};"
            pending = Pending(self, self.trace.masked(text), tag, self._clock)
            self._pending[tag] = pending
            connection = self._connection
            self.trace.sent(text)
            before = self._clock.now()
            try:
                if connection is None:
                    raise OSError("the connection is closed")
                connection.send(text.encode())
            except OSError as error:
                del self._pending[tag]
                failure = error
            pending.sent = Span(before, self._clock.now())
        if failure is not None:
            self._drop(connection, "closed the connection")
            raise self._error(
                DisconnectedError,
                "closed the connection while a command was written",
                pending,
                ("because", failure.strerror or str(failure)),
            ) from failure
        return pending

    def _what_came(self) -> str:
        unfinished = len(self._buffer)
        return f"{unfinished} bytes of an unfinished answer came" if unfinished else "nothing came"

    # ------------------------------------------------------------ what the wire brings

    def received(self, data: bytes) -> None:
        """Take bytes from the connection's thread."""
        self._buffer += data
        start = 0
        for end in _END_OF_BLOCK.finditer(self._buffer):
            text = self._buffer[start : end.start()].decode("ascii", "backslashreplace")
            data = self._buffer[start : end.end()]
            start = end.end()
            self.trace.received((text + "\n" + end[1].decode()).strip(), data)
            self._block(text, ends=end[1] == b";")
        self._buffer = self._buffer[start:]
        if len(self._buffer) > LONGEST_BLOCK:
            self._buffer = b""
            with self._lock:
                lost = self._all_taken()
            self._fail(lost, GarbledError, "sent a megabyte without ending its answer")

    def disconnected(self, reason: str) -> None:
        """Learn from the connection's thread that it ended."""
        rest = f" after {len(self._buffer)} bytes of an unfinished answer" if self._buffer else ""
        if self._buffer:
            self.trace.received(self._buffer.decode("ascii", "backslashreplace"))
        self.trace.ended(reason)
        with self._lock:  # from here on a command opens another connection
            self._connection = None
            lost = self._all_taken()
        self._fail(lost, DisconnectedError, f"closed the connection{rest}", ("because", reason))

    def _block(self, text: str, *, ends: bool) -> None:
        """Take what came up to a `;`, which `ends` an answer, or a `>`, after which it goes on.

        Usually that is one message. Where it is several, each but the last was cut short or
        interrupted: an interrupted answer goes on in the next block, one that was cut short
        never does.
        """
        heads = list(_HEAD.finditer(text))
        ours = self._unfinished is not None
        if not heads and not ours and text.strip():
            self._not_tl1(text)
        for head, following in zip([None, *heads], [*heads, None], strict=True):
            body = text[head.end() if head else 0 : following.start() if following else None]
            lines = [line for line in map(str.strip, body.splitlines()) if line]
            if head is not None and head[1] is None:
                ours = False
                self.reports.append(self.trace.masked("\n".join([head[0].strip(), *lines])))
                continue
            if head is not None:
                ours = True
                self._begin(head[1], head[2])
            if self._unfinished is not None:
                self._unfinished.lines += (line for line in lines if not _HEADER.match(line))
        if ends and ours and self._unfinished is not None:
            answer, self._unfinished = self._unfinished, None
            self._answered(answer)

    def _begin(self, tag: str, status: str) -> None:
        before = self._unfinished
        if before is not None and before.tag == tag:
            return
        self._unfinished = _Unfinished(tag, status, [])
        if before is not None and (lost := self._taken(before.tag)):
            self._fail([lost], GarbledError, "cut its answer short")

    def _answered(self, answer: _Unfinished) -> None:
        if answer.status == "DELAY":
            return  # accepted, the final answer follows under the same tag
        pending = self._taken(answer.tag)
        if pending is None:
            self.trace.remarked(f"set aside: no command waits for ctag {answer.tag}")
        elif answer.status in {"DENY", "PRTL"}:
            pending.resolve(self._refused(pending, answer.status, answer.lines))
        else:
            pending.resolve(Reply(tuple(map(_unquoted, answer.lines)), self._clock.now()))

    def _refused(self, pending: Pending[Reply], status: str, lines: Sequence[str]) -> DeniedError:
        code = next((line for line in lines if _CODE.match(line)), status)
        words = [_unquoted(line.removeprefix("/*").removesuffix("*/").strip()) for line in lines]
        text = self.trace.masked(" ".join(word for word in words if word != code))
        answered = " ".join(filter(None, dict.fromkeys((status, code, text))))
        return self._denied(pending, code, text, answered)

    def _not_tl1(self, text: str) -> None:
        self.trace.remarked("not a TL1 answer")
        with self._lock:
            if len(self._pending) != 1:
                return
            lost = self._all_taken()
        answered = ("answered", repr(self.trace.masked(text).strip()[:200]))
        self._fail(lost, GarbledError, "answered something that is not TL1", answered)


def quoted(text: str) -> str:
    """`text` as a command can hold it: within quotes if it could end something there."""
    if re.fullmatch(r"[^\s;:,&=\"\\]*", text):
        return text
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _unquoted(line: str) -> str:
    return line[1:-1] if len(line) > 1 and line[0] == line[-1] == '"' else line
