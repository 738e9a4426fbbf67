"""The data set as series over nights: medians with intervals, one place a night.

A series is one quantity of one subject in one case, on one testbed, simulated or not: it is
compared with itself from night to night, and with nothing else. A case is a test and what it
set, as in a run's report; conditions that count events, or that were measured rather than set,
are no part of it.
"""

import datetime
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import numpy as np

from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.record import Context, Scalar
from lightrig.harness.record.nights import Night
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.frames import label_of
from lightrig.harness.report.nights.cells import (
    COLUMNS,
    TEXTS,
    Cells,
    Key,
    Numbers,
    cells_of,
    night_number,
    night_of_number,
)
from lightrig.harness.report.nights.source import Source
from lightrig.harness.statistics.quantiles import NotEnough, quantile, samples_needed
from lightrig.testbeds.plans import without_first_port

MEDIAN_NEEDS = samples_needed(0.5, CONFIDENCE)
"""With fewer samples a median has no interval."""

_ROWS_AT_ONCE = 2_000_000
"""Rows of a testbed that are held in memory together: some 300 MB; a month's file may have more."""

_TESTBEDS_AT_ONCE = 2

Statistic = Literal["median", "greatest", "p99", "count"]

_TAILS = "outage"
"""Family of quantities whose greatest value of a night is a series too: few outages last longer
than they did where a link is lost now and then, and the median of a night stays."""

_COUNTED = "outage.flap"
"""Quantity with a row each time that a carrier is lost once more; their number is a series too."""

OF_THE_NIGHT = {
    "greatest": "greatest of the night",
    "p99": "99th percentile of the night",
    "count": "number in the night",
}


@dataclass(frozen=True, slots=True)
class NightSeries:
    """One series; arrays have one element a night, NaN where it has no data.

    case: the test and what it set, for people. conditions: what it set.
    n: samples a night, one an event.
    median: with `lower` and `upper`, its interval; below `MEDIAN_NEEDS` samples they are the
        ends of all of them.
    p99, p99_upper: with its upper bound, where `n` allows.
    level: the median of the values themselves, by which nights are compared; it is finite also
        where more than half of what was waited for never came.
    greatest: the greatest value.
    statistic: of the values of a night that `level` is; where it is not the median, the series
        has no other estimates.
    """

    quantity: str
    subject: str
    test: str
    case: str
    unit: str
    n: Numbers
    median: Numbers
    lower: Numbers
    upper: Numbers
    sampling: Numbers
    p99: Numbers
    p99_upper: Numbers
    level: Numbers
    greatest: Numbers
    statistic: Statistic = "median"
    conditions: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def is_of_tails(self) -> bool:
        """Whether one rare event of a night moves its level."""
        return self.statistic in {"greatest", "p99"}

    @property
    def family(self) -> tuple[str, str, str]:
        """Key that is equal for series that are compared with each other."""
        return self.quantity, self.test, self.case

    @property
    def last(self) -> int:
        """The last night with data."""
        return int(np.flatnonzero(self.n)[-1])


@dataclass(frozen=True, slots=True)
class Lab:
    """One testbed, either as hardware or as simulated; the two are never mixed.

    series: by quantity, subject and case. runs: the names of each night's runs.
    """

    testbed: str
    simulated: bool
    series: tuple[NightSeries, ...]
    runs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class History:
    """All labs over the same nights, one after the other; days without runs are among them."""

    axis: tuple[Night, ...]
    labs: tuple[Lab, ...]

    @property
    def nights(self) -> int:
        """Number of nights."""
        return len(self.axis)

    def date(self, night: int) -> Night:
        """The night at a place, which is shown as its date."""
        return self.axis[night]

    def place(self, night: Night) -> int:
        """Return the place of a night."""
        return self.axis.index(night)


