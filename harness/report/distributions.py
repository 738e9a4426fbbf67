"""Step curves of samples, with what the observers could not tell drawn as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.report.drawing import Axis, Numbers, Plot, even
from harness.report.estimates import CONFIDENCE
from harness.report.units import ENDLESS
from harness.statistics import Quantile, quantile
from testbeds import Limit

_MOST_POINTS = 300
_STRIP = 0.07


@dataclass(frozen=True, slots=True)
class Curve:
    """The samples of one test, one an event; `index` says its colour.

    earliest, latest: between which each sample lies, in one unit.
    """

    index: int
    earliest: Numbers
    latest: Numbers


def panel(curves: Sequence[Curve], limit: Limit | None, label: str, unit: str = "ns") -> str:
    """The share of samples at or below a value, one band a curve, as SVG.

    The truth lies between the step curve of the earliest and that of the latest values. Below
    each is the interval of its median. The limit is drawn where it is near. label: what a
    screen reader says.
    """
    rows = len(curves)
    ends = np.concatenate([c.earliest for c in curves] + [c.latest for c in curves])
    ends = ends[np.abs(ends) < ENDLESS]
    low, high = (float(ends.min()), float(ends.max())) if ends.size else (0.0, 1.0)
    near = (high - low) or max(abs(high), 1.0)
    limited = limit is not None and low - near <= limit.value <= high + near
    if limit is not None and limited:
        low, high = min(low, limit.value), max(high, limit.value)
    upright = Axis(-_STRIP * (rows + 0.8), 1, ((0, "0"), (0.5, "50 %"), (1, "100 %")))
    plot = Plot(270, 150 + 7 * rows, even(low, high, unit, most=4), upright)
    if limit is not None and limited:
        plot.rule(limit.value, "limit")
    most = max(60, min(_MOST_POINTS, 2400 // max(rows, 1)))
    for place, curve in enumerate(curves):
        _band(plot, curve, (low, high), most, "lr-faint" if rows > 3 else "lr-area")
        _median(plot, curve, -_STRIP * (place + 1), high)
    return plot.svg(label)


def _band(plot: Plot, curve: Curve, ends: tuple[float, float], most: int, kind: str) -> None:
    left, left_share = _steps(np.maximum(curve.earliest, ends[0]), most)
    right, right_share = _steps(np.minimum(curve.latest, ends[1]), most)
    if curve.latest.size and curve.latest.max() >= ENDLESS:
        plot.word(ends[1], 0.97, "never seen: no bound", "end")
    x = np.concatenate([left, right[::-1]])
    plot.area(x, np.concatenate([left_share, right_share[::-1]]), curve.index, kind)


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


def _median(plot: Plot, curve: Curve, y: float, end: float) -> None:
    found = quantile(curve.earliest, curve.latest, 0.5, CONFIDENCE)
    if isinstance(found, Quantile):
        assert found.lower is not None
        plot.range(found.lower, min(found.upper, end), y, curve.index)
