"""One lab on the nights' page: its nights and events, then a fold for each quantity."""

from collections.abc import Iterable, Iterator

import numpy as np

from lightrig.harness.quantities import quantity_of
from lightrig.harness.report.escaping import text
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.markup import mark, number, number_of
from lightrig.harness.report.nights.overview import Board, Quantity
from lightrig.harness.report.nights.series import MEDIAN_NEEDS, Series
from lightrig.harness.report.nights.series_changes import SeriesChange
from lightrig.harness.report.nights.trend_figures import layers, letters, overview, spark, trend
from lightrig.harness.report.units import shown, span
from lightrig.harness.statistics.changes import Change, Trend
from lightrig.testbeds import format_share


def anchor(lab: int, series: int | None = None) -> str:
    """Return the id of a lab's section or, with the number of a series, of its figure."""
    return f"n{lab}" if series is None else f"n{lab}-{series}"


def fold(lab: int, quantity: str) -> str:
    """Return the id of a quantity at a lab."""
    return f"n{lab}-{quantity}"


def searched(*parts: Iterable[str]) -> str:
    """Return the terms that the filter finds an element by, as the value of an attribute."""
    return text(" ".join(dict.fromkeys(term for part in parts for term in part)).lower())


def _level(value: float, lower: float, upper: float, unit: str) -> str:
    """Return a level with its interval, as markup."""
    value_shown = shown(value, unit)
    return (
        f"<b>{text(value_shown)}</b> "
        f'<span class="lr-with">({text(span(lower, upper, unit, value_shown))})</span>'
    )


def before(change: Change, unit: str) -> str:
    """Return the level before a change."""
    return _level(change.before, change.before_lower, change.before_upper, unit)


def after(change: Change, unit: str) -> str:
    """Return the level after a change."""
    return _level(change.after, change.after_lower, change.after_upper, unit)


def slope(drift: Trend, unit: str) -> str:
    """Return the drift of a level in a night, as markup."""
    of = "dB" if unit == "dBm" else unit
    return f"{_level(drift.per_night, drift.lower, drift.upper, of)} a night, {chance(drift.p)}"


def changed_item(
    board: Board, series: Series, more: int, levels: tuple[str, str], by: str, p: float
) -> str:
    """Return a changed quantity as an item of a list, with links to its figures.

    series: whose change is shown, of a quantity with `more` others that changed. levels: its
    values before and after, as markup. by: the change, as text. p: its `chance`.
    """
    where, number = text(series.subject), board.number(series)
    if number is not None:
        where = f'<a href="#{anchor(board.index, number)}">{where}</a>'
    of_more = f" and {more} more" if more else ""
    before_it, after_it = levels
    return (
        f'<li><a href="#{text(fold(board.index, series.quantity))}">{text(series.quantity)}</a>'
        f'<span>{where}{of_more} <span class="lr-with">{text(series.case)}</span></span>'
        f'<span class="ln-levels"><span>{before_it}</span> → {after_it}</span>'
        f'<span><span class="ln-by">{text(by)}</span> '
        f'<span class="lr-with">{chance(p)}</span></span></li>'
    )


def chance(p: float) -> str:
    """Return a p value as text with one digit."""
    return f"p = {p:.0e}" if p > 1e-99 else "p < 1e-99"


# --------------------------------------------------------------------------------- a lab


def lab_section(board: Board) -> str:
    """Return the lab as a section of the page."""
    lab = board.lab
    measured = sum(map(bool, lab.runs))
    facts = (
        f"{number_of(measured, 'night')} of {board.history.nights} with data, "
        f"{number_of(sum(map(len, lab.runs)), 'run')}, {len(lab.series):,} series of "
        f"{number_of(len(board.quantities), 'quantity', 'quantities')}"
    )
    return (
        f'<section class="lr-card ln-lab" id="{anchor(board.index)}" data-lab="{board.index}">'
        f'<h2 class="lr-h2">{text(lab.testbed)} {mark(lab.simulated)}</h2><p>{text(facts)}</p>'
        f"{_events(board)}{_nights(board)}"
        f"{''.join(_quantity(board, one) for one in board.quantities)}</section>"
    )


def _events(board: Board) -> str:
    if not board.events:
        return ""
    items = "".join(
        f'<li><b class="ln-letter">{letter}</b> <time>{board.history.date(event.night)}</time> '
        f"{text(event.text)}</li>"
        for letter, event in zip(letters(len(board.events)), board.events, strict=True)
    )
    return f'<ul class="ln-events" aria-label="Events">{items}</ul>'


def _nights(board: Board) -> str:
    """Return every night with its runs, the last one first, empty nights included."""
    items = []
    for night in range(board.history.nights - 1, -1, -1):
        runs = board.lab.runs[night]
        links = ", ".join(_run(board, run) for run in runs) or '<span class="lr-few">no data</span>'
        items.append(f"<li><time>{board.history.date(night)}</time> {links}</li>")
    return (
        f'<details class="ln-nights"><summary>Nights and their runs</summary>'
        f"<ol>{''.join(items)}</ol></details>"
    )


