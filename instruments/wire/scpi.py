"""SCPI over any byte stream (SCPI-99, IEEE 488.2).

An instrument reports a refused command in its error queue, not in a reply. `do` therefore sends
the queue's query behind every command, in the same write, so that the refusal becomes the error
of the command that caused it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.core.errors import CANNOT, GarbledError, InstrumentError
from lightrig.instruments.wire.framing import Framing, Scpi
from lightrig.instruments.wire.session import (
    Answer,
    ExclusiveQuery,
    LayeredSession,
    PendingReply,
    QuerySession,
    Resync,
)
from lightrig.instruments.wire.stream import OpenStream, Stream, serial_stream, tcp_stream
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT
from lightrig.testbeds.parts import WireTimeouts

_ERROR = re.compile(r'([+-]?\d+)\s*,\s*"?(.*?)"?\s*$', re.DOTALL)
_LONGEST_QUEUE = 100
IDENTITY = "*IDN?"


ScpiReply: TypeAlias = Answer
"""A reply, of which mostly the `text` is used."""


@dataclass(frozen=True, slots=True)
class ScpiResync(Resync):
    """Resynchronisation by *IDN?, which every instrument answers.

    Where one *IDN? may still be answered, the next one follows one *ESE? more in the same message:
    its reply has one field more and can be told from the first (IEEE 488.2 wants *IDN? last).

    Attributes:
        end: terminator of a command.
    """

    end: str = "\n"

    def variant(self, number: int) -> tuple[bytes, Callable[[bytes], bool]]:
        """Return *IDN? behind `number` queries of *ESE?, and its recogniser."""
        # A serial line keeps a command that was cut short: the terminator ends it first.
        begin = "" if self.reopens else self.end
        question = f"{begin}{'*ESE?;' * number}{IDENTITY}{self.end}"
        answer = re.compile(rb'[\0"]*(?:[+-]?\d+;){%d}"?[A-Za-z][^,;]*(?:,[^,]*){3,}' % number)
        return question.encode(), lambda message: answer.fullmatch(message.strip()) is not None


class ScpiSession(LayeredSession):
    """One SCPI session; threads may share it and are served one after another.

    Args:
        instrument: its name in error messages.
        open_stream: opens the stream.
        meanings: meaning and remedy of error codes, by code.
        error_query: reads the oldest entry of the error queue; None if there is no queue.
        end: terminator of a command.
        resync: rules for getting back into step; None where opening anew is enough.
        wire: the address, for recordings.
        framing: finds the end of a reply; that of SCPI unless stated.
        timeouts: time limits that the testbed file states.
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
        wire: str = "",
        framing: Framing | None = None,
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        queries = QuerySession(
            instrument,
            open_stream,
            clock,
            framing or Scpi(),
            resync=resync,
            wire=wire,
            timeouts=timeouts,
        )
        super().__init__(queries, clock, meanings)
        self._error_query = error_query
        self._end = end
        self._emptied_at = 0  # number of openings at which the error queue was emptied

    def write(self, command: str) -> Span:
        """Send `command`, which has no reply, without reading the error queue."""
        return self._queries.write(f"{command}{self._end}".encode())

    def submit(self, command: str) -> PendingReply:
        """Send a query and return at once; the next command reads its reply first."""
        return self._queries.submit(f"{command}{self._end}".encode(), shown=command)

    def query(self, command: str, timeout: int | None = None) -> ScpiReply:
        """Return the reply to `command`; raises what `QuerySession.query` raises."""
        return self._queries.query(f"{command}{self._end}".encode(), timeout, shown=command)

    def ask(self, command: str, timeout: int | None = None) -> str:
        """Send a command as a person types it; return the reply, empty where it is no query.

        Raises `DeniedError` where the error queue tells of one, and with code `CANNOT` for a text
        that is no single line.
        """
        if not command.isprintable():
            raise self.denied(CANNOT, "expected a command on one line", command)
        if "?" in command:
            return self.query(command, timeout).text
        self.do(command, timeout)
        return ""

    def query_block(self, command: str, timeout: int | None = None) -> bytes:
        """Return the bytes of the definite-length block that answers `command`.

        Raises:
            GarbledError: the reply is no block; also what `QuerySession.query` raises.
        """
        data = self._queries.query(f"{command}{self._end}".encode(), timeout).data
        if data[:1] != b"#" or not data[1:2].isdigit():
            raise self._garbled(command, data, "block of data")
        return data[2 + int(data[1:2]) :]

    def do(self, command: str, timeout: int | None = None) -> Span:
        """Send `command`, read the error queue, and return the stamp of the acknowledgement.

        Raises:
            DeniedError: the instrument put an error into its queue.
        """
        if self._error_query is None:
            return self.write(command)
        question = f"{command}{self._end}{self._error_query}{self._end}".encode()
        with self._queries.exclusive(command, timeout) as query:
            self._empty_queue(query, self._error_query)
            answer = query(question, timeout, shown=command)
            code, text = self._error(command, answer)
            if code:
                self._read_errors(query, self._error_query)
        if code:
            raise self.denied(code, text, command)
        return Span(answer.received, answer.received)

    def errors(self) -> list[tuple[int, str]]:
        """Empty the error queue; return code and text of its entries, oldest first."""
        if self._error_query is None:
            return []
        with self._queries.exclusive(self._error_query) as query:
            return self._read_errors(query, self._error_query)

    # ------------------------------------------------------------------- the error queue

    def _empty_queue(self, query: ExclusiveQuery, error_query: str) -> None:
        """Empty the queue once per opening: entries from before are not this command's errors."""
        while self._emptied_at != self._queries.openings:
            for code, text in self._read_errors(query, error_query):
                self.trace.remarked(f"left from before: {code} {text}")
            self._emptied_at = self._queries.openings

    def _read_errors(self, query: ExclusiveQuery, error_query: str) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        while len(found) < _LONGEST_QUEUE:
            code, text = self._error(error_query, query(f"{error_query}{self._end}".encode()))
            if not code:
                break
            found.append((code, text))
        return found

    def _error(self, command: str, answer: Answer) -> tuple[int, str]:
        match = _ERROR.match(answer.text)
        if match is None:
            raise self._garbled(command, answer.data, "entry of an error queue")
        return int(match[1]), match[2]

    def _garbled(self, command: str, answered: bytes, what: str) -> InstrumentError:
        return self.failed(
            GarbledError,
            f"answered something that is no {what}",
            command,
            ("answered", repr(answered[:80])),
        )


