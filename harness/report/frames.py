"""A journal as arrays, read in one pass: a frame a testbed, in it one a test."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.quantities.quantity import Reduction
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.record import COUNTERS, Context, RecordError, RunRecord, Scalar
from lightrig.harness.record.attempts import superseded, without_attempt
from lightrig.harness.record.row_batches import RowBatch

Numbers: TypeAlias = npt.NDArray[Any]

_BETWEEN = {"before", "after"}
_HIDDEN = {*_BETWEEN, "clock", "testbed"}
_MOST_BESIDE = 3
_REDUCTIONS: Mapping[Reduction, tuple[np.ufunc, float]] = {
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
    "sum": (np.add, 0.0),
}
"""The function that combines two subjects, and its neutral value."""


@dataclass(frozen=True, slots=True)
class Series:
    """All rows of one quantity of one test; arrays of one length, in the order written.

    subject: the port, circuit, link or server of each row.
    event: number of the event in the test; -1 where a row names none.
    lower, value, upper: in `unit`. A time without upper bound is endless, one without lower
        bound begins at 0, since nothing happens before the command; of any other value without
        a bound, the bound is the value.
    count: number of intervals that a closure row counts; 1 elsewhere.
    conditions: numeric conditions of single rows by name; NaN where a row has none.
    change: between which plans each row's event was, as "before → after"; "" where it says none.
    beside: what stands beside each value, by name of the condition as its quantity declares it;
        "" where no row states it.
    """

    unit: str
    subject: tuple[str, ...]
    event: Numbers
    lower: Numbers
    value: Numbers
    upper: Numbers
    count: Numbers
    conditions: Mapping[str, Numbers] = field(default_factory=dict)
    change: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)

    def of_change(self, change: str) -> Series:
        """Return the rows of the events between two plans."""
        chosen = np.array([one == change for one in self.change], dtype=bool)
        subject = tuple(compress(self.subject, chosen))
        arrays = (self.event, self.lower, self.value, self.upper, self.count)
        of_rows = Series(self.unit, subject, *(each[chosen] for each in arrays))
        return replace(of_rows, beside=self.beside)

    @property
    def events(self) -> int:
        """Number of different events among the rows."""
        return int(np.unique(self.event).size)

    def combined(self, reduction: Reduction) -> tuple[Numbers, Numbers, Numbers]:
        """Return lower bound, upper bound and value of each event, whose subjects are combined.

        The subjects of one event move together and are not independent samples.
        """
        events, place = np.unique(self.event, return_inverse=True)
        combine, start = _REDUCTIONS[reduction]
        found = []
        for each in (self.lower, self.upper, self.value):
            found.append(np.full(events.size, start, dtype=np.float64))
            combine.at(found[-1], place, each)
        return found[0], found[1], found[2]


@dataclass(frozen=True, slots=True)
class TestFrame:
    """The rows of one test on one testbed.

    name: the test's node id.
    label: short, for people, unique within the testbed.
    simulated: whether anything that took part was.
    """

    __test__ = False

    name: str
    label: str
    simulated: bool
    contexts: tuple[Context, ...]
    series: dict[str, Series]

    def samples(
        self, quantity: str, side: Literal["upper", "lower"] | None = None
    ) -> tuple[Numbers, Numbers]:
        """Return lower and upper bound of each sample, as the quantity's declaration combines.

        A quantity without combination, or a row without event, has a sample for each row.

        Args:
            quantity: one that the test recorded.
            side: of the limit that the samples are judged by, if any.
        """
        return self.valued_samples(quantity, side)[:2]

    def valued_samples(
        self, quantity: str, side: Literal["upper", "lower"] | None = None
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return the same, and the value of each sample."""
        series = self.series[quantity]
        reduction = quantity_of(quantity, series.unit).reduction(side)
        if reduction is None or (series.event < 0).any():
            return series.lower, series.upper, series.value
        return series.combined(reduction)

    @property
    def changes(self) -> list[str]:
        """The changes of plan that its rows state, in the order of their first rows."""
        found = (one for each in self.series.values() for one in each.change if one)
        return list(dict.fromkeys(found))

    def of_change(self, change: str) -> TestFrame:
        """Return the rows of the events between two plans as a test of their own."""
        series = {
            name: part
            for name, each in self.series.items()
            if (part := each.of_change(change)).value.size
        }
        return replace(self, label=change, series=series)

    @property
    def events(self) -> int:
        """Number of reconfiguration events that the test recorded."""
        numbers = [s.event for q, s in self.series.items() if q.startswith("reconfiguration.")]
        return int(np.unique(np.concatenate(numbers)).size) if numbers else 0

    def stages(self) -> list[str]:
        """Return the recorded stages of whole events, in the order of their first rows."""
        return [q.partition(".")[2] for q in self.series if q.startswith("reconfiguration.")]


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a run measured before another one of the same kind, on one testbed.

    Attributes:
        run: its name.
        started: date and time at which it began.
        tests: its tests.
    """

    run: str
    started: str
    tests: tuple[TestFrame, ...]


@dataclass(frozen=True, slots=True)
class TestbedFrame:
    """The tests of one testbed, in the order of their first rows.

    earlier: runs with which a run is compared that belongs to no night, the oldest first.
    """

    __test__ = False

    name: str
    tests: tuple[TestFrame, ...]
    earlier: tuple[EarlierRun, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether anything simulated took part in a test."""
        return any(test.simulated for test in self.tests)

    def having(self, quantity: str) -> list[TestFrame]:
        """Return the tests that recorded `quantity`."""
        return [test for test in self.tests if quantity in test.series]

    def quantities(self, family: str) -> list[str]:
        """Return the recorded quantities of `family`, in the order of their first rows."""
        found = (q for test in self.tests for q in test.series if q.startswith(f"{family}."))
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class RunFrame:
    """A whole run.

    rows: number of rows that were read.
    damage: why reading stopped before the end, or None.
    """

    testbeds: tuple[TestbedFrame, ...]
    rows: int
    damage: str | None


