"""The data set as series over nights: medians with intervals, one place a night.

A series is one quantity of one subject in one case, on one testbed, simulated or not: it is
compared with itself from night to night, and with nothing else. A case is a test and what it
set, as in a run's report; conditions that count events, or that were measured rather than set,
are no part of it.
"""

import datetime
import json
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lightrig.harness.record import Context
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.frames import COUNTERS, label_of
from lightrig.harness.statistics import NotEnough, quantile, samples_needed

Numbers: TypeAlias = npt.NDArray[Any]

MEDIAN_NEEDS = samples_needed(0.5, CONFIDENCE)
"""With fewer samples a median has no interval."""

_ROWS_AT_ONCE = 2_000_000
"""Rows whose samples are held in memory together: some 700 MB; a testbed alone may have more."""

_KEY = ("testbed", "simulated", "quantity", "subject", "test", "held", "unit")
_CELLS = """
SELECT testbed, simulated, quantity, subject, test, held, unit, night,
    list_sort(list(coalesce(lower, if(unit = 'ns', 0, value)))) AS lower,
    list_sort(list(coalesce(upper, if(unit = 'ns', 'inf'::DOUBLE, value)))) AS upper,
    median(value) AS level
FROM recent JOIN cases USING (conditions) WHERE testbed IN ({testbeds})
GROUP BY ALL ORDER BY testbed, simulated, quantity, subject, test, held, unit, night
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One series; arrays have one element a night, NaN where it has no data.

    case: the test and what it set, for people.
    n: samples a night, one an event.
    median: with `lower` and `upper`, its interval; below `MEDIAN_NEEDS` samples they are the
        ends of all of them.
    p99, p99_upper: with its upper bound, where `n` allows.
    level: the median of the values themselves, by which nights are compared; it is finite also
        where more than half of what was waited for never came.
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
    p99: Numbers
    p99_upper: Numbers
    level: Numbers

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
    series: tuple[Series, ...]
    runs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class History:
    """All labs over the same nights, without a gap from `first` on."""

    first: datetime.date
    nights: int
    labs: tuple[Lab, ...]

    def date(self, night: int) -> datetime.date:
        """The date of a night by its number."""
        return self.first + datetime.timedelta(night)


def read(connection: duckdb.DuckDBPyConnection, last: int = 90) -> History | None:
    """The `last` nights of the view `found`, which has the columns of the data set.

    None where it has no row. Raises duckdb's errors for a file that cannot be read.
    """
    latest: datetime.date | None
    (latest,) = connection.sql("SELECT max(night) FROM found").fetchall()[0]
    if latest is None:
        return None
    since = latest - datetime.timedelta(last - 1)
    connection.sql(f"CREATE OR REPLACE TEMP VIEW recent AS FROM found WHERE night >= '{since}'")
    texts = [
        text for (text,) in connection.sql("SELECT DISTINCT conditions FROM recent").fetchall()
    ]
    cases = pa.table({"conditions": texts, "held": list(map(_case_conditions, texts))})
    connection.register("cases", cases)
    runs = connection.sql("SELECT DISTINCT testbed, simulated, night, run FROM recent ORDER BY ALL")
    by_lab: dict[tuple[str, bool], list[list[str]]] = {}
    found = runs.fetchall()
    first = min(night for _, _, night, _ in found)
    count = (latest - first).days + 1
    for testbed, simulated, night, run in found:
        nights = by_lab.setdefault((testbed, simulated), [[] for _ in range(count)])
        nights[(night - first).days].append(run)
    series: dict[tuple[str, bool], list[Series]] = {}
    for testbeds in _batches(connection):
        quoted = ", ".join("'" + name.replace("'", "''") + "'" for name in testbeds)
        cells = connection.sql(_CELLS.format(testbeds=quoted))
        series |= _series(cells.to_arrow_table(), first, count)
    labs = [Lab(*lab, tuple(series[lab]), tuple(map(tuple, runs))) for lab, runs in by_lab.items()]
    return History(first, count, tuple(labs))


def _batches(connection: duckdb.DuckDBPyConnection) -> list[list[str]]:
    """Return the testbeds of the view `recent`, in parts of few enough rows for the memory."""
    counted = connection.sql("SELECT testbed, count(*) FROM recent GROUP BY 1 ORDER BY 1")
    batches: list[list[str]] = []
    rows = _ROWS_AT_ONCE
    for testbed, count in counted.fetchall():
        if rows + count > _ROWS_AT_ONCE:
            batches.append([])
            rows = 0
        batches[-1].append(testbed)
        rows += count
    return batches


def _case_conditions(conditions: str) -> str:
    """Return the conditions of a row that distinguish cases, as JSON.

    Counters do not, nor do numbers with a fraction, which are measurements.
    """
    distinguishing = {
        name: value
        for name, value in json.loads(conditions).items()
        if name not in COUNTERS and not isinstance(value, float)
    }
    return json.dumps(distinguishing, sort_keys=True)


def _series(
    table: pa.Table, first: datetime.date, nights: int
) -> dict[tuple[str, bool], list[Series]]:
    """The series of each lab from their cells, which come ordered."""
    keys = [table[name].combine_chunks() for name in _KEY]
    codes = [np.asarray(key.dictionary_encode().indices) for key in keys]
    differ = np.any([code[1:] != code[:-1] for code in codes], axis=0)
    starts = np.concatenate([[0], np.flatnonzero(differ) + 1])
    ends = np.append(starts[1:], len(table))
    days = np.asarray(table["night"].combine_chunks().cast(pa.int32()))
    night = days - (first - datetime.date(1970, 1, 1)).days
    lower, upper = (table[name].combine_chunks() for name in ("lower", "upper"))
    offsets = np.asarray(lower.offsets)
    cells = _estimates(offsets, np.asarray(lower.values), np.asarray(upper.values))
    cells["level"] = np.asarray(table["level"])

    where = np.repeat(np.arange(starts.size), ends - starts), night
    estimates = {}
    for name, found in cells.items():
        estimates[name] = np.full((starts.size, nights), 0.0 if name == "n" else np.nan)
        estimates[name][where] = found

    by_lab: dict[tuple[str, bool], list[Series]] = {}
    names = zip(*(key.take(pa.array(starts)).to_pylist() for key in keys), strict=True)
    for index, (testbed, simulated, quantity, subject, test, conditions, unit) in enumerate(names):
        one = Series(
            quantity=quantity,
            subject=subject,
            test=test,
            case=_label(testbed, simulated, test, conditions),
            unit=unit,
            **{name: found[index] for name, found in estimates.items()},
        )
        by_lab.setdefault((testbed, simulated), []).append(one)
    return by_lab


@cache
def _label(testbed: str, simulated: bool, test: str, conditions: str) -> str:
    return label_of(Context(testbed, test, (), simulated, json.loads(conditions)))


def _estimates(offsets: Numbers, lower: Numbers, upper: Numbers) -> dict[str, Numbers]:
    """Each cell's estimates from its sorted bounds; `offsets` say where cells begin.

    They are those of `harness.statistics.quantile`, which is asked once for each count.
    """
    start, n = offsets[:-1], np.diff(offsets)
    counts, place = np.unique(n, return_inverse=True)
    median, first, last, p99, bound = np.array([_ranks(int(count)) for count in counts])[place].T
    return {
        "n": n,
        "median": (_at(lower, start, median) + _at(upper, start, median)) / 2,
        "lower": _at(lower, start, first),
        "upper": _at(upper, start, last),
        "p99": (_at(lower, start, p99) + _at(upper, start, p99)) / 2,
        "p99_upper": _at(upper, start, bound),
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
