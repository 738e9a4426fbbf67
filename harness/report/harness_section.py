"""The harness itself: closure against the ground truth of a simulation, and its own delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lightrig.harness.quantities import declarations
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.frames import TestFrame
from lightrig.harness.report.markup import bounded_value, median_value, share_value
from lightrig.harness.report.sections import (
    Cell,
    Check,
    Column,
    Section,
    SectionData,
    Styled,
    Table,
    in_declared_order,
    of_quantities,
    sentence,
)
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.testbeds import format_share
from lightrig.testbeds.intervals import at_most

# ------------------------------------------------------------------------------- closure


_OF_LOSSES, _OF_PATHS = "loss.closure", "loss.path_closure"


@dataclass(frozen=True, slots=True)
class _Closure:
    """Closure of one quantity over all simulated tests.

    Attributes:
        inside, total: intervals that contain the ground truth, and all of them.
        closed, events: the same of events, all of whose intervals have to contain it.
        widths: of the intervals, in ns.
        missed: labels of the tests that missed any.
    """

    title: str
    inside: int
    total: int
    closed: int
    events: int
    widths: list[float]
    missed: list[str]
    simulated: bool
    is_closed: bool


def _closures(data: SectionData) -> Iterator[_Closure]:
    of_paths = filter(data.frame.having, [_OF_PATHS])
    for name in in_declared_order([*data.frame.quantities("closure"), *of_paths]):
        widths: list[float] = []
        missed: list[str] = []
        inside = total = closed = events = 0
        is_closed = True
        tests = data.frame.having(name)
        for test in tests:
            series = test.series[name]
            contained = np.rint(series.value * series.count)
            inside += int(contained.sum())
            total += int(series.count.sum())
            closed += int((contained == series.count).sum())
            by_verdict = series.conditions.get("closed", contained == series.count)
            is_closed = is_closed and bool(np.all(by_verdict))
            events += contained.size
            if (contained < series.count).any():
                missed.append(test.label)
            measured = name.partition(".")[2]
            seen = test.series.get(measured)
            if seen is not None and quantity_of(measured, "ns").unit == "ns":
                widths.extend((seen.upper - seen.lower).tolist())
        yield _Closure(
            quantity_of(name, "1").title,
            inside,
            total,
            closed,
            events,
            widths,
            missed,
            any(test.simulated for test in tests),
            is_closed,
        )


def _closure_verdict(one: _Closure) -> Cell:
    if one.is_closed:
        return Check(True, "closed")
    missed = f"{one.total - one.inside:,} missed in {'; '.join(one.missed)}"
    return Check(False, "not closed"), Styled(missed, "muted")


def _closure_share(one: _Closure) -> Cell:
    # Rounded down, so that only all of them are 100 %.
    share = float(np.floor(one.inside / max(one.total, 1) * 1e4) / 1e4)
    return f"{one.inside:,} of {one.total:,}", Styled(f"({format_share(share)})", "muted")


def _closure_events(one: _Closure) -> Cell:
    low, high = clopper_pearson(one.closed, one.events, CONFIDENCE)
    return share_value(f"{one.closed:,} of {one.events:,}", low, high, one.simulated)


def _closure_width(one: _Closure) -> Cell:
    if not one.widths:
        return None
    return Value(
        shown(float(np.mean(one.widths)), "ns"),
        (f"mean of {len(one.widths):,}", "simulated" if one.simulated else ""),
    )


_CLOSURE = Table(
    "Intervals and the ground truth",
    (
        Column[_Closure]("stage", lambda one: Styled(one.title, "strong")),
        Column[_Closure]("verdict", _closure_verdict),
        Column[_Closure]("intervals with the truth inside", _closure_share),
        Column[_Closure]("events, all intervals", _closure_events),
        Column[_Closure]("width", _closure_width),
    ),
    rows=_closures,
    about="Measurement against the ground truth of the simulation. An interval closes "
    "where the true moment is inside; a wide one closes easily, so its width is shown. The "
    "interval of the share counts events, since the ports of one event move together.",
)


# --------------------------------------------------------------------------------- delays


@dataclass(frozen=True, slots=True)
class _Delay:
    """A delay that the harness adds: each stamp, or the worst stamp of each event, in ns."""

    quantity: str
    title: str
    median: Quantile | NotEnough
    p99: Quantile | NotEnough
    samples: int
    simulated: bool


def _delays(data: SectionData) -> Iterator[_Delay]:
    for name in data.frame.quantities("harness"):
        tests: list[TestFrame] = [
            test for test in data.frame.having(name) if test.series[name].unit == "ns"
        ]
        if not tests:
            continue
        simulated = any(test.simulated for test in tests)
        each = np.concatenate([test.series[name].upper for test in tests])
        worst = np.concatenate([test.samples(name)[1] for test in tests])
        for samples, title in ((each, "each stamp"), (worst, "worst of each event")):
            # A stamp without an upper bound stays in: it counts as never.
            low = np.minimum(samples, float(2**63))
            yield _Delay(
                name,
                title,
                quantile(low, samples, 0.5, CONFIDENCE),
                quantile(low, samples, 0.99, CONFIDENCE, "upper"),
                samples.size,
                simulated,
            )


def _delay_name(one: _Delay) -> Cell:
    declared = quantity_of(one.quantity, "ns")
    return Styled(declared.title, "strong"), Styled(declared.meaning, "muted")


_DELAYS = Table(
    "Delays of the harness",
    (
        Column[_Delay]("quantity", _delay_name),
        Column[_Delay]("of", lambda one: f"{one.title} ({one.samples:,})"),
        Column[_Delay]("median", lambda one: median_value(one.median, one.simulated)),
        Column[_Delay]("p99", lambda one: bounded_value(one.p99, one.simulated)),
    ),
    rows=_delays,
    about="Time from a change to the harness's stamp of it: a resolution that no measurement of "
    "this run can exceed. Counted is the upper bound of each stamp's delay, from the request "
    "that caused the change. Stamps of one event are not independent, so the worst of each event "
    "is judged too.",
)

# ----------------------------------------------------------------------- events set aside


@dataclass(frozen=True, slots=True)
class _SetAside:
    """Events of one test in which the simulation was late; `longest` is its delay, in ns."""

    test: TestFrame
    count: int
    longest: float
    port: str


def _set_aside(data: SectionData) -> Iterator[_SetAside]:
    for test in data.frame.having("set_aside.delay"):
        delays = test.series["set_aside.delay"]
        worst = int(np.argmax(delays.value))
        yield _SetAside(test, delays.events, float(delays.value[worst]), delays.subject[worst])


_SET_ASIDE = Table(
    "Events set aside",
    (
        Column[_SetAside]("test", lambda one: Styled(one.test.label, "strong")),
        Column[_SetAside]("set aside", lambda one: f"{one.count:,}"),
        Column[_SetAside]("judged", lambda one: f"{one.test.events:,}"),
        Column[_SetAside](
            "longest delay",
            lambda one: Value(
                shown(one.longest, "ns"), (one.port, "simulated" if one.test.simulated else "")
            ),
        ),
    ),
    rows=_set_aside,
    about="Events in which the simulation was late: its own links in the kernel followed its light "
    "by more than the delay that is allowed. No limit judges them, and new events replace them; "
    "what was measured plays no part in that. What was seen of their stages is in the rows of "
    "set_aside.stage.",
)


@dataclass(frozen=True, slots=True)
class _Unclocked:
    """Events of one test of which the clocks of `servers` tell no times."""

    test: TestFrame
    count: int
    servers: Sequence[str]


def _unclocked(data: SectionData) -> Iterator[_Unclocked]:
    for test in data.frame.having("set_aside.clock"):
        series = test.series["set_aside.clock"]
        yield _Unclocked(test, series.events, sorted(set(series.subject)))


_UNCLOCKED = Table(
    "Events without times",
    (
        Column[_Unclocked]("test", lambda one: Styled(one.test.label, "strong")),
        Column[_Unclocked]("set aside", lambda one: f"{one.count:,}"),
        Column[_Unclocked]("judged", lambda one: f"{one.test.events:,}"),
        Column[_Unclocked]("clock of", lambda one: ", ".join(one.servers)),
    ),
    rows=_unclocked,
    about="Events in which a server's clock jumped or changed its rate, so that its stamps have no "
    "time. No limit judges them, and new events replace them.",
)


@dataclass(frozen=True, slots=True)
class _LateLight:
    """One stage of light that late monitors saw; `latest` is the last moment in ns."""

    test: TestFrame
    stage: str
    events: int
    latest: float
    late: float


def _late_light(data: SectionData) -> Iterator[_LateLight]:
    for test in data.frame.tests:
        for name, series in test.series.items():
            if name.startswith("late_light."):
                late = float(series.conditions["late_ns"].max())
                stage = name.removeprefix("late_light.")
                yield _LateLight(test, stage, series.events, float(series.upper.max()), late)


_LATE_LIGHT = Table(
    "Light seen late",
    (
        Column[_LateLight]("test", lambda one: Styled(one.test.label, "strong")),
        Column[_LateLight]("stage", lambda one: sentence(one.stage)),
        Column[_LateLight]("events", lambda one: f"{one.events:,}"),
        Column[_LateLight](
            "from the command",
            lambda one: Value(
                f"at most {at_most(one.latest, 'ns')}",
                ("in all of them", "simulated" if one.test.simulated else ""),
            ),
        ),
        Column[_LateLight]("monitors late by", lambda one: f"{shown(one.late, 'ns')} or more"),
    ),
    rows=_late_light,
    about="Events in which loss of signal was read after the loss of carrier that it causes: the "
    "readings of the monitors are older than the testbed file states. When light went or came "
    "is known as an upper bound only; no limit judges it.",
)

CLOSURE = Section(
    declarations.CLOSURE,
    parts=(_CLOSURE,),
    of_harness=True,
    estimates=of_quantities(),
    # The section of insertion loss shows that of losses.
    shows=lambda name: name.startswith("closure.") or name in {_OF_LOSSES, _OF_PATHS},
)

HARNESS = Section(
    declarations.HARNESS,
    parts=(_DELAYS, _SET_ASIDE, _UNCLOCKED, _LATE_LIGHT),
    of_harness=True,
    estimates=of_quantities(),
    shows=lambda name: (
        name in {declarations.LOOK, "set_aside.clock"}
        or name.startswith("late_light.")
        or (name.startswith(("harness.", "set_aside.")) and quantity_of(name, "ns").unit == "ns")
    ),
)
