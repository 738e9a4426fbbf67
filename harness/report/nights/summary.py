"""What changed, on top of the nights' page: newest first, with what else was new that night."""

from collections.abc import Sequence

from harness.report.markup import LEGEND, SIMULATED, mark, text
from harness.report.nights.board import Board
from harness.report.nights.figures import far
from harness.report.nights.moved import ERROR, Moved, Occasion
from harness.report.nights.series import Series
from harness.report.nights.words import after, anchor, before, chance, count, fold, searched, slope
from harness.statistics.changes import Change
from testbeds import format_share

_MOST_OCCASIONS, _MOST_ROWS, _MOST_DRIFTS = 12, 6, 12


def summary(boards: Sequence[Board]) -> str:
    """All changes and drifts of the page, with links to their figures."""
    found = [(board, occasion) for board in boards for occasion in board.occasions]
    found.sort(key=lambda pair: (-pair[1].night, pair[0].index))
    drifts = [(board, one) for board in boards for one in board.moved if one.drift]
    tried = sum(len(board.lab.series) for board in boards)
    about = (
        "A level that is another from one night to the next, by more than nights differ from "
        f"each other. {count(tried, 'series was', 'series were')} tried; where nothing changes, "
        f"anything is marked on this page with a chance of {format_share(ERROR)}."
    )
    listed = [_occasion(board, occasion) for board, occasion in found]
    older = count(len(listed) - _MOST_OCCASIONS, "night before", "nights before")
    told = _folded(listed, _MOST_OCCASIONS, older) or "<p>Nothing did.</p>"
    simulated = any(board.lab.simulated for board in boards)
    legend = f"<p>{SIMULATED}: {LEGEND}</p>" if simulated else ""
    return (
        '<section class="lr-head" id="changed"><h2 class="lr-h2">What changed</h2>'
        f'<p class="lr-about">{text(about)}</p>{told}'
        f"{_drifts(drifts)}{legend}</section>"
    )


def _occasion(board: Board, occasion: Occasion) -> str:
    by_quantity: dict[str, list[tuple[Series, Change]]] = {}
    for series, change in occasion.changes:
        by_quantity.setdefault(series.quantity, []).append((series, change))
    names = [q.name for q in board.quantities if q.name in by_quantity]
    rows = [_changed(board, by_quantity[name]) for name in names]
    more = count(len(rows) - _MOST_ROWS, "more quantity", "more quantities")
    told = _folded(rows, _MOST_ROWS, more, '<ul class="ln-changes">', "</ul>")
    events = "".join(f"<li>{text(event.text)}</li>" for event in occasion.events)
    beside = f'<p class="lr-about">New the same night:</p><ul>{events}</ul>' if events else ""
    words = searched([board.lab.testbed], names, (series.subject for series, _ in occasion.changes))
    return (
        f'<article class="ln-occasion" data-lab="{board.index}" data-words="{words}">'
        f'<h3 class="ln-when"><time>{board.history.date(occasion.night)}</time> '
        f'<a href="#{anchor(board.index)}">{text(board.lab.testbed)}</a> '
        f"{mark(board.lab.simulated)}</h3>{beside}{told}</article>"
    )


def _folded(items: Sequence[str], most: int, more: str, start: str = "", end: str = "") -> str:
    """The first `most` of the items, and the others in a fold that says how many `more`."""
    told = f"{start}{''.join(items[:most])}{end}" if items else ""
    if len(items) > most:
        told += f"<details><summary>{more}</summary>{start}{''.join(items[most:])}{end}</details>"
    return told


def _changed(board: Board, found: Sequence[tuple[Series, Change]]) -> str:
    """One quantity: the series that went farthest, and how many others did."""
    series, change = max(found, key=lambda pair: abs(pair[1].after - pair[1].before))
    where, number = text(series.subject), board.number(series)
    if number is not None:
        where = f'<a href="#{anchor(board.index, number)}">{where}</a>'
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    quantity = text(fold(board.index, series.quantity))
    return (
        f'<li><a href="#{quantity}">{text(series.quantity)}</a><span>{where}{others} '
        f'<span class="lr-with">{text(series.case)}</span></span>'
        f'<span class="ln-levels"><span>{before(change, series.unit)}</span> → '
        f"<span>{after(change, series.unit)}</span></span>"
        f'<span><span class="ln-by">{text(far(change.before, change.after, series.unit))}</span> '
        f'<span class="lr-with">{chance(change.p)}</span></span></li>'
    )


def _drifts(found: Sequence[tuple[Board, Moved]]) -> str:
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
        '<h3 class="ln-when">What drifts</h3><p class="lr-about">Slowly, all the time; nights '
        "that wander can seem to.</p>"
        + _folded(items, _MOST_DRIFTS, more, '<ul class="ln-changes">', "</ul>")
    )
