"""Plots as SVG that stands in a page: axes, lines, areas, bars, label, and nothing else.

Colours and strokes are classes of `harness.report.style`, so that one drawing is legible on
light and on dark, and an element of a drawing costs a few bytes. Coordinates are rounded to a
tenth of a pixel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.report.escaping import text
from lightrig.harness.report.units import round_steps, scale, shown

Numbers: TypeAlias = npt.NDArray[Any]

COLOURS, STROKES = 6, 4


def tone(index: int) -> str:
    """The classes of the series of that number; colours repeat, and strokes tell them apart."""
    return f"lr-k{index % COLOURS} lr-d{index // COLOURS % STROKES}"


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions of values between the two ends of an axis, and its labels.

    low, high: the values at its ends. ticks: values and their label. label: the unit, or what
    the axis says. warp: brings values to the scale that is drawn evenly; None where it is even.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    label: str = ""
    warp: Callable[[Numbers], Numbers] | None = None

    def shares(self, values: npt.ArrayLike) -> Numbers:
        """Return the position of each value on the axis, from 0 to 1; clipped at its ends."""
        found = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        low, high = np.float64(self.low), np.float64(self.high)
        if self.warp is not None:
            found = self.warp(found)
            low, high = self.warp(np.array([low, high]))
        return np.asarray((found - low) / ((high - low) or 1.0))


def even(low: float, high: float, unit: str = "", *, most: int = 5, pad: float = 0.03) -> Axis:
    """An even axis from `low` to `high` in `unit`, in the multiple that suits them."""
    size, label = scale(unit, max(abs(low), abs(high)))
    room = pad * ((high - low) or abs(high) or 1.0)
    low, high = low - room, high + room
    steps = round_steps(low / size, high / size, most)
    return Axis(low, high, tuple((step * size, f"{step:.10g}") for step in steps), label)


def decades(low: float, high: float, unit: str = "") -> Axis:
    """A logarithmic axis over the whole decades that hold `low` to `high`, both above zero."""
    size, label = scale(unit, high)
    first, last = math.floor(math.log10(low / size)), math.ceil(math.log10(high / size))
    last = max(last, first + 1)
    every = math.ceil((last - first) / 6)
    ticks = tuple((10.0**n * size, _power(n)) for n in range(first, last + 1, every))
    return Axis(10.0**first * size, 10.0**last * size, ticks, label, np.log10)


def from_zero(first: float, last: float, unit: str = "ns") -> Axis:
    """An axis from 0 that is even up to the decade below `first`, then logarithmic to `last`."""
    decade = 10.0 ** math.floor(math.log10(first))

    def warp(values: Numbers) -> Numbers:
        beyond = np.log10(np.maximum(values, decade) / decade)
        return np.asarray(0.6 * np.minimum(values, decade) / decade + beyond)

    marks = [0.0]
    while (mark := decade * 10.0 ** (len(marks) - 1)) <= last:
        marks.append(mark)
    label = ((mark, shown(mark, unit) if mark else "0") for mark in marks)
    return Axis(0.0, last, tuple(label), "", warp)


def _power(exponent: int) -> str:
    if -3 <= exponent <= 4:
        return f"{10.0**exponent:g}"
    return f"1e{exponent}"


class Plot:
    """A drawing with two axes, in CSS pixels; `left`, `right`, `top` and `bottom` are margins."""

    def __init__(
        self,
        width: float,
        height: float,
        x: Axis,
        y: Axis,
        *,
        left: float = 34,
        right: float = 10,
        top: float = 8,
        bottom: float = 30,
    ) -> None:
        self.width, self.height = width, height
        self._x, self._y = x, y
        self._left, self._right = left, width - right
        self._top, self._bottom = top, height - bottom
        self._parts: list[str] = []
        self._grid()

    def places(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Numbers, Numbers]:
        """Return the positions of values in the drawing, in pixels from its upper left corner."""
        across = self._left + self._x.shares(x) * (self._right - self._left)
        down = self._bottom - self._y.shares(y) * (self._bottom - self._top)
        return across, down

    def line(self, x: npt.ArrayLike, y: npt.ArrayLike, index: int, kind: str = "lr-line") -> None:
        """A line through points, in the colour of series `index`."""
        self._path(*self.places(x, y), f"{kind} {tone(index)}")

    def area(self, x: npt.ArrayLike, y: npt.ArrayLike, index: int, kind: str = "lr-area") -> None:
        """Fill the closed line through points."""
        self._path(*self.places(x, y), f"{kind} {tone(index)}", closed=True)

    def dots(self, x: npt.ArrayLike, y: npt.ArrayLike, index: int) -> None:
        """A dot at each point."""
        marks = "".join(
            f"M{_tenths(round(10 * a))} {_tenths(round(10 * d))}h0"
            for a, d in zip(*(each.tolist() for each in self.places(x, y)), strict=True)
        )
        self._parts.append(f'<path class="lr-dot {tone(index)}" d="{marks}"/>')

    def range(self, low: float, high: float, y: float, index: int, half: float = 2.5) -> None:
        """An interval of x at height `y`, with its two ends marked."""
        (a, b), (down, _) = self.places([low, high], [y, y])
        a, b, up, low_end = (_tenths(round(10 * v)) for v in (a, b, down - half, down + half))
        level = _tenths(round(10 * float(down)))
        path = f"M{a} {level}H{b}M{a} {up}V{low_end}M{b} {up}V{low_end}"
        self._parts.append(f'<path class="lr-range {tone(index)}" d="{path}"/>')

    def boxes(
        self,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        y: npt.ArrayLike,
        thick: float,
        index: int,
        kind: str = "lr-bar",
    ) -> None:
        """Level bars from `low` to `high` around the heights `y`, `thick` pixels each."""
        start, down = self.places(low, y)
        end, _ = self.places(high, y)
        deep = _tenths(round(10 * thick))
        path = "".join(
            f"M{_tenths(round(10 * a))} {_tenths(round(10 * (d - thick / 2)))}"
            f"h{_tenths(round(10 * (b - a)))}v{deep}h{_tenths(round(10 * (a - b)))}z"
            for a, b, d in zip(start.tolist(), end.tolist(), down.tolist(), strict=True)
        )
        self._parts.append(f'<path class="{kind} {tone(index)}" d="{path}"/>')

    def rule(self, value: float, label: str = "", *, level: bool = False) -> None:
        """A dashed line across the whole plot, upright at x = `value`, or level at y = `value`."""
        (across, _), (down, _) = self.places([value, value], [value, value])
        a, d = _tenths(round(10 * float(across))), _tenths(round(10 * float(down)))
        if level:
            path = f"M{_number(self._left)} {d}H{_number(self._right)}"
            self._word(self._left + 4, float(down) - 3, label, "start")
        else:
            path = f"M{a} {_number(self._top)}V{_number(self._bottom)}"
            right = across > (self._left + self._right) / 2
            beside = float(across) + (-4 if right else 4)
            self._word(beside, self._bottom - 4, label, "end" if right else "start")
        self._parts.append(f'<path class="lr-rule" d="{path}"/>')

    def diamond(self, x: float, y: float, label: str, index: int) -> None:
        """An open diamond at a point, which tells `label` on hover, edged in a series' colour."""
        (across, *_), (down, *_) = self.places([x], [y])
        a, d = _tenths(round(10 * float(across))), _tenths(round(10 * float(down) - 45))
        self._parts.append(
            f'<path class="lr-print {tone(index)}" d="M{a} {d}l4.5 4.5l-4.5 4.5l-4.5 -4.5z">'
            f"<title>{text(label)}</title></path>"
        )

    def word(self, x: float, y: float, label: str, anchor: str = "start", kind: str = "") -> None:
        """Words that begin, have their middle or end (`anchor`) at a point."""
        (across, *_), (down, *_) = self.places([x], [y])
        self._word(float(across), float(down), label, anchor, kind)

    def beside(self, y: float, label: str) -> None:
        """Words to the right of the plot, at height `y`."""
        (_, *_), (down, *_) = self.places([self._x.high], [y])
        self._word(self._right + 6, float(down) + 3, label, "start", "lr-said")

    def add(self, element: str) -> None:
        """An SVG element as it is, in pixels."""
        self._parts.append(element)

    def svg(self, label: str, least_width: int = 0) -> str:
        """The drawing as an SVG element.

        label: what a screen reader says. least_width: in CSS pixels; a narrower page scrolls
        the drawing instead of shrinking it.
        """
        return picture(self.width, self.height, label, self._parts, least_width)

    def group(self, x: float, y: float) -> str:
        """The drawing as a group in another one, its upper left corner at a point in pixels."""
        moved = f"translate({_number(x)} {_number(y)})"
        return f'<g transform="{moved}">{"".join(self._parts)}</g>'

    # ------------------------------------------------------------------------- inside

    def _grid(self) -> None:
        left, right = _number(self._left), _number(self._right)
        top, bottom = _number(self._top), _number(self._bottom)
        across, _ = self.places([value for value, _ in self._x.ticks], self._y.low)
        _, down = self.places(self._x.low, [value for value, _ in self._y.ticks])
        lines = [f"M{_tenths(round(10 * a))} {top}V{bottom}" for a in across.tolist()]
        lines += [f"M{left} {_tenths(round(10 * d))}H{right}" for d in down.tolist()]
        self._parts.append(f'<path class="lr-grid" d="{"".join(lines)}"/>')
        self._parts.append(f'<path class="lr-axis" d="M{left} {bottom}H{right}"/>')
        for place, (_, label) in zip(across.tolist(), self._x.ticks, strict=True):
            self._word(place, self._bottom + 11, label, "middle")
        for place, (_, label) in zip(down.tolist(), self._y.ticks, strict=True):
            self._word(self._left - 5, place + 3, label, "end")
        middle = (self._left + self._right) / 2
        self._word(middle, self.height - 4, self._x.label, "middle")
        if self._y.label:
            self._word(0, self._top - 1, self._y.label, "start")

    def _word(self, x: float, y: float, label: str, anchor: str, kind: str = "") -> None:
        if label:
            self._parts.append(word(x, y, label, anchor, kind))

    def _path(self, x: Numbers, y: Numbers, kind: str, *, closed: bool = False) -> None:
        self._parts.append(f'<path class="{kind}" d="{path(x, y, closed=closed)}"/>')