@dataclass(slots=True)
class _Columns:
    """One quantity of one test while it is read: arrays of the batches, in the order written."""

    unit: str
    beside: Mapping[str, set[Scalar | None]]
    rows: int = 0
    subject: list[str] = field(default_factory=list)
    event: list[Numbers] = field(default_factory=list)
    lower: list[Numbers] = field(default_factory=list)
    value: list[Numbers] = field(default_factory=list)
    upper: list[Numbers] = field(default_factory=list)
    count: list[Numbers] = field(default_factory=list)
    conditions: dict[str, dict[int, float]] = field(default_factory=dict)
    change: list[str] = field(default_factory=list)

    def add(self, batch: RowBatch, places: Numbers) -> None:
        rows = batch.take(places)
        subjects = [rows.subject.names[code] for code in rows.subject.codes.tolist()]
        present, of_row = np.unique(rows.conditions.codes, return_inverse=True)
        conditions = [rows.conditions.names[code] for code in present.tolist()]
        for name, stated in self.beside.items():
            stated.update(each.get(name) for each in conditions)
        more = np.array([len(c) > ("event" in c) + ("n" in c) for c in conditions], dtype=bool)
        for row in np.flatnonzero(more[of_row]).tolist():
            of_this = conditions[of_row[row]]
            subjects[row] = self._note_conditions(self.rows + row, subjects[row], of_this)
        changes = [
            f"{one['before']} → {one['after']}" if "before" in one and "after" in one else ""
            for one in conditions
        ]
        self.change += [changes[code] for code in of_row.tolist()]
        self.subject += map(sys.intern, subjects)
        self.event.append(_counters(conditions, "event", -1)[of_row])
        self.count.append(_counters(conditions, "n", 1)[of_row])
        least, most = (0.0, np.inf) if self.unit == "ns" else (rows.value, rows.value)
        self.lower.append(np.where(np.isnan(rows.lower), least, rows.lower))
        self.value.append(rows.value)
        self.upper.append(np.where(np.isnan(rows.upper), most, rows.upper))
        self.rows += len(rows)

    def _note_conditions(self, row: int, subject: str, conditions: Mapping[str, Scalar]) -> str:
        """Store the numeric conditions of a row; return its subject with the textual ones."""
        parts = [subject]
        for name, value in conditions.items():
            if name in COUNTERS or name in _BETWEEN or isinstance(value, bool):
                continue
            if isinstance(value, str):
                if name not in self.beside:
                    parts.append(value)
            else:
                self.conditions.setdefault(name, {})[row] = value
        return ", ".join(parts)

    def series(self) -> Series:
        """Return the whole series; the arrays of the batches are given up."""
        conditions = {name: np.full(self.rows, np.nan) for name in self.conditions}
        for name, found in self.conditions.items():
            conditions[name][list(found)] = list(found.values())
        subject = tuple(self.subject)
        self.subject.clear()
        return Series(
            self.unit,
            subject,
            _emptied(self.event),
            _emptied(self.lower),
            _emptied(self.value),
            _emptied(self.upper),
            _emptied(self.count),
            conditions,
            tuple(self.change),
            {name: stated_beside(name, stated) for name, stated in self.beside.items()},
        )


def _counters(conditions: Sequence[Mapping[str, Scalar]], name: str, default: int) -> Numbers:
    """Return the counter `name` of each of `conditions`; `default` where it is no number."""
    found = [each.get(name, default) for each in conditions]
    whole = [number if isinstance(number, int) else default for number in found]
    return np.array(whole, dtype=np.int64)


def _emptied(arrays: list[Numbers]) -> Numbers:
    whole = np.concatenate(arrays)
    arrays.clear()
    return whole


@dataclass(slots=True)
class _Test:
    contexts: list[Context] = field(default_factory=list)
    columns: dict[str, _Columns] = field(default_factory=dict)


