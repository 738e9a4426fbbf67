"""`lightrig claims`: published values of a paper compared with ours."""

# Data frames take a second to import: only the commands that need them pay it.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, NO, AsJson, give_up, print_json
from lightrig.harness.cli.terminal import out
from lightrig.testbeds import LightrigError

if TYPE_CHECKING:
    from lightrig.harness.claims import CheckedClaim, ClaimResult

_STYLES = {"agrees": "green", "differs": "bold red"}


def claims(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM", help="An installed system, or a file of published values."
        ),
    ],
    results: Annotated[
        str, typer.Option("--results", metavar="PLACE", help="A folder, or a URL.")
    ] = "results",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a paper's published values with those measured or computed here.

    Exit 0 if nothing differs, 1 if something does, 2 for a system that is not known, 3 for
    results that cannot be read.
    """
    from lightrig.harness.claims import check_claims, load_published, published_files, write_claims
    from lightrig.harness.record import Results

    files = {system: Path(system)} if system.endswith((".yaml", ".yml")) else published_files()
    if system not in files:
        known = ", ".join(files) or "none"
        give_up(f"{system}: no such system; known are: {known}", BAD_INPUT)
    path = files[system]
    if not path.is_file():
        give_up(f"{path}: no such file of published values", BAD_INPUT)
    try:
        published = load_published(path)
    except LightrigError as error:
        give_up(str(error), BAD_INPUT)
    try:
        checked = check_claims(published, Results(results))
        if html is not None:
            write_claims(html, published, checked)
    except (LightrigError, OSError) as error:
        give_up(str(error), LAB_ERROR)
    if as_json:
        print_json([_document(one) for one in checked])
    else:
        _print(published.paper, checked)
        if html is not None:
            out.print(f"page  {html}", markup=False, soft_wrap=True)
    if any(one.outcome == "differs" for one in checked):
        raise typer.Exit(NO)


def _print(paper: str, checked: "list[CheckedClaim]") -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("claim", "published", "ours", "interval", "n", "verdict", "source"):
        table.add_column(name, overflow="fold")
    for one in checked:
        value, interval, n = _ours(one)
        table.add_row(
            one.claim.name,
            Text(str(one.claim.figure), style="dim"),
            Text(value, style="bold cyan"),
            interval,
            n,
            Text(one.outcome, style=_STYLES.get(one.outcome, "")),
            one.claim.source,
        )
    out.print(paper, markup=False, soft_wrap=True)
    out.print(table)
    counts: dict[str, int] = {}
    for one in checked:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    out.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), markup=False)
    if any(one.kind == "closure" for one in checked):
        out.print(
            "closure: simulated from published values, no evidence about a device",
            markup=False,
        )
    for related in (related for one in checked for related in one.related):
        _print_related(related)
    if any(one.kind == "computed" for one in checked):
        out.print("computed: by formula or replay, not measured", markup=False)


def _print_related(related: "ClaimResult") -> None:
    """Print a related value, which answers no claim, if there is one."""
    from lightrig.harness.claims import Estimate
    from lightrig.harness.claims.verdicts import interval_text, value_text

    if not isinstance(related.ours, Estimate):
        return
    interval = interval_text(related.ours, related.unit)
    simulated = ", something simulated" if related.simulated else ""
    out.print(
        f"related: {related.context.statement} {value_text(related.ours, related.unit)} "
        f"({interval}; n = {related.ours.n:,}; {related.context.testbed}{simulated})",
        markup=False,
        soft_wrap=True,
    )


def _ours(one: "CheckedClaim") -> tuple[str, str, str]:
    from lightrig.harness.claims import Estimate
    from lightrig.harness.claims.verdicts import interval_text, value_text

    if one.ours is None:
        return "", "", ""
    if not isinstance(one.ours, Estimate):
        return "", f"{one.ours.needed:,} needed", f"{one.ours.n:,}"
    unit = one.claim.figure.unit
    value = value_text(one.ours, unit)
    kind = "" if one.kind == "measurement" else f" ({one.kind})"
    if one.exact:
        return value + kind, "", ""
    n = f"{one.ours.n:,}" if one.ours.n > 1 else ""
    return value + kind, interval_text(one.ours, unit), n


def _document(one: "CheckedClaim") -> dict[str, Any]:
    from lightrig.harness.claims import Estimate

    claim, ours = one.claim, one.ours if isinstance(one.ours, Estimate) else None
    return {
        "claim": claim.name,
        "says": claim.statement,
        "published": claim.figure.printed,
        "published_low": _finite(claim.figure.low),
        "published_high": _finite(claim.figure.high),
        "unit": claim.figure.unit,
        "statistic": claim.ours.statistic if claim.ours else None,
        "computed": claim.computed,
        "ours": _finite(ours.value) if ours else None,
        "lower": _finite(ours.lower) if ours else None,
        "upper": _finite(ours.upper) if ours else None,
        "n": None if one.ours is None else one.ours.n,
        "kind": one.kind,
        "simulated": None if one.kind is None else one.kind == "closure",
        "night": one.night,
        "verdict": one.outcome,
        "reason": one.reason,
        "rests_on": one.rests_on,
        "source": claim.source,
        "note": claim.note,
        "erratum": claim.erratum,
        "beside": [_related_document(related) for related in one.related],
    }


def _related_document(related: "ClaimResult") -> dict[str, Any]:
    from lightrig.harness.claims import Estimate

    ours = related.ours if isinstance(related.ours, Estimate) else None
    return {
        "says": related.context.statement,
        "testbed": related.context.testbed,
        "ours": _finite(ours.value) if ours else None,
        "lower": _finite(ours.lower) if ours else None,
        "upper": _finite(ours.upper) if ours else None,
        "unit": related.unit,
        "n": None if related.ours is None else related.ours.n,
        "simulated": related.simulated if related.ours is not None else None,
        "night": related.night,
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
