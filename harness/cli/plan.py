"""`lightrig plan`: what a testbed's plans would set, with nothing sent."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    NO,
    AsJson,
    File,
    echo,
    give_up,
    named_plan,
    print_json,
    readable,
    structure_of,
)
from lightrig.harness.cli.terminal import print_table
from lightrig.harness.components import Components, LabComponent
from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.system_registry import PlannedFabric, SizedFabric
from lightrig.harness.vocabulary import InstalledNames
from lightrig.testbeds import Plan, PlanError, Port, SizesOnlyError, Testbed, difference, load

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PLAN]...", help="Names of plans; all without.", autocompletion=completion.plans
    ),
]
Before = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLAN",
        help="Show only what changes from there.",
        autocompletion=completion.plans,
    ),
]


Picture = Annotated[
    Path | None, typer.Option(metavar="HTML", help="Draw the wiring and the plans as a page.")
]


Failed = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PART", help="Failed rack, node or switch of a fabric of stated sizes; repeatable."
    ),
]


Cables = Annotated[
    bool, typer.Option("--cables", help="List the fibers: label, panels, ends and their places.")
]


def plan(
    file: File,
    plans: Names = None,
    before: Before = None,
    failed: Failed = None,
    picture: Picture = None,
    cables: Cables = False,
    as_json: AsJson = False,
) -> None:
    """Show the circuits of plans, each with the ports that its light comes from and goes to.

    Nothing is sent. With `--from`, only circuits that are unmade (-) and made (+). Of a fabric of
    stated sizes, the states of its arrays of switches, also past what has failed (`--failed`).
    Exit 0, 1 where a plan cannot do without what has failed, or 2 for a file that is wrong or a
    name that it lacks.
    """
    testbed = _read(file)
    if not isinstance(testbed, Testbed):
        _plan_sizes(testbed, plans, failed or [], as_json=as_json)
        return
    if failed:
        give_up(f"--failed is for fabrics of stated sizes; {file} has parts", BAD_INPUT)
    if cables:
        _list_cables(testbed, as_json=as_json)
        return
    start = named_plan(testbed, before) if before else None
    wanted = [named_plan(testbed, name) for name in plans or testbed.plans]
    if picture is not None:
        _draw(replace(testbed, plans={each.name: each for each in wanted}), picture)
    rows = [row for each in wanted for row in _rows(testbed, each, start)]
    if as_json:
        print_json(rows)
        return
    for each in wanted:
        _tell(testbed, each, [row for row in rows if row["plan"] == each.name])


def _list_cables(testbed: Testbed, *, as_json: bool) -> None:
    """List the testbed's fibers in the file's order."""
    components = Components(testbed)

    def place(port: Port) -> str:
        return components.where(LabComponent("port", str(port)))

    fibers = testbed.cabling.fibers
    if as_json:
        print_json(
            [
                {
                    "label": fiber.label,
                    "from": str(fiber.source),
                    "from_place": place(fiber.source),
                    "via": list(fiber.via),
                    "to": str(fiber.sink),
                    "to_place": place(fiber.sink),
                    "loss_db": fiber.loss_db,
                }
                for fiber in fibers
            ]
        )
        return
    table = Table("label", "from", "at", "via", "to", "at", box=None, padding=(0, 2, 0, 0))
    for fiber in fibers:
        via, ends = ", ".join(fiber.via), (place(fiber.source), place(fiber.sink))
        cells = (fiber.label, str(fiber.source), ends[0], via, str(fiber.sink), ends[1])
        table.add_row(*map(Text, cells))
    print_table(table)


def _read(file: Path) -> Testbed | SizedFabric:
    with readable(file):
        try:
            return load(file, quantities=names_in_files())
        except SizesOnlyError as found:
            return structure_of(file, found, InstalledNames())


def _plan_sizes(
    fabric: SizedFabric, plans: list[str] | None, failed: list[str], *, as_json: bool
) -> None:
    if not isinstance(fabric, PlannedFabric):
        give_up(f"{fabric.name} has its sizes alone, of which no plan is shown", BAD_INPUT)
    try:
        found = [fabric.planned(name, failed) for name in plans or fabric.plans]
    except PlanError as error:
        give_up(str(error), BAD_INPUT)
    if as_json:
        print_json([document for _, document in found])
    else:
        echo("\n".join(line for _, document in found for line in fabric.tell(document)))
    if not all(whole for whole, _ in found):
        raise typer.Exit(NO)


def _draw(testbed: Testbed, path: Path) -> None:
    from lightrig.harness.report.wiring import write_wiring  # noqa: PLC0415 - the others are sooner up

    try:
        write_wiring(testbed, path)
    except OSError as error:
        give_up(f"{path}: {error.strerror}", BAD_INPUT)


def _rows(testbed: Testbed, plan: Plan, before: Plan | None) -> Iterator[dict[str, Any]]:
    for switch in sorted(plan.circuits):
        start = before.circuits.get(switch, frozenset()) if before else frozenset()
        change = difference(start, plan.circuits[switch])
        for what, circuits in (("unmade", change.remove), ("made", change.add)):
            for circuit in sorted(circuits):
                yield {
                    "plan": plan.name,
                    "switch": switch,
                    "change": what,
                    "circuit": str(circuit),
                    "from": _text(testbed.cabling.transmitter(switch, circuit.ingress)),
                    "to": _text(testbed.cabling.receiver(switch, circuit.egress)),
                }


def _text(port: Port | None) -> str | None:
    return str(port) if port else None


_HEAD = ("", "switch", "circuit", "from", "to")


def _tell(testbed: Testbed, plan: Plan, rows: list[dict[str, Any]]) -> None:
    links = ", ".join(map(str, testbed.links(plan)))
    echo(f"{plan.name}: {len(plan)} circuits; links {links or 'none'}")
    lines = [_HEAD]
    for row in rows:
        sign = "+" if row["change"] == "made" else "-"
        lines.append((sign, row["switch"], row["circuit"], row["from"] or "", row["to"] or ""))
    # Rich takes a millisecond a line, half a minute for the fabric of 4,096 GPUs.
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    echo("\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines))
