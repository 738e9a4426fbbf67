"""The trend of every quantity over nights, for each testbed, as one page."""

from collections.abc import Mapping
from pathlib import Path

from harness.record import RecordError
from harness.record.files import appearing
from harness.report.nights.board import Board
from harness.report.nights.events import events
from harness.report.nights.moved import find_moved
from harness.report.nights.page import page
from harness.report.nights.series import Lab, read
from harness.report.nights.source import Descriptions, Source
from testbeds import Limit

__all__ = ["NIGHTS", "write_nights"]

NIGHTS = 90
"""How many nights the page looks back."""


def write_nights(results: str | Path, path: Path, last: int = NIGHTS) -> Path:
    """Write the page of the `last` nights in `results` to `path`, and return that.

    Links on the page lead to `runs/<run>/report.html` beside it. Raises `RecordError` if there
    is nothing to show or the results cannot be read, `OSError` if the page cannot be written.
    """
    source = Source(results)
    with source.connected() as connection:
        history = read(connection, last)
        if history is None:
            raise RecordError(f"{results}: no run has left a row yet, so there are no nights")
        kept = source.descriptions(connection)
        happened = events(connection, kept, history.first)
    found = find_moved(history.labs)
    boards = [
        Board(
            index,
            history,
            lab,
            happened.get((lab.testbed, lab.simulated), ()),
            tuple(found[index]),
            _limits(lab, kept),
            frozenset(run for runs in lab.runs for run in runs if source.reported(run)),
        )
        for index, lab in enumerate(history.labs)
    ]
    with appearing(path) as hidden:
        hidden.write_text(page(history, boards), encoding="utf-8")
    return path


def _limits(lab: Lab, kept: Descriptions) -> Mapping[str, Limit]:
    """The limits that the testbed stated last."""
    for runs in reversed(lab.runs):
        for run in reversed(runs):
            described = kept.load(lab.testbed, run)
            if described is not None:
                return described.limits
    return {}
