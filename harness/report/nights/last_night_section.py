"""The first section of the nights' page: how the last night ended, and what is new in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightrig.harness.report.escaping import text
from lightrig.harness.report.markup import mark, number_of
from lightrig.harness.report.nights.lab_section import changed_item
from lightrig.harness.report.nights.last_night import INCONCLUSIVE, Ended, LastNight
from lightrig.harness.report.nights.last_night_departures import SeriesDeparture
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.trend_figures import far
from lightrig.harness.report.units import shown

_MOST = 12
"""Most tests of one testbed that are listed unfolded."""
_MOST_DEPARTURES = 2
"""Most quantities of one testbed that are listed unfolded."""


def section(found: Sequence[LastNight], boards: Sequence[Board]) -> str:
    """Return the last night of all testbeds as the page's first section.

    found: those of which runs are here. boards: the labs of the page, with their departures; a
    testbed of which only rows are here is shown with these alone.
    """
    by_testbed: dict[str, list[Board]] = {}
    for board in boards:
        by_testbed.setdefault(board.lab.testbed, []).append(board)
    known = {one.testbed for one in found}
    articles = [(_urgency(one, by_testbed.get(one.testbed, ())), one, "") for one in found]
    only_rows = [
        ((0, -_departed(labs), name), None, name)
        for name, labs in by_testbed.items()
        if name not in known and _departed(labs)
    ]
    if not articles and not only_rows:
        return ""
    newest = max((one.night for one in found), default="")
    alike = sorted(name for name in by_testbed.keys() - known if not _departed(by_testbed[name]))
    rest = f"<p>As in the nights before: {text(', '.join(alike))}.</p>" if alike else ""
    body = "".join(
        _article(one, newest, by_testbed.get(one.testbed, ()))
        if one is not None
        else _rows_alone(by_testbed[name])
        for _, one, name in sorted([*articles, *only_rows], key=lambda each: each[0])
    )
    return (
        '<section class="lr-head" id="last-night"><h2 class="lr-h2">Last night</h2>'
        f"{body}{rest}</section>"
    )


def _urgency(one: LastNight, labs: Sequence[Board]) -> tuple[int, int, str]:
    """Return a sort key: failed tests first, then departures."""
    return -sum(each.failed for each in one.problems), -_departed(labs), one.testbed


def _departed(labs: Sequence[Board]) -> int:
    return sum(len(board.departures) for board in labs)


def _article(one: LastNight, newest: str, labs: Sequence[Board]) -> str:
    verdicts = "".join(
        f'<span class="lr-verdict lr-{kind}">{number:,} {outcome}</span> '
        for outcome, kind in (
            ("failed", "fail"), ("error", "fail"), ("xpassed", "fail"), (INCONCLUSIVE, "not"),
            ("passed", "pass"), ("skipped", "not"), ("xfailed", "not"),
        )
        if (number := one.counts.get(outcome, 0))
    )  # fmt: skip
    late = ""
    if one.not_run is not None:
        night, reason = one.not_run
        late = (
            f'<p class="lr-warn" role="alert">It was not run on {text(night)}: {text(reason)}</p>'
        )
    elif one.night < newest:
        late = f"<p>It was not measured on {text(newest)}.</p>"
    for run, state in one.unfinished.items():
        late += f'<p class="lr-warn" role="alert">{_link(one, run)}: {text(state)}</p>'
    items = [_problem(one, each) for each in one.problems]
    listed = _list("ln-problems", items, _MOST, f"{len(items) - _MOST:,} more")
    mended = ", ".join(map(text, one.mended))
    return (
        f'<article><h3 class="ln-when"><time>{text(one.night)}</time> '
        f"{text(one.testbed)} {mark(one.simulated)} {verdicts}</h3>{late}{listed}"
        + (f"<p>Passed again since the night before: {mended}</p>" if mended else "")
        + "".join(_departures(board) for board in labs)
        + "</article>"
    )


def _rows_alone(labs: Sequence[Board]) -> str:
    """Return a testbed whose runs are elsewhere: what departs, without outcomes of tests."""
    board = labs[0]
    return (
        f'<article><h3 class="ln-when"><time>{_last(board)}</time> {text(board.lab.testbed)} '
        f"{mark(any(each.lab.simulated for each in labs))}</h3>"
        f"{''.join(map(_departures, labs))}</article>"
    )


def _last(board: Board) -> str:
    night = max(night for night, runs in enumerate(board.lab.runs) if runs)
    return str(board.history.date(night))


# -------------------------------------------------------------------------------- tests


def _problem(one: LastNight, each: Ended) -> str:
    kind = "fail" if each.failed else "not"
    is_new = one.known is not None and one.known.get(each.nodeid) != each.outcome
    new = '<b class="ln-by">new</b> ' if is_new else ""
    reason = f'<p class="ln-reason">{text(each.reason)}</p>' if each.reason else ""
    return (
        f'<li><span class="lr-verdict lr-{kind}">{text(each.outcome)}</span> {new}'
        f"{_link(one, each.run, each.nodeid)}{reason}</li>"
    )


def _link(one: LastNight, run: str, label: str | None = None) -> str:
    name = text(label or run)
    if run not in one.reported:
        return name
    return f'<a href="runs/{text(run)}/report.html">{name}</a>'


def _list(kind: str, items: Sequence[str], most: int, more: str) -> str:
    """Return a list of the first `most` items, and the rest in a fold titled `more`."""
    if not items:
        return ""
    listed = f'<ul class="{kind}">{"".join(items[:most])}</ul>'
    if len(items) > most:
        listed += (
            f'<details><summary>{more}</summary><ul class="{kind}">'
            f"{''.join(items[most:])}</ul></details>"
        )
    return listed


# --------------------------------------------------------------------------- departures


def _departures(board: Board) -> str:
    """Return the series that have changed, those that have departed, and what else is new."""
    changed = [one for one in board.departures if one.departure.confirmed]
    departed = [one for one in board.departures if not one.departure.confirmed]
    return _same_word(board, changed) + _same_word(board, departed)


def _same_word(board: Board, found: Sequence[SeriesDeparture]) -> str:
    if not found:
        return ""
    by_quantity: dict[str, list[SeriesDeparture]] = {}
    for one in found:
        by_quantity.setdefault(one.series.quantity, []).append(one)
    # A firmware slows several quantities: the most certain of them says most.
    ordered = sorted(by_quantity.values(), key=lambda each: min(o.departure.p for o in each))
    first = min(_since(one) for one in found)
    events = "; ".join(event.text for event in board.events if event.night >= first)
    items = [_departed_quantity(board, each) for each in ordered]
    more = number_of(len(items) - _MOST_DEPARTURES, "more quantity", "more quantities")
    nights = max(one.departure.nights for one in found)
    word = "departed, unconfirmed"
    if found[0].departure.confirmed:
        run = max(one.departure.run for one in found)
        word = f"changed since {board.history.date(first)}, {number_of(run, 'night')} in a row"
    return (
        f'<p class="ln-apart"><b class="ln-by">{word}</b>: differs from '
        f"{number_of(nights, 'night')} before"
        f"{f'; new since then: {text(events)}' if events else ''}</p>"
        f"{_list('ln-changes', items, _MOST_DEPARTURES, more)}"
    )


def _since(one: SeriesDeparture) -> int:
    """Return the first night in a row that departs."""
    measured = np.flatnonzero(np.isfinite(one.series.level))
    return int(measured[-one.departure.run])


def _departed_quantity(board: Board, found: Sequence[SeriesDeparture]) -> str:
    worst = min(found, key=lambda one: one.departure.p)
    series, departure = worst.series, worst.departure
    level = f"<b>{text(shown(departure.level, series.unit))}</b>"
    levels = text(shown(departure.before, series.unit)), level
    by = far(departure.before, departure.level, series.unit)
    return changed_item(board, series, len(found) - 1, levels, by, departure.p)
