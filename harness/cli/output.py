"""Exit statuses, and what commands print by; without Typer, so that `check` starts fast."""

import json
import sys
from typing import Any

from lightrig.testbeds.escaping import escape_control

NO = 1
BAD_INPUT = 2
LAB_ERROR = 3


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text with its control characters escaped, and a line feed."""
    file = sys.stderr if err else sys.stdout
    print(escape_control(text) + ("\n" if nl else ""), end="", file=file, flush=True)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")
