"""Answers like a DiCon 1xN MEMS module on its serial line; knows nothing of any driver.

It answers every command with a line feed first. Guessed: the words of `ID?`, that a parked
module says 0, and what an unknown command is answered with.
"""

import re

from instruments.simulated.peers import Surroundings
from instruments.simulated.selector_peer import Said, SelectorPeer


class DiconMemsPeer(SelectorPeer):
    """Commands end with a carriage return."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, can_be_dark=True)

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Up to a carriage return."""
        at = buffer.find(b"\r")
        return None if at < 0 else (buffer[:at].strip(), at + 1)

    def carry_out(self, command: bytes) -> Said:
        """One command."""
        text = command.decode("ascii", "replace").upper()
        after: int | None = 0
        answer = ""
        if text == "ID?":
            answer = f"DiCon MEMS 1x{self.outputs},{self.serial},2.1"
        elif text == "CF?":
            answer = f"1,1,{self.outputs}"
        elif text == "I1?":
            answer = str(self.position)
        elif text == "PK":
            after = self.go(0)
        elif match := re.fullmatch(r"I1 (\d+)", text):
            after = self.go(int(match[1])) if int(match[1]) else None
        else:
            after = None
        if after is None:
            return Said(b"\n?\r\n")
        return Said(b"\n" + (f"{answer}\r\n".encode() if answer else b""), after)
