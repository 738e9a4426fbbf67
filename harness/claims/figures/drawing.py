"""Figures as SVG: ours as lines and bars with their intervals, printed values as diamonds."""

import math
import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from lightrig.harness.claims.figures.curves import Curve
from lightrig.harness.claims.figures.declarations import AxisPart
from lightrig.harness.claims.figures.drawn import ComparedValue, DrawnFigure, DrawnPanel, Series
from lightrig.harness.claims.verdicts import interval_text, value_text
from lightrig.harness.report.drawing import Axis, Numbers, Plot, decades, even, tone, word
from lightrig.harness.report.escaping import text
from lightrig.harness.report.figures import arrow
from lightrig.harness.report.style import drawing_style
from lightrig.harness.report.units import shown
from lightrig.testbeds import format_share

WIDTH, HEIGHT = 420, 240
_BAR, _SPACE = 11.0, 10.0
_MOST_DOTS = 40
_MOST_LABELS = 30
_GAP = 26.0
_LINE = 13.0
PRINTED = "printed in the paper"
CHOICES = (
    "Nothing is read off the paper's picture: ticks, colours, and lines or bars without a printed "
    "value are a choice of this page. Where two lines are the same, the later hides the earlier."
)


def plot_of(panel: DrawnPanel, names: Sequence[str]) -> Plot:
    """Return the drawing of a panel; `names` give each series its colour in all panels."""
    if any(one.curve.categories is not None for one in panel.series):
        return _bars(panel, names)
    return _lines(panel, names)


def svg_of(figure: DrawnFigure) -> str:
    """Return a figure as an SVG file that needs nothing from elsewhere."""
    names = figure.names()
    parts: list[str] = []
    heading = f"Figure {figure.figure.number}. {figure.figure.part.title}"
    mark = " (ours: simulated)" if figure.simulated else ""
    parts.append(word(0, 12, heading + mark, kind="lr-said"))
    top, column, row = 24.0, 0, 0.0
    for panel in figure.shown_panels:
        plot = plot_of(panel, names)
        left = column * (WIDTH + _GAP)
        parts.append(word(left, top + 9, panel.panel.part.title, kind="lr-said"))
        parts.append(plot.group(left, top + 16))
        legend, below = _legend(panel, names, left, top + 16 + plot.height + 8)
        parts += legend
        row, column = max(row, below), column + 1
        if column == 2 or panel is figure.shown_panels[-1]:
            top, row, column = row + 10, 0.0, 0
    width = WIDTH * 2 + _GAP if len(figure.shown_panels) > 1 else WIDTH
    for sentence in notes(figure):
        for line in textwrap.wrap(sentence, round(width / 4.6)):
            parts.append(word(0, top + 8, line))
            top += _LINE
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" '
        f'class="lr-svg" viewBox="-8 -4 {width + 16:.0f} {top + 16:.0f}" role="img" '
        f'aria-label="{text(heading)}">{drawing_style()}'
        f'<rect x="-8" y="-4" width="{width + 16:.0f}" height="{top + 16:.0f}" '
        f'fill="var(--lr-ground)"/>{"".join(parts)}</svg>\n'
    )


def notes(figure: DrawnFigure) -> Iterator[str]:
    """Yield what a figure states below its plots: origin, differences, omissions, choices."""
    part = figure.figure.part
    if part.not_drawn:
        yield f"Not drawn: {part.not_drawn}"
        return
    for origin in figure.origins():
        yield f"Ours: {origin}."
    for one in figure.compared:
        yield comparison(one)
    for panel in figure.panels:
        for name, reason in panel.absent.items():
            yield f"Without {name} ({panel.panel.part.title}): {reason}"
    yield from (f"Left out: {each}" for each in part.left_out)
    yield " ".join((*part.choices, CHOICES))


def comparison(one: ComparedValue) -> str:
    """Return a printed value beside ours, in a sentence."""
    value = one.value
    statement = value.claim.statement.rstrip(".") if value.claim else ""
    where = ", ".join(part for part in (value.series or statement, value.place) if part)
    head = f"{where}: printed {value.figure.printed} ({value.source})"
    if one.ours is None:
        return f"{head}; not compared: {one.reason}"
    found = value_text(one.ours, value.figure.unit)
    if one.ours.lower < one.ours.upper:
        found += f" ({interval_text(one.ours, value.figure.unit)})"
    off = (
        f", {format_share(float(f'{one.difference:.2g}'))} off the printed range"
        if one.difference > 0
        else ""
    )
    reason = f" {value.difference}" if one.outcome == "differs" and value.difference else ""
    return f"{head}; ours {found}: {one.outcome}{off}.{reason}"


