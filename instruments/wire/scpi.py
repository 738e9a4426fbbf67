"""SCPI over any way that carries bytes (SCPI-99, IEEE 488.2).

A command that the instrument objects to says so in its error queue, not in an answer. `do`
therefore reads the queue behind every command, in the same write, so that an objection is the
error of the command that caused it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError
from instruments.way import AddressError, Way
from instruments.wire.exchange import DEFAULT_TIMEOUT, Exchange, Resync
from instruments.wire.framing import Scpi
from instruments.wire.stream import OpenStream, Stream, serial_stream, tcp_stream
from instruments.wire.trace import Trace
from instruments.wire.visa import visa_stream

_ERROR = re.compile(r'([+-]?\d+)\s*,\s*"?(.*?)"?\s*$', re.DOTALL)
_LONGEST_QUEUE = 100
IDENTITY = "*IDN?"


@dataclass(frozen=True, slots=True)
class ScpiReply:
    """An answer in text.

    Attributes:
        text: without its end.
        sent: between which stamps the query was written.
        received: when the answer was there.
    """

    text: str
    sent: Span
    received: int


class ScpiSession:
    """One SCPI session; may be shared by threads, which take turns.

    Args:
        instrument: its name in error messages.
        open_stream: opens the way there; see `scpi_stream`.
        meanings: what the instrument's error codes mean, and what to try, by code.
        error_query: what reads the oldest entry of the error queue, None if there is no queue.
        end: what ends a command.
        resync: for a serial line, which cannot be opened anew; None elsewhere.
    """

    def __init__(
        self,
        instrument: str,
        open_stream: OpenStream,
        clock: Clock,
        *,
        meanings: Mapping[int, tuple[str, str]] | None = None,
        error_query: str | None = ":SYST:ERR?",
        end: str = "\n",
        resync: Resync | None = None,
    ) -> None:
        self.instrument = instrument
        self._exchange = Exchange(instrument, open_stream, clock, Scpi(), resync=resync)
        self._meanings = meanings or {}
        self._error_query = error_query
        self._end = end
        self._emptied = 0

    @property
    def trace(self) -> Trace:
        """What went over the wire."""
        return self._exchange.trace

    def write(self, command: str) -> Span:
        """Send `command`, which has no answer, and do not ask what became of it."""
        return self._exchange.tell(f"{command}{self._end}".encode())

    def query(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> ScpiReply:
        """The answer to `command`; raises what `Exchange.ask` does."""
        answer = self._exchange.ask(f"{command}{self._end}".encode(), timeout)
        text = answer.data.decode("ascii", "backslashreplace").strip()
        return ScpiReply(text, answer.sent, answer.received)

    def query_block(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> bytes:
        """The bytes of the definite-length block that answers `command`.

        Raises:
            GarbledError: the answer is no block; and what `Exchange.ask` raises.
        """
        answer = self._exchange.ask(f"{command}{self._end}".encode(), timeout)
        data = answer.data
        if data[:1] != b"#" or not data[1:2].isdigit():
            raise self._exchange.failed(
                GarbledError,
                "answered something that is no block of data",
                command,
                ("answered", repr(data[:80])),
            )
        return data[2 + int(data[1:2]) :]

    def do(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> Span:
        """Send `command` and learn whether it was accepted; when its acknowledgement was there.

        Raises:
            DeniedError: the instrument has put an error into its queue.
        """
        if self._error_query is None:
            return self.write(command)
        self._empty_queue()
        both = f"{command}{self._end}{self._error_query}{self._end}"
        answer = self._exchange.ask(both.encode(), timeout, shown=command)
        code, text = self._error(answer.data, command)
        if code:
            self.errors()
            meaning = zip(("meaning", "try"), self._meanings.get(code, ()), strict=False)
            raise DeniedError(
                self.instrument,
                code=str(code),
                text=text,
                command=command,
                details=list(meaning),
                trace=self.trace.tail(),
            )
        return Span(answer.received, answer.received)

    def errors(self) -> list[tuple[int, str]]:
        """Take all entries out of the error queue, oldest first."""
        found: list[tuple[int, str]] = []
        while self._error_query is not None and len(found) < _LONGEST_QUEUE:
            answer = self._exchange.ask(f"{self._error_query}{self._end}".encode())
            entry = self._error(answer.data, self._error_query)
            if not entry[0]:
                break
            found.append(entry)
        return found

    def close(self) -> None:
        """End the session; the next command would open it again."""
        self._exchange.close()

    def _empty_queue(self) -> None:
        """What stands in the queue of a new session is nobody's that is still here."""
        if self._emptied == self._exchange.openings and self._emptied:
            return
        for code, text in self.errors():
            self.trace.remarked(f"left from before: {code} {text}")
        self._emptied = self._exchange.openings

    def _error(self, data: bytes, command: str) -> tuple[int, str]:
        match = _ERROR.match(data.decode("ascii", "backslashreplace").strip())
        if match is None:
            raise self._exchange.failed(
                GarbledError,
                "answered something that is no entry of an error queue",
                command,
                ("answered", repr(data[:80])),
            )
        return int(match[1]), match[2]


def scpi_session(
    instrument: str,
    way: Way,
    clock: Clock,
    *,
    port: int = 5025,
    baud: int = 9600,
    meanings: Mapping[int, tuple[str, str]] | None = None,
    error_query: str | None = ":SYST:ERR?",
    end: str = "\n",
) -> ScpiSession:
    """A session over the wire that `way` names: scpi:// (TCP), serial:// or visa://.

    `port` and `baud` are what the instrument usually has. Raises `AddressError` for another wire.
    """
    resync = None
    match way.scheme:
        case "scpi":

            def open_stream() -> Stream:
                return tcp_stream(instrument, way.host, way.port or port, clock)

        case "serial":
            resync = Resync(question=f"{IDENTITY}{end}".encode(), recognises=_is_identity)

            def open_stream() -> Stream:
                return serial_stream(instrument, way.resource, clock, baud=baud)

        case "visa":

            def open_stream() -> Stream:
                return visa_stream(instrument, way.resource, clock)

        case _:
            raise AddressError(f"{instrument}: SCPI is spoken over no {way.scheme}://")
    return ScpiSession(
        instrument,
        open_stream,
        clock,
        meanings=meanings,
        error_query=error_query,
        end=end,
        resync=resync,
    )


def _is_identity(message: bytes) -> bool:
    """Whether `message` can only be an answer to *IDN?: four fields, the first of them words."""
    fields = message.split(b",")
    return len(fields) >= 4 and re.match(rb"[A-Za-z]", fields[0].strip()) is not None
