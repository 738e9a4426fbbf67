"""The first section of the nights' page: how the last night ended, and what is new in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

import numpy as np
from markupsafe import Markup

from lightrig.harness.report.markup import number_of
from lightrig.harness.report.nights.lab_section import ChangedItem, Level, chance
from lightrig.harness.report.nights.last_night import LastNight
from lightrig.harness.report.nights.last_night_departures import SeriesDeparture, Word
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import OF_THE_NIGHT
from lightrig.harness.report.nights.trend_figures import far
from lightrig.harness.report.templates import render_macro
from lightrig.harness.report.units import shown


class _Departures(NamedTuple):
    """Series of one lab that depart alike, by quantity, and what else is new since the first."""

    word: str
    nights: int
    events: str
    quantities: Sequence[ChangedItem]


def section(found: Sequence[LastNight], boards: Sequence[Board]) -> Markup:
    """Return the last night of all testbeds as the page's first section.

    found: those of which runs are here. boards: the labs of the page, with their departures; a
    testbed of which only rows are here is shown with these alone.
    """
    by_testbed: dict[str, list[Board]] = {}
    for board in boards:
        by_testbed.setdefault(board.lab.testbed, []).append(board)
    known = {one.testbed for one in found}
    listed: list[tuple[tuple[int, int, str], LastNight | None, Sequence[Board]]] = []
    for one in found:
        labs = by_testbed.get(one.testbed, ())
        listed.append((_urgency(one, labs), one, labs))
    listed += [
        ((0, -_departed(labs), name), None, labs)
        for name, labs in by_testbed.items()
        if name not in known and _departed(labs)
    ]
    notes = sorted({board.unreadable for board in boards if board.unreadable})
    if not listed and not notes:
        return Markup()
    newest = max((one.night for one in found), default="")
    alike = sorted(name for name in by_testbed.keys() - known if not _departed(by_testbed[name]))
    articles = [
        (one, "" if one else _last(labs[0]), [(lab, list(_departures(lab))) for lab in labs])
        for _, one, labs in sorted(listed, key=lambda each: each[0])
    ]
    return render_macro("nights/last_night", "last_night", articles, newest, alike, notes)


def _urgency(one: LastNight, labs: Sequence[Board]) -> tuple[int, int, str]:
    """Return a sort key: failed tests first, then departures."""
    return -sum(each.failed for each in one.problems), -_departed(labs), one.testbed


def _departed(labs: Sequence[Board]) -> int:
    return sum(len(board.departures) for board in labs)


def _last(board: Board) -> str:
    night = max(night for night, runs in enumerate(board.lab.runs) if runs)
    return str(board.history.date(night))


def _departures(board: Board) -> Iterator[_Departures]:
    """Yield the series that break a guard, that have changed, and that have departed."""
    outcomes: tuple[Word, ...] = get_args(Word)
    for word in outcomes:
        found = [one for one in board.departures if one.word == word]
        if not found:
            continue
        first = min(_since(one) for one in found)
        title: str = word
        if word == "changed":
            run = max(one.departure.run for one in found)
            title = f"changed since {board.history.date(first)}, {number_of(run, 'night')} in a row"
        by_quantity: dict[str, list[SeriesDeparture]] = {}
        for one in found:
            by_quantity.setdefault(one.series.quantity, []).append(one)
        # A firmware slows several quantities: the most certain of them says most.
        ordered = sorted(by_quantity.values(), key=lambda each: min(o.departure.p for o in each))
        yield _Departures(
            title,
            max(one.departure.nights for one in found),
            "; ".join(event.text for event in board.events if event.night >= first),
            [_departed_quantity(each) for each in ordered],
        )


def _since(one: SeriesDeparture) -> int:
    """Return the first night in a row that departs."""
    measured = np.flatnonzero(np.isfinite(one.series.level))
    return int(measured[-one.departure.run])


def _departed_quantity(found: Sequence[SeriesDeparture]) -> ChangedItem:
    worst = min(found, key=lambda one: one.departure.p)
    series, departure = worst.series, worst.departure
    of = "" if series.statistic == "median" else f"{OF_THE_NIGHT[series.statistic]} "
    levels = (
        Level(of + shown(departure.before, series.unit)),
        Level(shown(departure.level, series.unit)),
    )
    by = far(departure.before, departure.level, series.unit)
    why = worst.guard or chance(departure.p)
    return ChangedItem(series, len(found) - 1, *levels, by, why)
