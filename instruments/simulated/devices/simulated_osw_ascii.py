"""Simulated 1xN switch module that speaks `<OSW_...>`."""

from lightrig.instruments.simulated.devices.position_switch import SimulatedTextSwitch
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.framed_device import FrameReply


class SimulatedOswAscii(SimulatedTextSwitch):
    """Frames in angle brackets without line ends; everything else is ignored."""

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first frame, without the bytes before it."""
        end = buffer.find(b">")
        if end < 0:
            return None
        return b"<" + buffer[: end + 1].rpartition(b"<")[2], end + 1

    @command(r"<OSW_TYPE_\?>")
    def _query_type(self) -> FrameReply:
        kind = f"LF-OSW-1X{self.outputs}-1310-SMF-09-10-{self.serial}"
        return FrameReply(f"<OSW_TYPE_{kind}>".encode())

    @command(r"<OSW_OUT_\?>")
    def _query_output(self) -> FrameReply:
        return FrameReply(f"<OSW_OUT_{self.position:02d}>".encode())

    @command(r"<OSW_OUT_(\d\d)>")
    def _select(self, output: str) -> FrameReply:
        after = self.go(int(output))
        if after is None:
            return FrameReply(b"<OSW_OUT_OVERFLOW>")
        return FrameReply(b"<OSW_OUT_OK>", after)
