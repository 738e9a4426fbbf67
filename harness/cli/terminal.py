"""The terminal of commands that print tables, colours and progress."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from lightrig.testbeds.escaping import escape_control


class PlainConsole(Console):
    """A console on which text is text: no markup, and control characters are escaped.

    Colours and the cursor's moves are the console's own.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with every piece of text escaped, whichever renderable it is in."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escape_control(segment.text), segment.style)


out = PlainConsole()
err = PlainConsole(stderr=True)

_PIPED = 10_000
"""Columns of a table that is piped: it has no width to be folded into."""


def print_folded(text: str) -> None:
    """Print text whole: a terminal folds it also within a long path, and a pipe does not."""
    if out.is_terminal:
        out.print(text, overflow="fold")
    else:
        out.print(text, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table whole: a terminal folds what is too wide, and a pipe has one line a row."""
    for column in table.columns:
        column.overflow = "fold"
    if out.is_terminal:
        out.print(table)
        return
    piped = PlainConsole(width=_PIPED)
    with piped.capture() as captured:
        piped.print(table)
    # Without the padding of the last column, which is as wide as its longest cell.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
