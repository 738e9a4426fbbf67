"""Answers like an Agiltron SelfAlign 1xN switch; knows nothing of any driver.

Messages of four bytes: `01 35 00 n-1` selects output n and is answered by `01 35 FF FF`;
`01 30 00 00` goes home. Guessed: that home is dark and is answered alike, and that what is
unknown is passed over in silence.
"""

from instruments.simulated.peers import Surroundings
from instruments.simulated.selector_peer import Said, SelectorPeer

_SIZE = 4


class AgiltronPeer(SelectorPeer):
    """It cannot be asked where it is."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, can_be_dark=True)

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Four bytes."""
        return (buffer[:_SIZE], _SIZE) if len(buffer) >= _SIZE else None

    def carry_out(self, command: bytes) -> Said:
        """One message."""
        if command[:3] == b"\x01\x35\x00":
            after = self.go(command[3] + 1)
            return Said() if after is None else Said(b"\x01\x35\xff\xff", after)
        if command == b"\x01\x30\x00\x00":
            return Said(b"\x01\x30\xff\xff", self.go(0) or 0)
        return Said()
