"""Simulated Sercalo 1xN switch on its serial line.

A request is `EF EF | length | FF | command | data | checksum`; a reply begins with `FE FE` and
has an error byte after the command. The product information is laid out as the driver of
GroeblacherLab reads it. Guessed: the padding byte 20 of that layout, and that channel 0 is dark.
"""

from lightrig.instruments.simulated.devices.position_switch import SimulatedPositionSwitch
from lightrig.instruments.simulated.protocols.framed_device import FrameReply

_OK, _INVALID_COMMAND, _INVALID_PARAMETER, _CHECKSUM = 0, 1, 2, 4


class SimulatedSercalo(SimulatedPositionSwitch):
    """Binary frames with a checksum: the sum of all bytes before it."""

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first request, without the bytes before it."""
        start = buffer.find(b"\xef\xef")
        if start < 0 or len(buffer) < start + 3:
            return None
        end = start + 3 + buffer[start + 2]
        return None if len(buffer) < end else (buffer[start:end], end)

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one request."""
        if len(frame) < 6:
            return FrameReply()
        code, data = frame[4], frame[5:-1]
        if sum(frame[:-1]) & 0xFF != frame[-1]:
            return self._reply(code, _CHECKSUM)
        match code:
            case 1:
                return self._reply(code, _OK, self._product_information())
            case 2:
                return self._reply(code, _OK, bytes([self.position]))
            case 3:
                return self._reply(code, _OK, after=self.go(0) or 0)
            case 4:
                after = self.go(data[0]) if len(data) == 1 else None
                if after is None:
                    return self._reply(code, _INVALID_PARAMETER)
                return self._reply(code, _OK, after=after)
        return self._reply(code, _INVALID_COMMAND)

    def _product_information(self) -> bytes:
        model = f"RSC 1x{self.outputs}"
        versions = bytes([1, 0, 1, 7])  # hardware, firmware
        made = bytes([20, 21, 3, 5])  # century, year, month, day
        return f"{'Sercalo':;<10}{model:;<10};".encode() + versions + made + self.serial.encode()

    def _reply(self, code: int, error: int, data: bytes = b"", after: int = 0) -> FrameReply:
        body = bytes([0xFF, code, error]) + data
        message = b"\xfe\xfe" + bytes([len(body) + 1]) + body
        return FrameReply(message + bytes([sum(message) & 0xFF]), after)