def collect(record: RunRecord) -> RunFrame:
    """Read every row of `record`; damage ends the reading and is reported, not raised.

    Of a test that was repeated the last attempt is gathered.
    """
    tests: dict[tuple[object, ...], _Test] = {}
    of_context: dict[int, _Test] = {}
    count, damage = 0, None
    repeated = superseded(record.contexts)
    try:
        for whole in record.batches():
            count += len(whole)
            batch = whole
            if repeated:
                batch = whole.take(np.flatnonzero(~np.isin(whole.contexts, list(repeated))))
            for number in dict.fromkeys(batch.contexts.tolist()):
                if number not in of_context:
                    context = without_attempt(record.contexts[number])
                    test = of_context[number] = tests.setdefault(_key(context), _Test())
                    test.contexts.append(context)
            if len(batch):
                _add(of_context, batch)
    except RecordError as error:
        damage = str(error)
    testbeds: dict[str, list[_Test]] = {}
    for test in tests.values():
        testbeds.setdefault(test.contexts[0].testbed, []).append(test)
    return RunFrame(
        tuple(TestbedFrame(name, tuple(_frames(found))) for name, found in testbeds.items()),
        count,
        damage,
    )


def _add(of_context: Mapping[int, _Test], batch: RowBatch) -> None:
    """Add each row of `batch` to its quantity's columns."""
    numbers, of_row = np.unique(batch.contexts, return_inverse=True)
    tests = list(
        {id(test): test for test in map(of_context.__getitem__, numbers.tolist())}.values()
    )
    place_of = {id(test): place for place, test in enumerate(tests)}
    test_of = np.array([place_of[id(of_context[number])] for number in numbers.tolist()])[of_row]
    keys = test_of * len(batch.quantity.names) + batch.quantity.codes
    _, firsts, of_key = np.unique(keys, return_index=True, return_inverse=True)
    groups = np.split(np.argsort(of_key, kind="stable"), np.cumsum(np.bincount(of_key))[:-1])
    for group in np.argsort(firsts).tolist():  # series come in the order of their first rows
        places, first = groups[group], firsts[group]
        quantity = batch.quantity.names[batch.quantity.codes[first]]
        columns = tests[test_of[first]].columns
        if quantity not in columns:
            unit = batch.unit.names[batch.unit.codes[first]]
            beside = {name: set[Scalar | None]() for name in quantity_of(quantity, unit).beside}
            columns[quantity] = _Columns(unit, beside)
        columns[quantity].add(batch, places)


def _key(context: Context) -> tuple[object, ...]:
    conditions = frozenset(context.conditions.items())
    return context.testbed, context.test, context.simulated, conditions


def _frames(tests: list[_Test]) -> Iterable[TestFrame]:
    taken: dict[str, int] = {}
    for test in tests:
        context = test.contexts[0]
        label = label_of(context)
        taken[label] = taken.get(label, 0) + 1
        if taken[label] > 1:
            label = f"{label} ({taken[label]})"
        series = {quantity: columns.series() for quantity, columns in test.columns.items()}
        found = TestFrame(context.test, label, context.simulated, tuple(test.contexts), series)
        yield replace(found, label=label.replace("→", "⇄")) if len(found.changes) > 1 else found


def label_of(context: Context, conditions: Mapping[str, Scalar] | None = None) -> str:
    """Return a short label of a test: its function, its plans, its other conditions.

    conditions: those to name; all of them if None.
    """
    name = context.test.rpartition("::")[2].partition("[")[0]
    name = name.removeprefix("test_").replace("_", " ") or context.test
    conditions = context.conditions if conditions is None else conditions
    parts = []
    if "before" in conditions and "after" in conditions:
        parts.append(f"{conditions['before']} → {conditions['after']}")
    parts += [_stated(key, value) for key, value in conditions.items() if key not in _HIDDEN]
    return f"{name}: {', '.join(parts)}" if parts else name


_UNITS = {"dbm": "dBm", "db": "dB", "ns": "ns", "nm": "nm", "s": "s", "c": "°C", "bps": "bit/s"}


def condition_name(name: str) -> tuple[str, str]:
    """Return a condition's name as text, and the unit that ends it, as in `received_power_dbm`."""
    parts = name.split("_")
    if len(parts) > 1 and parts[-1] in _UNITS:
        return " ".join(parts[:-1]), _UNITS[parts[-1]]
    return " ".join(parts), ""


def stated_beside(name: str, values: Iterable[Scalar | None]) -> str:
    """Return what rows state of a condition: "1310 nm", "24.9 to 25.2 °C", "PRBS31Q".

    Of more than three numbers the least and the greatest; "" where no row states one.

    Args:
        name: of the condition, with its unit at its end.
        values: those of all rows; None of one that states none.
    """
    found = set(values)
    lacking = None in found and len(found) > 1
    numbers = sorted(each for each in found if isinstance(each, int | float))
    stated = [f"{each:.6g}" for each in numbers]
    if len(numbers) > _MOST_BESIDE:
        stated = [f"{stated[0]} to {stated[-1]}"]
    stated += sorted(each for each in found if isinstance(each, str))
    unit = condition_name(name)[1]
    text = f"{', '.join(stated)} {unit}".rstrip() if stated else ""
    return f"{text}, not of all" if lacking else text


def _stated(name: str, value: Scalar) -> str:
    """Return a condition as text: "temperature -5 °C"."""
    title, unit = condition_name(name)
    return f"{title} {value} {unit}".rstrip()


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts port 9 before port 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
