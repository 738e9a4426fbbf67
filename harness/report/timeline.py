"""One event on a time axis that shows a millisecond and seconds alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.report.frames import Numbers, Series, TestFrame, natural
from harness.report.markup import duration
from harness.report.plotting import INK, MUTED, canvas, colour, decade_below, inline, styled
from harness.report.stages import end_word, ordered

_LEFT, _RIGHT, _GAP, _LEAST_GROUP = 112.0, 156.0, 6.0, 15.0


def middle_event(test: TestFrame) -> int | None:
    """The number of an event from the middle of a test; None if it recorded no stage."""
    for stage in test.stages():
        events = np.unique(test.series[f"reconfiguration.{stage}"].event)
        return int(events[events.size // 2])
    return None


def timeline(test: TestFrame, event: int, index: int, prefix: str) -> str:
    """Every stage of every subject in one event as SVG; the command is at 0.

    A bar runs from the earliest to the latest moment that it can have been; it is never drawn
    thinner than a hair. The axis is linear up to its first mark, then logarithmic.
    """
    with styled():
        return inline(
            _drawn(test, event, colour(index)),
            prefix,
            f"Timeline of event {event} of {test.label}",
            least_width=640,
        )


def _drawn(test: TestFrame, event: int, shade: str) -> Figure:
    groups = _groups(test, event)
    total = sum(lower.size for lower, _ in groups.values())
    step = float(np.clip(420 / max(total, 1), 1.8, 4))
    height = sum(max(step * g[0].size, _LEAST_GROUP) + _GAP for g in groups.values())
    figure, axes = canvas(760, height + 44, left=_LEFT, bottom=30, right=_RIGHT)
    ends = np.concatenate([upper for _, upper in groups.values()])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    first, last = (float(ends.min()), float(ends.max())) if ends.size else (1e6, 1e6)
    _axis(axes, decade_below(first), last)
    top = 0.0
    marks = []
    for stage, (lower, upper) in groups.items():
        size = max(step * lower.size, _LEAST_GROUP)
        _bars(axes, lower, np.minimum(upper, last * 1.4), top, size / lower.size, shade)
        middle = top + size / 2
        marks.append((middle, stage))
        _whole(axes, test.series[f"reconfiguration.{stage}"], event, stage, middle)
        top += size + _GAP
        axes.axhline(top - _GAP / 2, color=MUTED, linewidth=0.3, clip_on=False)
    axes.axvline(0, color=INK, linewidth=1.2, clip_on=False)
    axes.set_ylim(top, -2)
    axes.set_yticks([at for at, _ in marks], [stage for _, stage in marks])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("after the command", labelpad=1, fontsize=8)
    return figure


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


def _axis(axes: Axes, first: float, last: float) -> None:
    axes.set_xscale("symlog", linthresh=first, linscale=0.6)
    axes.set_xlim(0, last * 1.4)
    decades = [0.0]
    while first <= last * 1.4:
        decades.append(first)
        first *= 10
    axes.xaxis.set_major_locator(FixedLocator(decades))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: duration(ns) if ns else "0"))


def _bars(
    axes: Axes, lower: Numbers, upper: Numbers, offset: float, step: float, shade: str
) -> None:
    thick = step * 0.55
    vertices: list[tuple[float, float]] = []
    codes: list[np.uint8] = []
    for place, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        y = offset + step * place + (step - thick) / 2
        vertices += [(low, y), (high, y), (high, y + thick), (low, y + thick), (low, y)]
        codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    patch = PathPatch(
        Path(vertices, codes), facecolor=shade, edgecolor=shade, linewidth=1, clip_on=False
    )
    axes.add_patch(patch)


def _whole(axes: Axes, series: Series, event: int, stage: str, y: float) -> None:
    """Write the whole event's time beside its group."""
    at = int(np.flatnonzero(series.event == event)[0])
    width = duration(float(series.upper[at] - series.lower[at]))
    told = f"{end_word(stage)} at {duration(float(series.value[at]))}, within {width}"
    axes.text(1.01, y, told, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
