"""`lightrig results watch` and `lightrig results metrics`: results for other screens."""

# Data frames take a second to import: only the commands that need them pay it.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

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
    refuse_missing_results,
)
from lightrig.harness.cli.terminal import out
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import LightrigError

Folder = Annotated[Path, typer.Option("--results", metavar="DIR", help="A folder of results.")]
_NS = 10**9


def watch(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Name of the run; the last one without it.",
            autocompletion=completion.runs,
        ),
    ] = None,
    results: Folder = Path("results"),
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page that reloads itself."),
    ] = None,
    every: Annotated[
        int,
        typer.Option(min=1, metavar="SECONDS", help="Seconds between two looks at the journal."),
    ] = 5,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a run from its journal until it ends: outcomes, failures, rows.

    Exit 0 if no test failed, 1 if one did, 2 if there is no such run, 3 for a damaged journal.
    """
    from lightrig.harness.record.progress import newest_journal, read_progress
    from lightrig.harness.report.live_page import write_live_page

    shown: set[str] = set()
    clock = SystemClock()
    try:
        journal = results / "runs" / run / "journal.jsonl" if run else newest_journal(results)
    except LightrigError as error:
        give_up(str(error), BAD_INPUT)
    if not journal.is_file():
        give_up(f"{journal}: no such file", BAD_INPUT)
    while True:
        try:
            progress = read_progress(journal)
            if page is not None:
                write_live_page(progress, page, every)
        except (LightrigError, OSError) as error:
            give_up(str(error), LAB_ERROR)
        if not as_json:
            for each in progress.problems:
                if each.nodeid not in shown:
                    shown.add(each.nodeid)
                    why = str(each.details.get("why", "")).partition("\n")[0]
                    out.print(f"{each.outcome} {each.nodeid}  {why}", soft_wrap=True)
            counts = ", ".join(f"{n:,} {name}" for name, n in sorted(progress.outcomes.items()))
            state = "running" if progress.goes_on else "ended"
            total = sum(progress.rows.values())
            line = f"{progress.run} {state}: {counts or 'no test has ended'}; {total:,} rows"
            out.print(line, soft_wrap=True)
        if once or not progress.goes_on:
            break
        clock.sleep(every * _NS)
    if as_json:
        print_json(
            {
                "run": progress.run,
                "goes_on": progress.goes_on,
                "outcomes": dict(progress.outcomes),
                "problems": [
                    {"test": e.nodeid, "outcome": e.outcome, "why": e.details.get("why", "")}
                    for e in progress.problems
                ],
                "rows": dict(progress.rows),
            }
        )
    if progress.is_wrong:
        raise typer.Exit(NO)


def metrics(
    place: Annotated[
        str, typer.Option("--results", metavar="PLACE", help="A folder, or a URL.")
    ] = RESULTS,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file; standard output without it.")
    ] = None,
) -> None:
    """Write the newest run of each testbed as OpenMetrics, for an exporter's text file collector.

    Exit 0, 2 for a folder that is not there or a file that cannot be written, 3 if the results
    cannot be read.
    """
    from lightrig.harness.record import Results
    from lightrig.harness.record.openmetrics import openmetrics
    from lightrig.harness.record.places import appearing

    refuse_missing_results(place)
    try:
        text = openmetrics(Results(place))
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)
    if output is None:
        echo(text, nl=False)
        return
    try:
        with appearing(output) as hidden:
            hidden.write_text(text, "utf-8")
    except OSError as error:
        give_up(f"{output}: {error.strerror}", BAD_INPUT)
