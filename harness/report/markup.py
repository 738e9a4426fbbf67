"""Values in the words of a page; the template `markup` has their HTML.

A number never stands alone: a `Value` brings its sample count, its interval and whether it was
simulated.
"""

from __future__ import annotations

from urllib.parse import quote

from markupsafe import Markup

from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.units import Value, shown, span
from lightrig.harness.statistics.quantiles import NotEnough, Quantile
from lightrig.testbeds import format_share

_SIMULATED = '<span class="lr-sim">simulated</span>'
_IN_CONTEXT = ";</span> <span>simulated"
"""The simulated mark of a table's cell, and as the last part of a number's context."""

SIGNS = {"fail": "✗", "marginal": "!", "not enough data": "?", "pass": "✓"}
"""The sign of each outcome of a verdict, the worst first."""


def number_of(number: int, one: str, many: str = "") -> str:
    """Return a number and the noun that it counts, by default with an s in the plural."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def test_link(nodeid: str) -> str:
    """Return the link to a test on the page."""
    return "#test=" + quote(nodeid, safe="-_.~/[]:", errors="replace")


def without_marks(markup: Markup) -> Markup:
    """Return a table without the simulated marks of its numbers and tests.

    For a part of the page whose title bears the mark for all that is in it.
    """
    for marked in (f"<br>{_SIMULATED}", _SIMULATED, _IN_CONTEXT):
        markup = markup.replace(marked, "")
    return markup


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
            f"as {found.effective:,} independent ones" if found.effective else "",
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
