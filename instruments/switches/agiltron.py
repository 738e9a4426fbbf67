"""Agiltron SelfAlign 1xN switches on a serial line."""

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import GarbledError, NotDoneError
from instruments.registry import Spec
from instruments.switches.selector import Moved, Selector, one_by
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.framing import Sized
from instruments.wire.stream import serial_stream

_SELECT, _HOME = 0x35, 0x30
_SETTLING = 5_000_000_000


class Agiltron(Selector[int]):
    """Ingress 1, egress 2..N+1; at home it is dark (a guess).

    This protocol has no question: neither who the switch is nor where it stands. What is
    reported is the last move that it acknowledged; before the first one, the option `standing`
    (0 for home) must say what stands there, or the question is an error.

    Source: as one independent program speaks to it.

    Args:
        name: the switch's name in the testbed.
        device: path of its serial line (9600 8N1).
        clock: the bench's clock.
        outputs: how many outputs it has.
        standing: where it stands before the first move, None where nobody knows.
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "Agiltron":
        """The driver of the switch that `spec` describes."""
        standing = spec.options.get("standing")
        return cls(
            spec.name,
            way.resource,
            clock,
            outputs=getattr(spec, "egress_count", 2),
            standing=None if standing is None else int(standing),
        )

    def __init__(
        self,
        name: str,
        device: str,
        clock: Clock,
        *,
        outputs: int,
        standing: int | None = None,
    ) -> None:
        exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=9600),
            clock,
            Sized(4),
            resync=Resync(),
        )
        super().__init__(name, clock, {0: frozenset(), **one_by(outputs)}, exchange)
        self._outputs = outputs
        self._standing = standing

    def identity(self) -> Identity:
        """What can be known without asking: the family, and that its line can be opened."""
        self._exchange.tell(b"")
        return Identity("Agiltron", f"SelfAlign 1x{self._outputs}", "unknown", "unknown")

    def _position(self) -> int:
        if self._standing is None:
            raise self._exchange.failed(
                NotDoneError,
                "cannot be asked where it stands",
                "",
                ("try", "the option `standing` in the testbed file: 0 for home, or its output"),
            )
        return self._standing

    def _move(self, position: int) -> Operation:
        code = _SELECT if position else _HOME
        message = bytes([0x01, code, 0x00, max(position - 1, 0)])
        self._standing = None  # until it has acknowledged
        begun = self._exchange.begin(message, _SETTLING)

        def finish() -> Span:
            answer = begun.result()
            if answer.data != bytes([0x01, code, 0xFF, 0xFF]):
                raise self._exchange.failed(
                    GarbledError,
                    "answered something that is no acknowledgement",
                    message.hex(" "),
                    ("answered", answer.data.hex(" ")),
                )
            self._standing = position
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)
