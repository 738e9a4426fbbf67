"""`lightrig claims`: published values of a paper compared with ours."""

# Data frames take a second to import: only the commands that need them pay it.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    RESULTS,
    AsJson,
    echo,
    give_up,
    print_json,
)
from lightrig.harness.cli.terminal import err, out
from lightrig.testbeds import LightrigError
from lightrig.testbeds.lab_hosts import beyond_loopback

if TYPE_CHECKING:
    from lightrig.harness.claims.checking import CheckedClaim, ClaimResult
    from lightrig.harness.claims.figures.declarations import Figure
    from lightrig.harness.claims.figures.drawn import DrawnFigure, FigureMaker
    from lightrig.harness.claims.published import Published

_STYLES = {"agrees": "green", "differs": "bold red"}


def claims(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM",
            help="An installed system, or a file of published values.",
            autocompletion=completion.systems,
        ),
    ],
    results: Annotated[
        str, typer.Option("--results", metavar="PLACE", help="A folder, or a URL.")
    ] = RESULTS,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Draw one figure of the paper instead.")
    ] = None,
    figures: Annotated[bool, typer.Option(help="Draw all figures of the paper instead.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PLACE", help="Of figures: a file of .svg, .csv or .html; a folder for all."
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes that compute studies.")
    ] = 1,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers compute.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a paper's published values with those measured or computed here.

    Exit 0 if nothing differs but for a stated reason, 1 if something does, 2 for a system or a
    figure that is not known and for a place that cannot be written, 3 for results and stored
    outcomes that cannot be read.
    """
    from lightrig.harness.claims.checking import check_claims
    from lightrig.harness.claims.figures.declarations import load_figures
    from lightrig.harness.claims.figures.drawn import FigureMaker
    from lightrig.harness.claims.figures.output import FigureOutputError
    from lightrig.harness.claims.page import write_claims
    from lightrig.harness.claims.published import load_published, published_files
    from lightrig.harness.jobs.sweeps import Engine, computed_on
    from lightrig.harness.record import Results

    files = {system: Path(system)} if system.endswith((".yaml", ".yml")) else published_files()
    if system not in files:
        known = ", ".join(files) or "none"
        give_up(f"{system}: no such system; known are: {known}", BAD_INPUT)
    if scheduler is not None and "://" not in scheduler:
        scheduler = f"tcp://{scheduler}"  # as Dask reads it
    if scheduler is not None and not scheduler.startswith("tls://") and beyond_loopback(scheduler):
        give_up(
            f"--scheduler: found {scheduler!r}, expected tls://HOST:PORT beyond loopback, with the "
            "keys of Dask's configuration (distributed.comm.tls): its answers may run code here",
            BAD_INPUT,
        )
    path = files[system]
    if not path.is_file():
        give_up(f"{path}: no such file of published values", BAD_INPUT)
    try:
        published = load_published(path)
        declared = load_figures(published)
    except LightrigError as error:
        give_up(str(error), BAD_INPUT)
    if figure is not None and figure not in declared:
        known = ", ".join(declared) or "none"
        give_up(f"{system}: no figure {figure}; there are: {known}", BAD_INPUT)
    if output is not None and figure is None and not figures:
        give_up("--output: expected --figure NUMBER or --figures beside it", BAD_INPUT)
    if figures and (figure is not None or output is None):
        give_up("--figures: expected --output FOLDER beside it, and no --figure", BAD_INPUT)
    try:
        with err.status("computing") as shown:
            engine = Engine(
                processes,
                scheduler,
                lambda done, of: shown.update(f"computing: {done:,} of {of:,} points of a study"),
            )
            with computed_on(engine):
                found = Results(results)
                if figure is not None or figures:
                    chosen = list(declared.values()) if figure is None else [declared[figure]]
                    drawn = _draw(published, FigureMaker(published, found), chosen, output)
                else:
                    checked = check_claims(published, found)
                    if html is not None:
                        maker = FigureMaker(published, found)
                        drawings = [maker.make_or_explain(each) for each in declared.values()]
                        write_claims(html, published, checked, drawings)
    except FigureOutputError as error:
        give_up(str(error), BAD_INPUT)
    except (LightrigError, OSError) as error:
        give_up(str(error), LAB_ERROR)
    if figure is not None or figures:
        _print_figures(drawn, as_json=as_json)
        if output is not None:
            echo(f"figures  {output}", err=True)
        if any(one.contradicts for each in drawn for one in each.compared):
            raise typer.Exit(NO)
        return
    if as_json:
        print_json([document(one) for one in checked])
    else:
        print_claims(published.paper, checked)
        if html is not None:
            echo(f"page  {html}", err=True)
    if any(one.contradicts for one in checked):
        raise typer.Exit(NO)


def _draw(
    published: "Published", maker: "FigureMaker", chosen: "list[Figure]", output: Path | None
) -> "list[DrawnFigure]":
    """Make figures, and write them where a place is given; a folder for several."""
    from lightrig.harness.claims.figures.output import (
        check_file,
        prepared_folder,
        write_file,
        write_folder,
    )

    if output is None:
        return [maker.make(each) for each in chosen]
    if len(chosen) == 1 and not output.is_dir():
        check_file(output)
        drawn = [maker.make(chosen[0])]
        write_file(output, published, drawn[0])
        return drawn
    with prepared_folder(output):
        drawn = [maker.make(each) for each in chosen]
        write_folder(output, published, drawn)
    return drawn


def _print_figures(drawn: "list[DrawnFigure]", *, as_json: bool) -> None:
    """Print what each figure has and lacks, in sentences; or as JSON."""
    from lightrig.harness.claims.figures.drawing import notes
    from lightrig.harness.claims.figures.table import document as figure_document

    if as_json:
        print_json([figure_document(one) for one in drawn])
        return
    for one in drawn:
        echo(f"Figure {one.figure.number}. {one.figure.part.title}")
        for sentence in notes(one):
            echo(f"  {sentence}")


def print_claims(paper: str, checked: "list[CheckedClaim]") -> None:
    """Print a few lines a claim on a terminal, and one line a claim into a pipe or file."""
    from lightrig.harness.claims.counts import counts_by_kind, measured_sentence

    if not out.is_terminal:
        for one in checked:
            echo("\t".join(_fields(one)))
        return
    out.print(paper)
    for one in checked:
        if one.counted:
            _print_claim(one)
    _print_arithmetic([one for one in checked if not one.counted])
    out.print()
    out.print(measured_sentence(checked))
    for line in counts_by_kind(checked):
        out.print(Padding(Text(line), (0, 0, 0, 2)))


def _print_claim(one: "CheckedClaim") -> None:
    claim = one.claim
    head = Table.grid(expand=True, padding=(0, 2, 0, 0))
    head.add_column(overflow="fold", ratio=1)
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        Text(f"{claim.name}  {claim.statement}"),
        Text(one.verdict, style=_STYLES.get(one.outcome, "") if not claim.erratum else ""),
    )
    values = Table.grid(padding=(0, 2, 0, 0))
    values.add_column(no_wrap=True)
    values.add_column(overflow="fold")
    values.add_row(Text("published", style="dim"), Text(f"{claim.figure}  ({claim.source})"))
    if one.kind is not None:
        value, interval, n = _shown(one)
        details = ", ".join(filter(None, (interval, f"n = {n}" if n else "", one.night)))
        values.add_row(one.kind, Text(f"{value}  {details}".strip(), style="bold cyan"))
    for label, remark in (
        ("why", None if one.outcome == "agrees" and not claim.tolerance else one.reason),
        ("path", claim.path),
        ("rests on", one.rests_on),
        ("note", claim.note),
        ("erratum", claim.erratum),
        ("difference", claim.difference if one.outcome == "differs" else None),
    ):
        if remark:
            values.add_row(Text(label, style="dim"), Text(remark))
    for related in one.related:
        if sentence := _related_sentence(related):
            values.add_row(Text("related", style="dim"), Text(sentence))
    out.print()
    out.print(head)
    out.print(Padding(values, (0, 0, 0, 2)))


def _print_arithmetic(checked: "list[CheckedClaim]") -> None:
    """Print the claims that do not count, a row each."""
    if not checked:
        return
    out.print()
    out.print("Arithmetic, constants and repeated values, which do not count", markup=False)
    table = Table("claim", "published", "here", "verdict", box=None, padding=(0, 2, 0, 0))
    for one in checked:
        repeated = f"as {one.claim.same_as}" if one.claim.same_as else ""
        remark = one.claim.erratum or repeated
        statement = f"{one.claim.name}  {one.claim.statement}" + (f" ({remark})" if remark else "")
        table.add_row(
            Text(statement), Text(str(one.claim.figure)), Text(_shown(one)[0]), Text(one.verdict)
        )
    out.print(Padding(table, (0, 0, 0, 2)))


def _fields(one: "CheckedClaim") -> tuple[str, ...]:
    """Return name, verdict, kind, published and present value, interval, number and source.

    Last comes a tolerance that is not the rule of the kind, with its reason.
    """
    claim = one.claim
    exception = "" if claim.tolerance is None else f"{claim.tolerance[0]:.0%}: {claim.tolerance[1]}"
    head = (claim.name, one.verdict, one.kind or "", str(claim.figure))
    return (*head, *_shown(one), claim.source, exception)


def _related_sentence(related: "ClaimResult") -> str:
    """Return a related value, which answers no claim, in words; empty without one."""
    from lightrig.harness.claims.verdicts import Estimate, interval_text, value_text

    if not isinstance(related.ours, Estimate):
        return ""
    interval = interval_text(related.ours, related.unit)
    simulated = ", something simulated" if related.simulated else ""
    return (
        f"{related.context.statement} {value_text(related.ours, related.unit)} "
        f"({interval}; n = {related.ours.n:,}; {related.context.testbed}{simulated})"
    )


def _shown(one: "CheckedClaim") -> tuple[str, str, str]:
    """Return the value, its interval and its number of samples or draws as text."""
    from lightrig.harness.claims.verdicts import Estimate, interval_text, value_text

    if one.value is None:
        return "", "", ""
    if not isinstance(one.value, Estimate):
        return "", f"{one.value.needed:,} needed", f"{one.value.n:,}"
    unit = one.claim.figure.unit
    value = value_text(one.value, unit)
    if one.exact:
        return value, "", ""
    n = f"{one.value.n:,}" if one.value.n > 1 else ""
    return value, interval_text(one.value, unit), n


def document(one: "CheckedClaim") -> dict[str, Any]:
    """Return a claim as JSON, absent values as null."""
    from lightrig.harness.claims.verdicts import Estimate

    claim, value = one.claim, one.value if isinstance(one.value, Estimate) else None
    return {
        "claim": claim.name,
        "says": claim.statement,
        "published": claim.figure.printed,
        "published_low": _finite(claim.figure.low),
        "published_high": _finite(claim.figure.high),
        "unit": claim.figure.unit,
        "statistic": claim.ours.statistic if claim.ours else None,
        "computed": claim.computed,
        "path": claim.path,
        "same_as": claim.same_as,
        "counted": one.counted,
        "tolerance": claim.tolerance[0] if claim.tolerance else None,
        "tolerance_reason": claim.tolerance[1] if claim.tolerance else None,
        "value": _finite(value.value) if value else None,
        "lower": _finite(value.lower) if value else None,
        "upper": _finite(value.upper) if value else None,
        "n": None if one.value is None else one.value.n,
        "kind": one.kind,
        "simulated": None if one.kind is None else one.simulated,
        "night": one.night,
        "verdict": one.verdict,
        "reason": one.reason,
        "rests_on": one.rests_on,
        "source": claim.source,
        "note": claim.note,
        "erratum": claim.erratum,
        "difference": claim.difference,
        "beside": [_related_document(related) for related in one.related],
    }


def _related_document(related: "ClaimResult") -> dict[str, Any]:
    from lightrig.harness.claims.verdicts import Estimate

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
