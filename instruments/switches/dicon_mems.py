"""DiCon 1xN MEMS switch modules on a serial line."""

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved, Selector, one_by
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.framing import Lines
from instruments.wire.stream import serial_stream


class DiconMems(Selector[int]):
    """Ingress 1, egress 2..N+1; parked it is dark.

    Every move is followed by the question where it is, in the same write, since the module
    answers a move with an empty line only: done is when it says that it is there.

    Source: as two independent programs speak to it. Guessed: the words of `ID?` (maker and
    model, serial number, firmware, separated by commas), and that a parked module says 0.

    Args:
        name: the switch's name in the testbed.
        device: path of its serial line (115200 8N1).
        clock: the bench's clock.
        outputs: how many outputs it has.
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "DiconMems":
        """The driver of the switch that `spec` describes."""
        return cls(spec.name, way.resource, clock, outputs=getattr(spec, "egress_count", 2))

    def __init__(self, name: str, device: str, clock: Clock, *, outputs: int) -> None:
        exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=115_200),
            clock,
            Lines(),
            resync=Resync(question=b"ID?\r", recognises=lambda message: b"," in message),
        )
        super().__init__(name, clock, {0: frozenset(), **one_by(outputs)}, exchange)

    def identity(self) -> Identity:
        """Maker, model, serial number and firmware."""
        text = self._ask("ID?")
        fields = [field.strip() for field in text.split(",")]
        maker, _, model = fields[0].partition(" ")
        if len(fields) < 3 or not model:
            raise self._garbled("ID?", text, "identity")
        return Identity(maker, model, fields[1], fields[2])

    def _position(self) -> int:
        return self._number("I1?", self._ask("I1?"))

    def _move(self, position: int) -> Operation:
        command = f"I1 {position}" if position else "PK"
        begun = self._exchange.begin(f"{command}\rI1?\r".encode(), shown=command)

        def finish() -> Span:
            answer = begun.result()
            text = answer.data.decode("ascii", "backslashreplace")
            if text == "?":
                raise DeniedError(
                    self.name,
                    code="?",
                    text="it does not know this command, or has no such output",
                    command=command,
                    details=[("try", "does `size:` in the testbed file say what it is?")],
                    trace=self.wire()[-6:],
                )
            self._number(command, text)
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)

    def _ask(self, command: str) -> str:
        return self._exchange.ask(f"{command}\r".encode()).data.decode("ascii", "backslashreplace")

    def _number(self, command: str, text: str) -> int:
        if not text.isascii() or not text.isdigit():
            raise self._garbled(command, text, "position")
        return int(text)

    def _garbled(self, command: str, answered: str, what: str) -> Exception:
        return self._exchange.failed(
            GarbledError,
            f"answered something that is no {what}",
            command,
            ("answered", repr(answered)),
        )
