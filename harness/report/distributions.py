"""Step curves of times, with what the observers could not tell drawn as a band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from harness.report.estimates import CONFIDENCE
from harness.report.frames import Numbers
from harness.report.plotting import (
    INK,
    MUTED,
    canvas,
    colour,
    dashes,
    duration_axis,
    inline,
    styled,
)
from harness.statistics import Quantile, quantile
from testbeds import Limit

_MOST_POINTS = 300
_STRIP = 0.07


@dataclass(frozen=True, slots=True)
class Curve:
    """The samples of one test in ns, one an event; `index` says its colour."""

    index: int
    earliest: Numbers
    latest: Numbers


def panel(curves: Sequence[Curve], limit: Limit | None, prefix: str, label: str) -> str:
    """The share of events done by a time, one band a curve, as SVG.

    The truth lies between the step curve of the earliest and that of the latest times. Below
    each is the interval of its median. The limit is drawn where it is near.
    """
    with styled():
        return inline(_drawn(curves, limit), prefix, label)


def _drawn(curves: Sequence[Curve], limit: Limit | None) -> Figure:
    rows = len(curves)
    figure, axes = canvas(270, 150 + 7 * rows)
    finite = np.concatenate([c.earliest for c in curves] + [c.latest for c in curves])
    finite = finite[np.isfinite(finite)]
    low, high = float(finite.min()), float(finite.max())
    span = (high - low) or max(high, 1.0)
    if limit is not None and low - span <= limit.value <= high + span:
        low, high = min(low, limit.value), max(high, limit.value)
        axes.axvline(limit.value, color=INK, linewidth=1, dashes=(3, 2), clip_on=False)
        side = "right" if limit.value > (low + high) / 2 else "left"
        pad = " limit " if side == "left" else "limit "
        axes.text(limit.value, 0.02, pad, ha=side, va="bottom", fontsize=8)
    most = max(60, min(_MOST_POINTS, 2400 // max(rows, 1)))
    for place, curve in enumerate(curves):
        _band(axes, curve, high, most, max(0.07, 0.3 / rows))
        _median(axes, curve, -_STRIP * (place + 1), high)
    axes.axhline(0, color=MUTED, linewidth=0.7)
    axes.set_ylim(-_STRIP * (rows + 0.8), 1)
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.tick_params(labelsize=8)
    duration_axis(axes, low, high)
    return figure


def _band(axes: Axes, curve: Curve, end: float, most: int, alpha: float) -> None:
    left, left_share = _steps(curve.earliest, most)
    right, right_share = _steps(np.minimum(curve.latest, end), most)
    points = np.concatenate(
        [np.column_stack([left, left_share]), np.column_stack([right, right_share])[::-1]]
    )
    if curve.latest.size and not math.isfinite(float(curve.latest.max())):
        axes.text(end, 1, "never seen: no bound ", ha="right", va="top", fontsize=7)
    shade = colour(curve.index)
    axes.fill(
        points[:, 0],
        points[:, 1],
        facecolor=(shade, alpha),
        edgecolor=shade,
        linewidth=1.1,
        linestyle=(0, dashes(curve.index)) if dashes(curve.index) else "-",
        clip_on=False,
    )


def _steps(values: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Corners of the empirical distribution of `values`, at most `most` of its steps."""
    places, counts = np.unique(values, return_counts=True)
    shares = np.cumsum(counts) / values.size
    if places.size > most:
        keep = np.unique(np.linspace(0, places.size - 1, most).round().astype(int))
        places, shares = places[keep], shares[keep]
    x = np.repeat(places, 2)
    y = np.concatenate([[0.0], np.repeat(shares, 2)[:-1]])
    return x, y


def _median(axes: Axes, curve: Curve, y: float, end: float) -> None:
    found = quantile(curve.earliest, curve.latest, 0.5, CONFIDENCE)
    if not isinstance(found, Quantile):
        return
    assert found.lower is not None
    lower, upper, half = found.lower, min(found.upper, end), _STRIP * 0.32
    shape = Path(
        [
            *((lower, y), (upper, y)),
            *((lower, y - half), (lower, y + half)),
            *((upper, y - half), (upper, y + half)),
        ],
        [Path.MOVETO, Path.LINETO] * 3,
    )
    shade = colour(curve.index)
    axes.add_patch(PathPatch(shape, edgecolor=shade, fill=False, linewidth=1.5, clip_on=False))
