"""Sercalo 1xN MEMS switches on a serial line."""

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.instrument import line_speed
from lightrig.instruments.core.position_switch import PendingMove, PositionSwitch
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import FramingError
from lightrig.instruments.wire.session import Resync

_INFORMATION, _GET, _RESET, _SET = 1, 2, 3, 4
_HEAD = b"\xfe\xfe"
_CLIENT = "GroeblacherLab, driver of the Sercalo RSC 1xN"
# Product information: texts padded with semicolons; version numbers and a date of one byte each.
_MAKER, _MODEL, _FIRMWARE, _SERIAL = slice(10), slice(10, 20), 23, slice(29, None)
_ERRORS = {
    1: "invalid command",
    2: "invalid parameter",
    3: "the command failed",
    4: "checksum",
}


class _Frames:
    """`FE FE | length | address | command | error | data | sum of all before`."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first complete message and its length."""
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
        """Return `data` as hexadecimal bytes."""
        return data.hex(" ")


def _frame(command: int, data: bytes = b"") -> bytes:
    frame = bytes([0xEF, 0xEF, len(data) + 3, 0xFF, command]) + data
    return frame + bytes([sum(frame) & 0xFF])


class Sercalo(PositionSwitch):
    """Ingress 1, egress 2..N+1; after a reset, at channel 0, it is dark (unconfirmed).

    Serial line at 115200 8N1.

    Source: the driver of GroeblacherLab for Sercalo's RSC switches.
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("frames, commands, errors", _CLIENT),
        WireFact("layout of the product information", _CLIENT),
        WireFact("that a reset leads to channel 0, and that no light passes there"),
    )
    baud = line_speed(115_200)
    framing = _Frames()
    resync = Resync(
        question=_frame(_INFORMATION), recognises=lambda message: message[4] == _INFORMATION
    )

    def identity(self) -> Identity:
        """Return model, serial number and firmware."""
        data = self._query(_INFORMATION)
        maker, model, serial = (
            data[part].decode("ascii", "backslashreplace").strip("; \0")
            for part in (_MAKER, _MODEL, _SERIAL)
        )
        if not (maker and model and serial):
            raise self.garbled("product information", data.hex(" "), "product information")
        return Identity(maker, model, serial, f"{data[_FIRMWARE]}.{data[_FIRMWARE + 1]}")

    def position(self) -> int:
        """Return the channel that the switch reports; 0 is dark."""
        data = self._query(_GET)
        if len(data) != 1:
            raise self.garbled("get channel", data.hex(" "), "channel")
        return data[0]

    def move(self, position: int) -> Operation:
        """Begin to go to `position`; a reset goes to 0."""
        frame = _frame(_SET, bytes([position])) if position else _frame(_RESET)
        pending = self.session.submit(frame)

        def finish() -> Span:
            reply = pending.result()
            self._checked(frame, reply.data)
            return Span(pending.sent.earliest, reply.received)

        return PendingMove(pending.sent, finish)

    def _query(self, command: int) -> bytes:
        frame = _frame(command)
        return self._checked(frame, self.session.query(frame).data)

    def _checked(self, sent: bytes, reply: bytes) -> bytes:
        """Return the data of the reply to `sent`; raises `DeniedError` or `GarbledError`."""
        command, error, data = reply[4], reply[5], reply[6:-1]
        if command != sent[4]:
            raise self.garbled(sent.hex(" "), reply.hex(" "), "reply to this command")
        if error:
            text = _ERRORS.get(error, "an error that is not documented")
            raise self.denied(sent.hex(" "), str(error), text)
        return data
