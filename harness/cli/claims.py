"""`lightrig claims`: what a paper publishes against what was measured here."""

# Data frames take a second to import: only the commands that need them pay it.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from harness.cli.common import BAD_INPUT, LAB_TROUBLE, NO, AsJson, give_up, out, print_json
from testbeds import LightrigError, TestbedError

if TYPE_CHECKING:
    from harness.claims import Checked, Told

_STYLES = {"agrees": "green", "differs": "bold red"}


def claims(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="opus, mixnet, or a file.")],
    results: Annotated[
        str, typer.Option("--results", metavar="PLACE", help="A folder, or a URL.")
    ] = "results",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold what a paper publishes against what was measured or computed here.

    Exit 0 if nothing differs, 1 if something does, 2 for a system that is not known, 3 for
    results that cannot be read.
    """
    from harness.claims import check_claims, known_systems, load_published, write_claims
    from harness.claims.published import PUBLISHED
    from harness.record import Results

    path = Path(system) if system.endswith((".yaml", ".yml")) else PUBLISHED / f"{system}.yaml"
    if not path.is_file():
        known = ", ".join(known_systems()) or f"none, since there is no {PUBLISHED}"
        give_up(f"{system}: nothing is known of it; known are: {known}", BAD_INPUT)
    try:
        published = load_published(path)
    except TestbedError as error:
        give_up(str(error), BAD_INPUT)
    try:
        checked = check_claims(published, Results(results))
        if html is not None:
            write_claims(html, published, checked)
    except (LightrigError, OSError) as error:
        give_up(str(error), LAB_TROUBLE)
    if as_json:
        print_json([_document(one) for one in checked])
    else:
        _print(published.paper, checked)
        if html is not None:
            out.print(f"page  {html}", markup=False, soft_wrap=True)
    if any(one.outcome == "differs" for one in checked):
        raise typer.Exit(NO)


def _print(paper: str, checked: "list[Checked]") -> None:
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
            "closure: simulated from what was published, says nothing about a device",
            markup=False,
        )
    for told in (told for one in checked for told in one.told):
        _tell(told)
    if any(one.kind == "computed" for one in checked):
        out.print("computed: by formula or replay, measured by nobody", markup=False)


def _tell(told: "Told") -> None:
    """A value that answers no claim, where there is one."""
    from harness.claims import Estimate
    from harness.claims.verdicts import reach, worded

    if not isinstance(told.ours, Estimate):
        return
    interval = reach(told.ours, told.unit)
    simulated = ", something simulated" if told.simulated else ""
    out.print(
        f"beside: {told.beside.says} {worded(told.ours, told.unit)} ({interval}; "
        f"n = {told.ours.n:,}; {told.beside.testbed}{simulated})",
        markup=False,
        soft_wrap=True,
    )


def _ours(one: "Checked") -> tuple[str, str, str]:
    from harness.claims import Estimate
    from harness.claims.verdicts import reach, worded

    if one.ours is None:
        return "", "", ""
    if not isinstance(one.ours, Estimate):
        return "", f"{one.ours.needed:,} needed", f"{one.ours.n:,}"
    unit = one.claim.figure.unit
    value = worded(one.ours, unit)
    kind = "" if one.kind == "measurement" else f" ({one.kind})"
    if one.exact:
        return value + kind, "", ""
    n = f"{one.ours.n:,}" if one.ours.n > 1 else ""
    return value + kind, reach(one.ours, unit), n


def _document(one: "Checked") -> dict[str, Any]:
    from harness.claims import Estimate

    claim, ours = one.claim, one.ours if isinstance(one.ours, Estimate) else None
    return {
        "claim": claim.name,
        "says": claim.says,
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
        "beside": [_told(told) for told in one.told],
    }


def _told(told: "Told") -> dict[str, Any]:
    from harness.claims import Estimate

    ours = told.ours if isinstance(told.ours, Estimate) else None
    return {
        "says": told.beside.says,
        "testbed": told.beside.testbed,
        "ours": _finite(ours.value) if ours else None,
        "lower": _finite(ours.lower) if ours else None,
        "upper": _finite(ours.upper) if ours else None,
        "unit": told.unit,
        "n": None if told.ours is None else told.ours.n,
        "simulated": told.simulated if told.ours is not None else None,
        "night": told.night,
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
