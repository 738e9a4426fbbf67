"""Answers like a 1xN switch module that speaks `<OSW_...>`; knows nothing of any driver."""

import re

from instruments.simulated.peers import Surroundings
from instruments.simulated.selector_peer import Said, SelectorPeer


class OswAsciiPeer(SelectorPeer):
    """Frames in angle brackets without line ends; what is none is passed over."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, can_be_dark=True)

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first frame, and whatever stood before it."""
        end = buffer.find(b">")
        if end < 0:
            return None
        return buffer[: end + 1].rpartition(b"<")[2].join((b"<", b"")), end + 1

    def carry_out(self, command: bytes) -> Said:
        """One frame."""
        text = command.decode("ascii", "replace")
        if text == "<OSW_TYPE_?>":
            kind = f"LF-OSW-1X{self.outputs}-1310-SMF-09-10-{self.serial}"
            return Said(f"<OSW_TYPE_{kind}>".encode())
        if text == "<OSW_OUT_?>":
            return Said(f"<OSW_OUT_{self.position:02d}>".encode())
        if match := re.fullmatch(r"<OSW_OUT_(\d\d)>", text):
            after = self.go(int(match[1]))
            if after is None:
                return Said(b"<OSW_OUT_OVERFLOW>")
            return Said(b"<OSW_OUT_OK>", after)
        return Said()
