"""Traffic: bandwidth of collectives by size, and their recovery when circuits change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lightrig.harness.jobs import quantities
from lightrig.harness.quantities.registry import quantity
from lightrig.harness.report.drawing import Axis, Numbers, Plot, even
from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.frames import Series, TestbedFrame, TestFrame
from lightrig.harness.report.markup import median_value
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Figure,
    Figures,
    Section,
    SectionData,
    Styled,
    Table,
    of_quantities,
)
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.quantiles import Quantile, quantile
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.testbeds.intervals import interval

_BANDWIDTH, _UTILIZATION = "collective.bus_bandwidth", "collective.utilization"
_LATENCY = "collective.latency"
_WIDTH, _HEIGHT = 520.0, 280.0


# -------------------------------------------------------------------------- collectives


@dataclass(frozen=True, slots=True)
class _Run:
    """One collective of one test over one topology; arrays of one length, by size."""

    test: TestFrame
    collective: str
    topology: str
    ring: str
    rate: float
    hops: int
    sizes: Numbers
    medians: Numbers
    lower: Numbers
    upper: Numbers
    samples: int


def _runs(frame: TestbedFrame) -> Iterator[_Run]:
    for test in frame.having(_BANDWIDTH):
        series = test.series[_BANDWIDTH]
        conditions = series.conditions
        if "size" not in conditions:
            continue
        # Textual conditions follow the subject.
        for subject in dict.fromkeys(series.subject):
            chosen = np.array([each == subject for each in series.subject])
            collective, _, ring = subject.partition(", ")[0].partition(" ")
            sizes = np.unique(conditions["size"][chosen])
            middle, low, high = np.array(
                [_point(series, chosen & (conditions["size"] == size)) for size in sizes]
            ).T
            of_test = test.contexts[0].conditions
            yield _Run(
                test,
                collective.replace("_", "-"),
                str(of_test.get("plan", test.label)),
                ring,
                float(conditions["line_rate_bps"][chosen].max()),
                int(conditions["hops"][chosen].max()),
                sizes,
                middle,
                low,
                high,
                int(chosen.sum() // sizes.size),
            )


def _point(series: Series, chosen: Numbers) -> tuple[float, float, float]:
    """Return the median with its interval, or with the range where there are too few samples."""
    values = series.value[chosen]
    found = quantile(values, values, 0.5, CONFIDENCE)
    if isinstance(found, Quantile) and found.lower is not None and found.upper is not None:
        return found.value, found.lower, found.upper
    return float(np.median(values)), float(values.min()), float(values.max())


@dataclass(frozen=True, slots=True)
class _JudgedRun:
    """A run of a collective, and the verdict on its test's utilization."""

    run: _Run
    verdict: Verdict | None


def _judged_runs(data: SectionData) -> Iterator[_JudgedRun]:
    verdicts = {id(one.test): one.verdict for one in data.each(_UTILIZATION)}
    for run in _runs(data.frame):
        yield _JudgedRun(run, verdicts.get(id(run.test)))


def _bandwidth(row: _JudgedRun) -> Cell:
    run = row.run
    written = interval(run.lower[-1], run.upper[-1], "bit/s", run.medians[-1])
    context = (
        f"median of {run.samples:,}",
        f"from {written.ends}",
        "simulated" if run.test.simulated else "",
    )
    return Value(written.value, context)


def _utilization(row: _JudgedRun) -> Cell:
    return f"{100 * row.run.medians[-1] / row.run.rate:.3g} % of {shown(row.run.rate, 'bit/s')}"


def _latency(row: _JudgedRun) -> Cell:
    series = row.run.test.series.get(_LATENCY)
    if series is None:
        return None
    value, low, high = (float(each[0]) for each in (series.value, series.lower, series.upper))
    written = interval(low, high, "ns", value)
    return Value(written.value, ("fitted", f"95 % interval {written.ends}"))


def _by_collective(data: SectionData) -> Iterator[Figure]:
    runs = list(_runs(data.frame))
    for collective in dict.fromkeys(run.collective for run in runs):
        yield _over_size([run for run in runs if run.collective == collective])


