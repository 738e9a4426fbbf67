"""Values, verdicts, tables and figures as HTML.

A number never stands alone: a `Value` brings its sample count, its interval and whether it was
simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from lightrig.harness.report.drawing import tone
from lightrig.harness.report.escaping import text
from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.units import Value, shown, span
from lightrig.harness.statistics import NotEnough, Quantile, Verdict
from lightrig.testbeds import format_share

SIMULATED = '<span class="lr-sim">simulated</span>'
"""The one mark of everything that no hardware made."""

_IN_CONTEXT = ";</span> <span>simulated"
"""The same as the last part of a number's context."""

LEGEND = "proves the harness, says nothing about a device"

SIGNS = {"fail": "✗", "marginal": "!", "not enough data": "?", "pass": "✓"}
"""The sign of each outcome of a verdict, the worst first."""


def number_of(number: int, one: str, many: str = "") -> str:
    """Return a number and the noun that it counts, by default with an s in the plural."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def test_link(nodeid: str) -> str:
    """Return the link to a test on the page, as the value of an attribute."""
    return text("#test=" + quote(nodeid, safe="-_.~/[]:", errors="replace"))


def mark(simulated: bool) -> str:
    """Return the simulated mark, or nothing."""
    return SIMULATED if simulated else ""


def without_marks(markup: str) -> str:
    """Return a table without the simulated marks of its numbers and tests.

    For a part of the page whose title bears the mark for all that is in it.
    """
    for marked in (f"<br>{SIMULATED}", SIMULATED, _IN_CONTEXT):
        markup = markup.replace(marked, "")
    return markup


# --------------------------------------------------------------------------------- values


def number(value: str, context: Iterable[str]) -> str:
    """Return a number and, in brackets, its context."""
    # Lines break between the parts, not within.
    parts = ";</span> <span>".join(text(part) for part in context if part)
    return (
        f'<span class="lr-number"><b>{text(value)}</b> '
        f'<span class="lr-with"><span>({parts})</span></span></span>'
    )


def median_value(
    found: Quantile | NotEnough, simulated: bool, unit: str = "ns"
) -> Value | NotEnough:
    """Return a median with its two-sided interval; `NotEnough` stays as it is."""
    if isinstance(found, NotEnough):
        return found
    value, share = shown(found.value, unit), format_share(found.confidence)
    assert found.lower is not None
    return Value(
        value,
        (
            f"median of {found.n:,}",
            f"samples follow each other: as {found.effective:,}" if found.effective else "",
            f"{share} interval {span(found.lower, found.upper, unit, value)}",
            "simulated" if simulated else "",
        ),
    )


def bounded_value(
    found: Quantile | NotEnough, simulated: bool, unit: str = "ns"
) -> Value | NotEnough:
    """Return a quantile, such as a p99, with its one-sided upper bound.

    `NotEnough` stays as it is.
    """
    if isinstance(found, NotEnough):
        return found
    return Value(
        shown(found.value, unit),
        (
            f"{quantile_name(found.q)} of {found.n:,}",
            f"{format_share(found.confidence)} upper bound {shown(found.upper, unit)}",
            "simulated" if simulated else "",
        ),
    )


def quantile_name(q: float) -> str:
    """Return the name of a quantile, such as "p99" for 0.99."""
    return f"p{q * 100:.6g}"


def extreme_value(one: Estimate) -> Value:
    """Return the sample that comes closest to a limit on all samples, or exceeds it most."""
    assert one.limit is not None
    low, high = one.test.samples(one.quantity, one.limit.side)
    most = one.limit.side == "upper"
    middle = (low + high) / 2
    at = int(middle.argmax() if most else middle.argmin())
    value = shown(float(middle[at]), one.unit)
    ends = float(low[at]), float(high[at])
    exact = {shown(end, one.unit) for end in ends} == {value}
    known = "" if exact else f"known within {span(*ends, one.unit, value)}"
    of = f"{'greatest' if most else 'least'} of {one.n:,}"
    return Value(value, (of, known, "simulated" if one.test.simulated else ""))


def share_value(inside: str, lower: float, upper: float, simulated: bool) -> Value:
    """Return a share with its interval in percent."""
    share = f"{100 * lower:.3g} … {100 * upper:.3g} %"
    context = (f"{format_share(CONFIDENCE)} interval {share}", "simulated" if simulated else "")
    return Value(inside, context)


def not_enough(found: NotEnough) -> str:
    """Return how many samples an interval needs."""
    return f'<span class="lr-few">not enough data: {found.needed:,} needed</span>'


def verdict_mark(verdict: Verdict) -> str:
    """Return a verdict by sign, word and colour.

    Its reason is shown on hover, and in sight unless the verdict is a pass.
    """
    more = ""
    if verdict.outcome in {"fail", "marginal"}:
        more = f'<span class="lr-with">{text(verdict.reason)}</span>'
    elif verdict.needed is not None:
        more = f'<span class="lr-with">{verdict.needed:,} more needed</span>'
    return f"{chip(verdict.outcome, title=verdict.reason)} {more}"


def chip(outcome: str, count: int | None = None, title: str = "") -> str:
    """Return an outcome of verdicts by sign, word and colour; an unknown one stands out."""
    kind = outcome.split(maxsplit=1)[0] if outcome in SIGNS else "unknown"
    hover = f' title="{text(title)}"' if title else ""
    counted = "" if count is None else f"{count} "
    return (
        f'<span class="lr-verdict lr-{kind}"{hover}>{SIGNS.get(outcome, "‼")} {counted}'
        f"{text(outcome)}</span>"
    )


# --------------------------------------------------------------------- tables and figures


def heading(title: str, simulated: bool, about: str = "") -> str:
    """Return the title of a table or a figure, marked if simulated, with a sentence below."""
    below = f'<p class="lr-about">{text(about)}</p>' if about else ""
    return f'<h4 class="lr-h4">{text(title)} {mark(simulated)}</h4>{below}'


def table(head: Iterable[str], body: Iterable[str], name: str) -> str:
    """Return a table in a box that scrolls; head cells are text, body rows are markup."""
    cells = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    return (
        f'<div class="lr-scroll" tabindex="0" role="region" aria-label="{text(name)}">'
        f'<table class="lr-table"><thead><tr>{cells}</tr></thead>{"".join(body)}</table></div>'
    )


def row(cells: Iterable[str]) -> str:
    """Return one row of a table; cells are markup."""
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def line_key(index: int) -> str:
    """Return a short line in the colour and stroke of the series of that number."""
    return (
        '<svg class="lr-key" viewBox="0 0 26 8" aria-hidden="true">'
        f'<path class="lr-line {tone(index)}" d="M0 4H26"/></svg>'
    )


def legend(series: Iterable[tuple[int, str]]) -> str:
    """Return a legend: the line of each series, by its number, and its name."""
    items = "".join(f"<li>{line_key(n)} <span>{text(name)}</span></li>" for n, name in series)
    return f'<ul class="lr-legend">{items}</ul>'
