"""Recording of one test: its rows, their verdicts by the testbed's limits, notes on them."""

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lightrig.harness.bench import Bench
from lightrig.harness.bench.coverage import Coverage
from lightrig.harness.findings import CLOCK, LIMIT, Finding, FoundError, advice_of
from lightrig.harness.measure.gates import Counted, judge_counts
from lightrig.harness.measure.stages import PortTimes, Reconfiguration
from lightrig.harness.quantities.declarations import LOOK, PORTS_IN_SERVICE
from lightrig.harness.quantities.quantity import Reduction
from lightrig.harness.quantities.registry import (
    UnknownQuantityError,
    all_quantities,
    current_name,
    quantity,
    quantity_of,
)
from lightrig.harness.record import COUNTERS, Row, Scalar
from lightrig.harness.statistics.limits import judge
from lightrig.harness.statistics.sample_plans import SamplePlan
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.core.errors import ClockError
from lightrig.testbeds import LightrigError, Limit, format_duration, format_share
from lightrig.testbeds.findings import did_you_mean

_COMBINE: Mapping[Reduction, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "sum": math.fsum,
}

PORTS = "ports"
"""Condition of events as a whole of which ports took no part: events of other sets are others."""

MOST_SHARE = 0.1
"""Largest share of a test's events that may be set aside; beyond, the test is inconclusive."""

MOST_DELAY = 50_000_000
"""Longest delay of the kernel's links behind the light, in ns, of an event that is judged."""

Store = Callable[[Sequence[Row]], None]
"""Takes rows for good, for instance a journal."""

StoreOn = Callable[[Bench | None, Mapping[str, Scalar]], Store]
"""Returns a store for rows of another bench than the test's, or under more conditions."""


class Note(Protocol):
    """Takes a sentence for people; `in_report`: also for the report."""

    def __call__(self, sentence: str, /, *, in_report: bool) -> None:
        """Show it."""


class NightsBefore(Protocol):
    """Gives the values of a quantity in earlier nights, under these conditions too."""

    def __call__(
        self, quantity: str, conditions: Mapping[str, Scalar], /
    ) -> Sequence[Mapping[str, float]]:
        """Return them by subject, the oldest night first."""


class LimitExceededError(FoundError, AssertionError):
    """A measured quantity exceeds a limit of the testbed."""


class NotEnoughDataError(LightrigError):
    """Too few samples for a verdict at the stated confidence."""


class UnitError(LightrigError, ValueError):
    """A row has another unit than its quantity."""


def limits_under(limits: Mapping[str, Limit], families: Iterable[str]) -> list[Limit]:
    """Limits on the quantities `families` and on those under them, e.g. "reconfiguration"."""
    roots = tuple(families)
    prefixes = tuple(f"{root}." for root in roots)
    return [
        limit
        for quantity, limit in limits.items()
        if quantity in roots or quantity.startswith(prefixes)
    ]


@dataclass(slots=True)
class _Samples:
    """Event and bounds of the rows of one quantity, which stay in memory until they are judged.

    Arrays of numbers, 24 bytes a row: a long run records millions. `without_event` says whether a
    row named none, and then rows are samples each by itself.
    """

    numbers: dict[object, int] = field(default_factory=dict)
    event: "array[int]" = field(default_factory=lambda: array("q"))
    low: "array[float]" = field(default_factory=lambda: array("d"))
    high: "array[float]" = field(default_factory=lambda: array("d"))
    without_event: bool = False

    def add(self, row: Row, conditions: frozenset[tuple[str, Scalar]]) -> None:
        """Add a row; under other conditions, an event of the same number is another one."""
        event = row.conditions.get("event")
        self.without_event |= event is None
        if type(event) is not int or event < 0 or conditions:
            # Numbered below those that rows number.
            event = self.numbers.setdefault((event, conditions), -1 - len(self.numbers))
        self.event.append(event)
        self.low.append(row.value if row.lower is None else row.lower)
        self.high.append(row.value if row.upper is None else row.upper)

    def bounds(self) -> Iterator[tuple[float, float]]:
        return zip(self.low, self.high, strict=True)


