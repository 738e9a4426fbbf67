"""`lightrig history`: one part of a lab over its nights, and what was noted of it."""

# Data frames take a second to import: loading the command for its help does not pay for them.
# ruff: noqa: PLC0415

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    RESULTS,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
    refuse_missing_results,
)
from lightrig.harness.cli.terminal import out
from lightrig.testbeds import LightrigError
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.intervals import interval

if TYPE_CHECKING:
    from lightrig.harness.record.subject_history import NightOfSubject

Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="An instrument, a server, a port (ocs.3) or a circuit ('ocs 3>17').",
        autocompletion=completion.ports,
    ),
]
Nights = Annotated[int, typer.Option(min=1, help="How many nights that measured it.")]
Quantity = Annotated[
    str,
    typer.Option(
        metavar="PATTERN",
        help="Only quantities of this name, with * and ?.",
        autocompletion=completion.quantities,
    ),
]
Place = Annotated[str, typer.Option("--results", metavar="PLACE", help="A folder, or a URL.")]


def history(
    file: File,
    subject: Subject,
    nights: Nights = 5,
    quantity: Quantity = "*",
    results: Place = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Show what the last nights measured of one part of the lab, and the notes of it between them.

    A port's circuits and links are part of it. Each value is a median with its 95 % interval, or
    with the bounds of all values where these are too few. Exit 0, 2 for an invalid file or folder
    and where nothing was measured or noted of that part, 3 if the results cannot be read.
    """
    from lightrig.harness.record import Results
    from lightrig.harness.record.subject_history import nights_of_subject, notes_about

    testbed = load_testbed(file)
    refuse_missing_results(results)
    try:
        place = Results(results)
        found = nights_of_subject(place, testbed.name, subject, nights, quantity)
        notes = notes_about(place, testbed.name, subject)
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)
    if not found and not notes:
        give_up(f"{results}: nothing was measured or noted of {subject!r}", BAD_INPUT)
    if found:
        notes = [note for note in notes if note.at_utc[:10] >= found[0].night]
    if as_json:
        print_json(
            {"nights": [asdict(each) for each in found], "notes": [asdict(each) for each in notes]}
        )
        return
    lines = [(each.began, _line(each)) for each in found]
    for note in notes:
        text = f"{note.account} on {note.host}: {note.subject}: {escape_line(note.text)}"
        lines.append((note.at_utc, f"{note.at_utc} UTC  {text}"))
    for _, line in sorted(lines, key=lambda each: each[0]):
        out.print(line, soft_wrap=True)


def _line(each: "NightOfSubject") -> str:
    written = interval(each.lower, each.upper, each.unit, each.median)
    what = "" if each.ends == "95 % interval" else f", {each.ends}"
    mark = "  simulated" if each.simulated else ""
    value = f"{written.value} [{written.ends}{what}] n {each.n:,}"
    return f"{each.night}  {each.quantity}  {each.subject}  {value}{mark}"
