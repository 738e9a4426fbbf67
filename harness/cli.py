"""The command-line face: exit status 0 yes, 1 no, 2 bad use or input, 3 lab trouble."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from harness.bench import Fabric, bind
from harness.bench.keeping import FoundState, Lease, state_folder
from testbeds import LightrigError, Testbed, TestbedError, json_schema, load

T = TypeVar("T")

main = typer.Typer(
    help="Measure optical-circuit-switched ML fabrics. Suites run with pytest: "
    "pytest suites --testbed FILE",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

BAD_INPUT = 2
LAB_TROUBLE = 3

File = Annotated[Path, typer.Argument(metavar="FILE", help="Description of a testbed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_out = Console(highlight=False)
_err = Console(stderr=True, highlight=False)


@main.command(epilog="Example: lightrig check testbeds/opus.yaml")
def check(file: File, as_json: AsJson = False) -> None:
    """Is this description right? Exit 0, or 2 with every error located."""
    try:
        testbed = load(file)
    except TestbedError as error:
        if as_json:
            _print_json(
                [
                    {"file": p.file, "line": p.line, "column": p.column, "message": p.message}
                    for p in error.problems
                ]
            )
        else:
            _err.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(BAD_INPUT) from error
    except OSError as error:
        _give_up(f"{file}: {error.strerror}", BAD_INPUT)
    parts = _parts(testbed)
    if as_json:
        _print_json(
            [{"part": name, "count": count, "names": names} for name, count, names in parts]
        )
        return
    table = Table("", "", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, count, names in parts:
        table.add_row(name, str(count), ", ".join(names))
    _out.print(f"{file}: {testbed.name} is right. {testbed.about}", markup=False, soft_wrap=True)
    _out.print(table)


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


@main.command(epilog="Example: lightrig schema > testbeds/schema.json")
def schema() -> None:
    """Print the JSON Schema of testbed files, for editors that complete and underline."""
    _print_json(json_schema())


@main.command(epilog="Example: lightrig restore testbeds/mine.yaml")
def restore(file: File, as_json: AsJson = False) -> None:
    """Put back what the switches held before a run that was killed.

    Exit 0 if they hold it now, 3 if a switch did not answer or did not obey.
    """
    testbed = _load(file)
    kept = FoundState(testbed.name, state_folder())
    found = _lab(kept.read)
    if found is None:
        if as_json:
            _print_json([])
        else:
            _out.print(f"{testbed.name}: nothing to put back", markup=False)
        return
    with _leased(testbed):
        bench = _lab(lambda: bind(testbed, "hardware"))
        try:
            fabric = Fabric(bench, kept)
            _lab(fabric.remember_found)
            _lab(fabric.restore)
        finally:
            bench.close()
    if as_json:
        _print_json(
            [
                {"switch": name, "circuits": sorted(map(str, circuits))}
                for name, circuits in found.items()
            ]
        )
    else:
        for name, circuits in found.items():
            _out.print(f"{name}: {len(circuits)} circuits as found", markup=False)


def _load(file: Path) -> Testbed:
    try:
        return load(file)
    except TestbedError as error:
        _give_up(str(error), BAD_INPUT)
    except OSError as error:
        _give_up(f"{file}: {error.strerror}", BAD_INPUT)


@contextmanager
def _leased(testbed: Testbed) -> Iterator[None]:
    lease = _lab(lambda: Lease(testbed.name, state_folder()))
    try:
        yield
    finally:
        lease.release()


def _lab(action: Callable[[], T]) -> T:
    """Do something with the lab; what goes wrong there ends the command with its sentence."""
    try:
        return action()
    except LightrigError as error:
        _give_up(str(error), LAB_TROUBLE)


def _print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _give_up(message: str, status: int) -> NoReturn:
    _err.print(message, markup=False, soft_wrap=True)
    raise typer.Exit(status)
