"""`lightrig get`: what instruments, switches and NIC ports read now."""

from contextlib import closing
from typing import Annotated

import typer
from rich.table import Table

from lightrig.harness.bench import bind_only
from lightrig.harness.bench.named_values import owners, read
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import AsJson, File, load_testbed, print_json
from lightrig.harness.cli.lab import Queue, in_turn, lab_or_limit
from lightrig.harness.cli.terminal import print_table

Subjects = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUBJECT]...",
        help="An instrument, a port or a value: laser, ocs.3, laser.power, server0.nic0.p0.",
        autocompletion=completion.settings,
    ),
]


def get(file: File, subjects: Subjects = None, queue: Queue = "", as_json: AsJson = False) -> None:
    """Read settings, powers, circuits and carriers of the bench, or of what is named.

    Nothing is changed, but reading is use: a meter is triggered, so the instruments are leased.
    Each value is one reading. Exit 0, 2 for an invalid file and for a name without a value, 3 if
    an instrument did not answer.
    """
    testbed = load_testbed(file)
    named = subjects or []
    names = lab_or_limit(lambda: owners(testbed, named))
    purpose = "lightrig get"
    bench = in_turn(testbed, queue, lambda: bind_only(testbed, names, purpose), names=names)
    with closing(bench):
        found = lab_or_limit(lambda: read(bench, named))
        simulated = bench.simulated
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "value": each.value,
                    "unit": each.unit,
                    "remark": each.remark,
                    "simulated": each.name.partition(".")[0] in simulated,
                }
                for each in found
            ]
        )
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for each in found:
        mark = "simulated" if each.name.partition(".")[0] in simulated else ""
        table.add_row(each.name, each.text, mark)
    print_table(table)
