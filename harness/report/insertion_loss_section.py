"""Insertion loss: each circuit as a heat map, faults, the worst ports, and the uncertainty.

The uncertainty consists of repeatability when a circuit is made again, the components of the
budget of each loss, and, in simulation, closure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from lightrig.harness.measure.insertion_loss.rows import lacking
from lightrig.harness.quantities import optical
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.figures import Distribution, distribution_plot, heat_map
from lightrig.harness.report.frames import Series, TestFrame, natural
from lightrig.harness.report.markup import median_value, share_value
from lightrig.harness.report.quantity_section import counted, quantity_parts
from lightrig.harness.report.sections import (
    Cell,
    Check,
    Column,
    Figure,
    Figures,
    Part,
    Section,
    SectionData,
    Styled,
    Table,
    of_quantities,
    sentence,
)
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.quantiles import quantile
from lightrig.testbeds.intervals import at_most, interval
from lightrig.testbeds.plans import circuit_in

LOSSES = ("insertion_loss", "insertion_loss.relative")
_REPEATABILITY = "insertion_loss.repeatability"
_SHIFT = "check_standard.shift"
_FAULT, _REMADE, _CLOSURE = "loss.fault", "loss.remade", "loss.closure"
_BUDGET = "loss.budget."
_COMBINED = "loss.budget.combined"
_WORST = 6
_MANY_DEGREES = 1e6
"""Beyond them Student's t is the normal distribution to six digits."""
_LEAST_SAMPLES, _DRAWN_ELSEWHERE = 5, 10


class _Entry(NamedTuple):
    """One row of a quantity: its test, series and place in the series."""

    test: TestFrame
    series: Series
    at: int

    @property
    def subject(self) -> str:
        return self.series.subject[self.at]

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Value, lower and upper bound."""
        return tuple(  # type: ignore[return-value]
            float(each[self.at])
            for each in (self.series.value, self.series.lower, self.series.upper)
        )


def _entries(quantity: str) -> Callable[[SectionData], Iterator[_Entry]]:
    """Return a function that yields all rows of `quantity`; none where no loss was measured."""

    def entries(data: SectionData) -> Iterator[_Entry]:
        for test in _measured(data):
            series = test.series.get(quantity)
            for at in range(len(series.subject) if series else 0):
                assert series is not None
                yield _Entry(test, series, at)

    return entries


def _measured(data: SectionData) -> list[TestFrame]:
    """Return the tests that measured a loss, void ones included."""
    names = [_SHIFT, *(name for name in LOSSES if name in data.estimates)]
    return [test for test in data.frame.tests if any(name in test.series for name in names)]


# --------------------------------------------------------------------------------- faults


def _with_interval(value: float, low: float, high: float, one: _Entry, of: str = "") -> Value:
    written = interval(low, high, "dB", value)
    simulated = "simulated" if one.test.simulated else ""
    return Value(written.value, (of, f"95 % interval {written.ends}", simulated))


# ------------------------------------------------------------------------ check standards


def _limit(one: _Entry) -> float:
    return float(one.series.conditions["limit_db"][one.at])


def _shift(one: _Entry) -> Cell:
    value, low, high = one.bounds
    return _with_interval(value, low, high, one)


def _void(one: _Entry) -> Cell:
    _, low, high = one.bounds
    void = max(low, -high) > _limit(one)
    return Check(not void, "losses void" if void else "within")


_CHECK_STANDARD = Table(
    "Check standard",
    (
        Column[_Entry]("switch, when", lambda one: Styled(one.subject, "strong")),
        Column[_Entry]("shift of its loss", _shift),
        Column[_Entry]("limit", lambda one: shown(_limit(one), "dB")),
        Column[_Entry]("verdict", _void),
        Column[_Entry]("test", lambda one: one.test),
    ),
    rows=_entries(_SHIFT),
    about="Median change of circuits that are measured before, during and after all others, from "
    "their losses when the references were taken, or before the others. Beyond the limit "
    "for certain, a meter has shifted, and no losses are recorded.",
)


def _fault_size(one: _Entry) -> Cell:
    value, low, high = one.bounds
    if low == value == high == 0:
        return None
    return _with_interval(value, low, high, one)


_FAULTS = Table(
    "Faults",
    (
        Column[_Entry]("where", lambda one: Styled(one.subject.partition(", ")[0], "strong")),
        Column[_Entry]("fault", lambda one: one.subject.partition(", ")[2]),
        Column[_Entry]("size", _fault_size),
        Column[_Entry]("test", lambda one: one.test),
    ),
    rows=_entries(_FAULT),
    about="A loss in all circuits of a port is its connector's; a loss that grows with time is "
    "the laser's; a monitor whose readings have no noise is stuck.",
)


# ---------------------------------------------------------------------------- worst ports


@dataclass(frozen=True, slots=True)
class _PortLosses:
    """One port of a switch, and the bounds of the losses of its circuits in dB."""

    test: TestFrame
    name: str
    side: str
    lower: list[float]
    upper: list[float]

    @property
    def middle(self) -> float:
        return float(np.median((np.array(self.lower) + np.array(self.upper)) / 2))


def _ports(test: TestFrame, quantity: str) -> Iterator[_PortLosses]:
    """Yield the ports of the test's grid, if it is close to full."""
    series = test.series[quantity]
    ports: dict[tuple[str, int], _PortLosses] = {}
    circuits = set()
    for subject, low, high in zip(
        series.subject, series.lower.tolist(), series.upper.tolist(), strict=True
    ):
        if (found := circuit_in(subject)) is None:
            continue
        circuits.add(subject)
        switch, circuit = f"{found[0]}." if found[0] else "", found[1]
        for side, number in (("ingress", circuit.ingress), ("egress", circuit.egress)):
            port = ports.setdefault(
                (side, number), _PortLosses(test, f"{switch}{number}", side, [], [])
            )
            port.lower.append(low)
            port.upper.append(high)
    if len(circuits) > len(ports):
        yield from sorted(ports.values(), key=lambda port: natural(port.name))


