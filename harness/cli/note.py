"""`lightrig note`: the logbook of a lab."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

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
)
from lightrig.harness.cli.terminal import out
from lightrig.harness.record.notes import add, new_note, notes_of, read_notes
from lightrig.harness.record.places import Place
from lightrig.harness.record.row import RecordError
from lightrig.testbeds import Testbed
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.plans import circuit_in, without_first_port

Subject = Annotated[
    str,
    typer.Argument(
        metavar="[SUBJECT]",
        help="An instrument, a server, a port (ocs.3), a circuit ('ocs 3>17') or a run.",
        autocompletion=completion.ports,
    ),
]
Text = Annotated[str, typer.Argument(metavar="[WORDS]", help="What is to be noted.")]
Results = Annotated[Path, typer.Option("--results", help="Folder of the results.")]


def note(
    file: File,
    subject: Subject = "",
    text: Text = "",
    results: Results = Path(RESULTS),
    as_json: AsJson = False,
) -> None:
    """Note what was done to a part of the lab; without words, show the notes of that part.

    Notes lie in the folder of results, where `lightrig results query` has them as the view `notes`.
    Exit 0, 2 for an invalid file and for a subject that the testbed has not, 3 where the folder
    cannot be read or written.
    """
    testbed = load_testbed(file)
    if subject:
        _refuse_unknown(testbed, results, subject)
    if text:
        try:
            written = new_note(testbed.name, subject, text)
        except RecordError as error:
            give_up(str(error), BAD_INPUT)
        try:
            add(results, written)
        except RecordError as error:
            give_up(str(error), LAB_ERROR)
        found = [written]
    else:
        try:
            found = notes_of(read_notes(Place(results)), testbed.name, subject)
        except RecordError as error:
            give_up(str(error), LAB_ERROR)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        who = f"{each.account} on {each.host}"
        out.print(
            f"{each.at_utc} UTC  {who}  {each.subject}: {escape_line(each.text)}", soft_wrap=True
        )
    if not found:
        out.print(f"{testbed.name}: no notes{f' of {subject}' * bool(subject)}")


def _refuse_unknown(testbed: Testbed, results: Path, subject: str) -> None:
    """End the command for a subject that is no part of the testbed and no run."""
    cabled = dict.fromkeys(
        str(end) for fiber in testbed.cabling.fibers for end in (fiber.source, fiber.sink)
    )
    known = [*testbed.switches, *testbed.servers, *testbed.instruments, *cabled]
    switch, _ = circuit_in(subject) or ("", None)
    plain = without_first_port(subject)
    if (
        plain in map(without_first_port, known)
        or switch in testbed.switches
        or (results / "runs" / subject).is_dir()
    ):
        return
    give_up(f"{testbed.path} has no {subject!r}{did_you_mean(subject, known)}", BAD_INPUT)
