"""A journal as arrays, read in one pass: a frame a testbed, in it one a test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.record import Context, RecordError, Row, RunRecord, Scalar

Numbers: TypeAlias = npt.NDArray[Any]

COUNTERS = frozenset(("event", "n", "repetition", "sample"))
"""Conditions that number what was measured; they set nothing."""
_HIDDEN = {"before", "after", "clock", "testbed"}


@dataclass(frozen=True, slots=True)
class Series:
    """All rows of one quantity of one test; arrays of one length, in the order written.

    subject: what each row is about.
    event: which event of the test; -1 where a row names none.
    lower, value, upper: in `unit`. A time without upper bound is endless, one without lower
        bound begins at 0, since nothing happens before the command; any other value without a
        bound is its own.
    count: how many intervals a closure row speaks of; 1 elsewhere.
    conditions: numbers that held for each row alone, by name; NaN where a row has none.
    """

    unit: str
    subject: tuple[str, ...]
    event: Numbers
    lower: Numbers
    value: Numbers
    upper: Numbers
    count: Numbers
    conditions: Mapping[str, Numbers] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """How many different events the rows are of."""
        return int(np.unique(self.event).size)

    def each_event(self, *, greatest: bool = True) -> tuple[Numbers, Numbers]:
        """Lower and upper bound of each event's greatest (or least) subject: one sample an event.

        The subjects of one event move together and are not independent samples.
        """
        _, first, place = np.unique(self.event, return_index=True, return_inverse=True)
        lower, upper = self.lower[first].copy(), self.upper[first].copy()
        pick = np.maximum if greatest else np.minimum
        pick.at(lower, place, self.lower)
        pick.at(upper, place, self.upper)
        return lower, upper

    def samples(self, *, greatest: bool = True) -> tuple[Numbers, Numbers]:
        """Lower and upper bound of each sample: one an event, or one a row if none has events."""
        if (self.event >= 0).all():
            return self.each_event(greatest=greatest)
        return self.lower, self.upper


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

    @property
    def events(self) -> int:
        """How many reconfiguration events the test recorded."""
        numbers = [s.event for q, s in self.series.items() if q.startswith("reconfiguration.")]
        return int(np.unique(np.concatenate(numbers)).size) if numbers else 0

    def stages(self) -> list[str]:
        """Which stages of whole events were recorded, as first met."""
        return [q.partition(".")[2] for q in self.series if q.startswith("reconfiguration.")]


@dataclass(frozen=True, slots=True)
class TestbedFrame:
    """The tests of one testbed, in the order of their first rows."""

    __test__ = False

    name: str
    tests: tuple[TestFrame, ...]

    @property
    def simulated(self) -> bool:
        """Whether any test had something simulated in it."""
        return any(test.simulated for test in self.tests)

    def having(self, quantity: str) -> list[TestFrame]:
        """The tests that recorded `quantity`."""
        return [test for test in self.tests if quantity in test.series]

    def quantities(self, family: str) -> list[str]:
        """Every quantity recorded under `family`, as first met."""
        found = (q for test in self.tests for q in test.series if q.startswith(f"{family}."))
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class RunFrame:
    """A whole run.

    rows: how many rows were read.
    damage: why reading stopped before the end; None where it did not.
    """

    testbeds: tuple[TestbedFrame, ...]
    rows: int
    damage: str | None


@dataclass(slots=True)
class _Columns:
    unit: str
    subject: list[str] = field(default_factory=list)
    event: list[int] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    conditions: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        event, count = row.conditions.get("event"), row.conditions.get("n")
        subject = row.subject
        if len(row.conditions) > (event is not None) + (count is not None):
            subject = self._held(row)
        self.subject.append(subject)
        self.event.append(event if isinstance(event, int) else -1)
        least, most = (0.0, np.inf) if self.unit == "ns" else (row.value, row.value)
        self.lower.append(least if row.lower is None else row.lower)
        self.value.append(row.value)
        self.upper.append(most if row.upper is None else row.upper)
        self.count.append(count if isinstance(count, int) else 1)

    def _held(self, row: Row) -> str:
        """Keep the numbers that held for `row`; words that held are part of its subject."""
        words = []
        for name, value in row.conditions.items():
            if name in COUNTERS or isinstance(value, bool):
                continue
            if isinstance(value, str):
                words.append(value)
            else:
                self.conditions.setdefault(name, {})[len(self.value)] = value
        return ", ".join([row.subject, *words])

    def series(self) -> Series:
        held = {name: np.full(len(self.value), np.nan) for name in self.conditions}
        for name, found in self.conditions.items():
            held[name][list(found)] = list(found.values())
        return Series(
            self.unit,
            tuple(self.subject),
            np.array(self.event, dtype=np.int64),
            np.array(self.lower, dtype=np.float64),
            np.array(self.value, dtype=np.float64),
            np.array(self.upper, dtype=np.float64),
            np.array(self.count, dtype=np.int64),
            held,
        )


@dataclass(slots=True)
class _Test:
    contexts: list[Context] = field(default_factory=list)
    columns: dict[str, _Columns] = field(default_factory=dict)


def collect(record: RunRecord) -> RunFrame:
    """Read every row of `record`; damage ends the reading and is told, not raised."""
    tests: dict[tuple[object, ...], _Test] = {}
    count, damage = 0, None
    last: Context | None = None
    test = _Test()
    try:
        for context, row in record.rows():
            if context is not last:
                test, last = tests.setdefault(_key(context), _Test()), context
                if not any(context is known for known in test.contexts):
                    test.contexts.append(context)
            columns = test.columns.get(row.quantity)
            if columns is None:
                columns = test.columns[row.quantity] = _Columns(row.unit)
            columns.add(row)
            count += 1
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
        yield TestFrame(context.test, label, context.simulated, tuple(test.contexts), series)


def label_of(context: Context, conditions: Mapping[str, Scalar] | None = None) -> str:
    """Name a test for people: its function, the plans it moves between, what else held.

    conditions: those to name; all of them if None.
    """
    name = context.test.rpartition("::")[2].partition("[")[0]
    name = name.removeprefix("test_").replace("_", " ") or context.test
    conditions = context.conditions if conditions is None else conditions
    parts = []
    if "before" in conditions and "after" in conditions:
        parts.append(f"{conditions['before']} → {conditions['after']}")
    parts += [f"{key} {value}" for key, value in conditions.items() if key not in _HIDDEN]
    return f"{name}: {', '.join(parts)}" if parts else name


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts port 9 before port 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