def picture(
    width: float, height: float, label: str, parts: Iterable[str], least_width: int = 0
) -> str:
    """SVG elements as one picture of `width` by `height` pixels; see `Plot.svg`."""
    style = f' style="min-width:{least_width}px"' if least_width else ""
    return (
        f'<svg class="lr-svg" viewBox="0 0 {_number(width)} {_number(height)}" role="img" '
        f'aria-label="{text(label)}"{style}>{"".join(parts)}</svg>'
    )


def word(x: float, y: float, label: str, anchor: str = "start", kind: str = "") -> str:
    """Return text in a picture; `anchor` is "start", "middle" or "end"."""
    anchored = {"start": "", "middle": " lr-mid", "end": " lr-end"}[anchor]
    kind = f" {kind}" if kind else ""
    return (
        f'<text class="lr-t{anchored}{kind}" x="{_tenths(round(10 * x))}" '
        f'y="{_tenths(round(10 * y))}">{text(label)}</text>'
    )


def path(x: Sequence[float] | Numbers, y: Sequence[float] | Numbers, *, closed: bool) -> str:
    """Points in pixels as the shortest path through them; steps are level and upright."""
    points = np.rint(np.column_stack([x, y]) * 10).astype(np.int64).tolist()
    here_x, here_y = points[0]
    parts = [f"M{_tenths(here_x)} {_tenths(here_y)}"]
    level = upright = 0
    for next_x, next_y in points[1:]:
        dx, dy = next_x - here_x, next_y - here_y
        here_x, here_y = next_x, next_y
        if not dy and not upright and level * dx >= 0:
            level += dx
            continue
        if not dx and not level and upright * dy >= 0:
            upright += dy
            continue
        parts.append(_moved(level, upright))
        level = upright = 0
        if not dy:
            level = dx
        elif not dx:
            upright = dy
        else:
            parts.append(f"l{_tenths(dx)} {_tenths(dy)}")
    parts.append(_moved(level, upright))
    return "".join(parts) + ("z" if closed else "")


def _moved(level: int, upright: int) -> str:
    if level:
        return f"h{_tenths(level)}"
    return f"v{_tenths(upright)}" if upright else ""


@functools.lru_cache(maxsize=20_000)
def _tenths(count: int) -> str:
    whole, part = divmod(abs(count), 10)
    sign = "-" if count < 0 else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


def _number(value: float) -> str:
    return _tenths(round(10 * value))
