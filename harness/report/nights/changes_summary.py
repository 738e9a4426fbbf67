"""The changes at the top of the nights' page: newest first, with the events of the night."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lightrig.harness.report.markup import number_of
from lightrig.harness.report.nights.lab_section import (
    ChangedItem,
    after,
    before,
    chance,
    searched,
    slope,
)
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import NightSeries
from lightrig.harness.report.nights.series_changes import ERROR, ChangeGroup, tried
from lightrig.harness.report.nights.trend_figures import far
from lightrig.harness.report.templates import render_macro
from lightrig.harness.statistics.changes import FEWEST_NIGHTS, LevelChange
from lightrig.testbeds import format_share


def summary(boards: Sequence[Board]) -> Markup:
    """Return all changes and drifts of the page, with links to their figures."""
    found = [(board, group) for board in boards for group in board.change_groups]
    found.sort(key=lambda pair: (-pair[1].night, pair[0].index))
    drifts = [
        (board, one.series, slope(one.drift, one.series.unit))
        for board in boards
        for one in board.moved
        if one.drift
    ]
    tested = tried(board.lab for board in boards)
    about = (
        "A change of level between nights that is greater than the variation of nights. "
        f"{number_of(tested, 'series was', 'series were')} tested; where nothing changes, the "
        f"probability of any mark on this page is {format_share(ERROR)}."
    )
    if not tested:
        about = f"No series has the {FEWEST_NIGHTS} nights that a change of level needs."
    groups = [(board, _group(board, group)) for board, group in found]
    departed = any(board.departures for board in boards)
    simulated = any(board.lab.simulated for board in boards)
    return render_macro("nights/changes", "changes", about, groups, drifts, departed, simulated)


def _group(board: Board, group: ChangeGroup) -> Mapping[str, object]:
    """Return what the template `nights/changes` shows of a group, by its names there."""
    by_quantity: dict[str, list[tuple[NightSeries, LevelChange]]] = {}
    for series, change in group.changes:
        by_quantity.setdefault(series.quantity, []).append((series, change))
    names = [q.name for q in board.quantities if q.name in by_quantity]
    subjects = (series.subject for series, _ in group.changes)
    return {
        "night": group.night,
        "events": group.events,
        "items": [_changed(by_quantity[name]) for name in names],
        "terms": searched([board.lab.testbed], names, subjects),
    }


def _changed(found: Sequence[tuple[NightSeries, LevelChange]]) -> ChangedItem:
    """Return one quantity: the series with the greatest change, and the number of the rest."""
    series, change = max(found, key=lambda pair: abs(pair[1].after - pair[1].before))
    levels = before(change, series.unit), after(change, series.unit)
    by = far(change.before, change.after, series.unit)
    return ChangedItem(series, len(found) - 1, *levels, by, chance(change.p))
