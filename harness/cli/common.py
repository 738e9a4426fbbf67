"""What all commands share: arguments, ways to print, ways to give up."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console

from harness.bench.keeping import Lease, state_folder
from testbeds import LightrigError, Plan, Testbed, TestbedError, load

T = TypeVar("T")

NO = 1
BAD_INPUT = 2
LAB_TROUBLE = 3

File = Annotated[Path, typer.Argument(metavar="FILE", help="Description of a testbed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def load_testbed(file: Path) -> Testbed:
    """Read a testbed's description, or end the command with what is wrong with it."""
    try:
        return load(file)
    except TestbedError as error:
        give_up(str(error), BAD_INPUT)
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)


def named_plan(testbed: Testbed, name: str) -> Plan:
    """The plan of that name, or end the command with the names that there are."""
    if name not in testbed.plans:
        known = ", ".join(testbed.plans) or "none"
        give_up(f"{testbed.path} has no plan {name!r}; its plans are {known}", BAD_INPUT)
    return testbed.plans[name]


@contextmanager
def leased(testbed: Testbed) -> Iterator[None]:
    """Hold the testbed's lease; whoever else holds it ends the command."""
    lease = lab(lambda: Lease(testbed.name, state_folder()))
    try:
        yield
    finally:
        lease.release()


def lab(action: Callable[[], T]) -> T:
    """Do something with the lab; what goes wrong there ends the command with its sentence."""
    try:
        return action()
    except LightrigError as error:
        give_up(str(error), LAB_TROUBLE)


def print_json(document: Any) -> None:
    """Print one JSON document."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def give_up(message: str, status: int) -> NoReturn:
    """End the command with a sentence on stderr."""
    err.print(message, markup=False, soft_wrap=True)
    raise typer.Exit(status)
