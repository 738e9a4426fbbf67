"""Claims as a page: published values beside ours, in different styles."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from lightrig.harness.claims.checking import CheckedClaim, ClaimResult
from lightrig.harness.claims.counts import counts_by_kind, measured_sentence
from lightrig.harness.claims.figures.drawn import DrawnFigure
from lightrig.harness.claims.figures.page import STYLE as FIGURES_STYLE
from lightrig.harness.claims.figures.page import figures_section
from lightrig.harness.claims.published import Published
from lightrig.harness.claims.verdicts import CONFIDENCE, Estimate, interval_text, value_text
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_macro, render_page
from lightrig.harness.report.units import Value
from lightrig.testbeds import format_share

_STYLE = """
.lc-published{color:var(--lr-muted);border-left:3px double var(--lr-line);padding-left:8px;
 display:block}
.lc-statement{min-width:17em;max-width:30em}.lc-from{min-width:13em;color:var(--lr-muted)}
.lr-table .lc-note{display:block;color:var(--lr-muted);font-size:12.5px}
@media (max-width:600px){.lc :is(table,tbody,tr,td){display:block}.lc thead{display:none}
.lc tr{border-bottom:1px solid var(--lr-line);padding:8px 0}
.lc .lr-table td{border:0;padding:2px 0}.lc :is(.lc-statement,.lc-from,.lr-number){min-width:0}
.lc-published::before{content:"published "}}
"""
_KINDS = {"agrees": "pass", "differs": "fail"}
_SIGNS = {"agrees": "✓", "differs": "✗", "not measured": "-"}


def write_claims(
    path: Path,
    published: Published,
    checked: Sequence[CheckedClaim],
    figures: Sequence[DrawnFigure] = (),
) -> Path:
    """Write a page that needs nothing from the network, figures first; raises `OSError`."""
    claims = section(published, checked)
    folded = Markup("<details><summary>Claims, a row each</summary>{}</details>").format(claims)
    page = render_page(
        "page",
        title=f"Claims of {published.system}",
        about=published.paper,
        style=style(0) + page_style(_STYLE + FIGURES_STYLE),
        main=figures_section(figures) + folded if figures else claims,
    )
    path.write_text(page, encoding="utf-8")
    return path


def section(published: Published, checked: Sequence[CheckedClaim]) -> Markup:
    """The claims as one section, for a page that has the report's style."""
    simulated = any(one.simulated for one in checked) or any(
        each.simulated for one in checked for each in one.related
    )
    about = (
        "Published is what the paper prints. Measured values are of the testbed "
        f"{published.testbed}, of the last night that has any; each of the others says its origin. "
        f"{measured_sentence(checked)}"
    )
    counted = [_row(one) for one in checked if one.counted]
    outside = [_row(one) for one in checked if not one.counted]
    return render_macro(
        "claims", "claims", about, simulated, counts_by_kind(checked), counted, outside
    )


def _row(one: CheckedClaim) -> Mapping[str, object]:
    """Return what the template `claims` shows of a claim, by its names there."""
    claim = one.claim
    notes = [
        claim.note,
        f"Erratum: {claim.erratum}" if claim.erratum else None,
        f"Difference: {claim.difference}"
        if claim.difference and one.outcome == "differs"
        else None,
        f"Path: {claim.path}" if claim.path else None,
        f"Rests on: {one.rests_on}" if one.rests_on else None,
    ]
    return {
        "checked": one,
        "notes": [note for note in notes if note],
        "related": [(each, _related(each)) for each in one.related if _related(each)],
        "kind": _KINDS.get(one.outcome, "not") if one.verdict != "known erratum" else "not",
        "sign": _SIGNS.get(one.outcome, "?"),
        "plain": one.outcome == "agrees" and claim.tolerance is None and claim.same_as is None,
        "ours": _ours(one),
    }


def _related(result: ClaimResult) -> Value | None:
    """Return a related value; None without one."""
    if not isinstance(result.ours, Estimate):
        return None
    value = value_text(result.ours, result.unit)
    context = (
        "as measured" if result.context.stated else result.context.lookup.statistic,
        f"n = {result.ours.n:,}",
        f"{format_share(CONFIDENCE)} interval {interval_text(result.ours, result.unit, value)}",
        f"on {result.context.testbed}",
    )
    return Value(value, context)


def _ours(one: CheckedClaim) -> Value | None:
    if not isinstance(one.value, Estimate):
        return None
    value = value_text(one.value, one.claim.figure.unit)
    return Value(value, _context(one, one.value, value))


def _context(one: CheckedClaim, estimate: Estimate, value: str) -> tuple[str, ...]:
    """Return the context of a value: statistic, interval, origin."""
    assert one.kind is not None
    if one.exact:
        return ("exact", one.kind)
    interval = interval_text(estimate, one.claim.figure.unit, value)
    sure = format_share(CONFIDENCE)
    if one.claim.ours is None:
        if estimate.n == 1:
            return (f"{interval} by what is assumed", one.kind)
        return (f"mean of {estimate.n:,} draws", f"{sure} of draws in {interval}", one.kind)
    return (
        f"{one.claim.ours.statistic} of {estimate.n:,}",
        f"{sure} interval {interval}",
        one.kind,
    )
