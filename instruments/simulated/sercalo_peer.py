"""Answers like a Sercalo 1xN switch on its serial line; knows nothing of any driver.

A message is `EF EF | length | FF | command | data | checksum`, an answer begins with `FE FE` and
has an error byte behind the command. Guessed: the layout of the product information, and that
channel 0 is dark.
"""

from instruments.simulated.peers import Surroundings
from instruments.simulated.selector_peer import Said, SelectorPeer

_OK, _INVALID_COMMAND, _INVALID_PARAMETER, _CHECKSUM = 0, 1, 2, 4


class SercaloPeer(SelectorPeer):
    """Binary messages with a sum behind them."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, can_be_dark=True)

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first message, and whatever stood before it."""
        start = buffer.find(b"\xef\xef")
        if start < 0 or len(buffer) < start + 3:
            return None
        end = start + 3 + buffer[start + 2]
        return None if len(buffer) < end else (buffer[start:end], end)

    def carry_out(self, command: bytes) -> Said:
        """One message."""
        if len(command) < 6:
            return Said()
        code, data = command[4], command[5:-1]
        if sum(command[:-1]) & 0xFF != command[-1]:
            return self._answer(code, _CHECKSUM)
        match code:
            case 1:
                return self._answer(code, _OK, f"RSC 1x{self.outputs};{self.serial};1.7".encode())
            case 2:
                return self._answer(code, _OK, bytes([self.position]))
            case 3:
                return self._answer(code, _OK, after=self.go(0) or 0)
            case 4:
                after = self.go(data[0]) if len(data) == 1 else None
                if after is None:
                    return self._answer(code, _INVALID_PARAMETER)
                return self._answer(code, _OK, after=after)
        return self._answer(code, _INVALID_COMMAND)

    def _answer(self, code: int, error: int, data: bytes = b"", after: int = 0) -> Said:
        body = bytes([0xFF, code, error]) + data
        message = b"\xfe\xfe" + bytes([len(body) + 1]) + body
        return Said(message + bytes([sum(message) & 0xFF]), after)
