"""`lightrig check` and `lightrig schema`: is a testbed's description right?"""

from collections.abc import Iterator

import typer
from rich.table import Table

from harness.cli.common import BAD_INPUT, AsJson, File, err, give_up, out, print_json
from testbeds import Testbed, TestbedError, json_schema, load


def check(file: File, as_json: AsJson = False) -> None:
    """Is this description right? Exit 0, or 2 with every error located."""
    try:
        testbed = load(file)
    except TestbedError as error:
        if as_json:
            print_json(
                [
                    {"file": p.file, "line": p.line, "column": p.column, "message": p.message}
                    for p in error.problems
                ]
            )
        else:
            err.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from error
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)
    parts = _parts(testbed)
    if as_json:
        print_json([{"part": name, "count": count, "names": names} for name, count, names in parts])
        return
    table = Table("", "", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, count, names in parts:
        table.add_row(name, str(count), ", ".join(names))
    out.print(f"{file}: {testbed.name} is right. {testbed.about}", markup=False, soft_wrap=True)
    out.print(table)


def schema() -> None:
    """Print the JSON Schema of testbed files, for editors that complete and underline."""
    print_json(json_schema())


def _parts(testbed: Testbed) -> Iterator[tuple[str, int, list[str]]]:
    yield "switches", len(testbed.switches), list(testbed.switches)
    yield "servers", len(testbed.servers), list(testbed.servers)
    yield "NIC ports", len(testbed.nic_ports), []
    yield "fibers", len(testbed.fibers), []
    plans = [
        f"{name} ({len(plan)} circuits, {len(testbed.links(plan))} links)"
        for name, plan in testbed.plans.items()
    ]
    yield "plans", len(plans), plans
    yield "limits", len(testbed.limits), [str(limit) for limit in testbed.limits.values()]