def read(source: Source) -> History | None:
    """The nights of `source`; None where it has no row.

    Raises `RecordError` for a file that cannot be read.
    """

    def estimated(testbed: str) -> list[_Part]:
        tables = source.parts(testbed, COLUMNS, TEXTS, _ROWS_AT_ONCE)
        places = source.nights.places(testbed)
        return [_Part(cells_of(table, places)) for table in tables if len(table)]

    # Arrow and numpy leave the processor to other threads: one testbed is read while the samples
    # of another are sorted.
    with ThreadPoolExecutor(_TESTBEDS_AT_ONCE) as pool:
        found = dict(zip(source.testbeds, pool.map(estimated, source.testbeds), strict=True))
    nights = {night for parts in found.values() for part in parts for _, night, _ in part.runs}
    if not nights:
        return None
    axis = _axis(nights, source.nights.of_shared_dates)
    numbers = np.array([night_number(night) for night in axis])
    labs = []
    for testbed, parts in found.items():
        series = _series(testbed, parts, numbers)
        for simulated in sorted(series):
            runs: list[set[str]] = [set() for _ in axis]
            for part in parts:
                for mode, number, run in part.runs:
                    if mode == simulated:
                        runs[np.searchsorted(numbers, number)].add(run)
            named = tuple(source.nights.in_order(names) for names in runs)
            plain = series[simulated]
            labs.append(Lab(testbed, simulated, (*plain, *tails_and_counts(plain)), named))
    return History(axis, tuple(labs))


def _axis(numbers: Collection[int], of_shared_dates: Collection[Night]) -> tuple[Night, ...]:
    """Return the nights of `numbers`, and the days without a run between them."""
    named = {night_number(night): night for night in of_shared_dates}
    found = [named.get(number) or night_of_number(number) for number in sorted(numbers)]
    dates = {night.date for night in found}
    days = (found[-1].day - found[0].day).days
    every = [str(found[0].day + datetime.timedelta(day)) for day in range(days)]
    return tuple(sorted([*found, *(Night(date) for date in every if date not in dates)]))


def tails_and_counts(series: Sequence[NightSeries]) -> Iterator[NightSeries]:
    """Yield the tails of series, and how often what does not happen in each event happened.

    A test that ran and has no row of it counted none.
    """
    measured: dict[str, Numbers] = {}
    for one in series:
        measured[one.test] = measured.get(one.test, False) | (one.n > 0)
    for one in series:
        if one.quantity.partition(".")[0] == _TAILS:
            yield _of_statistic(one, "greatest", one.greatest)
        is_time = one.unit == "ns" and quantity_of(one.quantity, one.unit).better == "lower"
        if is_time and np.isfinite(one.p99).any():
            yield _of_statistic(one, "p99", one.p99)
        if one.quantity == _COUNTED:
            counts = np.where(measured[one.test], one.n, np.nan)
            yield replace(_of_statistic(one, "count", counts), unit="1")


def _of_statistic(series: NightSeries, statistic: Statistic, level: Numbers) -> NightSeries:
    none = np.full(level.shape, np.nan)
    return replace(
        series,
        case=f"{series.case}, {OF_THE_NIGHT[statistic]}",
        n=np.where(np.isfinite(level), np.maximum(series.n, 1), 0),
        statistic=statistic,
        median=level,
        lower=level,
        upper=level,
        sampling=np.zeros(level.shape),
        level=level,
        p99=none,
        p99_upper=none,
        greatest=none,
    )


class _Part:
    """Some nights of a testbed: the estimates of cells without their samples."""

    def __init__(self, cells: Cells) -> None:
        self.keys, self.series, self.night = cells.keys, cells.series, cells.night
        self.runs = cells.runs
        self.estimates = _estimates(cells)


