"""Answers like an Acme OSW; written from its manual, and knows nothing of the driver."""

import re

from instruments.simulated.peers import Surroundings
from instruments.simulated.selector_peer import Said, SelectorPeer


class AcmeOswPeer(SelectorPeer):
    """Lines end with CR LF; every one is answered."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, can_be_dark=True)

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Up to a line feed."""
        at = buffer.find(b"\n")
        return None if at < 0 else (buffer[:at].strip(), at + 1)

    def carry_out(self, command: bytes) -> Said:
        """One line."""
        text = command.decode("ascii", "replace")
        if text == "ID?":
            return Said(f"ACME OSW-1X{self.outputs} {self.serial} 2.1\r\n".encode())
        if text == "CH?":
            return Said(f"CH {self.position}\r\n".encode())
        if match := re.fullmatch(r"CH (\d{1,3})", text):
            after = self.go(int(match[1]))
            return Said(b"ERR 2 no such channel\r\n") if after is None else Said(b"OK\r\n", after)
        return Said(b"ERR 1 unknown command\r\n")
