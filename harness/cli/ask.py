"""`lightrig ask`: one raw command in the session of an instrument's driver."""

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from lightrig.harness.bench import Bench, Fabric, bind_only
from lightrig.harness.bench.assembly import spec_of
from lightrig.harness.bench.named_values import owners
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
from lightrig.harness.cli.doctor import is_on_terminal
from lightrig.harness.cli.lab import Queue, in_turn, lab, lab_or_limit, say_state_saved
from lightrig.harness.cli.terminal import err, out
from lightrig.instruments.core.capabilities import TakesCommands
from lightrig.testbeds import Circuit, LightrigError
from lightrig.testbeds.escaping import escape_control

Name = Annotated[
    str,
    typer.Argument(
        metavar="INSTRUMENT",
        help="A switch or an instrument of the testbed.",
        autocompletion=completion.instruments,
    ),
]
Text = Annotated[
    str,
    typer.Argument(metavar="COMMAND", help="As it takes it: *IDN?, RTRV-PATCH:::1:;, show version"),
]
_CLIENTS = {"gnmi": "gnmic", "netconf": "netconf-console", "restconf": "curl"}
Yes = Annotated[bool, typer.Option("--yes", help="Send it without a question.")]


def ask(
    file: File,
    instrument: Name,
    command: Text,
    yes: Yes = False,
    queue: Queue = "",
    as_json: AsJson = False,
) -> None:
    """Send one command over TL1, SCPI, a serial line or SSH, and print the reply.

    Its effect is not known: no limit and no interlock is asked, and ports of others may change. So
    it is sent after a question on a terminal, or with --yes. Circuits and settings are read before
    and after; what differs on the testbed's ports stays, and `lightrig restore` undoes it. Exit 0,
    2 for an invalid file or instrument and without leave, 3 where the instrument refused or did
    not answer.
    """
    testbed = load_testbed(file)
    names = lab_or_limit(lambda: owners(testbed, [instrument]))
    if instrument in testbed.servers:
        give_up(f"{instrument} is a server: `ssh` is the client for that", BAD_INPUT)
    if not yes and not _allowed(instrument, command):
        give_up("not sent; --yes sends it without a question", BAD_INPUT)
    purpose = f"lightrig ask {instrument}"
    bench = in_turn(testbed, queue, lambda: bind_only(testbed, names, purpose), names=names)
    with closing(bench):
        asked = {**bench.switches, **bench.instruments}[instrument]
        if not isinstance(asked, TakesCommands):
            give_up(
                f"{instrument} takes no commands of one line{_client(bench, instrument)}", BAD_INPUT
            )
        kinds = (Fabric(bench), SavedInstruments(bench, shutters=True))
        for kind in kinds:
            lab(kind.save_initial_state)
        before = _foreign(bench, kinds[0])
        try:
            reply, failure = asked.ask(command), None
        except LightrigError as error:
            reply, failure = "", error
        changed = [name for kind in kinds for name in lab(partial(kind.leave, purpose))]
        elsewhere = _differences(before, _foreign(bench, kinds[0]))
        wire = list(asked.wire())
    for line in elsewhere:
        err.print(line, markup=False)
    if failure is not None:
        lab_or_limit(lambda: _fail(failure))
    if as_json:
        print_json({"reply": reply, "bytes": reply.encode().hex(" "), "wire": wire})
    elif reply:
        for line in reply.splitlines():
            out.print(escape_control(line), soft_wrap=True)
    else:
        err.print("accepted, without a reply")
    if changed:
        say_state_saved(file)


def _client(bench: Bench, name: str) -> str:
    """Return over which wire that is, and a client of it."""
    scheme = (spec_of(bench.testbed, name).address or "").partition(":")[0]
    client = (
        f"; a client of that protocol, such as {_CLIENTS[scheme]}" if scheme in _CLIENTS else ""
    )
    return f" over {scheme or 'its wire'}{client}"


def _fail(error: LightrigError) -> None:
    raise error


def _allowed(instrument: str, command: str) -> bool:
    return is_on_terminal() and typer.confirm(
        f"What {command!r} does to {instrument} is not known here: it may change circuits and "
        "light, also those of others. Send it?",
        err=True,
    )


def _foreign(bench: Bench, fabric: Fabric) -> dict[str, frozenset[Circuit]]:
    """Return by switch the circuits that are not the testbed's."""
    return {name: lab(partial(fabric.present, name))[1] for name in bench.switches}


def _differences(
    before: Mapping[str, frozenset[Circuit]], after: Mapping[str, frozenset[Circuit]]
) -> list[str]:
    found = []
    for name, circuits in before.items():
        for what, which in (("made", after[name] - circuits), ("unmade", circuits - after[name])):
            if which:
                listed = ", ".join(map(str, sorted(which)))
                found.append(f"{name}: {listed} {what}, on ports that are not this testbed's")
    return found
