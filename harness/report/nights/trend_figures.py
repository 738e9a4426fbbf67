"""Drawings of one series over its nights, and of many series together.

Marks differ by form as well as by colour: a change is a solid line with a triangle that points
up or down, a drift a sloping dashed one, an event a dotted line with a letter.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from lightrig.harness.report.drawing import Axis, Plot, decades, even, path, picture, word
from lightrig.harness.report.escaping import text
from lightrig.harness.report.nights.cells import Numbers
from lightrig.harness.report.nights.series import History, NightSeries
from lightrig.harness.report.nights.series_changes import LabChange, SeriesChange
from lightrig.harness.report.units import shown
from lightrig.harness.statistics.changes import Trend
from lightrig.testbeds import Limit

WIDTH, HEIGHT, LEFT, RIGHT = 360.0, 172.0, 40.0, 8.0
"""Size of a trend in CSS pixels; the page's script locates the night under a pointer by it."""
_TOP, _BOTTOM = 24.0, 18.0
_SPARK = 132.0, 26.0
_MOST_TICKS = 5
_SPREAD = 30.0
"""From this ratio on, the axis of positive plain numbers is logarithmic."""
_CHANGE = 1
"""Number of a colour in the page's style; measured values have number 0."""

_LONGEST_TITLE = 160
"""Characters of what happened before a night, in each of a lab's figures."""