class Recording:
    """Rows, verdicts and notes of one test: the `measure` fixture.

    Measurements, in modules beside this one, take a recording and put their rows into it; so may
    a test, with rows of its own. Limits judge all rows that were recorded, unless stated.

    Args:
        store: takes the rows.
        limits: of the testbed, by quantity.
        store_on: returns a store for rows of another bench, or under more conditions.
        judged: is called with each verdict.
        undecided: is called with the limits that need more samples; `judge` raises without it.
        note: takes sentences for the terminal and, with `in_report`, the report.
        before: gives the values of this test in earlier nights.
        found: takes what is found wrong.
        test: name of the test, in sentences.

    Attributes:
        found: takes findings, which are kept with the test's outcome.
        conditions: conditions of all later rows, such as a temperature that is held.
        port_times: of its reconfigurations, by port.
        events: number of events so far.
        whole: the subject of events as a whole: the testbed's name.
        coverage: which links take part; None where nothing says.
        missing: why a quantity has no samples, and what to do, by its name.
        slow_watches: of each event of which a watch was too slow to see all, the sentence of it.
        set_aside: number of those that no limit judges, since a server's clock tells no times of
            them, or the simulation was late in them.
    """

    def __init__(
        self,
        store: Store,
        limits: Mapping[str, Limit] | None = None,
        *,
        store_on: StoreOn | None = None,
        judged: Callable[[Limit, Verdict], None] = lambda _limit, _verdict: None,
        undecided: Callable[[str], None] | None = None,
        note: Note = lambda _sentence, *, in_report: None,
        before: NightsBefore = lambda _quantity, _conditions: (),
        found: Callable[[Iterable[Finding]], None] = lambda _findings: None,
        test: str = "a test",
    ) -> None:
        self.test = test
        self.whole = ""
        self.coverage: Coverage | None = None
        self.before = before
        self.found = found
        self.conditions: dict[str, Scalar] = {}
        self.port_times = PortTimes()
        self._declared: set[tuple[str, str]] = set()  # names and units that were checked
        self.events = 0
        self.set_aside = 0
        self.missing: dict[str, str] = {}
        self.slow_watches: list[str] = []
        self._plans: dict[str, SamplePlan] = {}
        self._store = store
        self._limits = limits or {}
        self._store_on = store_on
        self._judged = judged
        self.undecided = undecided
        self._note = note
        self._sentences_noted: set[str] = set()
        self._set_aside_noted = 0
        self._clock_problem = ""
        self._samples: defaultdict[str, _Samples] = defaultdict(_Samples)
        self._counts: defaultdict[str, list[Counted]] = defaultdict(list)

    def next_event(self) -> int:
        """Return the number of a new event, from 0: the condition `event` of its rows."""
        self.events += 1
        return self.events - 1

    def record(
        self,
        rows: Iterable[Row],
        conditions: Mapping[str, Scalar] | None = None,
        *,
        bench: Bench | None = None,
        judged: bool = True,
    ) -> None:
        """Record rows of declared quantities, for the testbed's limits to judge.

        conditions: of all these rows, besides the test's parameters; one that numbers what was
        measured, such as `event`, is each row's own. bench: where they were
        measured, if not on the testbed's own. judged: False for rows that no limit is to judge,
        such as those of an event that did not complete. A conftest declares quantities with
        `lightrig.harness.quantities.declare`.

        Raises:
            UnknownQuantityError: a row's quantity is not declared; nothing is recorded.
            UnitError: a row's unit is not that of its quantity; nothing is recorded.
        """
        found = list(rows)
        new = {(row.quantity, row.unit) for row in found} - self._declared
        for name, unit in new:
            if unit != quantity(name).unit:
                raise UnitError(f"found {name} in {unit!r}, declared in {quantity(name).unit!r}")
        self._declared |= new
        of_all = dict(conditions or {})
        numbers = {name: of_all.pop(name) for name in COUNTERS & of_all.keys()}
        if common := {**self.conditions, **numbers}:
            found = [replace(row, conditions={**common, **row.conditions}) for row in found]
        if self.coverage is not None and (share := self.coverage.share_now()) is not None:
            ports = {PORTS: share.condition}
            found = [
                replace(row, conditions={**row.conditions, **ports})
                if row.subject == self.whole
                else row
                for row in found
            ]
        store = self._store
        if self._store_on is not None and (bench is not None or of_all):
            store = self._store_on(bench, of_all)
        store(found)
        if judged:
            under = frozenset(of_all.items())
            for row in found:
                self._samples[row.quantity].add(row, under)

    def sets_aside(self, bench: Bench, event: Reconfiguration, number: int) -> bool:
        """Set an event aside if the simulation was late in it; see `SimulatedRecording`."""
        return False

    def set_aside_for(self, error: ClockError, event: Reconfiguration, number: int) -> None:
        """Set an event aside of which a server's clock tells no times."""
        self.set_aside += 1
        self._clock_problem = problem = str(error).splitlines()[0]
        of_clock = Finding(CLOCK, problem, (error.instrument,), next_step=advice_of(error))
        self.found([of_clock])
        self.note_once(problem, f"reconfiguration {number} to {event.plan} has no times: {problem}")
        at, of_event = event.sent.earliest, {"event": number}
        self.record(
            [Row(error.instrument, "set_aside.clock", 1, 1, 1, "1", at, of_event)], judged=False
        )

    def too_many_set_aside(self, wanted: int) -> bool:
        """Whether so many are set aside that a test of `wanted` other events decides nothing."""
        return self.set_aside > MOST_SHARE * (wanted + self.set_aside)

    def _reasons(self) -> Iterator[str]:
        """Yield why events were set aside."""
        if self._clock_problem:
            yield self._clock_problem

    def follow(self, plans: Mapping[str, SamplePlan], at: int) -> None:
        """Judge the limits on some quantities by plans that are fixed now.

        They become rows, so that a report judges as the test does. at: now, in ns.
        """
        self._plans.update(plans)
        looks = [
            Row(name, LOOK, n, n, n, "1", at, {"passes": passes, "fails": fails})
            for name, plan in plans.items()
            for n, passes, fails in plan
        ]
        self.record(looks, judged=False)

    def add_count(self, quantity: str, counted: Counted) -> None:
        """Have limits on `quantity` judge what gates counted, instead of rows."""
        self._counts[quantity].append(counted)

    def end(self, at: int) -> None:
        """Record what the test as a whole shows: ports that differ, and how many took part.

        at: now, in ns.
        """
        self.record(self.port_times.rows(at), judged=False)
        if self.coverage is not None and (share := self.coverage.share()) is not None:
            n = share.linked
            of: dict[str, Scalar] = {"of": share.stated, "left_out": share.reason}
            self.record([Row(self.whole, PORTS_IN_SERVICE, n, n, n, "1", at, of)], judged=False)

    def note(self, sentence: str) -> None:
        """Show a sentence about this testbed on the terminal, as an event and in the report."""
        self._note(sentence, in_report=True)

    def note_once(self, key: str, sentence: str) -> bool:
        """Note the first of the sentences of one key; return whether this one is."""
        if key in self._sentences_noted:
            return False
        self._sentences_noted.add(key)
        self.note(sentence)
        return True

    def announce(self, sentence: str) -> None:
        """Show on the terminal what is measured next, and how long it takes."""
        self._note(sentence, in_report=False)

    def verdicts(self, *families: str) -> list[tuple[Limit, Verdict]]:
        """Return the verdict on each of the testbed's limits under `families`.

        A limit without samples is inconclusive.
        """
        share = None if self.coverage is None else self.coverage.share()
        ports = "" if share is None else share.ports
        return [
            (limit, replace(self.verdict(limit), ports=ports))
            for limit in limits_under(self._limits, families)
        ]

    def judge(self, *families: str) -> None:
        """Judge the samples of this test by the testbed's limits under `families`.

        Too many events set aside make the test inconclusive; a limit that the other events break
        is broken all the same.

        Raises:
            UnknownQuantityError: no quantity of that name is declared.
            LimitExceededError: a limit is exceeded; names each with its reason.
            NotEnoughDataError: none is broken, but one needs more samples, or too many events were
                set aside; not raised where `undecided` is given.
        """
        __tracebackhide__ = True  # pytest ends its traceback at the test's own line
        aside = f"{self.test}: {self.set_aside} of {self.events} events set aside, not judged: "
        aside += "; ".join(self._reasons())
        if self.set_aside > self._set_aside_noted:
            self._set_aside_noted = self.set_aside
            self.note(aside)
        self._judge_limits(families)
        if self.too_many_set_aside(self.events - self.set_aside):
            self._undecide(f"{aside}; more than {format_share(MOST_SHARE)} decide nothing.")

    def _judge_limits(self, families: tuple[str, ...]) -> None:
        __tracebackhide__ = True
        names = [*all_quantities(), *self._limits, *self._samples]
        known = {name[:end] for name in names for end in _ends(name)}
        families = tuple(map(current_name, families))
        for family in families:
            if family not in known:
                raise UnknownQuantityError(
                    f"no quantity {family!r} is declared{did_you_mean(family, sorted(known))}"
                )
        verdicts = self.verdicts(*families)
        for limit, verdict in verdicts:
            self._judged(limit, verdict)
        if broken := [pair for pair in verdicts if pair[1].outcome == "fail"]:
            found = (
                Finding(LIMIT, _sentences([pair]), (pair[1].subject,) if pair[1].subject else ())
                for pair in broken
            )
            raise LimitExceededError(_sentences(broken), found)
        if unclear := [pair for pair in verdicts if pair[1].outcome == "not enough data"]:
            sentence = _sentences(unclear)
            reasons = (self.missing.get(limit.quantity) for limit, _ in unclear)
            sentence = " ".join((sentence, *filter(None, dict.fromkeys(reasons))))
            if self.slow_watches:
                sentence += (
                    f" {len(self.slow_watches)} of {self.events} events are without some stages: "
                    f"{self.slow_watches[0]}"
                )
            self._undecide(sentence)

    def _undecide(self, sentence: str) -> None:
        __tracebackhide__ = True
        if self.undecided is None:
            raise NotEnoughDataError(sentence)
        self.undecided(sentence)

    def verdict(self, limit: Limit) -> Verdict:
        """Return the verdict on `limit`, which need not be one of the testbed's."""
        if counts := self._counts.get(limit.quantity):
            return judge_counts(limit, counts)
        bounds = self._combined(limit)
        low, high = [low for low, _ in bounds], [high for _, high in bounds]
        return judge(limit, low, high, self._plans.get(limit.quantity))

    def _combined(self, limit: Limit) -> list[tuple[float, float]]:
        """Return one pair of bounds an event, whose subjects are no independent samples."""
        samples = self._samples.get(limit.quantity, _Samples())
        reduction = quantity_of(limit.quantity, limit.unit).reduction(limit.side)
        if reduction is None or samples.without_event:
            return list(samples.bounds())
        by_event: dict[int, list[tuple[float, float]]] = {}
        for event, bounds in zip(samples.event, samples.bounds(), strict=True):
            by_event.setdefault(event, []).append(bounds)
        combine = _COMBINE[reduction]
        return [
            (combine([low for low, _ in each]), combine([high for _, high in each]))
            for each in by_event.values()
        ]