# ----------------------------------------------------------------------------- lines


def _lines(panel: DrawnPanel, names: Sequence[str]) -> Plot:
    part = panel.panel.part
    marks = [one for one in panel.compared if math.isfinite(one.value.middle)]
    xs = [np.asarray(each.curve.x, dtype=float) for each in panel.series]
    ys = _heights(panel)
    for one in marks:
        value = one.value
        (xs if value.along == "x" else ys).append(np.array([value.middle]))
        if isinstance(value.x, float):
            xs.append(np.array([value.x]))
        if value.y is not None:
            ys.append(np.array([value.y]))
    across, upright = _axis(part.x, np.concatenate(xs)), _axis(part.y, np.concatenate(ys))
    longest = max((len(label) for _, label in upright.ticks), default=1)
    level = Axis(upright.low, upright.high, upright.ticks, "", upright.warp)
    plot = Plot(WIDTH, HEIGHT, across, level, left=14 + 5.5 * longest, top=20, bottom=32)
    plot.add(word(0, 9, upright.label))  # above the highest tick
    for each in panel.series:
        _line(plot, each.curve, names.index(each.curve.name), decadic=part.y.scale == "decades")
    for one in marks:
        _mark(plot, one, names)
    _rules(plot, marks, across, upright)
    return plot


def _heights(panel: DrawnPanel) -> list[Numbers]:
    """Return y and both bounds of each series."""
    return [
        np.asarray(each, dtype=float)
        for one in panel.series
        for each in (one.curve.y, one.curve.lower, one.curve.upper)
    ]


def _axis(part: AxisPart, values: Numbers) -> Axis:
    found = values[np.isfinite(values)]
    if part.scale == "decades":
        found = found[found > 0]
        axis = decades(float(found.min()), float(found.max()), part.unit)
    else:
        axis = even(float(found.min()), float(found.max()), part.unit)
    label = f"{part.title} ({axis.label})" if axis.label and axis.label != "1" else part.title
    return Axis(axis.low, axis.high, axis.ticks, label, axis.warp)


def _line(plot: Plot, curve: Curve, index: int, *, decadic: bool) -> None:
    x, y, lower, upper = (
        np.asarray(each, dtype=float) for each in (curve.x, curve.y, curve.lower, curve.upper)
    )
    known = np.isfinite(y)
    if decadic:  # zero is at no place of the axis: its upper bound is
        for place, bound in zip(x[y <= 0], upper[y <= 0], strict=True):
            if bound > 0:
                arrow(plot, float(place), float(bound), index)
        known &= y > 0
        lower = np.where(lower > 0, lower, y)
    x, y, lower, upper = x[known], y[known], lower[known], upper[known]
    if not x.size:
        return
    if (lower < upper).any():
        band = np.concatenate([lower, upper[::-1]])
        plot.area(np.concatenate([x, x[::-1]]), band, index, "lr-band")
    plot.line(x, y, index)
    if x.size <= _MOST_DOTS:
        plot.dots(x, y, index)


def _mark(plot: Plot, one: ComparedValue, names: Sequence[str]) -> None:
    value = one.value
    index = names.index(value.series) if value.series in names else 5
    if isinstance(value.x, float):
        low, high = value.figure.low, value.figure.high
        if value.mark is None and -math.inf < low < high < math.inf:
            plot.line([value.x, value.x], [low, high], index, "lr-whisker")
        plot.diamond(value.x, value.middle, comparison(one), index)
    elif value.y is not None:
        plot.diamond(value.middle, value.y, comparison(one), index)


def _rules(plot: Plot, marks: Sequence[ComparedValue], across: Axis, upright: Axis) -> None:
    """Draw the printed values of whole series as dashed lines, their labels one below another."""
    whole = [one.value for one in marks if one.value.x is None and one.value.y is None]
    for place, value in enumerate(sorted(whole, key=lambda each: each.middle)):
        label = f"{value.series or ''} {value.number or ''} {value.figure.printed}".strip()
        level = value.along == "y"
        plot.rule(value.middle, label if level else "", level=level)
        if level:
            continue
        (x, *_), (y, *_) = plot.places([value.middle], [upright.high])
        right = float(across.shares([value.middle])[0]) > 0.6
        down = float(y) + 10 + 11 * place
        plot.add(word(float(x) + (-4 if right else 4), down, label, "end" if right else "start"))


# ------------------------------------------------------------------------------ bars


