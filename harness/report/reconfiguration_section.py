"""Reconfigurations: stages and outages as tables, distributions, and one event on a time axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from lightrig.harness.quantities import declarations
from lightrig.harness.quantities.quantity import Quantity
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.report.drawing import Axis, Numbers, Plot, from_zero
from lightrig.harness.report.estimates import Estimate, estimate, estimates_of
from lightrig.harness.report.figures import Distribution, distribution_plot
from lightrig.harness.report.frames import RunFrame, Series, TestbedFrame, TestFrame, natural
from lightrig.harness.report.markup import bounded_value, median_value
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Estimates,
    Figure,
    Figures,
    Limits,
    RowGroup,
    Section,
    SectionData,
    Styled,
    Table,
    TestLegend,
    in_declared_order,
    test_column,
    verdict_column,
)
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.quantiles import NotEnough, Quantile
from lightrig.instruments.core.stages import STAGES
from lightrig.testbeds.intervals import at_most, interval

_FAMILY = "reconfiguration"
_MANY = 24
"""Rows of a table from which on an empty column is left out."""

_LEAST = 6
"""Events of a direction from which on both are compared."""

_DIFFER = 0.01
"""Probability below which two directions differ."""


def summary_lines(run: RunFrame) -> Iterator[str]:
    """Yield a line for each test that reconfigured: medians of the main stages, for a terminal."""
    for frame in run.testbeds:
        tests = [test for test in frame.tests if test.stages()]
        if not tests:
            continue
        simulated = " (simulated)" if frame.simulated else ""
        yield f"{frame.name}{simulated}, medians after the command (95 % intervals)"
        width = max(len(test.label) for test in tests)
        for test in tests:
            medians = []
            for name in in_declared_order(frame.quantities(_FAMILY)):
                declared = quantity_of(name, "ns")
                found = estimate(test, name) if declared.terminal == "headline" else None
                if found is not None and isinstance(found.median, Quantile):
                    assert found.median.lower is not None
                    ends = found.median.lower, found.median.upper
                    written = interval(*ends, "ns", found.median.value)
                    medians.append(f"{declared.title} {written.value} ({written.ends})")
            stated = ", ".join(medians) or "not enough data"
            yield f"  {test.label:<{width}}  {stated} (n = {test.events})"


# --------------------------------------------------------------------- tables and panels


def _estimates(frame: TestbedFrame, limits: Limits) -> Estimates:
    """Estimate the stages of whole events; those of single ports are in the timeline."""
    return estimates_of(frame, in_declared_order(frame.quantities(_FAMILY)), limits)


def _events(one: Estimate) -> Cell:
    if one.n == one.events:
        return f"{one.n:,}"
    return Styled(f"{one.n:,} of {one.events:,}", "missing")


def _group(one: Estimate) -> RowGroup:
    declared = quantity_of(one.quantity, one.unit)
    return RowGroup(declared.title, declared.meaning, one.limit)


_P99 = Column[Estimate]("p99", lambda one: bounded_value(one.p99, one.test.simulated, one.unit))


def _columns(data: SectionData) -> Sequence[Column[Estimate]]:
    """Return the columns of stages, without one that says of many tests that it has no data."""
    return (
        test_column(),
        Column("events", _events),
        Column("median", lambda one: median_value(one.median, one.test.simulated, one.unit)),
        *(() if _lack_p99(data) else (_P99,)),
        Column("bounds", lambda one: at_most(one.width, one.unit)),
        verdict_column(),
    )


def _lack_p99(data: SectionData) -> bool:
    found = list(data.each())
    return len(found) > _MANY and all(isinstance(one.p99, NotEnough) for one in found)


def _about_p99(about: str, data: SectionData) -> str:
    needed = [one.p99.needed for one in data.each() if isinstance(one.p99, NotEnough)]
    about += _about_labels(data)
    if not _lack_p99(data):
        return about
    return f"{about} No p99 is shown: not enough data, {max(needed):,} events of a test needed."


def _panels(data: SectionData) -> Iterator[Figure]:
    """Yield the distribution of each quantity over its tests."""
    index = {id(test): place for place, test in enumerate(data.frame.tests)}
    for quantity, each in data.estimates.items():
        # Too few samples for a median are no distribution, and their steps cross all the others.
        many = [one for one in each if isinstance(one.median, Quantile)] or each
        drawn = [Distribution(index[id(one.test)], *one.test.samples(quantity)) for one in many]
        declared = quantity_of(quantity, each[0].unit)
        yield Figure(
            declared.title,
            distribution_plot(drawn, each[0].limit, f"Distribution of {quantity}"),
            any(one.test.simulated for one in each),
            declared.meaning,
        )


class _Unlike(NamedTuple):
    """A recorded port that differs from the others of its events in one stage."""

    test: TestFrame
    series: Series
    at: int

    def stated(self, condition: str) -> float:
        return float(self.series.conditions[condition][self.at])

    def name(self, place: int) -> str:
        """Return the port (0), or the stage (1)."""
        return self.series.subject[self.at].split(", ")[place]


def _unlike(data: SectionData) -> Iterator[_Unlike]:
    """Yield the ports that differ from the others, by stage."""
    for test in data.frame.tests:
        series = test.series.get(declarations.PORT_EXCESS)
        for at in range(len(series.subject) if series else 0):
            assert series is not None
            yield _Unlike(test, series, at)


def _excess(one: _Unlike) -> Cell:
    value, low, high = (
        float(each[one.at]) for each in (one.series.value, one.series.lower, one.series.upper)
    )
    written = interval(low, high, "ns", value)
    simulated = "simulated" if one.test.simulated else ""
    share, events = one.stated("share"), one.stated("events")
    of, ends = f"median of {events:,.0f} events", f"interval {written.ends}"
    return Value(written.value, (f"{share:+.0%}", of, ends, simulated))


def _by_direction(data: SectionData) -> Iterator[tuple[Estimate, str]]:
    """Yield each stage of each direction of a test, and how the directions of the test differ."""
    for quantity, each in data.estimates.items():
        for one in each:
            changes = one.test.changes
            if len(changes) < 2:
                continue
            parts = [estimate(one.test.of_change(change), quantity) for change in changes]
            there = [part for part in parts if part is not None]
            values = [part.test.valued_samples(quantity)[2] for part in there]
            for part in there:
                yield part, _difference(values)


def _difference(values: Sequence[Numbers]) -> str:
    """Say whether samples of two directions differ, by ranks at 1 % (Mann and Whitney)."""
    if len(values) != 2 or min(each.size for each in values) < _LEAST:
        return "not enough data"
    p = float(scipy.stats.mannwhitneyu(*values).pvalue)
    return f"differ (p = {p:.1g})" if p < _DIFFER else "no difference found"


def _about_labels(data: SectionData) -> str:
    stated = any(test.changes for test in data.frame.tests)
    if stated or not data.frame.quantities(_FAMILY):
        return ""
    return " Rows of this run name the first direction of a test for events of both directions."


# ------------------------------------------------------------------------------ timeline

_LEFT, _RIGHT, _GAP, _LEAST_GROUP = 112.0, 166.0, 6.0, 15.0


def _one_event(data: SectionData) -> Iterator[Figure]:
    """Yield the timeline of the middle event of the test with the most stages."""
    if not data.estimates:
        return
    tests = data.frame.tests
    index, test = max(enumerate(tests), key=lambda pair: (len(pair[1].stages()), -pair[0]))
    event = _middle_event(test)
    if event is not None:
        yield Figure(
            "One event",
            timeline(test, event, index),
            test.simulated,
            f"Event {event} of {test.label}. Each bar is one port, from the earliest to the "
            "latest possible moment; logarithmic after the first mark.",
            width="full",
        )


def _middle_event(test: TestFrame) -> int | None:
    for stage in test.stages():
        events = np.unique(test.series[f"{_FAMILY}.{stage}"].event)
        return int(events[events.size // 2])
    return None


def timeline(test: TestFrame, event: int, index: int) -> str:
    """Draw every stage of every subject in one event as SVG; the command is at 0.

    A bar runs from the earliest to the latest possible moment and is at least a hair wide. The
    axis is linear up to its first mark, then logarithmic: milliseconds and seconds are both
    legible.
    """
    groups = _groups(test, event)
    total = sum(lower.size for lower, _ in groups.values())
    step = float(np.clip(420 / max(total, 1), 1.8, 4))
    sizes = {stage: max(step * low.size, _LEAST_GROUP) for stage, (low, _) in groups.items()}
    height = sum(sizes.values()) + _GAP * len(sizes)
    ends = np.concatenate([upper for _, upper in groups.values()])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    first, last = (float(ends.min()), float(ends.max())) if ends.size else (1e6, 1e6)
    across = from_zero(first, last * 1.4)
    marks, top = {}, 0.0
    for stage, size in sizes.items():
        marks[stage] = top + size / 2
        top += size + _GAP
    # Heights count downwards, in pixels.
    titles = ((-middle, _declared(stage).title) for stage, middle in marks.items())
    upright = Axis(-height, 0, tuple(titles))
    level = Axis(across.low, across.high, across.ticks, "after the command", across.warp)
    plot = Plot(760, height + 40, level, upright, left=_LEFT, right=_RIGHT, top=6, bottom=34)
    for stage, (lower, upper) in groups.items():
        each = sizes[stage] / lower.size
        heights = -(marks[stage] - sizes[stage] / 2 + each * (np.arange(lower.size) + 0.5))
        plot.boxes(lower, np.minimum(upper, last * 1.4), heights, each * 0.55, index)
        whole = test.series[f"{_FAMILY}.{stage}"]
        plot.beside(-marks[stage], _whole_event(whole, event, stage))
    return plot.svg(f"Timeline of event {event} of {test.label}", least_width=640)


def _declared(stage: str) -> Quantity:
    return quantity_of(f"{_FAMILY}.{stage}", "ns")


def _groups(test: TestFrame, event: int) -> Mapping[str, tuple[Numbers, Numbers]]:
    """Return the bounds of each subject's stage in ns; the whole event's without subjects."""
    found = {}
    for name in in_declared_order(f"{_FAMILY}.{stage}" for stage in test.stages()):
        stage, whole = name.partition(".")[2], test.series[name]
        if event not in whole.event:
            continue
        series = test.series.get(stage)
        if series is None or event not in series.event:
            series = whole
        at = np.flatnonzero(series.event == event)
        at = np.array(sorted(at, key=lambda row: natural(series.subject[row])))
        found[stage] = (series.lower[at], series.upper[at])
    return found


def _whole_event(series: Series, event: int, stage: str) -> str:
    """Return the whole event's time as text: that of its first or of its last subject."""
    at = int(np.flatnonzero(series.event == event)[0])
    width = at_most(float(series.upper[at] - series.lower[at]), "ns")
    end = "first" if _declared(stage).combine == "least" else "last"
    return f"{end} at {shown(float(series.value[at]), 'ns')}, within {width}"