def _sentences(verdicts: Iterable[tuple[Limit, Verdict]]) -> str:
    return " ".join(f"{limit}: {verdict.reason}" for limit, verdict in verdicts)


def _ends(name: str) -> list[int]:
    """Return where each name ends under which a test may judge `name`: itself and its prefixes."""
    return [place for place, letter in enumerate(name) if letter == "."] + [len(name)]


class SimulatedRecording(Recording):
    """Recording of a test whose links may be simulated: sets late events aside, and counts them.

    Between namespaces a simulated switch moves links of the kernel. On a busy machine they may
    follow its light late: then the harness measures, rightly, a carrier that the switch does not
    answer for. Such an event is set aside and replaced by a new one. The delay of the simulation
    alone decides, from the light to the kernel's own stamps of its change; what was measured is
    not looked at.
    """

    _longest = 0

    def sets_aside(self, bench: Bench, event: Reconfiguration, number: int) -> bool:
        """Set an event aside if the simulation was late in it; its stages become rows of that."""
        delay = bench.world.longest_delay(event.sent.earliest) if bench.world else None
        if delay is None or delay.by <= MOST_DELAY:
            return False
        self.set_aside += 1
        self._longest = max(self._longest, delay.by)
        time, of_event = event.sent.earliest, {"event": number}
        by, port = delay.by, str(delay.port)
        late = Row(port, "set_aside.delay", by, by, by, "ns", time, of_event)
        stages = [
            Row(stage, "set_aside.stage", (low + high) // 2, low, high, "ns", time, of_event)
            for stage, (low, high) in event.stages().items()
        ]
        self.record([late, *stages], judged=False)
        return True

    def _reasons(self) -> Iterator[str]:
        yield from super()._reasons()
        if self._longest:
            yield (
                "the simulation's own links followed its light more than "
                f"{format_duration(MOST_DELAY)} late, up to {format_duration(self._longest)}"
            )
