"""Figures of a running test for the terminal and the event stream, cheap to keep up to date."""

import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from lightrig.harness.quantities.quantity import Reduction
from lightrig.harness.quantities.registry import all_quantities, quantity_of
from lightrig.harness.record import Row, Scalar
from lightrig.harness.report.estimates import CONFIDENCE, independent_samples
from lightrig.harness.report.frames import condition_name, stated_beside
from lightrig.harness.report.units import shown
from lightrig.harness.statistics.quantiles import Quantile, quantile
from lightrig.testbeds.intervals import interval

_MOST = 4
_REDUCE: Mapping[Reduction, Callable[[float, float], float]] = {
    "max": max,
    "min": min,
    "sum": operator.add,
}


@dataclass(frozen=True, slots=True)
class MedianFigure:
    """A median of `n` samples, all in `unit`.

    lower, upper: its 95 % interval; None where `n` is too small for one, or as many samples as
    depend on each other. missing: then, the report's words for that; empty for one sample.
    beside: what stands beside it, by name: the wavelength of a loss; "" where no row states it.
    effective: as how many independent samples the `n` count, where that is fewer.
    """

    quantity: str
    value: float
    lower: float | None
    upper: float | None
    unit: str
    n: int
    simulated: bool
    missing: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)
    effective: int | None = None


@dataclass(slots=True)
class _Samples:
    """Samples of one quantity by event; `reduce` makes one of the subjects of an event.

    Bounds are arrays of numbers, since they stay until a test ends, and a long run has tens of
    thousands of events. in_order: number of events, from 0, whose place is their number; places: of
    the others. subjects: what each sample without an event is of. beside: values of the conditions
    that stand beside the quantity.
    """

    unit: str
    simulated: bool
    reduce: Callable[[float, float], float] | None
    beside: Mapping[str, set[Scalar | None]]
    low: "array[float]" = field(default_factory=lambda: array("d"))
    high: "array[float]" = field(default_factory=lambda: array("d"))
    value: "array[float]" = field(default_factory=lambda: array("d"))
    in_order: int = 0
    places: dict[object, int] = field(default_factory=dict)
    subjects: list[str] = field(default_factory=list)
    by_event: bool = True

    def add(self, subject: str, event: object, low: float, high: float, value: float) -> None:
        """Take bounds and value of a subject of an event; None for a sample by itself."""
        self.by_event &= event is not None
        if event is None:
            self.subjects.append(subject)
        if self.reduce is None or event is None:
            place = None
        elif type(event) is int and 0 <= event < self.in_order:
            place = event
        else:
            place = self.places.get(event)
        if place is not None and self.reduce is not None:
            self.low[place] = self.reduce(low, self.low[place])
            self.high[place] = self.reduce(high, self.high[place])
            self.value[place] = self.reduce(value, self.value[place])
            return
        if self.reduce is not None and event is not None:
            if event == self.in_order == len(self.low):
                self.in_order += 1
            else:
                self.places[event] = len(self.low)
        self.low.append(low)
        self.high.append(high)
        self.value.append(value)


class Quantities:
    """The samples of one test, combined as their quantities declare it."""

    def __init__(self) -> None:
        self._samples: dict[str, _Samples | None] = {}

    def add(self, simulated: bool, rows: Iterable[Row]) -> None:
        """Take rows that were recorded."""
        for row in rows:
            if row.quantity not in self._samples:
                self._samples[row.quantity] = _samples(row, simulated)
            samples = self._samples[row.quantity]
            if samples is None:
                continue
            low = row.value if row.lower is None else row.lower
            high = row.value if row.upper is None else row.upper
            samples.add(row.subject, row.conditions.get("event"), low, high, row.value)
            for condition, stated in samples.beside.items():
                stated.add(row.conditions.get(condition))

    def figures(self) -> Iterator[MedianFigure]:
        """Yield the present figure of every quantity that is not hidden."""
        for name, samples in self._samples.items():
            if samples is None:
                continue
            low, high, values = map(np.array, (samples.low, samples.high, samples.value))
            count = independent_samples(
                values, 0.5, of_events=samples.by_event, subjects=samples.subjects
            )
            found = quantile(low, high, 0.5, CONFIDENCE, points=values, effective=count)
            value, lower, upper, missing = float(np.median(values)), None, None, ""
            effective = None
            if isinstance(found, Quantile):
                value, lower, upper = found.value, found.lower, found.upper
                effective = found.effective
            elif low.size > 1:
                missing = f"not enough data: {found.needed:,} needed"
            beside = {
                condition_name(each)[0]: stated_beside(each, stated)
                for each, stated in samples.beside.items()
            }
            yield MedianFigure(
                *(name, value, lower, upper, samples.unit, low.size, samples.simulated),
                missing,
                beside,
                effective,
            )

    def few(self) -> list[MedianFigure]:
        """Return the figures for one line of a terminal.

        Headlines come first, in the order of declaration, then quantities of families without
        any, as first measured.
        """
        found = {figure.quantity: figure for figure in self.figures()}
        if not found:
            return []
        headlines = [
            name
            for name, declared in all_quantities().items()
            if declared.terminal == "headline" and name in found
        ]
        families = {name.partition(".")[0] for name in headlines}
        rest = [name for name in found if name.partition(".")[0] not in families]
        return [found[name] for name in [*headlines, *rest][:_MOST]]


def _samples(row: Row, simulated: bool) -> _Samples | None:
    declared = quantity_of(row.quantity, row.unit)
    if declared.terminal == "hidden":
        return None
    reduction = declared.reduction()
    reduce = None if reduction is None else _REDUCE[reduction]
    return _Samples(row.unit, simulated, reduce, {name: set() for name in declared.beside})


def in_a_line(figures: Iterable[MedianFigure]) -> str:
    """Write figures with their intervals: `los 2.1 ms [2 … 2.3] (median of 300)`.

    What stands beside them follows: `(median of 64, as 9 independent ones; 1310 nm; temperature not
    stated)`.
    """
    by_company: dict[tuple[int, int | None, bool, str], list[str]] = {}
    without: dict[str, list[str]] = {}
    for one in figures:
        if one.missing:
            name = one.quantity.removeprefix("reconfiguration.")
            without.setdefault(one.missing, []).append(name)
            continue
        value, ends = shown(one.value, one.unit), ""
        if one.lower is not None and one.upper is not None:
            written = interval(one.lower, one.upper, one.unit, one.value)
            value, ends = written.value, f" [{written.ends}]"
        text = f"{one.quantity.removeprefix('reconfiguration.')} {value}{ends}"
        beside = "".join(
            f"; {stated or f'{name} not stated'}" for name, stated in one.beside.items()
        )
        by_company.setdefault((one.n, one.effective, one.simulated, beside), []).append(text)
    shown_figures = []
    for (n, effective, simulated, beside), each in by_company.items():
        of = f"{'median' if len(each) == 1 else 'medians'} of {n:,}" if n > 1 else "n = 1"
        of += f", as {effective:,} independent ones" if effective else ""
        shown_figures.append(
            f"{', '.join(each)} ({of}{', simulated' if simulated else ''}{beside})"
        )
    shown_figures += [f"{', '.join(names)} {missing}" for missing, names in without.items()]
    return "; ".join(shown_figures)
