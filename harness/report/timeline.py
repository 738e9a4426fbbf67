"""One event on a time axis that shows a millisecond and seconds alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.report.drawing import Axis, Numbers, Plot, from_zero
from harness.report.frames import Series, TestFrame, natural
from harness.report.markup import duration
from harness.report.stages import end_word, ordered

_LEFT, _RIGHT, _GAP, _LEAST_GROUP = 112.0, 166.0, 6.0, 15.0


def middle_event(test: TestFrame) -> int | None:
    """The number of an event from the middle of a test; None if it recorded no stage."""
    for stage in test.stages():
        events = np.unique(test.series[f"reconfiguration.{stage}"].event)
        return int(events[events.size // 2])
    return None


def timeline(test: TestFrame, event: int, index: int) -> str:
    """Every stage of every subject in one event as SVG; the command is at 0.

    A bar runs from the earliest to the latest moment that it can have been; it is never drawn
    thinner than a hair. The axis is even up to its first mark, then logarithmic.
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
    upright = Axis(-height, 0, tuple((-middle, stage) for stage, middle in marks.items()))
    said = Axis(across.low, across.high, across.ticks, "after the command", across.warp)
    plot = Plot(760, height + 40, said, upright, left=_LEFT, right=_RIGHT, top=6, bottom=34)
    for stage, (lower, upper) in groups.items():
        each = sizes[stage] / lower.size
        heights = -(marks[stage] - sizes[stage] / 2 + each * (np.arange(lower.size) + 0.5))
        plot.boxes(lower, np.minimum(upper, last * 1.4), heights, each * 0.55, index)
        whole = test.series[f"reconfiguration.{stage}"]
        plot.beside(-marks[stage], _whole(whole, event, stage))
    return plot.svg(f"Timeline of event {event} of {test.label}", least_width=640)


def _groups(test: TestFrame, event: int) -> Mapping[str, tuple[Numbers, Numbers]]:
    """Bounds of each subject's stage, in ns; the whole event's where no subject is recorded."""
    found = {}
    for stage in ordered(test.stages()):
        whole = test.series[f"reconfiguration.{stage}"]
        if event not in whole.event:
            continue
        series = test.series.get(stage)
        if series is None or event not in series.event:
            series = whole
        at = np.flatnonzero(series.event == event)
        at = np.array(sorted(at, key=lambda row: natural(series.subject[row])))
        found[stage] = (series.lower[at], series.upper[at])
    return found


def _whole(series: Series, event: int, stage: str) -> str:
    """The whole event's time in words."""
    at = int(np.flatnonzero(series.event == event)[0])
    width = duration(float(series.upper[at] - series.lower[at]))
    return f"{end_word(stage)} at {duration(float(series.value[at]))}, within {width}"
