"""What a lab reads now, as a page that loads itself again: a file, no server."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lightrig.harness.report.live_page import write_whole
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page


@dataclass(frozen=True)
class LabPage:
    """The content of the page.

    Attributes:
        title, about: its heading, and when the values were read.
        refresh_s: after how many seconds it loads itself again, while `goes_on`.
        lost: which carrier was lost first; empty where none was.
        states: instruments that are not read now, and why.
        subjects: port or channel, its values, and when one of them changed last.
        rows: run, subject, quantity, value and age of the newest rows of runs that go on.
    """

    title: str
    about: str
    refresh_s: int
    goes_on: bool
    lost: str
    states: Sequence[tuple[str, str]]
    subjects: Sequence[tuple[str, str, str]]
    rows: Sequence[tuple[str, str, str, str, str]]


def write_lab_page(page: LabPage, path: Path) -> None:
    """Write the page to `path`, whole or not at all; raises `OSError`."""
    text = render_page("lab_page", style=style(0) + page_style(), **asdict(page))
    write_whole(text, path)