def _worst_ports(quantity: str, data: SectionData) -> Iterator[_PortLosses]:
    if quantity in data.estimates:
        for test in data.frame.having(quantity):
            yield from sorted(_ports(test, quantity), key=lambda each: -each.middle)[:_WORST]


def _port_loss(one: _PortLosses) -> Cell:
    found = quantile(one.lower, one.upper, 0.5, CONFIDENCE)
    return median_value(found, one.test.simulated, "dB")


def _worst_ports_table(quantity: str) -> Part:
    return Table(
        f"Worst ports of {sentence(quantity)}",
        (
            Column[_PortLosses]("port", lambda one: Styled(one.name, "strong")),
            Column[_PortLosses]("side", lambda one: one.side),
            Column[_PortLosses]("loss of its circuits", _port_loss),
            Column[_PortLosses]("test", lambda one: one.test),
        ),
        rows=partial(_worst_ports, quantity),
        about="By the median loss of all circuits of a port; the interval counts circuits and "
        "includes the uncertainty of each measurement.",
    )


# -------------------------------------------------------------------------------- figures


def _by_temperature(quantity: str, data: SectionData) -> Iterator[Figure]:
    """Yield a heat map of circuits over temperatures, where several of both were measured."""
    if quantity not in data.estimates:
        return
    tests = data.frame.having(quantity)
    cells: dict[tuple[str, float], list[float]] = {}
    for test in tests:
        series = test.series[quantity]
        celsius = series.conditions.get("temperature_c")
        if celsius is None:
            continue
        for subject, at, value in zip(
            series.subject, np.round(celsius).tolist(), series.value.tolist(), strict=True
        ):
            if not math.isnan(at):
                cells.setdefault((subject, at), []).append(value)
    circuits = sorted({circuit for circuit, _ in cells}, key=natural)
    temperatures = sorted({at for _, at in cells})
    if len(circuits) < 2 or len(temperatures) < 2:
        return
    matrix = np.full((len(circuits), len(temperatures)), np.nan)
    for (circuit, at), values in cells.items():
        matrix[circuits.index(circuit), temperatures.index(at)] = np.median(values)
    title = f"{sentence(quantity)} by temperature"
    drawing = heat_map(
        matrix=matrix,
        rows=circuits,
        columns=[f"{at:.0f} °C" for at in temperatures],
        unit="dB",
        label=f"Heat map of {title}",
        row_name="circuit",
        column_name="temperature",
    )
    each = counted([len(values) for values in cells.values()])
    simulated = any(test.simulated for test in tests)
    yield Figure(title, drawing, simulated, f"Median of {each} for each cell.", width="narrow")


