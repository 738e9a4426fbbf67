"""The trend of every quantity over nights, for each testbed, as one page."""

from collections.abc import Mapping
from pathlib import Path

from lightrig.harness.record import RecordError
from lightrig.harness.record.places import appearing
from lightrig.harness.report.nights.last_night import last_nights
from lightrig.harness.report.nights.last_night_departures import find_series_departures
from lightrig.harness.report.nights.nights_page import nights_page
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import Lab, read
from lightrig.harness.report.nights.series_changes import events, find_series_changes
from lightrig.harness.report.nights.source import Descriptions, Source
from lightrig.testbeds import Limit

__all__ = ["NIGHTS", "write_nights"]

NIGHTS = 90
"""Default number of nights that the page looks back."""


def write_nights(results: str | Path, path: Path, last: int = NIGHTS) -> Path:
    """Write the page of the `last` nights in `results` to `path`, and return that.

    Links on the page lead to `runs/<run>/report.html` beside it. Raises `RecordError` if there
    is nothing to show or the results cannot be read, `OSError` if the page cannot be written.
    """
    source = Source(results, last)
    history = read(source)
    if history is None:
        raise RecordError(f"{results}: no run has left a row yet, so there are no nights")
    with source.connected() as connection:
        descriptions = source.descriptions(connection)
        events_of_labs = events(connection, descriptions, history.first)
    found = find_series_changes(history.labs)
    departures = find_series_departures(history.labs)
    boards = [
        Board(
            index,
            history,
            lab,
            events_of_labs.get((lab.testbed, lab.simulated), ()),
            tuple(found[index]),
            tuple(departures[index]),
            _limits(lab, descriptions),
            frozenset(run for runs in lab.runs for run in runs if source.reported(run)),
        )
        for index, lab in enumerate(history.labs)
    ]
    with appearing(path) as hidden:
        hidden.write_text(nights_page(history, boards, last_nights(results)), encoding="utf-8")
    return path


def _limits(lab: Lab, descriptions: Descriptions) -> Mapping[str, Limit]:
    """The limits that the testbed stated last."""
    for runs in reversed(lab.runs):
        for run in reversed(runs):
            described = descriptions.load(lab.testbed, run)
            if described is not None:
                return described.limits
    return {}
