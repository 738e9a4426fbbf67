"""Timeline of a training job on photonic rails: traffic, circuits, light and carriers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lightrig.harness.report.drawing import Axis, Plot, even
from lightrig.harness.report.frames import TestFrame, natural
from lightrig.harness.report.sections import (
    Column,
    Figure,
    Figures,
    RowGroup,
    Section,
    SectionData,
    Table,
)
from lightrig.harness.report.units import shown
from lightrig.harness.systems.opus.quantities import RAILS

_TRAFFIC, _SWITCH, _LIGHT, _CARRIER = (
    f"rails.{name}" for name in ("traffic", "switch", "light", "carrier")
)
_INTERVALS = {
    _SWITCH: "circuits change, until links are back",
    _LIGHT: "no light",
    _CARRIER: "no carrier",
}
_LANE, _WIDTH = 15.0, 860.0


def _timelines(data: SectionData) -> Iterator[Figure]:
    for test in data.frame.having(_TRAFFIC):
        # Traffic by its parallelism, then the rest: the order of the colours.
        parallelisms = {subject.rpartition(", ")[2] for subject in test.series[_TRAFFIC].subject}
        kinds = [*sorted(parallelisms), *(name for name in _INTERVALS if name in test.series)]
        title = "Timeline of a training job"
        yield Figure(
            title,
            _drawing(test, kinds, title),
            test.simulated,
            f"{test.label}. A bar is an operation of a rank, or an interval without service; "
            "from the first operation on.",
            [(n, _INTERVALS.get(kind, f"{kind} traffic")) for n, kind in enumerate(kinds)],
            "full",
        )


def _drawing(test: TestFrame, kinds: Sequence[str], title: str) -> str:
    bars: dict[str, list[tuple[float, float, int]]] = {}
    for quantity in (_TRAFFIC, *_INTERVALS):
        series = test.series.get(quantity)
        if series is None:
            continue
        starts = series.conditions["from_ns"]
        for subject, start, length in zip(series.subject, starts, series.value, strict=True):
            lane, _, of = subject.partition(", ")
            kind = kinds.index(of if quantity == _TRAFFIC else quantity)
            bars.setdefault(lane, []).append((float(start), float(start + length), kind))
    lanes = sorted(
        bars, key=lambda lane: (not lane.startswith("rank"), lane.count("."), natural(lane))
    )
    last = max(end for each in bars.values() for _, end, _ in each)
    height = _LANE * len(lanes)
    marks = {lane: _LANE * (place + 0.5) for place, lane in enumerate(lanes)}
    # Heights count downwards, in pixels.
    upright = Axis(-height, 0, tuple((-middle, lane) for lane, middle in marks.items()))
    across = even(0.0, last, "ns", most=8, pad=0.0)
    plot = Plot(_WIDTH, height + 40, across, upright, left=108, right=16, top=6, bottom=34)
    for lane, each in bars.items():
        for kind in sorted({kind for _, _, kind in each}):
            of_kind = np.array([(low, high) for low, high, index in each if index == kind])
            heights = np.full(len(of_kind), -marks[lane])
            plot.boxes(np.maximum(of_kind[:, 0], 0.0), of_kind[:, 1], heights, _LANE * 0.6, kind)
    return plot.svg(f"{title}: {test.label}", least_width=640)


class _Intervals(NamedTuple):
    """The lengths in ns of all bars of one kind."""

    test: TestFrame
    name: str
    lengths: list[float]


def _lengths(data: SectionData) -> Iterator[_Intervals]:
    for test in data.frame.having(_TRAFFIC):
        for quantity in (_TRAFFIC, *_INTERVALS):
            series = test.series.get(quantity)
            if series is None:
                continue
            groups: dict[str, list[float]] = {}
            for subject, value in zip(series.subject, series.value.tolist(), strict=True):
                kind = subject.rpartition(", ")[2] if quantity == _TRAFFIC else ""
                groups.setdefault(kind, []).append(value)
            for kind, values in sorted(groups.items()):
                yield _Intervals(test, f"{kind} traffic" if kind else _INTERVALS[quantity], values)


def _range(row: _Intervals) -> str:
    return f"{shown(min(row.lengths), 'ns')} … {shown(max(row.lengths), 'ns')}"


SECTIONS = (
    Section(
        RAILS,
        parts=(
            Figures(_timelines),
            Table(
                "Timeline in numbers",
                (
                    Column[_Intervals]("interval", lambda row: row.name),
                    Column[_Intervals]("count", lambda row: f"{len(row.lengths):,}"),
                    Column[_Intervals](
                        "median", lambda row: shown(float(np.median(row.lengths)), "ns")
                    ),
                    Column[_Intervals]("shortest … longest", _range),
                ),
                rows=_lengths,
                group=lambda row: RowGroup(row.test.label),
            ),
        ),
    ),
)
