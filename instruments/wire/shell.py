"""A way to start a program on a server and exchange lines with it."""

from collections.abc import Sequence
from typing import Protocol


class LineListener(Protocol):
    """Who is told what a program says; called on the channel's own thread."""

    def line(self, text: str) -> None:
        """The program wrote a line, given without its end."""

    def ended(self, reason: str) -> None:
        """The program or the way to it ended; nothing more will come."""


class LineChannel(Protocol):
    """A running program that reads and writes lines."""

    @property
    def status(self) -> int | None:
        """Its exit status, known when its listener hears that it ended.

        None while it runs, and for good where only the way to it ended; negative for a
        program that a signal ended, where that can be told.
        """

    @property
    def complaint(self) -> str:
        """What it wrote to its standard error, all of it when its listener hears of its end."""

    def send(self, text: str) -> None:
        """Write one line to the program; raises OSError when it is gone."""

    def close(self) -> None:
        """End the program's input and the channel."""


class Shell(Protocol):
    """Where programs can be started: a host behind SSH, or a network namespace."""

    @property
    def python(self) -> str:
        """The Python interpreter there."""

    def start(self, command: Sequence[str], listener: LineListener) -> LineChannel:
        """Start `command`; what it writes goes to `listener` line by line."""

    def close(self) -> None:
        """End the way there and everything that was started."""


LONGEST_COMPLAINT = 1 << 20
"""How much of a program's standard error is kept, in bytes: the end of it."""

_LAST_WORDS = 1 << 11


def last_words(complaint: str) -> str:
    """The end of a complaint, for an error: a traceback names its error at its end."""
    return complaint[-_LAST_WORDS:].strip()


class LineSplitter:
    """Turns pieces of a byte stream into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def lines(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "backslashreplace") for line in whole]

    def rest(self) -> list[str]:
        """The last line, where the stream ended without ending it."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "backslashreplace")] if rest else []