def letters(count: int) -> list[str]:
    """Return the names of events in their order: A to Z, then A1 to Z1."""
    return [chr(65 + at % 26) + (str(at // 26) if at >= 26 else "") for at in range(count)]


def trend(
    history: History,
    series: NightSeries,
    moved: SeriesChange | None = None,
    events: Sequence[LabChange] = (),
    limit: Limit | None = None,
) -> str:
    """Draw the median of each night with its interval, the p99, the limit and the changes."""
    ends = series.lower, series.upper, series.median, series.p99
    y = _heights(series.unit, np.concatenate(ends), limit)
    plot = _plot(history, y)
    _missing(plot, np.isnan(series.median), y)
    if limit is not None and y.low <= limit.value <= y.high:
        plot.rule(limit.value, "limit", level=True)
    _events(plot, y, events)
    for nights in _stretches(series.median):
        _between(plot, nights, series.lower, series.upper, "lr-band")
        _along(plot, nights, series.median, "lr-line")
    for nights in _stretches(series.p99):
        _along(plot, nights, series.p99, "ln-p99")
    if moved is not None and moved.changes:
        _changes(plot, y, series, moved)
    elif moved is not None and moved.drift is not None:
        _drift(plot, series, moved.drift)
    plot.add('<path class="ln-at"/>')
    return plot.svg(f"{series.quantity} of {series.subject} over {history.nights} nights")


def overview(history: History, series: Sequence[NightSeries]) -> str:
    """Draw the medians of many series: the middle one of each night, the middle half, and all."""
    least, low, middle, high, most = found = layers(series)
    y = _heights(series[0].unit, found.ravel(), None)
    plot = _plot(history, y)
    _missing(plot, np.isnan(middle), y)
    for nights in _stretches(middle):
        _between(plot, nights, least, most, "lr-band")
        _between(plot, nights, low, high, "lr-band")
        _along(plot, nights, middle, "lr-line")
    plot.add('<path class="ln-at"/>')
    return plot.svg(f"{series[0].quantity} of {len(series)} series over {history.nights} nights")


def spark(series: Sequence[NightSeries], changes: Iterable[int]) -> str:
    """Draw a trend or an overview as high as a line of text, without an axis.

    Of several series, each by how far it is from its own median over the nights: one bad port shows
    among ports of different levels, whose range would hide it.
    """
    least, _, middle, _, most = layers(series, centered=len(series) > 1)
    if len(series) == 1:
        least, most = series[0].lower, np.fmin(series[0].upper, np.nanmax(middle))
    width, height = _SPARK
    across = Axis(-0.6, middle.size - 0.4)
    up = _heights(series[0].unit, np.concatenate([least, most]), None)

    def x(nights: Numbers) -> Numbers:
        return np.asarray(1 + across.shares(nights) * (width - 2))

    def y(values: Numbers) -> Numbers:
        return np.asarray(height - 2 - up.shares(values) * (height - 4))

    parts = []
    for nights in _stretches(middle):
        band = np.append(y(least[nights]), y(most[nights])[::-1])
        around = path(x(np.append(nights, nights[::-1])), band, closed=True)
        parts.append(f'<path class="lr-band lr-k0" d="{around}"/>')
        line = path(x(nights), y(middle[nights]), closed=False)
        parts.append(f'<path class="lr-line lr-k0" d="{line}{"h.1" * (nights.size == 1)}"/>')
    marks = x(np.array([*changes]) - 0.5).tolist()
    parts += [f'<path class="ln-change" d="M{mark:.1f} 0V{height:g}"/>' for mark in marks]
    return picture(width, height, "in short", parts)


# ------------------------------------------------------------------------------ axes


def _plot(history: History, y: Axis) -> Plot:
    x = Axis(-0.6, history.nights - 0.4, _dates(history))
    return Plot(WIDTH, HEIGHT, x, y, left=LEFT, right=RIGHT, top=_TOP, bottom=_BOTTOM)


def _dates(history: History) -> tuple[tuple[float, str], ...]:
    every = -(-history.nights // _MOST_TICKS)
    nights = range(every // 2, history.nights, every)
    return tuple((night, history.date(night).date[5:]) for night in nights)


def _heights(unit: str, values: Numbers, limit: Limit | None) -> Axis:
    """Return an axis over `values`, and over the limit if it is near."""
    found = values[np.isfinite(values)]
    low, high = float(found.min()), float(found.max())
    if unit == "1" and low > 0 and high / low > _SPREAD:
        return decades(low, high)
    span = (high - low) or abs(high) or 1.0
    if limit is not None and low - span <= limit.value <= high + span:
        low, high = min(low, limit.value), max(high, limit.value)
    return even(low, high, unit, most=5, pad=0.06)


def layers(series: Sequence[NightSeries], *, centered: bool = False) -> Numbers:
    """Return the least, the quartiles and the greatest median of each night; NaN without any.

    A quartile is the nearest median itself, not one between two. centered: of each series
    how far it is from its median over all nights.
    """
    found = np.array([one.median for one in series])
    if centered:
        levels = [
            float(np.median(one[np.isfinite(one)] if np.isfinite(one).any() else 0.0))
            for one in found
        ]
        found = found - np.array(levels)[:, None]
    medians = np.sort(found, axis=0)  # NaN comes last
    last = np.maximum(np.isfinite(medians).sum(axis=0) - 1, 0)
    rank = np.rint(np.array([0, 0.25, 0.5, 0.75, 1])[:, None] * last).astype(np.intp)
    return np.asarray(np.take_along_axis(medians, rank, axis=0))


# ------------------------------------------------------------------------------ marks


def _stretches(values: Numbers) -> Iterator[Numbers]:
    """Yield runs of consecutive nights with a value."""
    nights = np.flatnonzero(np.isfinite(values))
    if nights.size:
        yield from np.split(nights, np.flatnonzero(np.diff(nights) > 1) + 1)


def _along(plot: Plot, nights: Numbers, values: Numbers, kind: str) -> None:
    if nights.size == 1:
        plot.dots(nights, values[nights], 0)
    else:
        plot.line(nights, values[nights], 0, kind)


def _between(plot: Plot, nights: Numbers, low: Numbers, high: Numbers, kind: str) -> None:
    # A single night is as wide as others, so that its interval is visible.
    if nights.size == 1:
        x = np.array([nights[0] - 0.3, nights[0] + 0.3])
        nights = nights.repeat(2)
    else:
        x = nights
    plot.area(np.append(x, x[::-1]), np.append(low[nights], high[nights][::-1]), 0, kind)


def _missing(plot: Plot, missing: Numbers, y: Axis) -> None:
    """Draw a grey column for each run of nights without data."""
    parts = []
    for nights in _stretches(np.where(missing, 0.0, np.nan)):
        (left, right), (top, bottom) = plot.places(
            [nights[0] - 0.5, nights[-1] + 0.5], [y.high, y.low]
        )
        parts.append(f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}z")
    if parts:
        plot.add(f'<path class="ln-none" d="{"".join(parts)}"/>')


def _events(plot: Plot, y: Axis, events: Sequence[LabChange]) -> None:
    marked = _marked(tuple(events))
    if not marked:
        return
    across, _ = plot.places([night - 0.5 for night, _, _ in marked], [y.low] * len(marked))
    _, (top, bottom) = plot.places([0.0, 0.0], [y.high, y.low])
    for x, (_, title, name) in zip(across, marked, strict=True):
        plot.add(
            f'<g class="ln-event"><title>{title}</title>'
            f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>{word(x, bottom - 3, name, "middle")}</g>'
        )


def _short(title: str) -> str:
    """Return the beginning of a long text: the lab's list of events has all of it."""
    return title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}..."


@functools.lru_cache(maxsize=32)
def _marked(events: tuple[LabChange, ...]) -> Sequence[tuple[int, str, str]]:
    """Return each night with events, their texts and their letters; all figures of a lab ask it."""
    names: dict[int, list[tuple[str, LabChange]]] = {}
    for letter, event in zip(letters(len(events)), events, strict=True):
        names.setdefault(event.night, []).append((letter, event))
    return [
        (
            night,
            text(_short("; ".join(event.text for _, event in found))),
            "".join(letter for letter, _ in found),
        )
        for night, found in names.items()
    ]


def _changes(plot: Plot, y: Axis, series: NightSeries, moved: SeriesChange) -> None:
    """Draw the level before and after each change, and the difference."""
    changes = moved.changes
    starts = [0, *(change.index for change in changes)]
    ends = [*(change.index for change in changes), series.median.size]
    levels = [changes[0].before, *(change.after for change in changes)]
    for start, end, level in zip(starts, ends, levels, strict=True):
        plot.line([start - 0.5, end - 0.5], [level, level], _CHANGE, "ln-level")
    for change in changes:
        (x, _), (top, bottom) = plot.places([change.index - 0.5] * 2, [y.high, y.low])
        up = change.after > change.before
        tip, base = (top - 8, top - 1) if up else (top - 1, top - 8)
        plot.add(
            f'<path class="ln-change" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'
            f'<path class="ln-direction" d="M{x:.1f} {tip:.1f}L{x - 4:.1f} {base:.1f}h8z"/>'
        )
        right = x > WIDTH / 2
        distance = far(change.before, change.after, series.unit)
        plot.add(
            word(x + (-7 if right else 7), top - 2, distance, "end" if right else "start", "ln-far")
        )


def _drift(plot: Plot, series: NightSeries, drift: Trend) -> None:
    """Draw the slope through the middle of the nights."""
    nights = np.flatnonzero(np.isfinite(series.median))
    ends = nights[[0, -1]]
    level = np.median(series.median[nights]) + drift.per_night * (ends - np.median(nights))
    plot.line(ends, level, 3, "ln-drift")


def are_far_apart(before: float, after: float, unit: str) -> bool:
    """Whether the quotient of two levels says more than their difference."""
    numbers = unit == "1" and before > 0 and after > 0
    return numbers and not 1 / _SPREAD < after / before < _SPREAD


def far(before: float, after: float, unit: str) -> str:
    """Return the difference of two levels with its sign; a factor where they are far apart."""
    if are_far_apart(before, after, unit):
        return f"\N{MULTIPLICATION SIGN} {after / before:.2g}"
    sign = "+" if after > before else "\N{MINUS SIGN}"
    return f"{sign}{shown(abs(after - before), 'dB' if unit == 'dBm' else unit)}"
