"""`lightrig doctor`: does the lab answer as described?"""

from contextlib import nullcontext
from typing import Annotated

import typer
from rich.table import Table

from harness.bench.keeping import FoundState, state_folder
from harness.cli.common import (
    LAB_TROUBLE,
    NO,
    AsJson,
    File,
    lab,
    leased,
    load_testbed,
    out,
    print_json,
)
from harness.doctor import Findings, examine

Simulated = Annotated[
    bool, typer.Option("--simulated", help="Examine the simulated lab; contact nothing outside.")
]
Look = Annotated[bool, typer.Option("--look", help="Move no circuit and switch off no laser.")]
Quiet = Annotated[bool, typer.Option("--wrong", help="Show only what is wrong.")]
Seed = Annotated[int, typer.Option(help="Seed of the simulated lab.")]

_MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "wrong": "[red]wrong[/]"}


def doctor(
    file: File,
    simulated: Simulated = False,
    look: Look = False,
    wrong: Quiet = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Does the lab answer as described? Identity, firmware, round trip, clocks, light, links.

    Exit 0 if nothing is wrong, 1 if something is, 3 if nothing answered at all. Circuits are
    moved and lasers switched off for a moment, and all is put back; with --look neither.
    """
    testbed = load_testbed(file)
    held = nullcontext() if simulated else leased(testbed)
    with held:
        found = None if simulated else FoundState(testbed.name, state_folder())
        findings = lab(
            lambda: examine(testbed, simulated=simulated, seed=seed, only_look=look, found=found)
        )
    if as_json:
        print_json(
            [
                {
                    "subject": f.subject,
                    "check": f.check,
                    "grade": f.grade,
                    "text": f.text,
                    "fix": f.fix,
                    "simulated": simulated,
                }
                for f in findings.found
            ]
        )
    else:
        _print(findings, simulated=simulated, only_wrong=wrong)
    if not any(f.check == "identity" for f in findings.found):
        raise typer.Exit(LAB_TROUBLE)
    if findings.wrongs:
        raise typer.Exit(NO)


def _print(findings: Findings, *, simulated: bool, only_wrong: bool) -> None:
    table = Table("", "", "", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    for f in findings.wrongs if only_wrong else findings.found:
        text = f"{f.text}\n[dim]try[/] {f.fix}" if f.fix else f.text
        table.add_row(_MARKS[f.grade], f.subject, f.check, text)
    out.print(table)
    count = len(findings.wrongs)
    lab_kind = "the simulated lab" if simulated else "the lab"
    out.print(
        f"{count or 'nothing'} wrong in {lab_kind}, of {len(findings.found)} things looked at",
        markup=False,
    )
