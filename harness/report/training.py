"""A training job on photonic rails: who did what when, on one time axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.report.captions import captioned, keys
from harness.report.drawing import Axis, Plot, even
from harness.report.estimates import Estimate
from harness.report.frames import TestbedFrame, TestFrame, natural
from harness.report.markup import mark, row, table, text
from harness.report.units import shown
from testbeds import Limit

FAMILIES = frozenset(("rails",))

_TRAFFIC, _SWITCH, _LIGHT, _CARRIER = (
    f"rails.{what}" for what in ("traffic", "switch", "light", "carrier")
)
_WORDS = {
    _SWITCH: "circuits change, until links are back",
    _LIGHT: "no light",
    _CARRIER: "no carrier",
}
_LANE, _WIDTH = 15.0, 860.0


def training_estimates(
    frame: TestbedFrame, limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """Nothing that a limit could be stated on: what a change takes is told elsewhere."""
    return {}


def training_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """The timeline of each test that recorded one; empty where there is none."""
    tests = frame.having(_TRAFFIC)
    if not tests:
        return ""
    title = f'<h3 class="lr-h3">Traffic and circuits of a training job {mark(frame.simulated)}</h3>'
    return title + "".join(_figure(test) + _table(test) for test in tests)


def _kinds(test: TestFrame) -> list[str]:
    """What was drawn, in the order of its colours: traffic by its parallelism, then the rest."""
    of = {subject.rpartition(", ")[2] for subject in test.series[_TRAFFIC].subject}
    return [*sorted(of), *(one for one in _WORDS if one in test.series)]


def _figure(test: TestFrame) -> str:
    kinds = _kinds(test)
    named = ((n, _WORDS.get(kind, f"{kind} traffic")) for n, kind in enumerate(kinds))
    about = (
        f"{text(test.label)}. A bar is an operation of a rank, or how long something was away; "
        f"from the first operation on.{keys(named)}"
    )
    title = "Timeline of a training job"
    return captioned(title, test.simulated, about, _drawn(test, kinds, title))


def _drawn(test: TestFrame, kinds: list[str], title: str) -> str:
    bars: dict[str, list[tuple[float, float, int]]] = {}
    for quantity in (_TRAFFIC, *_WORDS):
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
            own = np.array([(low, high) for low, high, is_of in each if is_of == kind])
            heights = np.full(len(own), -marks[lane])
            plot.boxes(np.maximum(own[:, 0], 0.0), own[:, 1], heights, _LANE * 0.6, kind)
    return plot.svg(f"{title}: {test.label}", least_width=640)


def _table(test: TestFrame) -> str:
    """The medians of what the bars are, for who cannot see them."""
    rows = []
    for quantity in (_TRAFFIC, *_WORDS):
        series = test.series.get(quantity)
        if series is None:
            continue
        groups: dict[str, list[float]] = {}
        for subject, value in zip(series.subject, series.value.tolist(), strict=True):
            of = subject.rpartition(", ")[2] if quantity == _TRAFFIC else ""
            groups.setdefault(of, []).append(value)
        for of, values in sorted(groups.items()):
            name = f"{of} traffic" if of else _WORDS[quantity]
            median = shown(float(np.median(values)), "ns")
            least, most = shown(min(values), "ns"), shown(max(values), "ns")
            rows.append(row((text(name), f"{len(values):,}", median, f"{least} … {most}")))
    return table(("what", "intervals", "median", "shortest … longest"), rows, "Timeline in numbers")
