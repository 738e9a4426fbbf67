"""Agiltron SelfAlign 1xN switches on a serial line."""

from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.position_switch import PendingMove, PositionSwitch
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import Sized
from lightrig.instruments.wire.session import Resync

_CLIENT = "ograsdijk/Agiltron-SelfAlign"
_SELECT = 0x35
_MOVE_TIMEOUT = 5_000_000_000


class Agiltron(PositionSwitch):
    """Ingress 1, egress 2..N+1; it is never dark. Serial line at 9600 8N1.

    Its home is output 1, so that a circuit cannot be taken down without another one. This protocol
    has no query, neither for the identity nor for the position. The position reported is the last
    move that the switch acknowledged; before the first one, the option `standing` must state it,
    or the request is an error.

    Source: ograsdijk/Agiltron-SelfAlign and the programs that descend from it.
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("frame that selects an output and its acknowledgement", _CLIENT),
        WireFact("home is output 1; no position is dark", _CLIENT),
        WireFact("time that a move may take (5 s)"),
    )
    dark_position = None
    framing = Sized(4)
    resync = Resync()
    standing: Option[int | None] = Option(
        int, None, "output before the first move, 1 for home; None if it is unknown"
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._acknowledged = self.standing

    def identity(self) -> Identity:
        """Return the family, after the serial line could be opened: nothing can be queried."""
        self.session.write(b"")
        return Identity("Agiltron", f"SelfAlign 1x{self.outputs}", "unknown", "unknown")

    def position(self) -> int:
        """Return the position of the last acknowledged move; raises `NotDoneError` before one."""
        if self._acknowledged is None:
            raise self.failed(
                NotDoneError,
                "has no query for its position, and none is known",
                "",
                ("try", "the option `standing` in the testbed file: its output, 1 for home"),
            )
        return self._acknowledged

    def move(self, position: int) -> Operation:
        """Begin to go to output `position`."""
        message = bytes([0x01, _SELECT, 0x00, position - 1])
        self._acknowledged = None
        pending = self.session.submit(message, _MOVE_TIMEOUT)

        def finish() -> Span:
            reply = pending.result()
            if reply.data != bytes([0x01, _SELECT, 0xFF, 0xFF]):
                raise self.garbled(message.hex(" "), reply.data.hex(" "), "acknowledgement")
            self._acknowledged = position
            return Span(pending.sent.earliest, reply.received)

        return PendingMove(pending.sent, finish)
