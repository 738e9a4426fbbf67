"""Arguments, output and exit statuses that all commands share.

What needs no Typer is in `harness.cli.output`; tables and colours: `harness.cli.terminal`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from lightrig.harness.cli import completion
from lightrig.harness.cli.output import BAD_INPUT, LAB_ERROR, NO, echo, print_json
from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.system_registry import structure_of
from lightrig.testbeds import Plan, Testbed, TestbedError, load
from lightrig.testbeds.exceptions import ExceptionsError
from lightrig.testbeds.out_of_service import with_exceptions

__all__ = [
    "BAD_INPUT",
    "LAB_ERROR",
    "NO",
    "RESULTS",
    "AsJson",
    "CommandGroup",
    "File",
    "echo",
    "give_up",
    "load_stated",
    "load_testbed",
    "load_whole_testbed",
    "named_plan",
    "print_json",
    "readable",
    "refuse_missing_results",
    "structure_of",
    "warn_renamed",
]

RESULTS = "results"
"""The folder of results where none is named."""

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Description of a testbed.",
        autocompletion=completion.testbed_files,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class CommandGroup(TyperGroup):
    """Commands whose whole summaries the group's help shows, also where the terminal is narrow."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with the whole first paragraph of its help."""
        for command in self.commands.values():
            command.short_help = (command.help or "").partition("\n\n")[0].replace("\n", " ")
        super().format_commands(ctx, formatter)


def load_testbed(file: Path) -> Testbed:
    """Read a testbed file with its exceptions, or end the command with the errors in them."""
    with readable(file):
        return with_exceptions(load_stated(file))


def load_stated(file: Path) -> Testbed:
    """Read a testbed file as it stands, whatever is out of service, or end the command."""
    with readable(file):
        return load(file, quantities=names_in_files())


def load_whole_testbed(file: Path) -> Testbed:
    """Read a testbed file for what leaves nothing out; end the command where ports are out."""
    testbed = load_testbed(file)
    if testbed.out:
        reasons = ", ".join(map(str, testbed.out.entries.values()))
        give_up(f"inconclusive: it needs whole plans, and out of service is {reasons}", LAB_ERROR)
    return testbed


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """End the command where the block cannot read a file, with the errors in it."""
    try:
        yield
    except (TestbedError, ExceptionsError) as error:
        give_up(str(error), BAD_INPUT)
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)


def refuse_missing_results(place: str) -> None:
    """End the command where a folder of results is named that is not there.

    The default one is made by the first run. A mistyped one would look like a lab without runs.
    """
    if place != RESULTS and "://" not in place and not Path(place).is_dir():
        give_up(f"{place}: no such folder of results", BAD_INPUT)


def named_plan(testbed: Testbed, name: str) -> Plan:
    """Return the plan of that name, or end the command with the known names."""
    if name not in testbed.plans:
        known = ", ".join(testbed.plans) or "none"
        give_up(f"{testbed.path} has no plan {name!r}; its plans are {known}", BAD_INPUT)
    return testbed.plans[name]


def warn_renamed(old: str, new: str) -> None:
    """Warn on stderr that option `old` is deprecated in favour of `new`."""
    echo(f"{old} is deprecated; use {new}", err=True)


def give_up(message: str, status: int) -> NoReturn:
    """End the command with a sentence on stderr."""
    echo(message, err=True)
    raise typer.Exit(status)