# ------------------------------------------------------------------------------ sections

RECONFIGURATION = Section(
    declarations.RECONFIGURATION,
    estimates=_estimates,
    # The stages of single ports are in the timeline, and those of whole events in the table.
    shows=lambda name: (
        name.startswith(f"{_FAMILY}.")
        or name in STAGES
        or name in ("watched", declarations.PORT_EXCESS)
    ),
    parts=(
        TestLegend(),
        Table(
            "Stages of a reconfiguration",
            _columns,
            rows=lambda data: data.each(),
            about=partial(
                _about_p99,
                "Times after the command, one sample an event. Of several ports the last "
                "one counts for what comes up, and the first one for what goes down. “Bounds” is "
                "the mean width of those of one event, from the stamps around each reading, "
                "the windows of monitors and the bounds of clocks; times have no uncertainty "
                "budget.",
            ),
            group=_group,
        ),
        Table(
            "Both directions of a change",
            (
                Column[tuple[Estimate, str]]("events", lambda pair: pair[0].test.label),
                Column("n", lambda pair: f"{pair[0].n:,}"),
                Column(
                    "median",
                    lambda pair: median_value(pair[0].median, pair[0].test.simulated, pair[0].unit),
                ),
                Column("directions", lambda pair: pair[1]),
            ),
            rows=_by_direction,
            about="Events of each direction by themselves. Limits judge both together: where the "
            "directions differ, the share of late events is that of the two mixed evenly.",
            group=lambda pair: _group(pair[0]),
        ),
        Table(
            "Ports that differ",
            (
                Column[_Unlike]("port", lambda one: Styled(one.name(0), "strong")),
                Column[_Unlike]("stage", lambda one: quantity_of(one.name(1), "ns").title),
                Column[_Unlike]("more than the others", _excess),
                Column[_Unlike](
                    "the others", lambda one: shown(1e6 * one.stated("others_ms"), "ns")
                ),
                Column[_Unlike]("test", lambda one: one.test),
            ),
            rows=_unlike,
            about="Ports whose time differs from the median of the others of the same events by "
            "a tenth or more, for certain: the chance that any is named where all are alike is 1 % "
            "a test. The tables of whole events show the slowest port.",
        ),
        Figures(_one_event),
        Figures(
            _panels,
            "Distributions",
            "Share of events done by a time after the command. The true curve is inside the "
            "band, between the curves of the earliest and of the latest possible moments; below, "
            "in the legend's order, the 95 % intervals of the medians.",
            panels=True,
        ),
    ),
)

OUTAGE = Section(
    declarations.OUTAGE,
    parts=(
        TestLegend(shown=lambda data: not data.frame.quantities(_FAMILY)),
        Table(
            "Outage of the worst port",
            _columns,
            rows=lambda data: data.each(),
            about=partial(
                _about_p99,
                "Time without service of the worst port of each event, one sample an event. No GUM "
                "budget: bounds, from the stamps of servers and the bounds of their clocks.",
            ),
            group=_group,
        ),
        Figures(_panels, panels=True),
    ),
)