def _run(board: Board, run: str) -> str:
    if run not in board.reported:
        return text(run)
    return f'<a href="runs/{text(run)}/report.html">{text(run)}</a>'


# ----------------------------------------------------------------------------- a quantity


def _quantity(board: Board, quantity: Quantity) -> str:
    marks = sorted({change.index for one in quantity.moved for change in one.changes})
    drifts = sum(one.drift is not None for one in quantity.moved)
    changed = sum(bool(one.changes) for one in quantity.moved)
    chips = f'<span class="ln-chip">{changed:,} changed</span>' if changed else ""
    chips += f'<span class="ln-chip ln-drifts">{drifts:,} drifting</span>' if drifts else ""
    subjects = quantity.subjects
    terms = searched([board.lab.testbed, quantity.name], subjects)
    meaning = quantity_of(quantity.name, quantity.series[0].unit).meaning
    about = f'<p class="lr-about">{text(meaning)}</p>' if meaning else ""
    of = number_of(len(quantity.series), "series", "series")
    return (
        f'<details class="ln-quantity" id="{text(fold(board.index, quantity.name))}" '
        f'data-words="{terms}"{" data-moved" if quantity.moved else ""}>'
        f"<summary><b>{text(quantity.name).replace('.', '.<wbr>')}</b>"
        f"{spark(quantity.series, marks)}"
        f'<span class="lr-with">{_last_of_all(quantity)}median of {of}</span>'
        f"<span>{chips}</span></summary>"
        f"{about}"
        f'<div class="ln-figures">{"".join(_figures(board, quantity))}</div>'
        f"{_left_out(quantity)}</details>"
    )


def _last_of_all(quantity: Quantity) -> str:
    """Return the middle one of the medians in the newest night that has one."""
    middle = layers(quantity.series)[2]
    nights = np.flatnonzero(np.isfinite(middle))
    if not nights.size:
        return ""
    return f"<b>{text(shown(float(middle[nights[-1]]), quantity.series[0].unit))}</b> "


def _left_out(quantity: Quantity) -> str:
    undrawn = quantity.moved[len([one for _, one in quantity.drawn if one]) :]
    if not undrawn:
        return ""
    items = "".join(
        f'<li>{text(one.series.subject)} <span class="lr-with">{text(one.series.case)}</span></li>'
        for one in undrawn
    )
    summary = f"{len(undrawn):,} more changed series"
    return f"<details><summary>{summary}, not drawn</summary><ul>{items}</ul></details>"


def _figures(board: Board, quantity: Quantity) -> Iterator[str]:
    if len(quantity.series) > len(quantity.drawn):
        drawn = overview(board.history, quantity.series)
        title = f"All {len(quantity.series):,} series"
        about = "of each night the middle one of their medians, the middle half, and all of them"
        name = text(fold(board.index, quantity.name))
        yield (
            f'<figure data-of="{name}"><figcaption><b>{title}</b> '
            f"{mark(board.lab.simulated)}<br>{about}</figcaption>"
            f"{_selectable(drawn, title)}</figure>"
        )
    for series, moved in quantity.drawn:
        yield _figure(board, quantity, series, moved)


def _selectable(drawn: str, title: str) -> str:
    """Return a drawing in which nights are selected by pointer or arrow keys, and its output."""
    return (
        f'<div class="ln-plot" tabindex="0" role="group" aria-label="{text(title)}: arrow keys '
        f'choose a night">{drawn}</div><output class="ln-told lr-with">point at a night or tap it, '
        "or use the arrow keys</output>"
    )


def _figure(board: Board, quantity: Quantity, series: Series, moved: SeriesChange | None) -> str:
    limit = f"<br>limit {text(str(quantity.limit).partition(' ')[2])}" if quantity.limit else ""
    found = "".join(
        f'<br><span class="ln-by">changed <time>{board.history.date(change.index)}</time></span>: '
        f"{before(change, series.unit)} → {after(change, series.unit)}, {chance(change.p)}"
        for change in (moved.changes if moved else ())
    )
    if moved and moved.drift:
        found += f'<br><span class="ln-drifts">drifts</span> by {slope(moved.drift, series.unit)}'
    drawn = trend(board.history, series, moved, board.events, quantity.limit)
    name = anchor(board.index, board.number(series))
    return (
        f'<figure id="{name}" data-of="{name}">'
        f"<figcaption><b>{text(series.subject)}</b> {text(series.case)} "
        f"{mark(board.lab.simulated)}<br>{_last(board, series)}{found}{limit}</figcaption>"
        f"{_selectable(drawn, f'{series.quantity} of {series.subject}')}</figure>"
    )


def _last(board: Board, series: Series) -> str:
    """Return the last night's median with its context."""
    night = series.last
    n, value = int(series.n[night]), shown(float(series.median[night]), series.unit)
    ends = span(float(series.lower[night]), float(series.upper[night]), series.unit, value)
    kind = f"{format_share(CONFIDENCE)} interval" if n >= MEDIAN_NEEDS else "all within"
    simulated = "simulated" if board.lab.simulated else ""
    of = f"median of {n:,}"
    return f"{board.history.date(night)}: {number(value, (of, f'{kind} {ends}', simulated))}"
