"""Switching times of circuits, from the record of an oscilloscope behind photodetectors.

One definition each, as in IEC 61300-3-21: the rise lasts from 10 % to 90 % of the new level, the
fall from 90 % to 10 % of the old one. Bounce lasts from 90 % until light stays within 0.5 dB of its
level, and the switching time from the command until then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.edges import edges
from lightrig.harness.measure.measured import Measured, median_of
from lightrig.harness.measure.path_changes import Module, NotLoggedError, lit, modules_on
from lightrig.harness.measure.reconfiguration import IncompleteError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import judge_bounds
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerLog, SimultaneousLogs
from lightrig.testbeds import Plan

PERIOD = 5_000
"""Period of a sample, in ns."""
SAMPLES = 10_000
SETTLED_DB = 0.5
"""Light is back once it stays within this of its level."""

_BLOCK = 10
"""Number of samples that are averaged, against the noise of the oscilloscope."""
_LEAD = 1_000_000
_SIGMAS = 5.0
"""A level this many standard deviations beyond a threshold is certainly beyond it."""

Samples: TypeAlias = npt.NDArray[np.float64]
Name: TypeAlias = Literal["rise", "fall", "bounce", "time"]


@dataclass(frozen=True)
class Transient:
    """Light that comes or goes in one log, in ns from the log's beginning.

    Attributes:
        tenth, ninetieth: between which moments it first passed 10 % and 90 % of its level.
        settled: when it came to stay within `SETTLED_DB`; None for light that goes.
        level_mw: the level, in mW.
    """

    tenth: Span
    ninetieth: Span
    settled: Span | None
    level_mw: float


@dataclass(frozen=True)
class Switching:
    """One change of circuits, as an oscilloscope saw it.

    Attributes:
        plans: from which to which.
        sent: between which stamps the command was written, on the bench's clock.
        start: when the record began, on the bench's clock.
        falls, rises: light that went and that came, by the module that moved.
    """

    plans: tuple[str, str]
    sent: Span
    start: Span
    falls: dict[Module, Transient]
    rises: dict[Module, Transient]

    def durations(self) -> Iterator[tuple[Name, Module, Span]]:
        """Name, module and bounds of each duration, in ns."""
        for module, went in self.falls.items():
            yield "fall", module, _duration(went.ninetieth, went.tenth)
        for module, came in self.rises.items():
            assert came.settled is not None
            yield "rise", module, _duration(came.tenth, came.ninetieth)
            yield "bounce", module, _duration(came.ninetieth, came.settled)
            took = Span(
                max(self.start.earliest + came.settled.earliest - self.sent.latest, 0),
                self.start.latest + came.settled.latest - self.sent.earliest,
            )
            yield "time", module, took


def measure_switching(
    fabric: Fabric,
    recording: Recording,
    scope: SimultaneousLogs,
    plans: tuple[Plan, Plan],
    count: int,
    *,
    period: int = PERIOD,
    subject: str | None = None,
) -> Measured | None:
    """Move circuits `count` times to and fro between two plans; record all durations.

    Of every circuit that was made twice or more, the spread of its level is recorded too, as its
    repeatability. period: of a sample, in ns; the record of `SAMPLES` has to hold the whole change.

    Raises:
        NotLoggedError: the oscilloscope sees no circuit on its paths in both plans, or not that of
            `subject`.
        IncompleteError: light did not go and come, once each, within the record.
        NotDoneError: the switch said done and is not.
        InstrumentError: an instrument refused or failed.
    """
    await_steady_temperature(fabric.bench, recording)
    modules = modules_on(fabric, scope, plans)
    if subject is not None and subject not in map(str, modules):
        known = ", ".join(map(str, modules))
        raise NotLoggedError(
            f"{scope.name} sees no circuit from {subject!r} move, but from {known}"
        )
    levels: dict[str, list[float]] = {}
    times: list[Span] = []
    with lit(fabric, modules):
        fabric.apply(plans[0], check_budget=False)
        for index in range(count):
            path = plans if index % 2 == 0 else plans[::-1]
            moved = modules if index % 2 == 0 else [module.turned() for module in modules]
            found = _switch(fabric, scope, moved, path, period)
            for module, came in found.rises.items():
                made = f"{module}>{module.egress[1]}"
                levels.setdefault(made, []).append(10 * float(np.log10(came.level_mw)))
            times += [
                took
                for name, module, took in found.durations()
                if name == "time" and str(module) == subject
            ]
            number = recording.next_event()
            recording.record(
                [*switching_rows(found, number), *closure_of_switching(found, fabric, number)]
            )
    time = fabric.bench.clock.now()
    recording.record(repeatability_rows(levels, time))
    if subject is None:
        return None
    return median_of("switching.time", subject, times, simulated=bool(fabric.bench.simulated))


def transient(log: PowerLog, *, rising: bool) -> Transient:
    """Return when the light in `log`, which comes or goes exactly once, passed its thresholds.

    Raises `IncompleteError`.
    """
    samples, period = _blocks(log)
    found = edges(log)
    wanted = [n for n, edge in enumerate(found) if edge.rising == rising]
    if len(wanted) != 1:
        raise IncompleteError(
            f"light was seen to {'come' if rising else 'go'} {len(wanted)} times within "
            f"{len(log.milliwatt) * log.period / 1e6:g} ms, expected once"
        )
    number = wanted[0]
    begun, end = 0, len(samples)
    if number > 0:
        begun = _between(found[number - 1].at, found[number].at) // period
    if number + 1 < len(found):
        end = _between(found[number].at, found[number + 1].at) // period
    part = samples[begun:end] if rising else samples[begun:end][::-1]
    # From here on light comes: time runs backwards where it goes.
    middle = (sum(found[number].at) // 2) // period - begun
    middle = min(max(middle if rising else len(part) - middle, 1), len(part) - 1)
    # Levels are those of the farther halves: what is near the edge may still be on its way.
    dark = float(np.median(part[: (middle + 1) // 2]))
    level = float(np.median(part[(middle + len(part)) // 2 :]))
    noise = float(np.median(np.abs(np.diff(samples)))) / (0.6745 * 2**0.5)
    share, margin = (part - dark) / (level - dark), _SIGMAS * noise / (level - dark)

    def span(first: int, last: int) -> Span:
        """Bounds of a moment from the beginning of block `first` to the end of block `last`."""
        if not rising:
            first, last = len(part) - 1 - last, len(part) - 1 - first
        return Span((begun + first) * period, (begun + last + 1) * period)

    tenth, ninetieth = (span(*_passage(share, each, margin)) for each in (0.1, 0.9))
    if not rising:
        return Transient(tenth, ninetieth, None, level)
    lowest, highest = 10 ** (-SETTLED_DB / 10), 10 ** (SETTLED_DB / 10)
    outside = np.flatnonzero((share < lowest - margin) | (share > highest + margin))
    unclear = np.flatnonzero((share < lowest + margin) | (share > highest - margin))
    return Transient(tenth, ninetieth, span(int(outside[-1]), int(unclear[-1]) + 1), level)


def _passage(share: Samples, threshold: float, margin: float) -> tuple[int, int]:
    """Return the last block before light passed `threshold` first, and the first after."""
    after = int(np.flatnonzero(share > threshold + margin)[0])
    before = np.flatnonzero(share[:after] < threshold - margin)
    return (int(before[-1]) if len(before) else 0), after


def _blocks(log: PowerLog) -> tuple[Samples, int]:
    """Means of blocks of samples, and the period of a block in ns."""
    whole = len(log.milliwatt) // _BLOCK * _BLOCK
    return log.milliwatt[:whole].reshape(-1, _BLOCK).mean(axis=1), log.period * _BLOCK


def _between(one: Span, two: Span) -> int:
    return (one.latest + two.earliest) // 2


def _duration(begin: Span, end: Span) -> Span:
    length = end.since(begin)
    return Span(max(length.earliest, 0), max(length.latest, 0))


def _switch(
    fabric: Fabric,
    scope: SimultaneousLogs,
    modules: Sequence[Module],
    plans: tuple[Plan, Plan],
    period: int,
) -> Switching:
    clock, name = fabric.bench.clock, modules[0].switch
    transition = fabric.prepare(plans[1])
    change = transition.changes[name]
    channels = sorted({channel for module in modules for channel in module.channels})
    begin = partial(fabric.bench.switches[name].change, change.remove, change.add)
    pending = scope.log_together(channels, samples=SAMPLES, period=period)
    clock.sleep(_LEAD)
    operation = begin()
    operation.done()
    logs = pending.result()
    transition.verify()
    return Switching(
        (plans[0].name, plans[1].name),
        operation.sent,
        logs[channels[0]].start,
        {module: transient(logs[module.channels[0]], rising=False) for module in modules},
        {module: transient(logs[module.channels[1]], rising=True) for module in modules},
    )


def switching_rows(found: Switching, number: int) -> Iterator[Row]:
    """Return the rows of one change: each duration of each module, with its bounds."""
    before, after = found.plans
    conditions: dict[str, Scalar] = {"event": number, "paths": f"{before} → {after}"}
    for name, module, (low, high) in found.durations():
        yield Row(
            subject=str(module),
            quantity=f"switching.{name}",
            value=(low + high) // 2,
            lower=low,
            upper=high,
            unit="ns",
            time_ns=found.sent.earliest,
            conditions=conditions,
        )


def repeatability_rows(levels: dict[str, list[float]], time: int) -> Iterator[Row]:
    """The range of each circuit's level, over as many makings as its condition `n` states."""
    for made, found in levels.items():
        if len(found) > 1:
            spread = max(found) - min(found)
            conditions: dict[str, Scalar] = {"n": len(found)}
            yield Row(
                made, "switching.repeatability", spread, spread, spread, "dB", time, conditions
            )


