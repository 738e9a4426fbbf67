"""A journal as arrays, read in one pass: a frame a testbed, in it one a test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.record import Context, RecordError, Row, RunRecord

Numbers: TypeAlias = npt.NDArray[Any]

_HIDDEN = {"before", "after", "clock", "testbed"}


@dataclass(frozen=True, slots=True)
class Series:
    """All rows of one quantity of one test; arrays of one length, in the order written.

    subject: what each row is about.
    event: which event of the test; -1 where a row names none.
    lower, value, upper: in `unit`. Where a row has no upper bound it is infinite; where it has
        no lower bound it is 0 for a time, since nothing happens before the command, else -inf.
    count: how many intervals a closure row speaks of; 1 elsewhere.
    """

    unit: str
    subject: tuple[str, ...]
    event: Numbers
    lower: Numbers
    value: Numbers
    upper: Numbers
    count: Numbers

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

    def add(self, row: Row, least: float) -> None:
        event, count = row.conditions.get("event"), row.conditions.get("n")
        self.subject.append(row.subject)
        self.event.append(event if isinstance(event, int) else -1)
        self.lower.append(least if row.lower is None else row.lower)
        self.value.append(row.value)
        self.upper.append(np.inf if row.upper is None else row.upper)
        self.count.append(count if isinstance(count, int) else 1)

    def series(self) -> Series:
        return Series(
            self.unit,
            tuple(self.subject),
            np.array(self.event, dtype=np.int64),
            np.array(self.lower, dtype=np.float64),
            np.array(self.value, dtype=np.float64),
            np.array(self.upper, dtype=np.float64),
            np.array(self.count, dtype=np.int64),
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
            columns.add(row, 0.0 if columns.unit == "ns" else -np.inf)
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


def label_of(context: Context) -> str:
    """Name a test for people: its function, the plans it moves between, what else held."""
    name = context.test.rpartition("::")[2].partition("[")[0]
    name = name.removeprefix("test_").replace("_", " ") or context.test
    conditions = context.conditions
    parts = []
    if "before" in conditions and "after" in conditions:
        parts.append(f"{conditions['before']} → {conditions['after']}")
    parts += [f"{key} {value}" for key, value in conditions.items() if key not in _HIDDEN]
    return f"{name}: {', '.join(parts)}" if parts else name


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts port 9 before port 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]
