"""One lab on the nights' page: its nights and events, then a fold for each quantity."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from lightrig.harness.quantities.quantity import Quantity as Declared
from lightrig.harness.quantities.registry import is_of_harness, quantity_of
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.markup import number_of
from lightrig.harness.report.nights.overview import Board, Quantity
from lightrig.harness.report.nights.series import MEDIAN_NEEDS, NightSeries
from lightrig.harness.report.nights.series_changes import SeriesChange
from lightrig.harness.report.nights.trend_figures import layers, letters, overview, spark, trend
from lightrig.harness.report.templates import render_macro
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.changes import LevelChange, Trend
from lightrig.testbeds import format_share
from lightrig.testbeds.intervals import interval


class Level(NamedTuple):
    """A level of a series as text, and the ends of its interval, empty where it has none."""

    value: str
    ends: str = ""


def _level(value: float, lower: float, upper: float, unit: str) -> Level:
    written = interval(lower, upper, unit, value)
    return Level(written.value, written.ends)


def before(change: LevelChange, unit: str) -> Level:
    """Return the level before a change."""
    return _level(change.before, change.before_lower, change.before_upper, unit)


def after(change: LevelChange, unit: str) -> Level:
    """Return the level after a change."""
    return _level(change.after, change.after_lower, change.after_upper, unit)


class Drift(NamedTuple):
    """The drift of a level in a night, and its p value as text."""

    level: Level
    chance: str


def slope(drift: Trend, unit: str) -> Drift:
    """Return the drift of a level in a night."""
    of = "dB" if unit == "dBm" else unit
    return Drift(_level(drift.per_night, drift.lower, drift.upper, of), chance(drift.p))


class ChangedItem(NamedTuple):
    """A changed quantity in a list, shown by one of its series.

    Attributes:
        more: the number of its other series that changed.
        by: the change as text.
        chance: its p value as text.
    """

    series: NightSeries
    more: int
    before: Level
    after: Level
    by: str
    chance: str


def searched(*parts: Iterable[str]) -> str:
    """Return the terms that the filter of the page finds an element by."""
    return " ".join(dict.fromkeys(term for part in parts for term in part)).lower()


def chance(p: float) -> str:
    """Return a p value as text with one digit."""
    return f"p = {p:.0e}" if p > 1e-99 else "p < 1e-99"


# --------------------------------------------------------------------------------- a lab


def lab_section(board: Board) -> Markup:
    """Return the lab as a section of the page."""
    lab = board.lab
    measured = sum(map(bool, lab.runs))
    facts = (
        f"{number_of(measured, 'night')} of {board.history.nights} with data, "
        f"{number_of(sum(map(len, lab.runs)), 'run')}, {len(lab.series):,} series of "
        f"{number_of(len(board.quantities), 'quantity', 'quantities')}"
    )
    events = [*zip(letters(len(board.events)), board.events, strict=True)]
    found: dict[bool, list[Mapping[str, object]]] = {True: [], False: []}
    for one in board.quantities:
        found[is_of_harness(one.name, one.series[0].unit)].append(_quantity(board, one))
    return render_macro("nights/lab", "lab", board, facts, events, found[False], found[True])


# ----------------------------------------------------------------------------- a quantity


def _quantity(board: Board, quantity: Quantity) -> Mapping[str, object]:
    """Return what the template `nights/lab` shows of a quantity, by its names there."""
    marks = sorted({change.index for one in quantity.moved for change in one.changes})
    undrawn = quantity.moved[len([one for _, one in quantity.drawn if one]) :]
    many = len(quantity.series) > len(quantity.drawn)
    declared = quantity_of(quantity.name, quantity.series[0].unit)
    return {
        "name": board.fold(quantity.name),
        "title": quantity.name,
        "short": _short(declared),
        "terms": searched([board.lab.testbed, quantity.name], quantity.subjects),
        "moved": quantity.moved,
        "changed": sum(bool(one.changes) for one in quantity.moved),
        "drifts": sum(one.drift is not None for one in quantity.moved),
        "series": quantity.series,
        "meaning": declared.meaning,
        "last": _last_of_all(quantity),
        "spark": spark(quantity.series, marks),
        "overview": overview(board.history, quantity.series) if many else "",
        "figures": [_figure(board, quantity, *each) for each in quantity.drawn],
        "undrawn": [one.series for one in undrawn],
    }


def _short(declared: Declared) -> str:
    """Return the title of a quantity whose name does not say it; else nothing."""
    plain = declared.name.rpartition(".")[2].replace("_", " ")
    return "" if declared.title == plain else declared.title


def _last_of_all(quantity: Quantity) -> str:
    """Return the middle one of the medians in the newest night that has one."""
    middle = layers(quantity.series)[2]
    nights = np.flatnonzero(np.isfinite(middle))
    if not nights.size:
        return ""
    return shown(float(middle[nights[-1]]), quantity.series[0].unit)


def _figure(
    board: Board, quantity: Quantity, series: NightSeries, moved: SeriesChange | None
) -> Mapping[str, object]:
    """Return what the template `nights/lab` shows of a series, by its names there."""
    return {
        "name": board.anchor(board.number(series)),
        "series": series,
        "date": board.history.date(series.last),
        "last": _last(board, series),
        "changes": [
            {
                "date": board.history.date(change.index),
                "before": before(change, series.unit),
                "after": after(change, series.unit),
                "chance": chance(change.p),
            }
            for change in (moved.changes if moved else ())
        ],
        "drift": slope(moved.drift, series.unit) if moved and moved.drift else None,
        "limit": quantity.limit,
        "drawing": trend(board.history, series, moved, board.events, quantity.limit),
    }


def _last(board: Board, series: NightSeries) -> Value:
    """Return the last night's median with its context."""
    night = series.last
    n = int(series.n[night])
    lower, upper = float(series.lower[night]), float(series.upper[night])
    written = interval(lower, upper, series.unit, float(series.median[night]))
    kind = f"{format_share(CONFIDENCE)} interval" if n >= MEDIAN_NEEDS else "all within"
    simulated = "simulated" if board.lab.simulated else ""
    return Value(written.value, (f"median of {n:,}", f"{kind} {written.ends}", simulated))