def _of_all_circuits(quantity: str, data: SectionData) -> Iterator[Figure]:
    """Yield the distribution over circuits, where the figures of the quantity show none."""
    if quantity not in data.estimates:
        return
    having = data.frame.having(quantity)
    grids = any(True for test in having for _ in _ports(test, quantity))
    if grids or all(test.series[quantity].value.size < _DRAWN_ELSEWHERE for test in having):
        title = "Distribution of all circuits"
        about = "Share of circuits that lose no more; the band is the measurement's uncertainty."
        yield from _distribution(data, having, quantity, title, about)


def _of_remade_circuits(data: SectionData) -> Iterator[Figure]:
    tests = [test for test in _measured(data) if _REPEATABILITY in test.series]
    title = "Deviation of a remade circuit from the mean of its circuit"
    about = "Share of makings; noise of the readings included."
    yield from _distribution(data, tests, _REMADE, title, about)


def _distribution(
    data: SectionData, tests: Sequence[TestFrame], quantity: str, title: str, about: str
) -> Iterator[Figure]:
    index = {id(test): place for place, test in enumerate(data.frame.tests)}
    having = [
        test
        for test in tests
        if quantity in test.series and test.series[quantity].value.size >= _LEAST_SAMPLES
    ]
    if having:
        drawn = [Distribution(index[id(t)], *t.samples(quantity)) for t in having]
        yield Figure(
            title,
            distribution_plot(drawn, data.limit(quantity), title, "dB"),
            any(test.simulated for test in having),
            about,
            [(index[id(test)], test.label) for test in having],
            "narrow",
        )


# ---------------------------------------------------------------------------- uncertainty


def _repeatability(one: _Entry) -> Cell:
    value, low, high = one.bounds
    made = one.test.series[_REMADE].value.size
    return _with_interval(value, low, high, one, f"standard deviation of {made:,} makings")


class _BudgetLine(NamedTuple):
    """A component of the budget of one switch; `at` is None for one that is not included."""

    entry: _Entry
    name: str
    at: int | None


def _budget_lines(data: SectionData) -> Iterator[_BudgetLine]:
    """Yield the components of each budget, the combined uncertainty last."""
    for combined in _entries(_COMBINED)(data):
        switch, *stated = combined.subject.split(", ")
        names = [n for n in combined.test.series if n.startswith(_BUDGET) and n != _COMBINED]
        for name in names:
            series = combined.test.series[name]
            for at, subject in enumerate(series.subject):
                if subject.partition(", ")[0] == switch:
                    yield _BudgetLine(_Entry(combined.test, series, at), name, at)
                    break
        yield _BudgetLine(combined, _COMBINED, combined.at)
        shown = {name.removeprefix(_BUDGET).replace("_", " ") for name in names}
        for name in lacking(shown) if "modules" not in stated else ():
            yield _BudgetLine(combined, f"{_BUDGET}{name}", None)


def _stated(line: _BudgetLine, name: str) -> float | None:
    found = line.entry.series.conditions.get(name)
    value = math.nan if found is None else float(found[line.entry.at])
    return None if math.isnan(value) else value


def _kind(line: _BudgetLine) -> Cell:
    if line.at is None:
        return Styled("not included", "missing")
    return ", ".join(line.entry.subject.split(", ")[2:])


def _standard(line: _BudgetLine) -> Cell:
    if line.at is None:
        return None
    value, low, high = line.entry.bounds
    written = interval(low, high, "", value)
    return Value(written.value, (written.ends,))


def _degrees(line: _BudgetLine) -> Cell:
    found = _stated(line, "degrees")
    if line.at is None:
        return None
    return "∞" if found is None or found > _MANY_DEGREES else f"{found:.0f}"


