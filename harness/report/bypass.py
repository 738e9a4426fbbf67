"""A ring of servers that closes past one that died, and takes it in again: stage by stage."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.report.captions import captioned
from harness.report.drawing import Axis, Plot, from_zero
from harness.report.estimates import Estimate, estimates_of
from harness.report.frames import TestbedFrame, TestFrame
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
from harness.report.units import span
from harness.statistics import Quantile
from testbeds import Limit

_ROW, _LEFT = 30.0, 190.0

FAMILIES = frozenset(("bypass", "return"))
"""The quantities of this section: what follows a death, and what follows the return."""

_KINDS = {"bypass": "after a death", "return": "after the return"}
_STAGES = {
    "carrier_down": "its neighbours have no carrier",
    "detected": "the managers have noticed",
    "planned": "the change is planned",
    "switched": "the modules have switched",
    "carrier_up": "the new links have carrier",
    "first_datagram": "the new links carry datagrams",
    "routed": "the servers have routes",
    "first_collective": "the first all-reduce is done",
}
"""In the order in which they come about."""


def bypass_estimates(frame: TestbedFrame, limits: Mapping[str, Limit]) -> dict[str, list[Estimate]]:
    """Each stage of each test."""
    names = [q for kind in _KINDS for q in frame.quantities(kind)]
    return estimates_of(frame, names, limits)


def bypass_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """The stages; empty where no server died."""
    tests = {id(one.test): one.test for each in found.values() for one in each}
    if not tests:
        return ""
    rows: list[str] = []
    figures: list[str] = []
    for test in tests.values():
        for kind, words in _KINDS.items():
            stages = _stages(found, test, kind)
            if not stages:
                continue
            title = f"{test.label}: {words}"
            rows.append(f'<tr class="lr-group"><td colspan="3"><b>{text(title)}</b></td></tr>')
            rows += [row((_STAGES[s], _time(one), _judged(one))) for s, one in stages.items()]
            figures.append(_timeline(title, test, kind, list(stages)))
    about = (
        "Times after the server lost its light, or had it again; each stage once all that it takes "
        "is done. The kernel's links follow the light of simulated modules, in real time; how fast "
        "they do is this machine's and no module's. A program that is back loads PyTorch anew."
    )
    name = "A ring that closes past a server"
    return (
        f'<h3 class="lr-h3">Traffic past a dead server {mark(frame.simulated)}</h3>'
        + heading(name, frame.simulated, about)
        + table(("stage", "after", "verdict"), rows, name)
        + f'<div class="lr-figures">{"".join(figures)}</div>'
    )


def _stages(found: Mapping[str, list[Estimate]], test: TestFrame, kind: str) -> dict[str, Estimate]:
    return {
        stage: one
        for stage in _STAGES
        for one in found.get(f"{kind}.{stage}", [])
        if one.test is test
    }


def _time(one: Estimate) -> str:
    if isinstance(one.median, Quantile):
        return median_figure(one.median, one.test.simulated)
    series = one.test.series[one.quantity]
    company = (f"all of {one.n:,}", "simulated" if one.test.simulated else "")
    return figure(span(float(series.lower.min()), float(series.upper.max()), "ns"), company)


def _judged(one: Estimate) -> str:
    return verdict_mark(one.verdict) if one.verdict else ""


def _timeline(title: str, test: TestFrame, kind: str, stages: list[str]) -> str:
    """Each stage of each event as a bar from the earliest to the latest that it can have been."""
    bounds = [test.series[f"{kind}.{stage}"].samples() for stage in stages]
    ends = np.concatenate([high for _, high in bounds])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    first, last = (float(ends.min()), float(ends.max())) if ends.size else (1e6, 1e6)
    across = from_zero(first, last * 1.4)
    # Heights count downwards, in rows.
    marks = tuple((-place - 0.5, _STAGES[stage]) for place, stage in enumerate(stages))
    upright = Axis(-float(len(stages)), 0, marks)
    plot = Plot(620, _ROW * len(stages) + 40, across, upright, left=_LEFT, top=6, bottom=34)
    for place, (low, high) in enumerate(bounds):
        heights = -place - (np.arange(low.size) + 0.5) / low.size
        plot.boxes(low, np.minimum(high, last * 1.4), heights, _ROW / low.size * 0.6, place)
    about = "A bar an event; the axis is even up to its first mark, then logarithmic."
    return captioned(title, test.simulated, about, plot.svg(title, least_width=520))
