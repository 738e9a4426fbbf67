"""Traffic: bandwidth of collectives over their size, and how they recover when circuits change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness.report.captions import captioned, keys
from harness.report.drawing import Axis, Numbers, Plot, even
from harness.report.estimates import CONFIDENCE, Estimate, estimates, estimates_of
from harness.report.frames import Series, TestbedFrame, TestFrame
from harness.report.markup import (
    figure,
    heading,
    mark,
    median_figure,
    row,
    table,
    text,
    verdict_mark,
)
from harness.report.units import shown, span
from harness.statistics import Quantile, quantile
from testbeds import Limit

COLLECTIVE = frozenset(("collective",))
RECOVERY = frozenset(("recovery",))

_BANDWIDTH, _USE = "collective.bus_bandwidth", "collective.use"
_CURVE = "recovery.bus_bandwidth"
_LATENCY = "collective.latency"
_WIDTH, _HEIGHT = 520.0, 280.0
_MOST_EVENTS = 6


def collective_estimates(
    frame: TestbedFrame, limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """What limits can be stated on: the share of the line rate that is used."""
    found = list(estimates(frame, _USE, limits.get(_USE)))
    return {_USE: found} if found else {}


def collective_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """Bandwidth by size and topology; empty where no collective was run."""
    runs = list(_runs(frame))
    if not runs:
        return ""
    collectives = dict.fromkeys(run.collective for run in runs)
    figures = (_over_size([run for run in runs if run.collective == one]) for one in collectives)
    return (
        f'<h3 class="lr-h3">Collectives {mark(frame.simulated)}</h3>'
        + _table(frame, runs, found.get(_USE, []))
        + f'<div class="lr-figures">{"".join(figures)}</div>'
    )


def recovery_estimates(
    frame: TestbedFrame, limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """When traffic ran again, and for how long it was interrupted."""
    names = [q for q in frame.quantities("recovery") if q != _CURVE]
    return estimates_of(frame, names, limits)


def recovery_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """Traffic around each change of circuits; empty where there was none."""
    tests = frame.having(_CURVE)
    if not tests and not any(found.values()):
        return ""
    figures = "".join(map(_around, tests))
    return (
        f'<h3 class="lr-h3">Traffic under reconfiguration {mark(frame.simulated)}</h3>'
        + _events(frame, found)
        + f'<div class="lr-figures">{figures}</div>'
    )


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
        held = series.conditions
        if "size" not in held:
            continue
        # The conditions that are words stand behind the subject.
        for subject in dict.fromkeys(series.subject):
            own = np.array([each == subject for each in series.subject])
            collective, _, ring = subject.partition(", ")[0].partition(" ")
            sizes = np.unique(held["size"][own])
            middle, low, high = np.array(
                [_point(series, own & (held["size"] == size)) for size in sizes]
            ).T
            conditions = test.contexts[0].conditions
            yield _Run(
                test,
                collective.replace("_", "-"),
                str(conditions.get("plan", test.label)),
                ring,
                float(held["line_rate_bps"][own].max()),
                int(held["hops"][own].max()),
                sizes,
                middle,
                low,
                high,
                int(own.sum() // sizes.size),
            )


def _point(series: Series, own: Numbers) -> tuple[float, float, float]:
    """Median with its interval, or with the least and the greatest where there are too few."""
    values = series.value[own]
    found = quantile(values, values, 0.5, CONFIDENCE)
    if isinstance(found, Quantile) and found.lower is not None and found.upper is not None:
        return found.value, found.lower, found.upper
    return float(np.median(values)), float(values.min()), float(values.max())


def _table(frame: TestbedFrame, runs: list[_Run], uses: list[Estimate]) -> str:
    judged = {id(one.test): one for one in uses}
    rows = []
    for run in runs:
        bandwidth = shown(run.medians[-1], "bit/s")
        company = (
            f"median of {run.samples:,}",
            f"from {span(run.lower[-1], run.upper[-1], 'bit/s', bandwidth)}",
            "simulated" if run.test.simulated else "",
        )
        share = f"{100 * run.medians[-1] / run.rate:.3g} % of {shown(run.rate, 'bit/s')}"
        one = judged.get(id(run.test))
        rows.append(
            row(
                (
                    text(run.collective),
                    f"<b>{text(run.topology)}</b> {text(run.ring)}",
                    text(_size(run.sizes[-1])),
                    figure(bandwidth, company),
                    text(share),
                    _latency(run),
                    verdict_mark(one.verdict) if one and one.verdict else "",
                )
            )
        )
    about = (
        "Bus bandwidth of the largest size: what each link of a ring would carry for the time "
        "found. TCP over Ethernet leaves 95.6 % of a line rate to the data; where servers have "
        "more links than in a ring, an all-to-all uses them too. Ranks in the order of the ring "
        "that the fabric had set; results were checked, wrong ones are no number. "
        "Behind “from” stands the 95 % interval of the median, or where there are too few "
        "samples for one, the least and the greatest."
    )
    head = ("collective", "plan and ring", "size", "bus bandwidth", "used", "latency", "verdict")
    title = "Bandwidth of collectives"
    return heading(title, frame.simulated, about) + table(head, rows, title)


def _latency(run: _Run) -> str:
    series = run.test.series.get(_LATENCY)
    if series is None:
        return ""
    value, low, high = (float(each[0]) for each in (series.value, series.lower, series.upper))
    fitted = shown(value, "ns")
    return figure(fitted, ("fitted", f"95 % interval {span(low, high, 'ns', fitted)}"))


def _over_size(runs: list[_Run]) -> str:
    """One figure a collective: a line a topology, and the line rate."""
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
    legend = keys(enumerate(run.topology for run in runs))
    title = f"Bus bandwidth of {runs[0].collective} over its size"
    return captioned(title, any(run.test.simulated for run in runs), legend, plot.svg(title, 460))


def _size(size: float) -> str:
    """Write bytes with a binary unit where that is a whole number."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:g} B"


