"""Answers like a Thorlabs OSW12 or OSW22 on its USB serial line; knows nothing of any driver.

Guessed: the words of `ID?` and `T?`, and that an unknown command is answered with nothing.
"""

import re

from instruments.simulated.peers import Surroundings
from instruments.simulated.selector_peer import Said, SelectorPeer


class ThorlabsOswPeer(SelectorPeer):
    """`S 1` is bar, `S 2` cross; settings have no answer."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, can_be_dark=False)
        self._model = "OSW22" if self.spec.ingress_count == 2 else "OSW12"

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Up to a line feed."""
        at = buffer.find(b"\n")
        return None if at < 0 else (buffer[:at].strip(), at + 1)

    def carry_out(self, command: bytes) -> Said:
        """One command."""
        text = command.decode("ascii", "replace").upper()
        if text == "S?":
            return Said(f"{self.position}\r\n".encode())
        if text in {"I?", "ID?"}:
            return Said(f"Thorlabs {self._model} {self.serial} 1.20\r\n".encode())
        if text == "T?":
            return Said(f"{self._model}-1310E\r\n".encode())
        if match := re.fullmatch(r"S ?([12])", text):
            return Said(after=self.go(int(match[1])) or 0)
        return Said()
