"""`lightrig set`: settings of instruments by hand, with what they were before."""

from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from lightrig.harness.bench import Bench, bind_only
from lightrig.harness.bench.named_values import (
    SettingName,
    owners,
    parsed_value,
    setting,
    shown_value,
)
from lightrig.harness.bench.restoring import NOT_AS_FOUND
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.lab import Queue, in_turn, lab, lab_or_limit, say_state_saved
from lightrig.harness.cli.terminal import err, out
from lightrig.harness.signals import uninterrupted
from lightrig.testbeds import LightrigError

Assignments = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME=VALUE...",
        help="A setting and its value with unit: laser.power=0dBm, ocs.17.shutter=closed.",
        autocompletion=completion.settings,
    ),
]


class _Change:
    """A setting with its value before and the one that is wanted."""

    def __init__(self, bench: Bench, name: str, text: str) -> None:
        self.name: SettingName
        self.name, self.before, self.unit = setting(bench, name)
        self.kind = self.name.key.rpartition(" ")[0] or self.name.key
        self.wanted = parsed_value(self.kind, text, self.before, self.unit)
        self.instrument = bench.settable[self.name.instrument]

    def make(self, value: float | bool) -> None:
        """Set the instrument to `value`."""
        self.instrument.restore_settings({self.name.key: value})

    def shown(self, value: float | bool) -> str:
        """Return a value of this setting as a person reads it."""
        return shown_value(self.kind, value, self.unit)


def set_(file: File, assignments: Assignments, queue: Queue = "", as_json: AsJson = False) -> None:
    """Set settings of instruments, and shutters of a switch's ports, in the order stated.

    Each is read back.

    Interlocks and limits of the testbed file are asked before anything is sent. Where one is
    refused, those before it are put back. What was set stays: runs start from it and end with it,
    until it is set back by hand or `lightrig restore`. Exit 0 if all are set, 2 for an invalid
    file, name, value or limit, 3 if an instrument refused or did not answer, 6 if one could not be
    put back.
    """
    testbed = load_testbed(file)
    stated = [_split(text) for text in assignments]
    command = f"lightrig set {' '.join(assignments)}"
    names = lab_or_limit(lambda: owners(testbed, [name for name, _ in stated]))
    bench = in_turn(testbed, queue, lambda: bind_only(testbed, names, command), names=names)
    with closing(bench):
        changes = lab_or_limit(lambda: [_Change(bench, *each) for each in stated])
        saved = SavedInstruments(bench, shutters=True)
        lab(saved.save_initial_state)
        _make(changes, saved, command)
        restorable = lab(lambda: saved.leave(command))
    rows = [
        {
            "name": str(each.name),
            "before": each.before,
            "value": each.wanted,
            "unit": each.unit,
        }
        for each in changes
    ]
    if as_json:
        print_json(rows)
    else:
        for each in changes:
            was = each.shown(each.before)
            out.print(f"{each.name}: {each.shown(each.wanted)}; before, {was}", markup=False)
    if restorable:
        say_state_saved(file)
    else:
        err.print("all is as it was found: nothing is left to restore")


def _split(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        give_up(f"found {text!r}, expected NAME=VALUE, e.g. laser.power=0dBm", BAD_INPUT)
    return name.strip(), value.strip()


def _make(changes: list[_Change], saved: SavedInstruments, command: str) -> None:
    """Make all changes; what was made is put back where one fails or is interrupted."""
    begun: list[_Change] = []
    try:
        for change in changes:
            begun.append(change)
            lab_or_limit(partial(change.make, change.wanted))
    except BaseException:
        with uninterrupted():
            _put_back(begun, saved, command)
        raise


def _put_back(begun: list[_Change], saved: SavedInstruments, command: str) -> None:
    try:
        for change in reversed(begun):
            change.make(change.before)
        saved.leave(command)
    except LightrigError as error:
        give_up(
            f"NOT as found: {begun[-1].name.instrument}; `lightrig restore` with the testbed file "
            f"restores it\n{error}",
            NOT_AS_FOUND,
        )
    for change in begun[:-1]:
        err.print(f"{change.name} was set, and is {change.shown(change.before)} again")