def _over_size(runs: Sequence[_Run]) -> Figure:
    """Return the figure of one collective: a line for each topology, and the line rate."""
    every = np.unique(np.concatenate([run.sizes for run in runs]))
    rates = sorted({run.rate for run in runs})
    highest = max(*rates, *(float(run.upper.max()) for run in runs))
    marks = every[:: -(-every.size // 6)]
    x = Axis(
        float(every[0]) / 1.3,
        float(every[-1]) * 1.3,
        tuple((float(size), _size(size)) for size in marks),
        "size",
        np.log2,
    )
    plot = Plot(_WIDTH, _HEIGHT, x, even(0.0, highest, "bit/s"), left=36, top=18)
    for index, run in enumerate(runs):
        ends = np.concatenate([run.sizes, run.sizes[::-1]])
        plot.area(ends, np.concatenate([run.lower, run.upper[::-1]]), index, "lr-band")
        plot.line(run.sizes, run.medians, index)
        plot.dots(run.sizes, run.medians, index)
    for rate in rates:
        plot.rule(rate, f"line rate {shown(rate, 'bit/s')}", level=True)
    title = f"Bus bandwidth of {runs[0].collective} over its size"
    return Figure(
        title,
        plot.svg(title, 460),
        any(run.test.simulated for run in runs),
        legend=[(number, run.topology) for number, run in enumerate(runs)],
    )


def _size(size: float) -> str:
    """Return a number of bytes as text with a binary unit."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


COLLECTIVES = Section(
    quantities.COLLECTIVES,
    estimates=of_quantities(_UTILIZATION),
    shows=frozenset((_BANDWIDTH, _UTILIZATION, _LATENCY)).__contains__,
    parts=(
        Table(
            "Bandwidth of collectives",
            (
                Column[_JudgedRun]("collective", lambda row: row.run.collective),
                Column[_JudgedRun](
                    "plan and ring", lambda row: (Styled(row.run.topology, "strong"), row.run.ring)
                ),
                Column[_JudgedRun]("size", lambda row: _size(row.run.sizes[-1])),
                Column[_JudgedRun]("bus bandwidth", _bandwidth),
                Column[_JudgedRun]("utilization", _utilization),
                Column[_JudgedRun]("latency", _latency),
                Column[_JudgedRun]("verdict", lambda row: row.verdict),
            ),
            rows=_judged_runs,
            about="Bus bandwidth of the largest size: what each link of a ring would carry in the "
            "measured time. TCP over Ethernet leaves 95.6 % of a line rate to the data; where "
            "servers have more links than a ring needs, an all-to-all uses them too. Ranks are "
            "in the order of the ring that the fabric had set; results were checked, and wrong "
            "ones are left out. After “from”: the 95 % interval of the median, or the range "
            "where there are too few samples for one. The interval is by the "
            "order of the samples; times are by the servers' clocks.",
        ),
        Figures(_by_collective),
    ),
)


# ------------------------------------------------------------------------------ recovery

_CURVE, _SURVIVED = "recovery.bus_bandwidth", "recovery.survived"
_TIMES = ("recovery.routed", "recovery.first_collective", "recovery.interruption")
_MOST_EVENTS = 6

_ByQuantity = tuple[TestFrame, dict[str, Estimate]]


def _recoveries(data: SectionData) -> Iterator[_ByQuantity]:
    return (row for row in data.by_test(_SURVIVED, *_TIMES) if _SURVIVED in row[1])


def _survived(row: _ByQuantity) -> Cell:
    survived = row[0].series[_SURVIVED].value
    return f"{int(survived.sum())} of {survived.size}"


def _time(name: str, row: _ByQuantity) -> Cell:
    one = row[1].get(name)
    return "none" if one is None else (median_or_range(one), one.verdict)


def median_or_range(one: Estimate) -> Cell:
    """Return the median of a time, or the range of all samples where they are too few."""
    if isinstance(one.median, Quantile):
        return median_value(one.median, one.test.simulated)
    series = one.test.series[one.quantity]
    least, most = float(series.lower.min()), float(series.upper.max())
    context = (f"all of {one.n:,}", "simulated" if one.test.simulated else "")
    return Value(interval(least, most, "ns").ends, context)


def _around_changes(data: SectionData) -> Iterator[Figure]:
    """Yield bandwidth over time around the events of each test."""
    for test in data.frame.having(_CURVE):
        series = test.series[_CURVE]
        after = series.conditions["after_ns"]
        x = even(float(after.min()), float(after.max()), "ns")
        across = Axis(x.low, x.high, x.ticks, f"after the command ({x.label})")
        up = even(0.0, float(series.value.max()), "bit/s")
        plot = Plot(_WIDTH, _HEIGHT, across, up, left=36, top=18)
        events = np.unique(series.event)
        drawn = events[:_MOST_EVENTS]
        for index, event in enumerate(drawn):
            chosen = series.event == event
            ends = after[chosen]
            # The bandwidth of an operation applies from the end of the one before to its end.
            begins = np.concatenate([ends[:1], ends[:-1]])
            values = np.repeat(series.value[chosen], 2)
            plot.line(np.column_stack([begins, ends]).ravel(), values, index)
        plot.rule(0.0, "command")
        title = f"Bus bandwidth around the change: {test.label}"
        more = events.size > _MOST_EVENTS
        yield Figure(
            title,
            plot.svg(title, 460),
            test.simulated,
            f"The first {_MOST_EVENTS} of {events.size} events." if more else "",
            [(number, f"event {event}") for number, event in enumerate(drawn)],
        )


RECOVERY = Section(
    quantities.RECOVERY,
    estimates=of_quantities(_SURVIVED, *_TIMES),
    shows=frozenset((_SURVIVED, *_TIMES, _CURVE)).__contains__,
    parts=(
        Table(
            "Recovery of traffic",
            (
                Column[_ByQuantity]("test", lambda row: row[0].label),
                Column[_ByQuantity]("survived", _survived),
                *(Column(quantity(name).title, partial(_time, name)) for name in _TIMES),
            ),
            rows=_recoveries,
            about="All-reduces follow each other while circuits change; times are after the "
            "command to the switches. The first all-reduce is the first one that began after the "
            "command and that all ranks completed. Survived: every rank continued until it was "
            "asked to stop. Times have bounds, from the stamps of servers and of their "
            "clocks, and no uncertainty budget.",
        ),
        Figures(_around_changes),
    ),
)

SECTIONS = (COLLECTIVES, RECOVERY)
