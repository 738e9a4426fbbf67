"""Claims as a page: published values beside ours, in different styles."""

from collections.abc import Sequence
from pathlib import Path

from lightrig.harness.claims.checking import CheckedClaim, ClaimResult
from lightrig.harness.claims.counts import counts_by_kind, measured_sentence
from lightrig.harness.claims.published import Published
from lightrig.harness.claims.verdicts import CONFIDENCE, Estimate, interval_text, value_text
from lightrig.harness.report.escaping import text
from lightrig.harness.report.markup import LEGEND, SIMULATED, number, row, table
from lightrig.harness.report.style import page_style, style
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
_HEAD = ("claim", "published", "here", "verdict", "source")
_OUTSIDE = "Arithmetic, constants and repeated values, which do not count"
_KINDS = {"agrees": "pass", "differs": "fail"}
_SIGNS = {"agrees": "✓", "differs": "✗", "not measured": "-"}


def write_claims(path: Path, published: Published, checked: Sequence[CheckedClaim]) -> Path:
    """Write a page that needs nothing from the network; raises `OSError`."""
    title = f"Claims of {published.system}"
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{text(title)}</title>{style(0)}{page_style(_STYLE)}</head>"
        f'<body class="lr-page"><header class="lr-title"><h1>{text(title)}</h1>'
        f"<p>{text(published.paper)}</p></header>"
        f'<main class="lr-report">{section(published, checked)}</main></body></html>\n',
        encoding="utf-8",
    )
    return path


def section(published: Published, checked: Sequence[CheckedClaim]) -> str:
    """The claims as one section, for a page that has the report's style."""
    simulated = any(one.simulated for one in checked) or any(
        each.simulated for one in checked for each in one.related
    )
    legend = f"<p>{SIMULATED}: {LEGEND}.</p>" * simulated
    legend += "".join(f"<p>{text(line)}</p>" for line in counts_by_kind(checked))
    about = (
        "Published is what the paper prints. Measured values are of the testbed "
        f"{published.testbed}, of the last night that has any; each of the others says its origin. "
        f"{measured_sentence(checked)}"
    )
    rows = [_row(one) for one in checked if one.counted]
    outside = [_row(one) for one in checked if not one.counted]
    arithmetic = table(_HEAD, outside, _OUTSIDE) if outside else ""
    return (
        f'<section class="lr-card lc"><p class="lr-about">{text(about)}</p>{legend}'
        f"{table(_HEAD, rows, 'Claims')}{arithmetic}</section>"
    )


def _row(one: CheckedClaim) -> str:
    claim = one.claim
    notes = [
        claim.note,
        f"Erratum: {claim.erratum}" if claim.erratum else None,
        f"Path: {claim.path}" if claim.path else None,
        f"Rests on: {one.rests_on}" if one.rests_on else None,
    ]
    remarks = "".join(f'<span class="lc-note">{text(note)}</span>' for note in notes if note)
    remarks += "".join(map(_related, one.related))
    kind = _KINDS.get(one.outcome, "not") if one.verdict != "known erratum" else "not"
    verdict = (
        f'<span class="lr-verdict lr-{kind}" title="{text(one.reason)}">'
        f"{_SIGNS.get(one.outcome, '?')} {text(one.verdict)}</span>"
    )
    plain = one.outcome == "agrees" and claim.tolerance is None and claim.same_as is None
    reason = "" if plain else f'<span class="lc-note">{text(one.reason)}</span>'
    return row(
        (
            f'<div class="lc-statement" id="{text(claim.name)}">'
            f"{text(claim.statement)}{remarks}</div>",
            f'<span class="lc-published">{text(claim.figure)}</span>',
            _ours(one),
            verdict + reason,
            f'<div class="lc-from">{text(claim.source)}</div>',
        )
    )


def _related(result: ClaimResult) -> str:
    """Return a related value, shown below the claim; empty without one."""
    if not isinstance(result.ours, Estimate):
        return ""
    value = value_text(result.ours, result.unit)
    context = (
        "as measured" if result.context.stated else result.context.lookup.statistic,
        f"n = {result.ours.n:,}",
        f"{format_share(CONFIDENCE)} interval {interval_text(result.ours, result.unit, value)}",
        f"on {result.context.testbed}",
    )
    marked = SIMULATED if result.simulated else ""
    statement = f"Related: {result.context.statement}"
    return f'<span class="lc-note">{text(statement)} {marked}{number(value, context)}</span>'


def _ours(one: CheckedClaim) -> str:
    if not isinstance(one.value, Estimate):
        return ""
    simulated = SIMULATED if one.simulated else ""
    value = value_text(one.value, one.claim.figure.unit)
    return f"{simulated}{number(value, _context(one, one.value, value))}"


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
