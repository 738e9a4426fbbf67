"""Programs on a server that exchange lines with their caller."""

import socket
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable


class LineListener(Protocol):
    """Receiver of a program's output; called on the channel's reader thread."""

    def line(self, text: str) -> None:
        """Take a line of the program's output, without its end."""

    def ended(self, reason: str) -> None:
        """Take the end of the program, or of the connection to it."""


class LineChannel(Protocol):
    """A running program that reads and writes lines."""

    @property
    def status(self) -> int | None:
        """The exit status, set before the listener's `ended` is called.

        None while the program runs, and after the connection to it was lost; negative for a
        program that a signal ended, where that is known.
        """

    @property
    def stderr(self) -> str:
        """The end of its standard error; complete before the listener's `ended` is called."""

    def send(self, text: str) -> None:
        """Write one line to the program; raises OSError if it has ended."""

    def close(self) -> None:
        """Close the program's input and the channel."""


class Shell(Protocol):
    """A place where programs can be started: a host behind SSH, or a network namespace."""

    @property
    def python(self) -> str:
        """The Python interpreter there."""

    def start(self, command: Sequence[str], listener: LineListener) -> LineChannel:
        """Start `command`; its output goes to `listener` line by line."""

    def close(self) -> None:
        """Close the connection and everything that was started."""


@runtime_checkable
class LocalShell(Shell, Protocol):
    """A network namespace of this machine: a launcher here can start programs there."""

    def local_command(self, command: Sequence[str]) -> list[str]:
        """Return the command of this machine that runs `command` there."""


@runtime_checkable
class ReconnectingShell(Shell, Protocol):
    """A shell over a connection that may end, and be opened again."""

    def reconnect(self) -> None:
        """Open the connection anew if it has ended; programs that were started over it are gone.

        Raises `InstrumentError`.
        """


@runtime_checkable
class ForwardingShell(Shell, Protocol):
    """A host behind SSH, whose programs can connect to this machine through it."""

    def forward(self, accept: Callable[[socket.socket], None]) -> int:
        """Return a port of the host's loopback whose connections are handed to `accept`.

        What is handed over has the methods of a socket. `accept` must not wait. The port closes
        with the shell. Raises `UnreachableError` if the host refuses.
        """


LONGEST_STDERR = 1 << 20
"""Length of the end of a program's standard error that is stored, in bytes."""

_ERROR_LENGTH = 1 << 11


def end_of_stderr(stderr: str) -> str:
    """Return the end of `stderr` for an error message: a traceback names its error there."""
    return stderr[-_ERROR_LENGTH:].strip()


class LineSplitter:
    """Turns pieces of a byte stream into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def lines(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "backslashreplace") for line in whole]

    def rest(self) -> list[str]:
        """Return the last line if the stream ended without ending it."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "backslashreplace")] if rest else []
