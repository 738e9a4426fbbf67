"""Text for HTML: escaped names, and figures that are never alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from harness.report.estimates import CONFIDENCE
from harness.statistics import NotEnough, Quantile, Verdict
from testbeds import format_duration, format_share

SIMULATED = '<span class="lr-sim">simulated</span>'
"""The one mark of everything that no hardware made."""

LEGEND = "proves the harness, says nothing about a device"

_SIGNS = {"pass": "✓", "fail": "✗", "not enough data": "?"}


def text(value: object) -> str:
    """`value` as text that HTML shows as it is, also inside an attribute."""
    return escape(str(value), quote=True)


def mark(simulated: bool) -> str:
    """The simulated mark, or nothing."""
    return SIMULATED if simulated else ""


def duration(ns: float) -> str:
    """Write nanoseconds with their unit; "no bound" where there is none."""
    return format_duration(ns) if math.isfinite(ns) else "no bound"


def interval(lower: float, upper: float, beside: str = "") -> str:
    """Write two durations in ns; their unit once, or not at all if `beside` has it."""
    low, high = "0" if lower == 0 else duration(lower), duration(upper)
    unit = high.partition(" ")[2]
    if low.partition(" ")[2] != unit or not math.isfinite(upper):
        return f"{low} … {high}"
    number = high if beside.partition(" ")[2] != unit else high.partition(" ")[0]
    return f"{low.partition(' ')[0]} … {number}"


def figure(value: str, company: Iterable[str]) -> str:
    """A number and, in brackets, what it needs to be understood."""
    # Lines break between the parts, not within.
    beside = ";</span> <span>".join(text(part) for part in company if part)
    return (
        f'<span class="lr-number"><b>{text(value)}</b> '
        f'<span class="lr-with"><span>({beside})</span></span></span>'
    )


def median_figure(found: Quantile | NotEnough, simulated: bool) -> str:
    """A median in ns with its two-sided interval."""
    if isinstance(found, NotEnough):
        return not_enough(found)
    value, sure = duration(found.value), format_share(found.confidence)
    assert found.lower is not None
    return figure(
        value,
        (
            f"median of {found.n:,}",
            f"{sure} interval {interval(found.lower, found.upper, value)}",
            "simulated" if simulated else "",
        ),
    )


def p99_figure(found: Quantile | NotEnough, simulated: bool) -> str:
    """A p99 in ns with its one-sided upper bound."""
    if isinstance(found, NotEnough):
        return not_enough(found)
    return figure(
        duration(found.value),
        (
            f"p99 of {found.n:,}",
            f"{format_share(found.confidence)} upper bound {duration(found.upper)}",
            "simulated" if simulated else "",
        ),
    )


def not_enough(found: NotEnough) -> str:
    """Say how many samples an interval needs."""
    return f'<span class="lr-few">not enough data: {found.needed:,} needed</span>'


def verdict_mark(verdict: Verdict) -> str:
    """A verdict by sign, word and colour; its reason on hover, and in sight unless it passed."""
    kind = verdict.outcome.split(maxsplit=1)[0]
    more = ""
    if verdict.outcome == "fail":
        more = f'<span class="lr-with">{text(verdict.reason)}</span>'
    elif verdict.needed is not None:
        more = f'<span class="lr-with">{verdict.needed:,} more needed</span>'
    sign = _SIGNS[verdict.outcome]
    return (
        f'<span class="lr-verdict lr-{kind}" title="{text(verdict.reason)}">'
        f"{sign} {verdict.outcome}</span> {more}"
    )


def share_interval(inside: str, lower: float, upper: float) -> str:
    """A share with its interval, both in percent."""
    return figure(
        inside, (f"{format_share(CONFIDENCE)} interval {100 * lower:.3g} … {100 * upper:.3g} %",)
    )


def table(head: Iterable[str], body: Iterable[str], name: str) -> str:
    """A table in a box that scrolls by itself; head cells are text, body rows are markup."""
    cells = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    return (
        f'<div class="lr-scroll" tabindex="0" role="region" aria-label="{text(name)}">'
        f'<table class="lr-table"><thead><tr>{cells}</tr></thead>{"".join(body)}</table></div>'
    )


def row(cells: Iterable[str], kind: str = "") -> str:
    """One row of a table; cells are markup."""
    inner = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr class="{kind}">{inner}</tr>' if kind else f"<tr>{inner}</tr>"


def heading(title: str, simulated: bool, about: str = "") -> str:
    """The title of a table or a figure, marked if simulated, with a sentence below."""
    below = f'<p class="lr-about">{text(about)}</p>' if about else ""
    return f'<h4 class="lr-h4">{text(title)} {mark(simulated)}</h4>{below}'
