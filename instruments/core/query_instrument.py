"""Base class of drivers whose instruments answer one query at a time."""

from typing import Any, ClassVar

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.core.instrument import Instrument, line_speed
from lightrig.instruments.wire.framing import Framing, Lines
from lightrig.instruments.wire.session import QuerySession, Resync
from lightrig.instruments.wire.stream import Stream, serial_stream, tcp_stream
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT


class QueryInstrument(Instrument):
    """A driver of an instrument that answers one query at a time, on a serial line or on TCP.

    Attributes:
        framing: where a reply ends.
        resync: how the session gets back into step after a failure; see `QuerySession`.
        command_end: what ends a command.
        default_port: TCP port where the address names none.
        rts_cts: whether the serial line has hardware flow control.
    """

    framing: ClassVar[Framing] = Lines()
    resync: ClassVar[Resync | None] = None
    command_end: ClassVar[str] = "\r\n"
    default_port: ClassVar[int] = 0
    rts_cts: ClassVar[bool] = False
    baud = line_speed(9600)

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self.session = QuerySession(
            name,
            self._open_stream,
            clock,
            self.framing,
            resync=self.resync,
            timeouts=endpoint.timeouts,
        )
        self.sessions = (self.session,)

    def query(self, command: str, timeout: int | None = None) -> str:
        """Send `command` and return the text of the reply, within `timeout` ns or the usual."""
        return self.session.query(f"{command}{self.command_end}".encode(), timeout).text

    def ask(self, command: str) -> str:
        """Send a command as a person types it, with the line's end; return the reply."""
        return self.query(command)

    def failed(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return an error of this instrument; after a garbled reply the session resynchronizes."""
        return self.session.failed(kind, problem, command, *details)

    def _open_stream(self) -> Stream:
        at = self.endpoint
        if at.scheme == "serial":
            return serial_stream(
                self.name, at.resource, self.clock, baud=self.baud, rtscts=self.rts_cts
            )
        connecting = at.timeouts.connect_seconds(CONNECT_TIMEOUT)
        return tcp_stream(self.name, at.host, at.port or self.default_port, self.clock, connecting)