def _expanded(line: _BudgetLine) -> Cell:
    half, factor = _stated(line, "expanded_db"), _stated(line, "factor")
    if line.at is None or half is None or factor is None:
        return None
    return Value(f"± {at_most(half, 'dB', digits=2)}", (f"k = {factor:.2f}", "95 %"))


_BUDGET_COLUMNS = (
    Column[_BudgetLine]("test", lambda line: line.entry.test),
    Column[_BudgetLine](
        "switch, observer", lambda line: ", ".join(line.entry.subject.split(", ")[:2])
    ),
    Column[_BudgetLine]("component", lambda line: sentence(line.name.removeprefix(_BUDGET))),
    Column[_BudgetLine]("type, distribution", _kind),
    Column[_BudgetLine]("standard uncertainty, dB", _standard),
    Column[_BudgetLine]("degrees of freedom", _degrees),
    Column[_BudgetLine]("expanded", _expanded),
)


class _ClosureOfLosses(NamedTuple):
    test: TestFrame
    inside: int
    total: int
    closed: bool


def _closures(data: SectionData) -> Iterator[_ClosureOfLosses]:
    for test in _measured(data):
        series = test.series.get(_CLOSURE)
        if series is not None:
            inside = round(float((series.value * series.count).sum()))
            total = int(series.count.sum())
            closed = bool(np.all(series.conditions.get("closed", inside == total)))
            yield _ClosureOfLosses(test, inside, total, closed)


def _closure_verdict(one: _ClosureOfLosses) -> Cell:
    return Check(one.closed, "closed" if one.closed else "not closed")


def _closure_share(one: _ClosureOfLosses) -> Cell:
    low, high = clopper_pearson(one.inside, one.total, CONFIDENCE)
    return share_value(f"{one.inside:,} of {one.total:,}", low, high, one.test.simulated)


_UNCERTAINTY: tuple[Part, ...] = (
    Table(
        "Repeatability",
        (
            Column[_Entry]("switch", lambda one: Styled(one.subject, "strong")),
            Column[_Entry]("from making to making", _repeatability),
            Column[_Entry]("test", lambda one: one.test),
        ),
        rows=_entries(_REPEATABILITY),
        about="The circuits of two settings were made repeatedly; the noise of the readings is "
        "subtracted.",
    ),
    Figures(_of_remade_circuits),
    Table(
        "Uncertainty",
        _BUDGET_COLUMNS,
        rows=_budget_lines,
        about="Budget as the GUM has it: standard uncertainties (k = 1), the median of all losses, "
        "and in brackets the least and the greatest. Each covers both sides of a circuit; all are "
        "in dB and have sensitivity 1. Components are independent: the calibration of one meter is "
        "fully correlated between two references by it, cancels, and is no component. Effective "
        "degrees of freedom by Welch and Satterthwaite, coverage factor by Student's t.",
    ),
    Table(
        "Closure of the losses",
        (
            Column[_ClosureOfLosses]("verdict", _closure_verdict),
            Column[_ClosureOfLosses]("intervals with the truth inside", _closure_share),
            Column[_ClosureOfLosses]("test", lambda one: one.test),
        ),
        rows=_closures,
        about="Number of 95 % intervals that contain the loss of the simulation. Circuits share "
        "the errors of their ports, so one run may be off by more than the interval suggests. Not "
        "closed are losses whose mean or greatest deviation has a chance below 1 in 10,000, "
        "however the circuits depend on each other.",
    ),
)


def _parts() -> Iterator[Part]:
    yield _FAULTS
    yield _CHECK_STANDARD
    for quantity in LOSSES:
        yield from quantity_parts(quantity)
        yield Figures(partial(_by_temperature, quantity))
        yield _worst_ports_table(quantity)
        yield Figures(partial(_of_all_circuits, quantity))
    yield from _UNCERTAINTY


INSERTION_LOSS = Section(
    optical.INSERTION_LOSS,
    estimates=of_quantities(*LOSSES, _REPEATABILITY),
    shows=lambda name: (
        name in {*LOSSES, _REPEATABILITY, _FAULT, _REMADE}
        or name.startswith((_BUDGET, "check_standard."))
    ),
    parts=tuple(_parts()),
)
