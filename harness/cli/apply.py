"""`lightrig apply`: set a plan on the hardware and leave it there."""

from typing import Annotated

import typer

from harness.bench import Fabric, bind_switches
from harness.bench.keeping import FoundState, state_folder
from harness.cli.common import (
    AsJson,
    File,
    err,
    lab,
    leased,
    load_testbed,
    named_plan,
    out,
    print_json,
)

Name = Annotated[str, typer.Argument(metavar="PLAN", help="Name of a plan.")]
ForGood = Annotated[
    bool, typer.Option("--for-good", help="Forget what was found: nothing puts it back.")
]


def apply(file: File, plan: Name, for_good: ForGood = False, as_json: AsJson = False) -> None:
    """Set a plan on the hardware and read it back; `lightrig restore` puts back what was found.

    The switches must answer, the servers need not. Only circuits that differ are touched, and
    none on ports that the testbed has not cabled. Exit 0 if the plan stands, 2 for a file that is
    wrong or a plan that it lacks, 3 if a switch did not answer or did not obey.
    """
    testbed = load_testbed(file)
    wanted = named_plan(testbed, plan)
    kept = FoundState(testbed.name, state_folder())
    with leased(testbed):
        bench = lab(lambda: bind_switches(testbed))
        try:
            fabric = Fabric(bench, kept)
            transition = lab(lambda: fabric.prepare(wanted))
            lab(transition.apply)
            if for_good:
                kept.forget()
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
        out.print("{switch}: {unmade} circuits unmade, {made} made".format_map(row), markup=False)
    if not for_good:
        err.print(f"`lightrig restore {file}` puts back what was found", markup=False)