def _bars(panel: DrawnPanel, names: Sequence[str]) -> Plot:
    """Draw level bars in groups, a group a category, from the top."""
    part = panel.panel.part
    categories = list(
        dict.fromkeys(
            [name for one in panel.series for name in one.curve.categories or ()]
            + [one.value.x for one in panel.compared if isinstance(one.value.x, str)]
        )
    )
    shown_series = [one.curve for one in panel.series]
    thick = _BAR if len(shown_series) < 6 else 8.0
    group = thick * max(len(shown_series), 1) + _SPACE
    ys = _heights(panel)
    marked = [one for one in panel.compared if math.isfinite(one.value.middle)]
    ys += [np.array([one.value.middle]) for one in marked]
    values = np.concatenate(ys)
    axis = _axis(part.y, values if part.y.scale == "decades" else np.append(values, 0.0))
    height = group * len(categories)
    ticks = tuple((-(place + 0.5) * group, name) for place, name in enumerate(categories))
    left = 10 + 4.7 * max(len(name) for name in categories)
    plot = Plot(
        WIDTH, height + 46, axis, Axis(-height, 0, ticks), left=min(left, 190), right=46, top=8,
        bottom=38,
    )  # fmt: skip
    labelled = len(categories) * len(shown_series) <= _MOST_LABELS
    for number, curve in enumerate(shown_series):
        for place, name in enumerate(categories):
            found = curve.at(name)
            if found is None:
                continue
            y = -(place * group + _SPACE / 2 + thick * (number + 0.5))
            start = axis.low if part.y.scale == "decades" else min(max(0.0, axis.low), axis.high)
            low, high = sorted((start, found.value))
            plot.boxes([low], [high], [y], thick * 0.55, names.index(curve.name))
            end = found.value
            if found.lower < found.upper < math.inf:
                plot.add(_whisker(plot, found.lower, found.upper, y))
                end = found.upper
            if labelled:
                # Beyond a diamond that stands on the same bar.
                printed = [
                    one.value.middle
                    for one in marked
                    if (one.value.x, one.value.series) == (name, curve.name)
                ]
                end = max([end, *printed])
                (x,), (down,) = plot.places([end], [y])
                label = _number(found.value, part.y.unit)
                plot.add(word(float(x) + 8, float(down) + 3, label))
    for one in marked:
        value = one.value
        if not isinstance(value.x, str):
            plot.rule(value.middle, f"printed {value.figure.printed}")
            continue
        order = [curve.name for curve in shown_series]
        row = order.index(value.series) if value.series in order else (len(order) - 1) / 2
        y = -(categories.index(value.x) * group + _SPACE / 2 + thick * (row + 0.5))
        index = names.index(value.series) if value.series in names else 5
        low_end, high_end = value.figure.low, value.figure.high
        if value.mark is None and -math.inf < low_end < high_end < math.inf:
            plot.add(_whisker(plot, low_end, high_end, y))
        plot.diamond(value.middle, y, comparison(one), index)
    return plot


def _number(value: float, unit: str) -> str:
    """Return a value beside its bar: four digits, thousands in groups."""
    if unit != "1":
        return shown(value, unit)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _whisker(plot: Plot, low: float, high: float, y: float) -> str:
    (a, b), (down, _) = plot.places([low, high], [y, y])
    return (
        f'<path class="lr-whisker" d="M{a:.1f} {down:.1f}H{b:.1f}'
        f'M{a:.1f} {down - 2.5:.1f}v5M{b:.1f} {down - 2.5:.1f}v5"/>'
    )


def _legend(panel: DrawnPanel, names: Sequence[str], x: float, y: float) -> tuple[list[str], float]:
    """Return the key below a panel, two entries a line, and where it ends."""
    entries = [
        (f'<path class="lr-line {tone(names.index(one.curve.name))}" d="M{{0}} {{1}}h20"/>', label)
        for one, label in zip(panel.series, map(legend_text, panel.series), strict=True)
    ]
    if panel.compared:
        shape = '<path class="lr-print" transform="translate({0} {1})" d="M10 -4l4 4l-4 4l-4 -4z"/>'
        entries.append((shape, PRINTED))
    columns = 2 if len(entries) > 3 and all(len(label) < 38 for _, label in entries) else 1
    parts = []
    for place, (shape, label) in enumerate(entries):
        left = x + place % columns * WIDTH / 2
        down = y + place // columns * _LINE
        parts.append(shape.format(f"{left:.1f}", f"{down:.1f}") + word(left + 26, down + 3, label))
    return parts, y + math.ceil(len(entries) / columns) * _LINE


def legend_text(one: Series) -> str:
    """Return the name of a series, with its origin and its number of draws or events."""
    count = f", n = {one.curve.n:,}" if one.curve.n > 1 else ""
    return f"{one.curve.name} ({one.kind}{count})"
