"""TL1 over TCP (Telcordia GR-831): framing, tags, timeouts, autonomous messages.

A command is `VERB:[tid]:[aid]:ctag:[block]...;`. Its reply is a block that ends with `;` at the
start of a line and repeats the command's ctag. Blocks without a known ctag are autonomous
messages, which are kept in `reports`, and replies after their timeout, which are discarded.

An acknowledgment, code and ctag up to `<` or `>`, may come before a reply that takes seconds (IP,
PF, OK) or in its place: RL and NG are refusals, after NA it is unknown what was done (GR-831;
manuals of ADC and Adtran, and the tutorial of tl1guru.com).
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import (
    CANNOT,
    DeniedError,
    DisconnectedError,
    GarbledError,
    NoReplyError,
)
from lightrig.instruments.wire.pipelined import Pending, TaggedSession
from lightrig.instruments.wire.tcp import Arrivals, TcpConnection
from lightrig.testbeds.parts import WireTimeouts

LONGEST_BLOCK = 1 << 20
_TAGS = 1_000_000
_END_OF_BLOCK = re.compile(rb"\n([;><])")
_ACKNOWLEDGMENT = re.compile(r"(?:^|\n)[ \t]*(IP|PF|OK|NA|NG|RL)[ \t]+(\S+)\s*$")
_UNKNOWN = "NA"
_NOT_DONE = {
    "RL": ("it is busy, and has not carried the command out", "run again"),
    "NG": ("it has not carried the command out", "is another user at it, is it in order?"),
}
"""Meaning and remedy of acknowledgments after which no reply comes."""
_HEAD = re.compile(
    r"^(?:M[ \t]+(\S+)[ \t]+(COMPLD|DENY|PRTL|DELAY|RTRV)\b"
    r"|(?:\*C|\*\*|\*|A)[ \t]+\S+[ \t]+REPT\b)[^\n]*",
    re.MULTILINE,
)
_HEADER = re.compile(r'^[^"]*\d\d-\d\d-\d\d +\d\d:\d\d:\d\d$')
_CODE = re.compile(r"^[A-Z]{4}$")
_COLON = re.compile(r':(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A colon that separates fields: one that stands in no text in quotes."""
_OF_LOGIN = frozenset({"ACT-USER", "CANC-USER"})


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a completed command.

    Attributes:
        lines: the data lines, without their quotes.
        received: stamp of its last byte, after it was read.
        not_before: when its last byte had not come yet.
    """

    lines: tuple[str, ...]
    received: int
    not_before: int


@dataclass(slots=True)
class _Unfinished:
    """A reply that may go on in the next block."""

    tag: str
    status: str
    lines: list[str]


class Tl1Session(TaggedSession[Reply, TcpConnection]):
    """One TL1 session with a switch; several commands may be in flight.

    It connects and logs in with the first command, and again with the first one after
    the connection was lost. `reports` holds the newest autonomous messages.

    Args:
        instrument: the switch's name in error messages.
        host: name or address.
        port: TCP port, 3082 on most switches.
        clock: the bench's clock.
        login: user and password, or None for a switch without login.
        meanings: meaning and remedy of error codes, by code.
        timeouts: time limits that the testbed file states.
    """

    _scheme = "tl1"
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
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        secrets = (login[1], _escaped(login[1])) if login else ()
        known = _NOT_DONE | dict(meanings or {})
        super().__init__(instrument, (host, port), clock, known, secrets, timeouts)
        self._login = login
        self._writing = threading.Lock()
        self._buffer = b""
        self._arrivals = Arrivals()
        self._unfinished: _Unfinished | None = None
        self._last_tag = 0

    # ------------------------------------------------------------------------ commands

    def command(self, verb: str, aid: str = "", *blocks: str, timeout: int | None = None) -> Reply:
        """Send one command and wait for its reply; see `submit` and `Pending.result`."""
        return self.submit(verb, aid, *blocks).result(timeout)

    def submit(self, verb: str, aid: str = "", *blocks: str) -> Pending[Reply]:
        """Send one command and return at once.

        `blocks` follow the ctag: the general block, then payload blocks.

        Raises:
            UnreachableError: the session was down and could not be opened.
            DisconnectedError: it ended while the command was written.
        """
        with self._opening:
            self._opened()
        return self._send(verb, aid, blocks)

    def ask(self, text: str, timeout: int | None = None) -> str:
        """Send a command as a person types it, `RTRV-PATCH:::1:;`, by this session's own tag.

        Returns the data lines. Raises `DeniedError`, with code `CANNOT` for what is no command.
        """
        verb, *fields = _COLON.split(text.strip().removesuffix(";"))
        target, aid, _tag, *blocks = [*fields, "", "", ""][: max(3, len(fields))]
        if not verb or target or not text.isprintable():
            wanted = "expected VERB::AID:TAG:BLOCKS; with no target, as in RTRV-PATCH:::1:;"
            raise self.denied(CANNOT, wanted, text)
        if verb.upper() in _OF_LOGIN:
            raise self.denied(CANNOT, "this session logs in and out by itself", verb)
        reply = self.command(verb, aid, *blocks, timeout=timeout)
        return "\n".join(reply.lines)

    # ------------------------------------------------------------------------ opening

    def _open(self) -> TcpConnection:
        """Connect and log in."""
        try:
            line = self._connect()
            self._note_opening()
            with self._lock:  # `disconnected`, from the new reader, waits until the session is set
                self._buffer, self._unfinished, self._arrivals = b"", None, Arrivals()
                self._connection = connection = TcpConnection(line, self, self._clock)
            self._log_in()
        except BaseException:
            self.close()
            raise
        return connection

    def _log_in(self) -> None:
        if self._login is None:
            return
        host, port = self._address
        user, password = self._login
        try:
            self._send("ACT-USER", quoted(user), ("", quoted(password))).result()
        except DeniedError as error:
            if "already logged in" not in error.text.lower():
                where, answered = f"{host}:{port}", f"DENY {error.code} {error.text}"
                raise self.login_refused(
                    where, error.command, answered, "; case counts in user names"
                ) from error

    def _send(self, verb: str, aid: str, blocks: Sequence[str]) -> Pending[Reply]:
        before = self._clock.now()
        self._clock.delay_write()  # not with the lock, for which the reader would wait
        failure: OSError | None = None
        with self._writing:  # nor is the lock held over a write, which waits for a full buffer
            with self._lock:
                self._last_tag = self._last_tag % _TAGS + 1
                tag = str(self._last_tag)
                text = f"{verb}::{aid}:{tag}:{':'.join(blocks)};"
                pending = Pending(self, self.trace.masked(text), tag, self._clock)
                pending.since = before
                self._pending[tag] = pending
                connection = self._connection
                self.trace.sent(text)
            try:
                if connection is None:
                    raise OSError("the connection is closed")
                connection.send(text.encode())
            except OSError as error:
                self._pop(tag)
                failure = error
        self._clock.delay_write(written=True)
        pending.sent = Span(before, self._clock.now())
        if failure is not None:
            self._drop(connection, "closed the connection")
            raise self.failed(
                DisconnectedError,
                "closed the connection while a command was written",
                pending.command,
                ("because", failure.strerror or str(failure)),
            ) from failure
        return pending

    def _what_came(self) -> str:
        unfinished = len(self._buffer)
        return f"{unfinished} bytes of an unfinished answer came" if unfinished else "nothing came"

    # ------------------------------------------------------------- on the reader thread

    def received(self, data: bytes, not_before: int) -> None:
        """Take bytes from the connection."""
        self._arrivals.read(not_before)
        self._buffer += data
        start = 0
        for end in _END_OF_BLOCK.finditer(self._buffer):
            text = self._buffer[start : end.start()].decode("ascii", "backslashreplace")
            acknowledged = _ACKNOWLEDGMENT.search(text) if end[1] != b";" else None
            if end[1] == b"<" and not acknowledged:
                continue
            data = self._buffer[start : end.end()]
            start = end.end()
            self.trace.received((text + "\n" + end[1].decode()).strip(), data)
            if acknowledged:
                self._acknowledge(*acknowledged.groups())
                continue
            last = start == len(self._buffer)
            self._block(text, self._arrivals.of_message(last=last), ends=end[1] == b";")
        self._buffer = self._buffer[start:]
        if len(self._buffer) > LONGEST_BLOCK:
            self._buffer = b""
            with self._lock:
                lost = self._pop_all()
            self._fail(lost, GarbledError, "sent a megabyte without ending its answer")

    def disconnected(self, reason: str) -> None:
        """Take the end of the connection."""
        rest = f" after {len(self._buffer)} bytes of an unfinished answer" if self._buffer else ""
        if self._buffer:
            self.trace.received(self._buffer.decode("ascii", "backslashreplace"))
        self.trace.ended(reason)
        with self._lock:
            connection = self._connection
        problem = f"closed the connection{rest}"
        self._lose(connection, DisconnectedError, problem, ("because", reason))

    def _block(self, text: str, not_before: int, *, ends: bool) -> None:
        """Take a block up to `;`, which `ends` a reply, or `>`, after which the reply goes on.

        Usually a block is one message. Where it holds several heads, each message but the last
        was interrupted by an autonomous message, and goes on in the next block, or was cut short,
        and never does. A terminal echoes commands at any place, and before its prompt.
        """
        if ";" in text:
            text = self._without_echoes(text)
        heads = list(_HEAD.finditer(text))
        # Whether the text belongs to a reply; the text after an autonomous head does not.
        is_reply = self._unfinished is not None
        if not heads and not is_reply and text.strip():
            self._not_tl1(text)
        for head, following in zip([None, *heads], [*heads, None], strict=True):
            body = text[head.end() if head else 0 : following.start() if following else None]
            lines = [line for line in map(str.strip, body.splitlines()) if line]
            if head is not None and head[1] is None:
                is_reply = False
                self.reports.append(self.trace.masked("\n".join([head[0].strip(), *lines])))
                continue
            if head is not None:
                is_reply = True
                self._start_reply(head[1], head[2])
            if self._unfinished is not None:
                # A header has no quotes; most lines begin with one.
                self._unfinished.lines += [
                    line for line in lines if line[0] == '"' or not _HEADER.match(line)
                ]
        if ends and is_reply and self._unfinished is not None:
            answer, self._unfinished = self._unfinished, None
            self._finish_reply(answer, not_before)

    def _acknowledge(self, code: str, tag: str) -> None:
        """Take an acknowledgment: of most the reply follows, in place of some none comes."""
        if code not in {*_NOT_DONE, _UNKNOWN}:
            return
        pending = self._pop(tag)
        if pending is None:
            self.trace.remarked(f"set aside: no command waits for ctag {tag}")
        elif code == _UNKNOWN:
            problem = "has lost track of the command, which may be carried out"
            details = ("answered", f"{code} (no acknowledgment)"), ("try", "read its state")
            self._fail([pending], NoReplyError, problem, *details)
        else:
            pending.resolve(self.denied(code, "", pending.command, code))

    def _without_echoes(self, text: str) -> str:
        """Return `text` without lines that are a command that waits, behind a prompt or none."""
        with self._lock:
            commands = tuple(pending.command for pending in self._pending.values())
        longest = 20 + max(map(len, commands), default=0)
        return "".join(
            line
            for line in self.trace.masked(text).splitlines(keepends=True)
            if not (line.rstrip().endswith(commands) and len(line) <= longest)
        )

    def _start_reply(self, tag: str, status: str) -> None:
        before = self._unfinished
        if before is not None and before.tag == tag:
            return
        self._unfinished = _Unfinished(tag, status, [])
        if before is not None and (lost := self._pop(before.tag)):
            self._fail([lost], GarbledError, "cut its answer short")

    def _finish_reply(self, answer: _Unfinished, not_before: int) -> None:
        if answer.status == "DELAY":
            return  # accepted; the final reply follows under the same tag
        pending = self._pop(answer.tag)
        if pending is None:
            self.trace.remarked(f"set aside: no command waits for ctag {answer.tag}")
        elif answer.status in {"DENY", "PRTL"}:
            pending.resolve(self._refused(pending, answer.status, answer.lines))
        else:
            # Written out, since each reading of a switch's monitors has a line for each port.
            lines = tuple(
                [
                    line[1:-1] if line[0] == line[-1] == '"' != line else line
                    for line in answer.lines
                ]
            )
            not_before = max(not_before, pending.since)
            pending.resolve(Reply(lines, self._clock.now(), not_before))

    def _refused(self, pending: Pending[Reply], status: str, lines: Sequence[str]) -> DeniedError:
        code = next((line for line in lines if _CODE.match(line)), status)
        texts = [_unquoted(line.removeprefix("/*").removesuffix("*/").strip()) for line in lines]
        text = self.trace.masked(" ".join(each for each in texts if each != code))
        answered = " ".join(filter(None, dict.fromkeys((status, code, text))))
        return self.denied(code, text, pending.command, answered)

    def _not_tl1(self, text: str) -> None:
        self.trace.remarked("not a TL1 answer")
        with self._lock:
            if len(self._pending) != 1:
                return  # it is unknown which command this answers; their timeouts decide
            lost = self._pop_all()
        answered = ("answered", repr(self.trace.masked(text).strip()[:200]))
        self._fail(lost, GarbledError, "answered something that is not TL1", answered)


def quoted(text: str) -> str:
    """Return `text` as a parameter: quoted if it has characters that delimit TL1 fields."""
    if re.fullmatch(r"[^\s;:,&=\"\\]*", text):
        return text
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _unquoted(line: str) -> str:
    return line[1:-1] if len(line) > 1 and line[0] == line[-1] == '"' else line
