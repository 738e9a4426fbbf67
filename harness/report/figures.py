"""The figures that any quantity can have: a curve with its band, a distribution, a heat map.

A test adds one to its own row of the report through pytest-html:

    extras.append(pytest_html.extras.html(curve([Line("ocs 1>17", x, y, low, high)], ...)))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.harness.report.drawing import Axis, Numbers, Plot, decades, even, picture, tone, word
from lightrig.harness.report.escaping import text
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.units import round_steps, scale, shown
from lightrig.harness.statistics.quantiles import Quantile, quantile
from lightrig.testbeds import Limit
from lightrig.testbeds.intervals import ENDLESS

_LEVELS = 24
_MOST_TITLES = 1024
_MOST_POINTS = 300
_STRIP = 0.07


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a curve; arrays of one length, in the units of the axes.

    name: for the legend. x: ascending. y: NaN where only a bound is known, such as a bit error
    ratio of zero errors. lower, upper: the interval around each y; infinite or NaN where there
    is none.
    """

    name: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    lower: npt.ArrayLike
    upper: npt.ArrayLike

    def arrays(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """The four arrays, as floats."""
        x, y, lower, upper = (
            np.asarray(each, dtype=np.float64) for each in (self.x, self.y, self.lower, self.upper)
        )
        return x, y, np.where(np.isfinite(lower), lower, y), np.where(np.isfinite(upper), upper, y)


def curve(
    lines: Sequence[Line],
    *,
    x: str,
    x_unit: str,
    y_unit: str,
    label: str,
    limit: float | None = None,
    logarithmic: bool | None = None,
    width: float = 420,
    height: float = 240,
) -> str:
    """Lines over a numeric condition, each in its band of intervals, as SVG.

    x: what varies. x_unit, y_unit: as in rows, such as "dBm" and "1"; "" for none. label: what
    a screen reader says. limit: drawn as a level dashed line. logarithmic: whether y is drawn
    in decades; None: if it is above zero and spans more than a hundredfold. A point of which
    only the upper bound is known is an arrow down from it. The legend is the caller's, in the
    order of `lines`: `harness.report.markup.key` draws the colours.
    """
    arrays = [line.arrays() for line in lines]
    ys = np.concatenate([part for _, *parts in arrays for part in parts])
    ys = ys[np.isfinite(ys)]
    if not ys.size:
        ys = np.array([0.0, 1.0])
    if limit is not None:
        ys = np.append(ys, limit)
    above = ys[ys > 0]
    if logarithmic is None:
        logarithmic = above.size > 0 and not (ys < 0).any() and above.max() > 100 * above.min()
    low, high = float(ys.min()), float(ys.max())
    upright = (
        decades(float(above.min()), high, y_unit)
        if logarithmic and above.size
        else even(low, high, y_unit)
    )
    xs = np.concatenate([each[0] for each in arrays])
    level = even(float(xs.min()), float(xs.max()), x_unit)
    title = f"{x} ({level.label})" if level.label else x
    longest = max(len(labels) for _, labels in upright.ticks)
    plot = Plot(
        width=width,
        height=height,
        x=Axis(level.low, level.high, level.ticks, title),
        y=upright,
        left=12 + 6 * longest,
        top=16 if upright.label else 8,
    )
    for index, (at, y, lower, upper) in enumerate(arrays):
        banded = np.isfinite(lower) & np.isfinite(upper)
        if banded.any():
            plot.area(
                np.concatenate([at[banded], at[banded][::-1]]),
                np.concatenate([lower[banded], upper[banded][::-1]]),
                index,
                "lr-band",
            )
        known = np.isfinite(y)
        if known.any():
            plot.line(at[known], y[known], index)
            plot.dots(at[known], y[known], index)
        for place, bound in zip(at[~known & banded], upper[~known & banded], strict=True):
            arrow(plot, float(place), float(bound), index)
    if limit is not None:
        plot.rule(limit, f"limit {shown(limit, y_unit)}", level=True)
    return plot.svg(label)


def arrow(plot: Plot, x: float, y: float, index: int) -> None:
    """An arrow down from a value of which only the upper bound is known."""
    (across,), (down,) = plot.places([x], [y])
    d = f"M{across - 4:.1f} {down:.1f}h8m-4 0v9m-2.5 -3.5l2.5 3.5l2.5 -3.5"
    plot.add(f'<path class="lr-range {tone(index)}" d="{d}"/>')


@dataclass(frozen=True, slots=True)
class Distribution:
    """The samples of one test, one an event; `index` says its colour.

    earliest, latest: between which each sample lies, in one unit.
    """

    index: int
    earliest: Numbers
    latest: Numbers


def distribution_plot(
    curves: Sequence[Distribution], limit: Limit | None, label: str, unit: str = "ns"
) -> str:
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
    for place, one in enumerate(curves):
        _band(plot, one, (low, high), most, "lr-faint" if rows > 3 else "lr-area")
        _median(plot, one, -_STRIP * (place + 1), high)
    return plot.svg(label)


def _band(plot: Plot, curve: Distribution, ends: tuple[float, float], most: int, kind: str) -> None:
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


def _median(plot: Plot, curve: Distribution, y: float, end: float) -> None:
    found = quantile(curve.earliest, curve.latest, 0.5, CONFIDENCE)
    if isinstance(found, Quantile):
        assert found.lower is not None
        plot.range(found.lower, min(found.upper, end), y, curve.index)


def heat_map(
    matrix: npt.ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    unit: str,
    *,
    label: str,
    row_name: str = "",
    column_name: str = "",
) -> str:
    """A matrix as coloured cells with a scale, as SVG; NaN is left open: not measured.

    rows, columns: the labels of each row, from the top, and of each column. unit: of the values.
    label: what a screen reader says. row_name, column_name: what rows and columns are. Light is
    high and dark is low, on light and on dark, and in every kind of colour vision: the colours
    are Cividis (Nuñez, Anderton and Renslow 2018). Up to 1,024 cells tell their value on hover.
    """
    values = np.asarray(matrix, dtype=np.float64)
    high, wide = values.shape
    cell = min(26.0, max(4.0, 460 / max(high, wide, 1)))
    left = 14 + 5.6 * max((len(each) for each in rows), default=0) + (14 if row_name else 0)
    slanted = max((len(each) for each in columns), default=0) * 5.6 > cell
    top = (14 + 5.6 * max((len(each) for each in columns), default=0)) if slanted else 16
    top += 14 if column_name else 0
    right = left + cell * wide
    parts = _cells(values, rows, columns, unit, (left, top, cell))
    every_row, every_column = max(1, math.ceil(10 / cell)), max(1, math.ceil(11 / cell))
    for place in range(0, high, every_row):
        parts.append(word(left - 4, top + cell * (place + 0.5) + 3, rows[place], "end"))
    for place in range(0, wide, every_column):
        x = left + cell * (place + 0.5)
        if slanted:
            turned = word(0, 3, columns[place])
            parts.append(f'<g transform="translate({x:.1f} {top - 5:.1f})rotate(-90)">{turned}</g>')
        else:
            parts.append(word(x, top - 5, columns[place], "middle"))
    if row_name:
        turned = word(0, 0, row_name, "middle")
        middle = top + cell * high / 2
        parts.append(f'<g transform="translate(10 {middle:.1f})rotate(-90)">{turned}</g>')
    if column_name:
        parts.append(word(left + cell * wide / 2, 10, column_name, "middle"))
    found = values[np.isfinite(values)]
    if found.size:
        parts.append(_scale(float(found.min()), float(found.max()), unit, right + 14, top))
    return picture(right + 84, max(top + cell * high, top + 132) + 6, label, parts)


def _cells(
    values: Numbers,
    rows: Sequence[str],
    columns: Sequence[str],
    unit: str,
    place: tuple[float, float, float],
) -> list[str]:
    left, top, cell = place
    finite = np.isfinite(values)
    low = float(values[finite].min()) if finite.any() else 0.0
    span = (float(values[finite].max()) - low if finite.any() else 0.0) or 1.0
    levels = np.where(finite, np.rint((values - low) / span * (_LEVELS - 1)), -1).astype(int)
    box = f"h{cell:.1f}v{cell:.1f}h-{cell:.1f}z"
    parts = []
    for level in range(_LEVELS):
        each = np.argwhere(levels == level).tolist()
        boxes = "".join(f"M{left + cell * c:.1f} {top + cell * r:.1f}{box}" for r, c in each)
        if boxes:
            parts.append(f'<path fill="{_shade(level)}" d="{boxes}"/>')
    size = f'width="{cell * values.shape[1]:.1f}" height="{cell * values.shape[0]:.1f}"'
    parts.append(f'<rect class="lr-frame" x="{left:.1f}" y="{top:.1f}" {size}/>')
    if values.size <= _MOST_TITLES:
        for r, c in np.ndindex(values.shape):
            value = shown(float(values[r, c]), unit) if finite[r, c] else "not measured"
            hover = text(f"{rows[r]}, {columns[c]}: {value}")
            parts.append(
                f'<path class="lr-told" d="M{left + cell * c:.1f} {top + cell * r:.1f}{box}">'
                f"<title>{hover}</title></path>"
            )
    return parts


def _scale(low: float, high: float, unit: str, x: float, y: float) -> str:
    """Draw the scale of colours, from the greatest value downwards."""
    step = 5
    boxes = "".join(
        f'<rect fill="{_shade(_LEVELS - 1 - n)}" x="{x:.1f}" y="{y + step * n:.1f}" '
        f'width="12" height="{step}"/>'
        for n in range(_LEVELS)
    )
    size, name = scale(unit, max(abs(low), abs(high)))
    ticks = round_steps(low / size, high / size, 4) if high > low else [low / size]
    labels = "".join(
        word(x + 16, y + 3 + step * _LEVELS * _from_top(tick * size, low, high), f"{tick:.10g}")
        for tick in ticks
    )
    return boxes + labels + word(x, y - 5, name)


def _from_top(value: float, low: float, high: float) -> float:
    return (high - value) / ((high - low) or 1.0)


# Every eighth of Cividis.
_CIVIDIS = (
    *((0, 34, 78), (26, 56, 111), (67, 78, 108), (97, 101, 111), (125, 124, 120)),
    *((155, 148, 118), (188, 174, 108), (222, 201, 88), (254, 232, 56)),
)


def _shade(level: int) -> str:
    place = level / (_LEVELS - 1) * (len(_CIVIDIS) - 1)
    index = min(int(place), len(_CIVIDIS) - 2)
    mix = place - index
    pairs = zip(_CIVIDIS[index], _CIVIDIS[index + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * mix):02x}" for a, b in pairs)
