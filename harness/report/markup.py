"""Values in the words of a page; the template `markup` has their HTML.

A number never stands alone: a `Value` brings its sample count, its interval and whether it was
simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from urllib.parse import quote

from markupsafe import Markup

from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.units import Value, shown
from lightrig.harness.statistics.quantiles import NotEnough, Quantile
from lightrig.testbeds import format_share
from lightrig.testbeds.intervals import at_most, interval

_SIMULATED = '<span class="lr-sim">simulated</span>'
_IN_CONTEXT = ";</span> <span>simulated"
"""The simulated mark of a table's cell, and as the last part of a number's context."""

SIGNS = {"fail": "✗", "marginal": "!", "not enough data": "?", "pass": "✓"}
"""The sign of each outcome of a verdict, the worst first."""


def plain_outcome(shown: str) -> str:
    """Return the outcome of a verdict that is shown with its ports."""
    return shown.partition(",")[0]


def outcome_counts(shown: Iterable[str]) -> dict[str, int]:
    """Return how many verdicts are of each outcome, unknown ones first, then the worst first."""
    order = [*SIGNS]
    places = {name: place for place, name in enumerate(order, start=1)}
    counts = Counter(shown)
    return {
        each: counts[each] for each in sorted(counts, key=lambda s: places.get(plain_outcome(s), 0))
    }


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
    assert found.lower is not None
    written = interval(found.lower, found.upper, unit, found.value)
    return Value(
        written.value,
        (
            f"median of {found.n:,}",
            f"as {found.effective:,} independent ones" if found.effective else "",
            f"{format_share(found.confidence)} interval {written.ends}",
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
            f"{format_share(found.confidence)} upper bound {at_most(found.upper, unit)}",
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
    written = interval(float(low[at]), float(high[at]), one.unit, float(middle[at]))
    known = "" if low[at] == high[at] else f"known within {written.ends}"
    of = f"{'greatest' if most else 'least'} of {one.n:,}"
    return Value(written.value, (of, known, "simulated" if one.test.simulated else ""))


def share_value(inside: str, lower: float, upper: float, simulated: bool) -> Value:
    """Return a share with its interval in percent."""
    ends = interval(lower, upper, "share").ends
    context = (f"{format_share(CONFIDENCE)} interval {ends}", "simulated" if simulated else "")
    return Value(inside, context)