# ------------------------------------------------------------------------------ recovery


def _events(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    times = {q.partition(".")[2]: each for q, each in found.items() if q != "recovery.survived"}
    tests = [one.test for one in found.get("recovery.survived", [])]
    rows = []
    for test in tests:
        alive = test.series["recovery.survived"].value
        cells = [text(test.label), f"{int(alive.sum())} of {alive.size}"]
        cells += [_time(times, name, test) for name in _TIMES]
        rows.append(row(cells))
    about = (
        "All-reduces follow each other while circuits change; times are after the command to the "
        "switches. The first all-reduce is the first one that was begun after the command and done "
        "by all ranks. Survived: every rank went on until it was asked to stop."
    )
    head = ("test", "survived", "routes set", "first all-reduce", "interruption")
    title = "Recovery of traffic"
    return heading(title, frame.simulated, about) + table(head, rows, title)


_TIMES = ("routed", "first_collective", "interruption")


def _time(times: Mapping[str, list[Estimate]], name: str, test: TestFrame) -> str:
    for one in times.get(name, []):
        if one.test is not test:
            continue
        if isinstance(one.median, Quantile):
            return median_figure(one.median, test.simulated) + _judged(one)
        series = test.series[one.quantity]
        least, most = float(series.lower.min()), float(series.upper.max())
        company = (f"all of {one.n:,}", "simulated" if test.simulated else "")
        return figure(span(least, most, "ns"), company) + _judged(one)
    return "none"


def _judged(one: Estimate) -> str:
    return f" {verdict_mark(one.verdict)}" if one.verdict else ""


def _around(test: TestFrame) -> str:
    """Bandwidth over time around the events of one test."""
    series = test.series[_CURVE]
    after = series.conditions["after_ns"]
    x = even(float(after.min()), float(after.max()), "ns")
    across = Axis(x.low, x.high, x.ticks, f"after the command ({x.label})")
    up = even(0.0, float(series.value.max()), "bit/s")
    plot = Plot(_WIDTH, _HEIGHT, across, up, left=36, top=18)
    events = np.unique(series.event)
    for index, event in enumerate(events[:_MOST_EVENTS]):
        own = series.event == event
        ends = after[own]
        # What an operation carried held from the end of the one before to its own.
        begins = np.concatenate([ends[:1], ends[:-1]])
        plot.line(np.column_stack([begins, ends]).ravel(), np.repeat(series.value[own], 2), index)
    plot.rule(0.0, "command")
    shown_events = events[:_MOST_EVENTS]
    legend = keys(enumerate(f"event {event}" for event in shown_events))
    left = f" The first {_MOST_EVENTS} of {events.size} events." if events.size > 6 else ""
    title = f"Bus bandwidth around the change: {test.label}"
    return captioned(title, test.simulated, text(left) + legend, plot.svg(title, 460))
