"""Acme OSW: switches from one fiber to one of N, told a channel over a serial line."""

import re

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved, Selector, one_by
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.framing import Lines
from instruments.wire.stream import serial_stream

_MOVING = 2_000_000_000


class AcmeOsw(Selector[int]):
    """Ingress 1, egress 2..N+1; at channel 0 it is dark.

    Source: Acme OSW user manual, 3rd edition.

    Args:
        name: the switch's name in the testbed.
        device: path of its serial line (8N1).
        clock: the bench's clock.
        outputs: how many outputs it has.
        baud: the line's speed, in bit/s (option `baud`, 9600).
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "AcmeOsw":
        """The driver of the switch that `spec` describes."""
        outputs = getattr(spec, "egress_count", 1)
        baud = int(spec.options.get("baud", 9600))
        return cls(spec.name, way.resource, clock, outputs=outputs, baud=baud)

    def __init__(self, name: str, device: str, clock: Clock, *, outputs: int, baud: int) -> None:
        exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=baud),
            clock,
            Lines(),
            resync=Resync(
                question=b"ID?\r\n", recognises=lambda message: message.startswith(b"ACME ")
            ),
        )
        super().__init__(name, clock, {0: frozenset(), **one_by(outputs)}, exchange)

    def identity(self) -> Identity:
        """What it says of itself: `ACME OSW-1X8 12345 2.1`."""
        words = self._ask("ID?").split()
        if len(words) != 4:
            raise self._garbled("ID?")
        return Identity(*words)

    def _position(self) -> int:
        match = re.fullmatch(r"CH (\d{1,3})", self._ask("CH?"))
        if match is None:
            raise self._garbled("CH?")
        return int(match[1])

    def _move(self, position: int) -> Operation:
        command = f"CH {position}"
        begun = self._exchange.begin(f"{command}\r\n".encode(), _MOVING)

        def finish() -> Span:
            answer = begun.result()
            text = answer.data.decode("ascii", "backslashreplace")
            if match := re.fullmatch(r"ERR (\d+) (.+)", text):
                raise DeniedError(
                    self.name,
                    code=match[1],
                    text=match[2],
                    command=command,
                    details=[("try", "does `size:` in the testbed file say what it is?")],
                    trace=self.wire()[-6:],
                )
            if text != "OK":
                raise self._garbled(command)
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)

    def _ask(self, command: str) -> str:
        answer = self._exchange.ask(f"{command}\r\n".encode())
        return answer.data.decode("ascii", "backslashreplace")

    def _garbled(self, command: str) -> Exception:
        return self._exchange.failed(
            GarbledError, "answered something that is not in its manual", command
        )
