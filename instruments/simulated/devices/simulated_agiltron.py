"""Simulated Agiltron SelfAlign 1xN switch.

Frames of four bytes: `01 35 00 n-1` selects output n and is answered by `01 35 FF FF`;
`01 30 00 00` goes home. Guessed: that home is dark and is answered alike, and that unknown
frames have no reply.
"""

from lightrig.instruments.simulated.devices.position_switch import SimulatedPositionSwitch
from lightrig.instruments.simulated.protocols.framed_device import FrameReply

_SIZE = 4


class SimulatedAgiltron(SimulatedPositionSwitch):
    """A switch whose position cannot be queried."""

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first four bytes."""
        return (buffer[:_SIZE], _SIZE) if len(buffer) >= _SIZE else None

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one frame."""
        if frame[:3] == b"\x01\x35\x00":
            after = self.go(frame[3] + 1)
            return FrameReply() if after is None else FrameReply(b"\x01\x35\xff\xff", after)
        if frame == b"\x01\x30\x00\x00":
            return FrameReply(b"\x01\x30\xff\xff", self.go(0) or 0)
        return FrameReply()
