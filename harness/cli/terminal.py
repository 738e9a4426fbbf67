"""The terminal of commands that print tables, colours and progress."""

from rich.console import Console

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