def scpi_session(
    instrument: str,
    endpoint: Endpoint,
    clock: Clock,
    *,
    port: int = 5025,
    baud: int = 9600,
    meanings: Mapping[int, tuple[str, str]] | None = None,
    error_query: str | None = ":SYST:ERR?",
    end: str = "\n",
) -> ScpiSession:
    """Return a session over the wire of `endpoint`: scpi:// (TCP), serial:// or visa://.

    `port` and `baud` are the instrument's defaults. Raises `AddressError` for another wire.
    """
    # A connection may end in a gateway (LAN to GPIB), which hands a late reply to the next one:
    # opening anew is not enough, and *IDN? is sent as well.
    resync = ScpiResync(end=end, reopens=True)
    connecting = endpoint.timeouts.connect_seconds(CONNECT_TIMEOUT)
    match endpoint.scheme:
        case "scpi":

            def open_stream() -> Stream:
                at = endpoint.host, endpoint.port or port
                return tcp_stream(instrument, *at, clock, connecting)

        case "serial":
            resync = ScpiResync(end=end)

            def open_stream() -> Stream:
                return serial_stream(instrument, endpoint.resource, clock, baud=baud)

        case "visa":
            # PyVISA takes 0.1 s to load, which every other SCPI driver would wait for.
            from lightrig.instruments.wire.visa import is_serial, visa_stream  # noqa: PLC0415

            resync = ScpiResync(end=end, reopens=not is_serial(endpoint.resource))

            def open_stream() -> Stream:
                return visa_stream(
                    instrument,
                    endpoint.resource,
                    clock,
                    baud=baud,
                    connect_timeout=connecting,
                )

        case _:
            raise AddressError(f"{instrument}: SCPI is spoken over no {endpoint.scheme}://")
    return ScpiSession(
        instrument,
        open_stream,
        clock,
        meanings=meanings,
        error_query=error_query,
        end=end,
        resync=resync,
        wire=str(endpoint),
        timeouts=endpoint.timeouts,
    )
