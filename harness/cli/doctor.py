"""`lightrig doctor`: compare the lab with its testbed file."""

import sys
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from lightrig.harness.cli.common import (
    LAB_ERROR,
    NO,
    AsJson,
    File,
    load_testbed,
    print_json,
    warn_renamed,
)
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.terminal import out, print_table
from lightrig.harness.doctor import Findings, examine
from lightrig.testbeds import Testbed

Simulated = Annotated[
    bool, typer.Option("--simulated", help="Examine the simulated lab; contact nothing outside.")
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Change nothing: move no circuit, keep lasers on.")
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Move circuits and switch lasers off without a question.")
]
OnlyProblems = Annotated[bool, typer.Option("--only-problems", help="Show only problems.")]
Look = Annotated[bool, typer.Option("--look", hidden=True)]
Wrong = Annotated[bool, typer.Option("--wrong", hidden=True)]
Seed = Annotated[int, typer.Option(help="Seed of the simulated lab.")]

_STYLES = {"ok": "green", "note": "yellow", "wrong": "red"}


def doctor(
    file: File,
    simulated: Simulated = False,
    read_only: ReadOnly = False,
    yes: Yes = False,
    only_problems: OnlyProblems = False,
    look: Look = False,
    wrong: Wrong = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the lab with its testbed file: identity, firmware, round trip, clocks, light, links.

    To trace the light, circuits are moved and each laser is switched off for a moment, then all is
    restored: after a question on a terminal, or with --yes. Without either, and with --read-only,
    nothing is changed. Exit 0 without problems, 1 with problems, 3 if nothing answered at all.
    """
    if look:
        warn_renamed("--look", "--read-only")
    if wrong:
        warn_renamed("--wrong", "--only-problems")
    read_only = read_only or look
    if read_only and yes:
        raise typer.BadParameter("--read-only changes nothing, and --yes allows changes")
    testbed = load_testbed(file)
    if not simulated and not read_only:
        read_only = not (yes or _allowed(testbed))
    findings = lab(lambda: examine(testbed, simulated=simulated, seed=seed, read_only=read_only))
    if as_json:
        print_json([{**check.document(), "simulated": simulated} for check in findings.found])
    else:
        _print(findings, simulated=simulated, only_problems=only_problems or wrong)
    if not any(f.check == "identity" for f in findings.found):
        raise typer.Exit(LAB_ERROR)
    if findings.problems:
        raise typer.Exit(NO)


def is_on_terminal() -> bool:
    """Whether a question can be asked, on stderr, and be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _allowed(testbed: Testbed) -> bool:
    """Whether a person on a terminal allows what the tracing of light changes."""
    if not testbed.plans or not is_on_terminal():
        return False
    switches = ", ".join(testbed.optical_switches)
    return typer.confirm(
        f"To trace the light, circuits of {switches} are moved, and the lasers of "
        f"{len(testbed.nic_ports)} NIC ports are switched off, each for a moment; then all is "
        "restored. Traffic over them stops. Go on? (no: examine without changes)",
        err=True,
    )


def _print(findings: Findings, *, simulated: bool, only_problems: bool) -> None:
    table = Table("", "", "", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    for f in findings.problems if only_problems else findings.found:
        # Findings quote what a device answered, which may have brackets.
        places = (
            [("\n", ("at", "dim"), f" {place}") for place in f.finding.where] if f.finding else []
        )
        advice = [("\n", ("try", "dim"), f" {f.fix}")] if f.fix else []
        text = Text.assemble(f.text, *(part for each in (*places, *advice) for part in each))
        table.add_row(Text(f.grade, _STYLES[f.grade]), f.subject, f.check, text)
    print_table(table)
    count = len(findings.problems)
    lab_kind = "the simulated lab" if simulated else "the lab"
    out.print(
        f"{count or 'no'} problem{'s' * (count != 1)} in {lab_kind}, {len(findings.found)} checks",
    )
