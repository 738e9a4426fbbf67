"""Simulated Agiltron SelfAlign or FF 1xN switch.

Frames of four bytes: `01 35 00 n-1` selects output n and is answered by `01 35 FF FF`;
`01 30 00 00` goes home, to output 1, without a reply: the public program
(ograsdijk/Agiltron-SelfAlign) ends it with CR LF, reads none, and would take it for that of the
next command. Guessed: that unknown frames have no reply.

An FF switch answers `01 11 00 00` by its position and `01 12 00 n` by an echo. Its board CL-LB
counts outputs from 1 and has the position in the last byte, SW-DR-5 from 0 and in the third.
Guessed: that SW-DR-5 echoes too, and that a number without an output has no reply.
"""

from lightrig.instruments.simulated.devices.position_switch import SimulatedPositionSwitch
from lightrig.instruments.simulated.protocols.framed_device import FrameReply

_SIZE = 4


class SimulatedAgiltron(SimulatedPositionSwitch):
    """A switch whose position cannot be queried, and which is never dark."""

    can_be_dark = False

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first four bytes that begin with 01."""
        start = buffer.find(b"\x01")
        if start < 0 or len(buffer) < start + _SIZE:
            return None
        return buffer[start : start + _SIZE], start + _SIZE

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one frame."""
        if (board := self.spec.options.get("protocol", "selfalign")) != "selfalign":
            first = int(board == "cl-lb")
            if frame == b"\x01\x11\x00\x00":
                number = self.position - 1 + first
                return FrameReply(b"\x01\x11" + bytes([0, number] if first else [number, 0]))
            after = self.go(frame[3] + 1 - first) if frame[:3] == b"\x01\x12\x00" else None
            return FrameReply() if after is None else FrameReply(frame, after)
        if frame[:3] == b"\x01\x35\x00":
            after = self.go(frame[3] + 1)
            return FrameReply() if after is None else FrameReply(b"\x01\x35\xff\xff", after)
        if frame == b"\x01\x30\x00\x00":
            self.go(1)
        return FrameReply()
