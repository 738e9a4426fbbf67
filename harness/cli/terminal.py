"""The terminal of commands that print tables, colours and progress."""

from rich.console import Console
from rich.table import Table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_PIPED = 10_000
"""Columns of a table that is piped: it has no width to be folded into."""


def print_folded(text: str) -> None:
    """Print text whole: a terminal folds it also within a long path, and a pipe does not."""
    if out.is_terminal:
        out.print(text, markup=False, overflow="fold")
    else:
        out.print(text, markup=False, soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table whole: a terminal folds what is too wide, and a pipe has one line a row."""
    for column in table.columns:
        column.overflow = "fold"
    (out if out.is_terminal else Console(width=_PIPED, highlight=False)).print(table)