def _series(
    testbed: str, parts: Sequence[_Part], numbers: Numbers
) -> dict[bool, list[NightSeries]]:
    """Return the series of a testbed, those of hardware and simulated ones apart."""
    keys = sorted({key for part in parts for key in part.keys})
    places = {key: place for place, key in enumerate(keys)}
    estimates = {
        name: np.full((len(keys), len(numbers)), 0.0 if name == "n" else np.nan)
        for name in parts[0].estimates
    }
    for part in parts:
        row = np.array([places[key] for key in part.keys])[part.series]
        for name, found in part.estimates.items():
            estimates[name][row, np.searchsorted(numbers, part.night)] = found
    joined = _join_renamed_ports(keys, estimates)
    by_mode: dict[bool, list[NightSeries]] = {}
    for index, key in enumerate(keys):
        if index in joined:
            continue
        one = NightSeries(
            quantity=key.quantity,
            subject=key.subject,
            test=key.test,
            case=_label(testbed, key.simulated, key.test, key.conditions),
            unit=key.unit,
            conditions=_conditions(key.conditions),
            **{name: found[index] for name, found in estimates.items()},
        )
        by_mode.setdefault(key.simulated, []).append(one)
    return by_mode


def _join_renamed_ports(keys: Sequence[Key], estimates: Mapping[str, Numbers]) -> set[int]:
    """Join series of one port under two names, that of its NIC and that with ".p0".

    They are of one port where no night has both. The nights are those of the name of the last
    night then; returns the places of the series that are now empty.
    """
    alike: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        name = key._replace(subject=without_first_port(key.subject))
        alike.setdefault(name, []).append(place)
    joined = set()
    for places in alike.values():
        there = estimates["n"][places] > 0
        if len(places) == 1 or (there.sum(axis=0) > 1).any():
            continue
        last = places[int(there[:, np.flatnonzero(there.any(axis=0))[-1]].argmax())]
        for place, nights in zip(places, there, strict=True):
            if place != last:
                for found in estimates.values():
                    found[last, nights] = found[place, nights]
                joined.add(place)
    return joined


@cache
def _label(testbed: str, simulated: bool, test: str, conditions: str) -> str:
    return label_of(Context(testbed, test, (), simulated, _conditions(conditions)))


@cache
def _conditions(text: str) -> Mapping[str, Scalar]:
    found: Mapping[str, Scalar] = json.loads(text)
    return found


def _estimates(cells: Cells) -> dict[str, Numbers]:
    """Each cell's estimates from its sorted samples.

    They are those of `harness.statistics.quantile`, which is asked once for each count.
    """
    lower, upper = cells.lower, cells.upper
    start, n = cells.offsets[:-1], np.diff(cells.offsets)
    counts, place = np.unique(n, return_inverse=True)
    median, first, last, p99, bound = np.array([_ranks(int(count)) for count in counts])[place].T
    return {
        "n": n,
        "median": (_at(lower, start, median) + _at(upper, start, median)) / 2,
        "lower": _at(lower, start, first),
        "upper": _at(upper, start, last),
        "sampling": _at(cells.value, start, last) - _at(cells.value, start, first),
        "p99": (_at(lower, start, p99) + _at(upper, start, p99)) / 2,
        "p99_upper": _at(upper, start, bound),
        "level": _at(cells.value, start, (n - 1) / 2),
        "greatest": cells.value[cells.offsets[1:] - 1],
    }


@cache
def _ranks(n: int) -> tuple[float, ...]:
    """Return the places, among n ordered samples, of median, its interval, p99 and its bound.

    From 0; NaN where `n` does not allow it, and halves between two samples.
    """
    places = np.arange(n)
    median = quantile(places, places, 0.5, CONFIDENCE)
    p99 = quantile(places, places, 0.99, CONFIDENCE, "upper")
    middle: tuple[float, ...] = ((n - 1) / 2, 0, n - 1)
    if not isinstance(median, NotEnough):
        assert median.lower is not None
        middle = median.value, median.lower, median.upper
    if isinstance(p99, NotEnough):
        return *middle, np.nan, np.nan
    return *middle, p99.value, p99.upper


def _at(flat: Numbers, start: Numbers, rank: Numbers) -> Numbers:
    there = np.isfinite(rank)
    rank = np.where(there, rank, 0)
    low, high = np.floor(rank).astype(np.intp), np.ceil(rank).astype(np.intp)
    return np.where(there, (flat[start + low] + flat[start + high]) / 2, np.nan)
