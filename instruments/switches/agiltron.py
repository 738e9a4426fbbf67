"""Agiltron SelfAlign and FF (CL-LB, SW-DR-5) 1xN switches on a serial line."""

from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option, one_of
from lightrig.instruments.core.position_switch import PendingMove, PositionSwitch
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import Sized
from lightrig.instruments.wire.session import Resync

_CLIENT = "ograsdijk/Agiltron-SelfAlign"
_SELECT = 0x35
_QUERY, _SET = 0x11, 0x12
_MOVE_TIMEOUT = 5_000_000_000
SELF_ALIGN, CL_LB, SW_DR_5 = "selfalign", "cl-lb", "sw-dr-5"
_QMI = "QuTech-Delft/QMI, qmi/instruments/agiltron, after Agiltron's command list of 2020-05-20"
_FFSW = "driver of the control board SW-DR-5 by B. Soloway and J. Feder, 2022-10-08"


class Agiltron(PositionSwitch):
    """Ingress 1, egress 2..N+1; it is never dark. Serial line at 9600 8N1.

    Its home is output 1, so that a circuit cannot be taken down without another one. No protocol
    has a query for the identity. That of a SelfAlign has none for the position either: reported is
    the last move that the switch acknowledged; before the first one, the option `standing` must
    state it, or the request is an error.

    FF switches (option `protocol`) are asked for their position. Both boards use the same two
    commands, but CL-LB counts outputs from 1, in the last byte of its reply, and SW-DR-5 from 0,
    in the byte before.

    Source: ograsdijk/Agiltron-SelfAlign and the programs that descend from it; for FF switches
    QuTech-Delft/QMI, and a driver of the board SW-DR-5.
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("frame that selects an output and its acknowledgement", _CLIENT),
        WireFact("home is output 1; no position is dark", _CLIENT),
        WireFact("FF: `01 11` asks for the position, `01 12` sets it, 9600 8N1", _QMI, (), _FFSW),
        WireFact("FF, CL-LB: outputs from 1, echo of the command", _QMI),
        WireFact("FF, SW-DR-5: outputs from 0, position in the third byte", _FFSW),
        WireFact("time that a move may take (5 s)"),
    )
    dark_position = None
    framing = Sized(4)
    resync = Resync()
    standing: Option[int | None] = Option(
        int, None, "output before the first move, 1 for home; None if it is unknown"
    )

    protocol = Option(
        one_of(SELF_ALIGN, CL_LB, SW_DR_5),
        SELF_ALIGN,
        "its board: selfalign, or of an FF switch cl-lb or sw-dr-5",
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._acknowledged = self.standing

    def identity(self) -> Identity:
        """Return the family, after the serial line could be opened: nothing can be queried."""
        self.session.write(b"")
        family = "SelfAlign" if self.protocol == SELF_ALIGN else f"FF {self.protocol.upper()}"
        return Identity("Agiltron", f"{family} 1x{self.outputs}", "unknown", "unknown")

    def position(self) -> int:
        """Return the position that an FF switch reports, else that of the last acknowledged move.

        Raises `NotDoneError` before one.
        """
        if self.protocol != SELF_ALIGN:
            query = bytes([0x01, _QUERY, 0x00, 0x00])
            reply = self.session.query(query).data
            last_but_one, last = reply[2], reply[3]
            if reply[:2] != query[:2] or (last if self.protocol == SW_DR_5 else last_but_one):
                raise self.garbled(query.hex(" "), reply.hex(" "), "position")
            return last_but_one + 1 if self.protocol == SW_DR_5 else last
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
        select = _SELECT if self.protocol == SELF_ALIGN else _SET
        number = position if self.protocol == CL_LB else position - 1
        message = bytes([0x01, select, 0x00, number])
        self._acknowledged = None
        pending = self.session.submit(message, _MOVE_TIMEOUT)

        def finish() -> Span:
            reply = pending.result()
            right = {
                SELF_ALIGN: reply.data == bytes([0x01, _SELECT, 0xFF, 0xFF]),
                CL_LB: reply.data == message,
                SW_DR_5: reply.data[:2] == message[:2],  # its source does not say the rest
            }
            if not right[self.protocol]:
                raise self.garbled(message.hex(" "), reply.data.hex(" "), "acknowledgement")
            self._acknowledged = position
            return Span(pending.sent.earliest, reply.received)

        return PendingMove(pending.sent, finish)
