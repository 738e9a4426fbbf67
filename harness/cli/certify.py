"""`lightrig certify FILE SWITCH`: requirements of optical switches, tried on one of them."""

from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.bench import bind
from lightrig.harness.certify.certification import PERMITTED
from lightrig.harness.certify.clauses import Outcome
from lightrig.harness.certify.requirements import Requirement, requirements
from lightrig.harness.certify.sheet import certify as run_clauses
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    AsJson,
    File,
    echo,
    give_up,
    load_testbed,
)
from lightrig.harness.cli.doctor import is_on_terminal
from lightrig.harness.cli.lab import Instruments, Seed, interruptible, lab, restored
from lightrig.testbeds import Testbed

_SECONDS_PER_MOVE = 5
"""Rough duration of a change with its readings."""

Switch = Annotated[str, typer.Argument(metavar="SWITCH", help="An optical switch of the file.")]
Profile = Annotated[str, typer.Option(help="Profile of required clauses; by default the model's.")]
Yes = Annotated[bool, typer.Option("--yes", help="Move circuits without a question.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Where the sheet is written.")]


def certify(
    file: File,
    switch: Switch,
    profile: Profile = "",
    yes: Yes = False,
    out: Out = Path("sheets"),
    instruments: Instruments = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Test an optical switch against its requirements, and write a sheet of verdicts.

    Only the testbed's ports are used, and only harmless clauses run; all is restored. Exit 0 where
    each required clause has passed or is not applicable, 1 where one has not, 2 for bad input, 3
    for trouble in the lab, 6 where the switch is not as found.
    """
    testbed = load_testbed(file)
    wanted = _profile(testbed, switch, profile)
    _announce(testbed, switch, wanted)
    if instruments != "simulated" and not yes:
        if not is_on_terminal():
            give_up("nothing was done: without a terminal, --yes allows the moves", BAD_INPUT)
        typer.confirm("Traffic over these ports stops meanwhile. Go on?", abort=True, err=True)

    def progress(requirement: Requirement, outcome: Outcome) -> None:
        name = f"{requirement.number} {requirement.title}"
        echo(f"{name:<45} {outcome.verdict}: {outcome.reason}", err=as_json)

    with interruptible("the switch is restored, no sheet is written"):
        bench = lab(lambda: bind(testbed, instruments, seed, f"lightrig certify {switch}"))
        with restored(bench) as fabric:
            sheet = lab(lambda: run_clauses(fabric, switch, wanted, seed, progress))
            try:
                written = sheet.write(out)
            except OSError as error:
                give_up(f"{out}: {error.strerror}", LAB_ERROR)
            echo("written " + " and ".join(map(str, written)), err=as_json)
    if as_json:
        echo(sheet.text(), nl=False)
    if not sheet.meets_profile:
        raise typer.Exit(NO)


def _profile(testbed: Testbed, switch: str, profile: str) -> str:
    """Return the name of the profile to use, or end the command with the known names."""
    if switch not in testbed.optical_switches:
        known = ", ".join(testbed.optical_switches) or "none"
        give_up(f"{testbed.path} has no optical switch {switch!r}; it has {known}", BAD_INPUT)
    if not all(testbed.cabling.cabled_ports(switch)):
        give_up(f"{switch} has no cabled ports on one of its sides: nothing to test", BAD_INPUT)
    profiles = requirements().profiles
    name = profile or requirements().profile_of(testbed.switches[switch].model)
    if name not in profiles:
        give_up(f"no profile {name!r}; the profiles are {', '.join(profiles)}", BAD_INPUT)
    return name


def _announce(testbed: Testbed, switch: str, profile: str) -> None:
    """Print what will be tried, and how often each port is moved."""
    ingress, egress = testbed.cabling.cabled_ports(switch)
    tried = requirements().of(requirements().profiles[profile])
    moves = 0
    echo(
        f"{switch}: profile {profile}, {len(ingress)} ingress and {len(egress)} egress ports",
        err=True,
    )
    for each in tried:
        permitted = each.effect in PERMITTED
        moves += each.moves if permitted else 0
        note = "" if permitted else ", not permitted"
        echo(f"  {each.number} {each.title} ({each.effect}{note})", err=True)
    echo(
        f"Each port is moved at most {moves} times; about {moves * _SECONDS_PER_MOVE} s. "
        "Then the circuits are restored.",
        err=True,
    )
