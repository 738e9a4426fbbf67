"""Claims as a page: published and ours side by side, never alike."""

from collections.abc import Sequence
from pathlib import Path

from harness.claims.checking import Checked, Told
from harness.claims.published import Published
from harness.claims.verdicts import CONFIDENCE, Estimate, reach, worded
from harness.report.markup import LEGEND, SIMULATED, figure, row, table, text
from harness.report.style import page_style, style
from testbeds import format_share

_STYLE = """
.lc-published{color:var(--lr-muted);border-left:3px double var(--lr-line);padding-left:8px;
 display:block}
.lc-says{min-width:17em;max-width:30em}.lc-from{min-width:13em;color:var(--lr-muted)}
.lr-table .lc-note{display:block;color:var(--lr-muted);font-size:12.5px}
@media (max-width:600px){.lc :is(table,tbody,tr,td){display:block}.lc thead{display:none}
.lc tr{border-bottom:1px solid var(--lr-line);padding:8px 0}
.lc .lr-table td{border:0;padding:2px 0}.lc :is(.lc-says,.lc-from,.lr-number){min-width:0}
.lc-published::before{content:"published "}}
"""
_HEAD = ("claim", "published", "ours", "verdict", "source")
_KINDS = {"agrees": "pass", "differs": "fail"}
_SIGNS = {"agrees": "✓", "differs": "✗", "not measured": "-"}


def write_claims(path: Path, published: Published, checked: Sequence[Checked]) -> Path:
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


def section(published: Published, checked: Sequence[Checked]) -> str:
    """The claims as one section, for a page that has the report's style."""
    closure = any(one.kind == "closure" for one in checked)
    told = any(each.simulated for one in checked for each in one.told)
    legend = (
        f"<p>{SIMULATED}: {LEGEND}. The simulation is built from what was published; that it "
        "agrees is closure.</p>"
        if closure
        else f"<p>{SIMULATED}: {LEGEND}.</p>" * told
    )
    about = (
        "Published is what the paper prints, ours what this harness measured on the testbed "
        f"{published.testbed}, on the last night that did, or computed where it says so."
    )
    rows = [_row(one) for one in checked]
    return (
        f'<section class="lr-card lc"><p class="lr-about">{text(about)}</p>{legend}'
        f"{table(_HEAD, rows, 'Claims')}</section>"
    )


def _row(one: Checked) -> str:
    claim = one.claim
    notes = [
        claim.note,
        f"Erratum: {claim.erratum}" if claim.erratum else None,
        f"Computed: {one.rests_on}" if one.rests_on else None,
    ]
    told = "".join(f'<span class="lc-note">{text(note)}</span>' for note in notes if note)
    told += "".join(map(_beside, one.told))
    kind = _KINDS.get(one.outcome, "not")
    closure = "" if one.kind in {None, "measurement"} else f" ({one.kind})"
    verdict = (
        f'<span class="lr-verdict lr-{kind}" title="{text(one.reason)}">'
        f"{_SIGNS.get(one.outcome, '?')} {one.outcome}{closure}</span>"
    )
    why = "" if one.outcome == "agrees" else f'<span class="lc-note">{text(one.reason)}</span>'
    return row(
        (
            f'<div class="lc-says" id="{text(claim.name)}">{text(claim.says)}{told}</div>',
            f'<span class="lc-published">{text(claim.figure)}</span>',
            _ours(one),
            verdict + why,
            f'<div class="lc-from">{text(claim.source)}</div>',
        )
    )


def _beside(told: Told) -> str:
    """A value that answers nothing, under what it stands beside."""
    if not isinstance(told.ours, Estimate):
        return ""
    value = worded(told.ours, told.unit)
    company = (
        "as measured" if told.beside.stated else told.beside.lookup.statistic,
        f"n = {told.ours.n:,}",
        f"{format_share(CONFIDENCE)} interval {reach(told.ours, told.unit, value)}",
        f"on {told.beside.testbed}",
    )
    marked = SIMULATED if told.simulated else ""
    says = f"Beside it, another thing: {told.beside.says}"
    return f'<span class="lc-note">{text(says)} {marked}{figure(value, company)}</span>'


def _ours(one: Checked) -> str:
    if not isinstance(one.ours, Estimate):
        return ""
    simulated = SIMULATED if one.kind == "closure" else ""
    value = worded(one.ours, one.claim.figure.unit)
    return f"{simulated}{figure(value, _company(one, one.ours, value))}"


def _company(one: Checked, ours: Estimate, value: str) -> tuple[str, ...]:
    """What a value needs beside it to be understood."""
    if one.exact:
        return ("computed, nothing drawn",)
    interval = reach(ours, one.claim.figure.unit, value)
    sure = format_share(CONFIDENCE)
    if one.kind == "computed":
        if ours.n == 1:
            return (f"{interval} by what is assumed", "computed")
        return (f"mean of {ours.n:,} draws", f"{sure} of draws lie in {interval}", "computed")
    assert one.claim.ours is not None
    return (
        f"{one.claim.ours.statistic} of {ours.n:,}",
        f"{sure} interval {interval}",
        "closure, simulated" if one.kind == "closure" else "measured",
    )
