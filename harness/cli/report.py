"""`lightrig report`: the page of one run made again, or the trend over nights."""

# Drawing takes a second to import: only the commands that need it pay that.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, AsJson, give_up, print_json
from lightrig.harness.cli.terminal import err, out
from lightrig.testbeds import LightrigError


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN ...]",
            help="Names of runs, or 'last'.",
            autocompletion=completion.runs,
        ),
    ] = None,
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Folder of runs.")
    ] = Path("results"),
    nights: Annotated[int, typer.Option(min=2, help="How many nights to look back.")] = 90,
    as_json: AsJson = False,
) -> None:
    """Make the pages of runs again from their records or, without RUN, the trend over nights.

    Exit 0, 2 for a run that is not known, 3 for results that cannot be read or written.
    """
    if not results.is_dir():
        give_up(f"{results}: no such folder; runs of pytest make it", BAD_INPUT)
    try:
        with err.status(f"{results}: drawing"):
            pages = [_run(results, run) for run in runs] if runs else [_nights(results, nights)]
    except (LightrigError, OSError) as error:
        give_up(str(error), LAB_ERROR)
    if as_json:
        print_json([{"page": str(page)} for page in pages])
    else:
        for page in pages:
            out.print(str(page), soft_wrap=True)


def _nights(results: Path, nights: int) -> Path:
    from lightrig.harness.report.nights import write_nights

    return write_nights(results, results / "nights.html", nights)


def _run(results: Path, run: str) -> Path:
    from lightrig.harness.record import (
        RecordError,
        Results,
        load_descriptions,
        load_quantities,
        read_journal,
    )
    from lightrig.harness.report import write_page

    try:
        name = Results(results).find(run).run
    except RecordError as error:
        give_up(str(error), BAD_INPUT)
    folder = results / "runs" / name
    load_quantities(folder)
    record = read_journal(folder / "journal.jsonl")
    write_page(record, load_descriptions(record), folder / "report.html")
    return folder / "report.html"
