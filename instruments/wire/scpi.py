"""SCPI over any way that carries bytes (SCPI-99, IEEE 488.2).

A command that the instrument objects to says so in its error queue, not in an answer. `do`
therefore reads the queue behind every command, in the same write, so that an objection is the
error of the command that caused it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError, InstrumentError
from instruments.way import AddressError, Way
from instruments.wire.exchange import DEFAULT_TIMEOUT, Answer, AskInTurn, Exchange, Resync
from instruments.wire.framing import Scpi
from instruments.wire.stream import OpenStream, Stream, serial_stream, tcp_stream
from instruments.wire.trace import Trace
from instruments.wire.visa import is_serial, visa_stream

_ERROR = re.compile(r'([+-]?\d+)\s*,\s*"?(.*?)"?\s*$', re.DOTALL)
_LONGEST_QUEUE = 100
IDENTITY = "*IDN?"


ScpiReply: TypeAlias = Answer
"""An answer, of which mostly its `text` is wanted."""


@dataclass(frozen=True, slots=True)
class ScpiResync(Resync):
    """Brings SCPI back into step with *IDN?, which every instrument answers.

    Where one *IDN? may still be answered, the next is asked behind one *ESE? more, in the same
    message, so that its answer has one field more to be told by (IEEE 488.2 wants *IDN? last).

    Attributes:
        end: what ends a command.
    """

    end: str = "\n"

    def variant(self, number: int) -> tuple[bytes, Callable[[bytes], bool]]:
        """*IDN? behind `number` other queries; on a line, first the end of what was cut short."""
        begin = "" if self.reopens else self.end
        question = f"{begin}{'*ESE?;' * number}{IDENTITY}{self.end}"
        answer = re.compile(rb"(?:[+-]?\d+;){%d}[A-Za-z][^,;]*(?:,[^,]*){3,}" % number)
        return question.encode(), lambda message: answer.fullmatch(message.strip()) is not None


class ScpiSession:
    """One SCPI session; may be shared by threads, which take turns.

    Args:
        instrument: its name in error messages.
        open_stream: opens the way there; see `scpi_stream`.
        meanings: what the instrument's error codes mean, and what to try, by code.
        error_query: what reads the oldest entry of the error queue, None if there is no queue.
        end: what ends a command.
        resync: how step is regained after a failure; None where opening anew is enough.
        wire: the address, for recordings.
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
    ) -> None:
        self.instrument = instrument
        self._exchange = Exchange(instrument, open_stream, clock, Scpi(), resync=resync, wire=wire)
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
        return self._exchange.ask(f"{command}{self._end}".encode(), timeout, shown=command)

    def query_block(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> bytes:
        """The bytes of the definite-length block that answers `command`.

        Raises:
            GarbledError: the answer is no block; and what `Exchange.ask` raises.
        """
        data = self._exchange.ask(f"{command}{self._end}".encode(), timeout).data
        if data[:1] != b"#" or not data[1:2].isdigit():
            raise self._garbled(command, data, "block of data")
        return data[2 + int(data[1:2]) :]

    def do(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> Span:
        """Send `command` and learn whether it was accepted; when its acknowledgement was there.

        Raises:
            DeniedError: the instrument has put an error into its queue.
        """
        if self._error_query is None:
            return self.write(command)
        question = f"{command}{self._end}{self._error_query}{self._end}".encode()
        with self._exchange.alone(command, timeout) as ask:
            self._empty_queue(ask, self._error_query)
            answer = ask(question, timeout, shown=command)
            code, text = self._error(command, answer)
            if code:
                self._take_errors(ask, self._error_query)
        if code:
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

    def failed(
        self,
        kind: type[InstrumentError],
        problem: str,
        command: str,
        *details: tuple[str, str],
    ) -> InstrumentError:
        """An error about this instrument; see `Exchange.failed`, also on what makes no sense."""
        return self._exchange.failed(kind, problem, command, *details)

    def errors(self) -> list[tuple[int, str]]:
        """Take all entries out of the error queue, oldest first."""
        if self._error_query is None:
            return []
        with self._exchange.alone(self._error_query) as ask:
            return self._take_errors(ask, self._error_query)

    def close(self) -> None:
        """End the session; the next command would open it again."""
        self._exchange.close()

    # ------------------------------------------------------------------- the error queue

    def _empty_queue(self, ask: AskInTurn, query: str) -> None:
        """What stands in the queue when a session begins is nobody's that is still here."""
        while self._emptied != self._exchange.openings:
            for code, text in self._take_errors(ask, query):
                self.trace.remarked(f"left from before: {code} {text}")
            self._emptied = self._exchange.openings

    def _take_errors(self, ask: AskInTurn, query: str) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        while len(found) < _LONGEST_QUEUE:
            code, text = self._error(query, ask(f"{query}{self._end}".encode()))
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
    # A connection may end in a gateway, which keeps for the next one what comes late.
    resync = ScpiResync(end=end, reopens=True)
    match way.scheme:
        case "scpi":

            def open_stream() -> Stream:
                return tcp_stream(instrument, way.host, way.port or port, clock)

        case "serial":
            resync = ScpiResync(end=end)

            def open_stream() -> Stream:
                return serial_stream(instrument, way.resource, clock, baud=baud)

        case "visa":
            resync = ScpiResync(end=end, reopens=not is_serial(way.resource))

            def open_stream() -> Stream:
                return visa_stream(instrument, way.resource, clock, baud=baud)

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
        wire=str(way),
    )
