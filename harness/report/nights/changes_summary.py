"""The changes at the top of the nights' page: newest first, with the events of the night."""

from collections.abc import Sequence

from lightrig.harness.report.escaping import text
from lightrig.harness.report.markup import LEGEND, SIMULATED, mark, number_of
from lightrig.harness.report.nights.lab_section import (
    after,
    anchor,
    before,
    changed_item,
    fold,
    searched,
    slope,
)
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import Series
from lightrig.harness.report.nights.series_changes import ERROR, ChangeGroup, SeriesChange
from lightrig.harness.report.nights.trend_figures import far
from lightrig.harness.statistics.changes import Change
from lightrig.testbeds import format_share

_MOST_GROUPS, _MOST_ROWS, _MOST_DRIFTS = 12, 6, 12


def summary(boards: Sequence[Board]) -> str:
    """Return all changes and drifts of the page, with links to their figures."""
    found = [(board, group) for board in boards for group in board.change_groups]
    found.sort(key=lambda pair: (-pair[1].night, pair[0].index))
    drifts = [(board, one) for board in boards for one in board.moved if one.drift]
    tried = sum(len(board.lab.series) for board in boards)
    about = (
        "A change of level between nights that is greater than the variation of nights. "
        f"{number_of(tried, 'series was', 'series were')} tested; where nothing changes, the "
        f"probability of any mark on this page is {format_share(ERROR)}."
    )
    listed = [_group(board, group) for board, group in found]
    older = number_of(len(listed) - _MOST_GROUPS, "night before", "nights before")
    groups = _folded(listed, _MOST_GROUPS, older) or "<p>No change was found.</p>"
    if not listed and any(board.departures for board in boards):
        groups = (
            "<p>No change was found in the nights before the last. A level that is new in the last "
            "night is above; it is listed here once later nights confirm it.</p>"
        )
    simulated = any(board.lab.simulated for board in boards)
    legend = f"<p>{SIMULATED}: {LEGEND}</p>" if simulated else ""
    return (
        '<section class="lr-head" id="changed"><h2 class="lr-h2">What changed</h2>'
        f'<p class="lr-about">{text(about)}</p>{groups}'
        f"{_drifts(drifts)}{legend}</section>"
    )


def _group(board: Board, group: ChangeGroup) -> str:
    by_quantity: dict[str, list[tuple[Series, Change]]] = {}
    for series, change in group.changes:
        by_quantity.setdefault(series.quantity, []).append((series, change))
    names = [q.name for q in board.quantities if q.name in by_quantity]
    rows = [_changed(board, by_quantity[name]) for name in names]
    more = number_of(len(rows) - _MOST_ROWS, "more quantity", "more quantities")
    changes = _folded(rows, _MOST_ROWS, more, '<ul class="ln-changes">', "</ul>")
    events = "".join(f"<li>{text(event.text)}</li>" for event in group.events)
    events_too = f'<p class="lr-about">New the same night:</p><ul>{events}</ul>' if events else ""
    terms = searched([board.lab.testbed], names, (series.subject for series, _ in group.changes))
    return (
        f'<article class="ln-group" data-lab="{board.index}" data-words="{terms}">'
        f'<h3 class="ln-when"><time>{board.history.date(group.night)}</time> '
        f'<a href="#{anchor(board.index)}">{text(board.lab.testbed)}</a> '
        f"{mark(board.lab.simulated)}</h3>{events_too}{changes}</article>"
    )


def _folded(items: Sequence[str], most: int, more: str, start: str = "", end: str = "") -> str:
    """Return the first `most` items, and the rest in a fold titled `more`."""
    shown = f"{start}{''.join(items[:most])}{end}" if items else ""
    if len(items) > most:
        shown += f"<details><summary>{more}</summary>{start}{''.join(items[most:])}{end}</details>"
    return shown


def _changed(board: Board, found: Sequence[tuple[Series, Change]]) -> str:
    """Return one quantity: the series with the greatest change, and the number of the rest."""
    series, change = max(found, key=lambda pair: abs(pair[1].after - pair[1].before))
    levels = before(change, series.unit), f"<span>{after(change, series.unit)}</span>"
    by = far(change.before, change.after, series.unit)
    return changed_item(board, series, len(found) - 1, levels, by, change.p)


def _drifts(found: Sequence[tuple[Board, SeriesChange]]) -> str:
    if not found:
        return ""
    items = [
        f"<li><span>{text(board.lab.testbed)} "
        f'{mark(board.lab.simulated)} <a href="#{text(fold(board.index, one.series.quantity))}">'
        f"{text(one.series.quantity)}</a></span><span>{text(one.series.subject)} "
        f'<span class="lr-with">{text(one.series.case)}</span></span>'
        f"<span>{slope(one.drift, one.series.unit)}</span></li>"
        for board, one in found
        if one.drift is not None
    ]
    more = f"{len(items) - _MOST_DRIFTS:,} more"
    return (
        '<h3 class="ln-when">Drifts</h3><p class="lr-about">A slow change over all nights; '
        "random variation can look alike.</p>"
        + _folded(items, _MOST_DRIFTS, more, '<ul class="ln-changes">', "</ul>")
    )
