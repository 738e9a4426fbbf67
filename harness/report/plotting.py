"""One style for all plots, and from a matplotlib figure to SVG that stands in a page.

Colours are names here (`INK`, `SERIES[2]`): stand-ins that `inline` turns into variables of
the page's style, so that one figure is legible on light and on dark.
"""

from __future__ import annotations

import io
import math
import re
from contextlib import AbstractContextManager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

INK, MUTED, GRID = "#010101", "#020202", "#030303"
SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005", "#0a0006")
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 1.5), (6, 1.5, 1, 1.5))

_VARIABLES = {
    INK: "var(--lr-ink)",
    MUTED: "var(--lr-muted)",
    GRID: "var(--lr-grid)",
    **{stand_in: f"var(--lr-s{index})" for index, stand_in in enumerate(SERIES)},
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lightrig",
    "text.parse_math": False,
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}
_SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def styled() -> AbstractContextManager[None]:
    """Within, matplotlib draws in the one style; every figure is drawn and inlined in it."""
    return mpl.rc_context(_STYLE)


def colour(index: int) -> str:
    """The colour of the series of that number; they repeat, and `dashes` tells them apart."""
    return SERIES[index % len(SERIES)]


def dashes(index: int) -> tuple[float, ...]:
    """The dash pattern, in points, of the series of that number; empty for a whole line."""
    return DASHES[index // len(SERIES) % len(DASHES)]


def variable(index: int) -> str:
    """The colour of a series as the page's style knows it."""
    return _VARIABLES[colour(index)]


def canvas(
    width: float, height: float, left: float = 30, bottom: float = 30, right: float = 10
) -> tuple[Figure, Axes]:
    """An empty plot; all in points, which are the units of the drawing."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    box = (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + 8) / height)
    axes: Axes = figure.add_axes(box)
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    return figure, axes


def duration_axis(axes: Axes, low: float, high: float) -> None:
    """Let the horizontal axis run from `low` to `high` ns, in the unit that suits them."""
    scale, unit = next(((s, u) for s, u in _SCALES if high >= s), _SCALES[-1])
    span = (high - low) or max(abs(high), 1.0)
    axes.set_xlim(low - 0.03 * span, high + 0.03 * span)
    axes.xaxis.set_major_locator(_Round(scale))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: f"{ns / scale:.10g}"))
    axes.set_xlabel(unit, labelpad=1, fontsize=8)


class _Round(MaxNLocator):
    """Ticks that are round in the unit shown."""

    def __init__(self, scale: float) -> None:
        super().__init__(nbins=4, steps=[1, 2, 2.5, 5, 10])
        self._scale = scale

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        ticks = super().tick_values(vmin / self._scale, vmax / self._scale)
        return [float(tick) * self._scale for tick in ticks]


def inline(figure: Figure, prefix: str, label: str, least_width: int = 0) -> str:
    """`figure` as an SVG element for the page.

    prefix: of its ids, unique on the page. label: what a screen reader says. least_width: in
    CSS pixels; a narrower page scrolls the figure instead of shrinking it.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    backend: Any = FigureCanvasSVG(figure)  # untyped in matplotlib
    backend.print_svg(buffer, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # Its style would reach the whole page.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", svg)
    svg = re.sub(r' (d|x|y|transform|points)="([^"]*)"', _shortened, svg)
    svg = re.sub(r"#0[0-9a]0[0-9]0[0-9]", lambda m: _VARIABLES.get(m[0], m[0]), svg)
    svg = re.sub(r">\s+<", "><", svg)
    box = re.search(r'viewBox="([^"]+)"', svg)
    assert box is not None
    style = f' style="min-width:{least_width}px"' if least_width else ""
    head = (
        f'<svg class="lr-svg" viewBox="{box[1]}" role="img" '
        f'aria-label="{escape(label, quote=True)}"{style}>'
    )
    return head + svg[svg.index(">") + 1 :].rstrip()


def _shortened(attribute: re.Match[str]) -> str:
    name, value = attribute[1], attribute[2]
    value = re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), value)
    if name == "d":
        value = _straight(value)
    return f' {name}="{" ".join(value.split())}"'


def _straight(path: str) -> str:
    """`path` with level and upright lines in their short form, which steps consist of."""
    here, short = ["", ""], []
    for part in re.findall(r"[A-Za-z][^A-Za-z]*", path):
        command, numbers = part[0], part[1:].split()
        if command == "L" and numbers[1] == here[1]:
            short.append(f"H{numbers[0]}")
        elif command == "L" and numbers[0] == here[0]:
            short.append(f"V{numbers[1]}")
        else:
            short.append(command + " ".join(numbers))
        here = numbers[-2:] if numbers else ["", ""]
    return "".join(short)


def decade_below(ns: float) -> float:
    """The power of ten at or below `ns`."""
    return float(10.0 ** math.floor(math.log10(ns)))
