"""A table of values on the terminal, of which only changed rows are drawn again; and its keys."""

import contextlib
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.control import Control
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table; `is_new` for one that has changed a moment ago."""

    text: str
    is_new: bool = False
    is_heading: bool = False

    @property
    def style(self) -> str:
        """The style of `rich` in which the line is drawn."""
        if self.is_heading:
            return "bold"
        return "reverse" if self.is_new else ""


class LiveScreen:
    """The terminal while values are shown; what stood there before comes back at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn: list[Line] = []
        self._size = console.size
        console.set_alt_screen(True)
        console.show_cursor(show=False)

    def draw(self, lines: Sequence[Line], foot: str) -> None:
        """Show lines, as many as the terminal has room for; the last row of it is `foot`."""
        console, size = self._console, self._console.size
        if size != self._size:
            self._size, self._drawn = size, []
            console.control(Control.clear(), Control.home())
        room = max(1, size.height - 1)
        shown = list(lines[:room])
        if len(lines) > room:
            hidden = len(lines) - room + 1
            shown[-1] = Line(f"... {hidden} more: name what is to be shown, or use --page")
        shown += [Line("")] * (room - len(shown))
        shown.append(Line(foot, is_heading=True))
        with console:  # one write
            for row, line in enumerate(shown):
                if row < len(self._drawn) and self._drawn[row] == line:
                    continue
                # Not the last column of the last row: some terminals would scroll.
                width = size.width - (row == size.height - 1)
                console.control(Control.move_to(0, row))
                console.print(
                    Text(line.text[:width].ljust(width), style=line.style),
                    end="",
                    no_wrap=True,
                    crop=True,
                )
        self._drawn = shown

    def close(self) -> None:
        """Give the terminal back."""
        with contextlib.suppress(OSError):
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(False)


@contextlib.contextmanager
def keys() -> Iterator[None]:
    """Let single keys be read from the terminal, where standard input is one."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # a terminal that was closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def pressed(seconds: float) -> str:
    """Wait at most so long for a key; return it, empty where none was pressed.

    The end of a terminal that was closed is "q".
    """
    if not sys.stdin.isatty():
        return ""
    descriptor = sys.stdin.fileno()
    if not select.select([descriptor], [], [], seconds)[0]:
        return ""
    try:
        return os.read(descriptor, 1).decode(errors="replace") or "q"
    except OSError:
        return "q"
