"""`lightrig report`: the page of one run made again, or the trend over nights."""

# Drawing takes a second to import: only the commands that need it pay that.
# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, NO, AsJson, give_up, print_json
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
    message: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what is new on the page of the nights: cards that are new or have gone, "
            "and known ones whose date has passed; nothing is written where there is none, and "
            "the message of the same night stays.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the pages of runs again from their records or, without RUN, the trend over nights.

    With --message each card is told of once, and none that `lightrig known` covers. Exit 0, 1 if a
    message was written, 2 for a run that is not known, 3 for results that cannot be read or
    written.
    """
    if message is not None and runs:
        give_up("--message is about nights: name no run", BAD_INPUT)
    if not results.is_dir():
        give_up(f"{results}: no such folder; runs of pytest make it", BAD_INPUT)
    if message is not None:
        _message(results, nights, message, as_json=as_json)
        return
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


def _message(results: Path, last: int, path: Path, *, as_json: bool) -> None:
    """Write the page of the nights and, where there is something new, the message."""
    from lightrig.harness.cli.known import entries_of
    from lightrig.harness.record.places import appearing
    from lightrig.harness.report.nights import judge_nights, write_page_of
    from lightrig.harness.report.nights.messages import (
        cards_of,
        is_of_last_message,
        message_of,
        read_state,
        text_of,
        write_state,
    )

    try:
        state = read_state(results)
        with err.status(f"{results}: reading"):
            nights = judge_nights(results, last)
            page = write_page_of(nights, results / "nights.html")
        known, problems = entries_of(results, {card.testbed for card in cards_of(nights)})
        found, after = message_of(nights, state, known)
        if not found.is_empty:
            with appearing(path) as hidden:
                hidden.write_text(text_of(found, problems), "utf-8")
        elif not is_of_last_message(nights, state):
            path.unlink(missing_ok=True)  # of another morning
        write_state(results, after)
    except (LightrigError, OSError) as error:
        give_up(str(error), LAB_ERROR)
    for problem in problems:
        err.print(problem, soft_wrap=True)
    counts = {"new": len(found.new), "gone": len(found.cleared), "passed": len(found.passed)}
    if as_json:
        written = None if found.is_empty else str(path)
        print_json([{"page": str(page), "message": written, **counts}])
    elif found.is_empty:
        stays = f"; {path} has what was new of this night" * path.exists()
        out.print(f"{results}: nothing new{stays}", soft_wrap=True)
    else:
        listed = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        out.print(f"{path}: {listed}", soft_wrap=True)
    if not found.is_empty:
        raise typer.Exit(NO)


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
