"""Text for HTML: escaped names, and figures that are never alone."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from harness.report.estimates import CONFIDENCE
from harness.report.units import shown, span
from harness.statistics import NotEnough, Quantile, Verdict
from testbeds import format_share

SIMULATED = '<span class="lr-sim">simulated</span>'
"""The one mark of everything that no hardware made."""

LEGEND = "proves the harness, says nothing about a device"

SIGNS = {"fail": "✗", "marginal": "!", "not enough data": "?", "pass": "✓"}
"""Of each outcome of a verdict, the worst first."""


def text(value: object) -> str:
    """`value` as text that HTML shows as it is, also inside an attribute."""
    return escape(str(value), quote=True)


def test_link(nodeid: str) -> str:
    """Where a test is on the page, as the value of an attribute."""
    return text("#test=" + quote(nodeid, safe="-_.~/[]:", errors="replace"))


def mark(simulated: bool) -> str:
    """The simulated mark, or nothing."""
    return SIMULATED if simulated else ""


def duration(ns: float) -> str:
    """Write nanoseconds with their unit; "no bound" where there is none."""
    return shown(ns, "ns")


def interval(lower: float, upper: float, beside: str = "") -> str:
    """Write two durations in ns; their unit once, or not at all if `beside` has it."""
    return span(lower, upper, "ns", beside)


def figure(value: str, company: Iterable[str]) -> str:
    """A number and, in brackets, what it needs to be understood."""
    # Lines break between the parts, not within.
    beside = ";</span> <span>".join(text(part) for part in company if part)
    return (
        f'<span class="lr-number"><b>{text(value)}</b> '
        f'<span class="lr-with"><span>({beside})</span></span></span>'
    )


def median_figure(found: Quantile | NotEnough, simulated: bool, unit: str = "ns") -> str:
    """A median with its two-sided interval."""
    if isinstance(found, NotEnough):
        return not_enough(found)
    value, sure = shown(found.value, unit), format_share(found.confidence)
    assert found.lower is not None
    return figure(
        value,
        (
            f"median of {found.n:,}",
            f"{sure} interval {span(found.lower, found.upper, unit, value)}",
            "simulated" if simulated else "",
        ),
    )


def p99_figure(found: Quantile | NotEnough, simulated: bool, unit: str = "ns") -> str:
    """A p99 with its one-sided upper bound."""
    if isinstance(found, NotEnough):
        return not_enough(found)
    return figure(
        shown(found.value, unit),
        (
            f"p99 of {found.n:,}",
            f"{format_share(found.confidence)} upper bound {shown(found.upper, unit)}",
            "simulated" if simulated else "",
        ),
    )


def not_enough(found: NotEnough) -> str:
    """Say how many samples an interval needs."""
    return f'<span class="lr-few">not enough data: {found.needed:,} needed</span>'


def verdict_mark(verdict: Verdict) -> str:
    """A verdict by sign, word and colour; its reason on hover, and in sight unless it passed."""
    more = ""
    if verdict.outcome in {"fail", "marginal"}:
        more = f'<span class="lr-with">{text(verdict.reason)}</span>'
    elif verdict.needed is not None:
        more = f'<span class="lr-with">{verdict.needed:,} more needed</span>'
    return f"{chip(verdict.outcome, title=verdict.reason)} {more}"


def chip(outcome: str, count: int | None = None, title: str = "") -> str:
    """An outcome of verdicts by sign, word and colour; one that is not known stands out."""
    kind = outcome.split(maxsplit=1)[0] if outcome in SIGNS else "unknown"
    told = f' title="{text(title)}"' if title else ""
    counted = "" if count is None else f"{count} "
    return (
        f'<span class="lr-verdict lr-{kind}"{told}>{SIGNS.get(outcome, "‼")} {counted}'
        f"{text(outcome)}</span>"
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
