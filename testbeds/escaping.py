"""Text from outside on its way to a terminal, a log, a CSV file or a page.

What an instrument, a file or a person elsewhere names may hold the sequences by which programs
change a terminal's title, clear it, or show text in another order than it is read.
"""

from __future__ import annotations

import re

_UNSHOWN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and line feed, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # direction of writing, line separators
    "\ud800-\udfff"  # bytes of file names that are no UTF-8
)
_CONTROL = re.compile(f"[{_UNSHOWN}]")
_CONTROL_OF_A_LINE = re.compile(f"[{_UNSHOWN}\t\n]")
_FORMULA = ("=", "+", "-", "@")


def escape_control(text: str) -> str:
    r"""Return text whose control characters are shown in Python's notation, such as `\x1b`.

    Tab and line feed stay. Escaping twice changes nothing more.
    """
    return _CONTROL.sub(_notation, text)


def escape_line(text: str) -> str:
    """Return text as `escape_control`, with tabs and line feeds escaped too."""
    return _CONTROL_OF_A_LINE.sub(_notation, text)


def escape_cell(text: str) -> str:
    """Return text for a cell of a CSV file: control characters escaped, and never a formula.

    Spreadsheets compute what begins with =, +, - or @; an apostrophe before makes it text.
    """
    shown = escape_line(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _notation(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
