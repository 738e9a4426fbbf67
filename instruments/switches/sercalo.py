"""Sercalo 1xN MEMS switches on a serial line."""

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved, Selector, one_by
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.framing import FramingError
from instruments.wire.stream import serial_stream

_INFORMATION, _GET, _RESET, _SET = 1, 2, 3, 4
_HEAD = b"\xfe\xfe"
_ERRORS = {
    1: "invalid command",
    2: "invalid parameter",
    3: "the command failed",
    4: "checksum",
}


class _Messages:
    """`FE FE | length | address | command | error | data | sum of all before`."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first message whole."""
        if not buffer.startswith(_HEAD[: len(buffer)]):
            raise FramingError("it does not begin with FE FE")
        if len(buffer) < 3:
            return None
        size = 3 + buffer[2]
        if size < 7:
            raise FramingError(f"a message of {size} bytes is announced")
        if len(buffer) < size:
            return None
        if sum(buffer[: size - 1]) & 0xFF != buffer[size - 1]:
            raise FramingError("its checksum is wrong")
        return buffer[:size], size

    def show(self, data: bytes) -> str:
        """As hexadecimal bytes."""
        return data.hex(" ")


class Sercalo(Selector[int]):
    """Ingress 1, egress 2..N+1; after a reset, at channel 0, it is dark (a guess).

    Source: as one independent program speaks to it; the layout of the product information
    (model;serial;firmware in text) is a guess.

    Args:
        name: the switch's name in the testbed.
        device: path of its serial line (115200 8N1).
        clock: the bench's clock.
        outputs: how many outputs it has.
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "Sercalo":
        """The driver of the switch that `spec` describes."""
        return cls(spec.name, way.resource, clock, outputs=getattr(spec, "egress_count", 2))

    def __init__(self, name: str, device: str, clock: Clock, *, outputs: int) -> None:
        exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=115_200),
            clock,
            _Messages(),
            resync=Resync(
                question=_message(_INFORMATION),
                recognises=lambda message: message[4] == _INFORMATION,
            ),
        )
        super().__init__(name, clock, {0: frozenset(), **one_by(outputs)}, exchange)

    def identity(self) -> Identity:
        """Model, serial number and firmware."""
        text = self._ask(_INFORMATION).decode("ascii", "backslashreplace")
        fields = [field.strip() for field in text.split(";")]
        model, serial, firmware = [*fields, "unknown", "unknown"][:3]
        if not model:
            raise self._garbled("product information", text)
        return Identity("Sercalo", model, serial, firmware)

    def _position(self) -> int:
        data = self._ask(_GET)
        if len(data) != 1:
            raise self._garbled("get channel", data.hex(" "))
        return data[0]

    def _move(self, position: int) -> Operation:
        message = _message(_SET, bytes([position])) if position else _message(_RESET)
        begun = self._exchange.begin(message)

        def finish() -> Span:
            answer = begun.result()
            self._checked(message, answer.data)
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)

    def _ask(self, command: int) -> bytes:
        message = _message(command)
        return self._checked(message, self._exchange.ask(message).data)

    def _checked(self, sent: bytes, answer: bytes) -> bytes:
        """The data of an answer to `sent`; raises `DeniedError` or `GarbledError`."""
        command, error, data = answer[4], answer[5], answer[6:-1]
        if command != sent[4]:
            raise self._garbled(sent.hex(" "), answer.hex(" "))
        if error:
            raise DeniedError(
                self.name,
                code=str(error),
                text=_ERRORS.get(error, "an error that is not documented"),
                command=sent.hex(" "),
                trace=self.wire()[-6:],
            )
        return data

    def _garbled(self, command: str, answered: str) -> Exception:
        return self._exchange.failed(
            GarbledError,
            "answered another question than was asked",
            command,
            ("answered", answered),
        )


def _message(command: int, data: bytes = b"") -> bytes:
    message = bytes([0xEF, 0xEF, len(data) + 3, 0xFF, command]) + data
    return message + bytes([sum(message) & 0xFF])
