"""Transceivers that switch paths: their power, their temperature, and how fast paths change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from lightrig.harness.quantities import optical
from lightrig.harness.quantities.registry import quantity
from lightrig.harness.report.estimates import Estimate
from lightrig.harness.report.figures import Distribution, Line, curve, distribution_plot
from lightrig.harness.report.frames import TestFrame
from lightrig.harness.report.markup import median_value
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Figure,
    Figures,
    RowGroup,
    Section,
    SectionData,
    Table,
    of_quantities,
    test_column,
    verdict_column,
)
from lightrig.harness.report.units import Value, plain, shown
from lightrig.testbeds import Limit

# ---------------------------------------------------------------------------- path changes

_DARK, _END_TO_END, _DONE = "path_change.dark", "path_change.end_to_end", "path_change.done"
_TIMES = (_DARK, _END_TO_END, _DONE)

_ByQuantity = tuple[TestFrame, dict[str, Estimate]]


def _changes(data: SectionData) -> Iterator[_ByQuantity]:
    return (row for row in data.by_test(*_TIMES) if _DARK in row[1])


def _time(name: str, row: _ByQuantity) -> Cell:
    one = row[1].get(name)
    if one is None:
        return None
    return median_value(one.median, one.test.simulated), one.verdict


def _about_changes(data: SectionData) -> str:
    about = (
        "Loss of signal: from the moment when light has left a transceiver's old path until it is "
        "on the new one, by simultaneous samples of a power meter; the slowest transceiver of "
        "each change. Call to light and to acknowledgement: from the call of the driver, which "
        "reads and writes the paths or only triggers what is preloaded, until light is on all "
        "new paths, and until the transceivers have confirmed them. Times have bounds, "
        "from the meter's sample period and the stamps around each call, and no uncertainty budget."
    )
    limit = _first_limit(data)
    return about if limit is None else f"{about} Limit: {limit}."


def _first_limit(data: SectionData) -> Limit | None:
    return next((each[0].limit for each in data.estimates.values() if each[0].limit), None)


def _steps(data: SectionData) -> Iterator[Figure]:
    yield from _step_curves(data, _DARK, 1, "Loss of signal, by path", _first_limit(data))
    yield from _step_curves(data, _END_TO_END, 2, "Call to light, by session")


def _step_curves(
    data: SectionData, name: str, part: int, title: str, limit: Limit | None = None
) -> Iterator[Figure]:
    """Yield step curves over all tests, one for each value of a `part` of the subjects.

    The transceivers of one change move together: the slowest one is its sample.
    """
    bounds: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
    for test in data.frame.having(name):
        series = test.series[name]
        rows = zip(series.subject, series.event, series.lower, series.upper, strict=True)
        for subject, event, low, high in rows:
            same = bounds.setdefault(subject.split(", ")[part], {})
            change = f"{test.name} {test.label}", int(event)
            known = same.get(change, (low, high))
            same[change] = max(known[0], float(low)), max(known[1], float(high))
    if not bounds:
        return
    drawn = [
        Distribution(index, *np.array(list(same.values())).T)
        for index, same in enumerate(bounds.values())
    ]
    series_names = [
        (n, f"{label}, {len(same):,}") for n, (label, same) in enumerate(bounds.items())
    ]
    drawing = distribution_plot(drawn, limit, title)
    about = "Share of changes done by a time."
    yield Figure(title, drawing, data.frame.simulated, about, series_names, "narrow")


PATH_CHANGES = Section(
    optical.PATH_CHANGES,
    estimates=of_quantities(*_TIMES),
    shows=frozenset(_TIMES).__contains__,
    parts=(
        Table(
            "Switch times of transceivers",
            (
                Column[_ByQuantity]("test", lambda row: row[0]),
                *(Column(quantity(name).title, partial(_time, name)) for name in _TIMES),
            ),
            rows=_changes,
            about=_about_changes,
        ),
        Figures(_steps),
    ),
)


# ---------------------------------------------------------------------- power, temperature

_REGISTERS = ("module_power.core", "module_power.total", "module_temperature")


def _greatest(one: Estimate) -> Cell:
    series = one.test.series[one.quantity]
    at = int(series.value.argmax())
    half = plain(float(series.upper[at] - series.lower[at]) / 2)
    return Value(
        shown(float(series.value[at]), one.unit),
        (
            f"{series.subject[at]}, of {len(set(series.subject))} transceivers",
            f"± {half} {one.unit}: the last digit of its register",
            "simulated" if one.test.simulated else "",
        ),
    )


def _power_over_temperature(data: SectionData) -> Iterator[Figure]:
    for name in ("module_power.core", "module_power.total"):
        points = sorted(
            (float(celsius[0]), float(one.test.series[name].value.max()))
            for one in data.each(name)
            if (celsius := one.test.series[name].conditions.get("temperature_c")) is not None
        )
        if len({celsius for celsius, _ in points}) < 2:
            continue
        x, y = zip(*points, strict=True)
        limit = data.limit(name)
        title = f"{quantity(name).title} over temperature".capitalize()
        drawing = curve(
            [Line("greatest", x, y, y, y)],
            x="temperature",
            x_unit="°C",
            y_unit="W",
            label=title,
            limit=limit.value if limit else None,
        )
        legend = [(0, "the greatest of all transceivers")]
        yield Figure(title, drawing, data.frame.simulated, legend=legend)


# ------------------------------------------------------------------- counters of NIC ports

_COUNTERS = "port_counter."


class _Moved(NamedTuple):
    """Counts of one counter of one port in one test."""

    test: TestFrame
    quantity: str
    port: str
    counted: float
    is_least: bool


def _moved(data: SectionData) -> Iterator[_Moved]:
    """Yield the counters that moved, or whose count is not known, or that a limit asks for."""
    for test in data.frame.tests:
        for name, series in test.series.items():
            if not name.startswith(_COUNTERS):
                continue
            # A doubt, textual condition of its row, stands behind the port.
            unknown = np.array([bool(subject.partition(", ")[2]) for subject in series.subject])
            for place in np.flatnonzero(
                (series.value > 0) | unknown | (data.limit(name) is not None)
            ):
                port = series.subject[place].partition(", ")[0]
                value = float(series.value[place])
                yield _Moved(test, name, port, value, bool(unknown[place]))


_PORT_COUNTERS = Table(
    "Counters that moved",
    (
        Column[_Moved]("test", lambda one: one.test.label),
        Column[_Moved]("counter", lambda one: quantity(one.quantity).title),
        Column[_Moved]("port", lambda one: one.port),
        Column[_Moved](
            "counted", lambda one: f"{'at least ' if one.is_least else ''}{one.counted:,.0f}"
        ),
    ),
    rows=_moved,
    about="Differences of the counters of NIC ports between a reading after each test and the one "
    "before. Counters that did not move are in the rows alone, those that a NIC does not have "
    "nowhere. Drivers count retransmissions differently: by timeouts, recoveries or packets.",
)

PORT_COUNTERS = Section(
    optical.PORT_COUNTERS,
    parts=(_PORT_COUNTERS,),
    estimates=of_quantities(),
    shows=lambda name: name.startswith(_COUNTERS),
)

TRANSCEIVERS = Section(
    optical.TRANSCEIVERS,
    estimates=of_quantities(*_REGISTERS),
    shows=frozenset(_REGISTERS).__contains__,
    parts=(
        Table(
            "Power and temperature of transceivers",
            (test_column(), Column("greatest of all transceivers", _greatest), verdict_column()),
            rows=lambda data: data.each(*_REGISTERS),
            about="By the registers of the transceivers.",
            group=lambda one: RowGroup(quantity(one.quantity).title, limit=one.limit),
        ),
        Figures(_power_over_temperature),
    ),
)