_ENDS: dict[Name, tuple[bool, str, str]] = {
    "fall": (False, "light90", "light10"),
    "rise": (True, "light10", "light90"),
    "bounce": (True, "light90", "light"),
}
"""Direction, and the moments of the ground truth that begin and end each duration."""


def closure_of_switching(found: Switching, fabric: Fabric, number: int) -> Iterator[Row]:
    """Share of the durations that hold the true one; nothing on hardware, or without edges."""
    truth = fabric.bench.truth
    if truth is None:
        return
    inside = []
    for name, module, seen in found.durations():
        up = name != "fall"
        subject = f"{module.switch}.{module.egress[up]}"
        since = found.sent.earliest
        if name == "time":
            settled = truth.first(subject, "light", up=True, since=since)
            true = settled and settled.since(found.sent)
        else:
            _, first, last = _ENDS[name]
            begin = truth.first(subject, first, up=up, since=since)
            end = truth.first(subject, last, up=up, since=since)
            true = begin and end and end.since(begin)
        if true is not None:
            inside.append(true.latest >= seen.earliest and true.earliest <= seen.latest)
    if inside:
        subject, verdict = fabric.testbed.name, judge_bounds(inside)
        yield closure_row(subject, "closure.switching", verdict, found.sent.earliest, number)
