"""`lightrig init --cabling`: write a testbed file from a list of cables."""

from pathlib import Path

from lightrig.harness.cli.common import BAD_INPUT, echo, give_up, print_json
from lightrig.harness.vocabulary import InstalledNames
from lightrig.instruments.core.models import models
from lightrig.instruments.core.registry import driver
from lightrig.testbeds import TestbedError, load
from lightrig.testbeds.cable_lists import read_cables, read_names
from lightrig.testbeds.cabled_testbed import Defaults, LeftCable, cabled_testbed

_MOST_SHOWN = 20


def placeholder_address(model: str) -> str:
    """Return an address that no lab has, of the first wire of a model's driver."""
    if model not in models():
        return "tl1://{name}.invalid"
    return f"{next(iter(driver(model).schemes))}://{{name}}.invalid"


def write_cabled(
    file: Path, name: str, cabling: Path, names: Path, defaults: Defaults, *, as_json: bool
) -> None:
    """Write the testbed of a list of cables, and print which of them it has not.

    Ends the command with its problems and without a file where the lists, or what would be
    written, have any.
    """
    try:
        cables, named = read_cables(cabling), read_names(names)
        made = cabled_testbed(name, cables, named, (cabling, names), defaults)
    except OSError as error:
        give_up(f"{error.filename or cabling}: {error.strerror}", BAD_INPUT)
    except TestbedError as error:
        give_up(f"nothing is written:\n{error}", BAD_INPUT)
    if not made.fibers:
        _print_left(made.left, cabling)
        give_up(f"nothing is written: {cabling} joins no two devices of {names}", BAD_INPUT)
    try:
        with file.open("x", encoding="utf-8") as written:
            written.write(made.text)
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)
    try:
        load(file, InstalledNames())
    except TestbedError as error:
        file.unlink()
        lines = made.text.splitlines()
        # An address may have a password, which is what is wrong with it.
        shown = {at: text.strip() for at, text in enumerate(lines, 1) if "://" not in text}
        found = (
            f"{one.message}, in: {shown.get(one.line, 'an address')}" for one in error.problems
        )
        problems = "\n".join(found)
        give_up(f"nothing is written, since these names make no testbed:\n{problems}", BAD_INPUT)
    if as_json:
        left = [
            {"line": one.line, "cable": one.cable, "reason": one.reason} for one in made.left
        ]  # fmt: skip
        print_json({"fibers": made.fibers, "left": left})
        return
    _print_left(made.left, cabling)
    of = f"{made.fibers} fibers of {len(cables) - len(made.left)} cables"
    echo(f"{file} is written and has no errors: {of}.")
    echo(f"next      set addresses and transceivers in it, then lightrig doctor {file}")


def _print_left(left: tuple[LeftCable, ...], cabling: Path) -> None:
    for one in left[:_MOST_SHOWN]:
        echo(f"left out  {cabling.name}:{one.line} {one.cable}: {one.reason}")
    if len(left) > _MOST_SHOWN:
        echo(f"left out  {len(left) - _MOST_SHOWN} more, which --json lists")
