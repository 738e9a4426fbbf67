"""`lightrig apply`: set a plan on the hardware and leave it there."""

from typing import Annotated

import typer

from lightrig.harness.bench import Fabric, bind_only
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    AsJson,
    File,
    load_testbed,
    named_plan,
    print_json,
    warn_renamed,
)
from lightrig.harness.cli.lab import Queue, in_turn, lab, say_state_saved, say_unmade
from lightrig.harness.cli.terminal import out

Name = Annotated[
    str,
    typer.Argument(metavar="PLAN", help="Name of a plan.", autocompletion=completion.plans),
]
NoRestore = Annotated[
    bool, typer.Option("--no-restore", help="Save no state: what this changes is not restored.")
]
ForGood = Annotated[bool, typer.Option("--for-good", hidden=True)]


def apply(
    file: File,
    plan: Name,
    no_restore: NoRestore = False,
    for_good: ForGood = False,
    queue: Queue = "",
    as_json: AsJson = False,
) -> None:
    """Set a plan on the hardware and read it back; `lightrig restore` restores the saved state.

    The plan stays: runs start from it and end with it, until a person undoes it. The switches must
    answer, the servers need not. Only circuits that differ are touched, and none on ports that the
    testbed has not cabled. Exit 0 if the plan is set, 2 for an invalid file or an unknown plan, 3
    if a switch did not answer or refused.
    """
    if for_good:
        warn_renamed("--for-good", "--no-restore")
        no_restore = True
    testbed = load_testbed(file)
    wanted = named_plan(testbed, plan)
    switches, purpose = set(testbed.optical_switches), f"lightrig apply {plan}"
    bench = in_turn(testbed, queue, lambda: bind_only(testbed, switches, purpose), names=switches)
    try:
        fabric = Fabric(bench)
        transition = lab(lambda: fabric.prepare(wanted))
        say_unmade(transition)
        lab(transition.apply)
        left = lab(lambda: fabric.leave(purpose, restorable=not no_restore))
    finally:
        bench.close()
    rows = [
        {"switch": name, "unmade": len(change.remove), "made": len(change.add)}
        for name, change in transition.changes.items()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        out.print("{switch}: {unmade} circuits unmade, {made} made".format_map(row))
    if left:
        say_state_saved(file)
