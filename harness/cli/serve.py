"""`lightrig serve`: the simulated instruments of a testbed on loopback, in real time.

Servers that are namespaces are served by their own sshd (docs/lab-in-a-box.md).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lightrig.harness.cli import SUITES
from lightrig.harness.cli.carrier_command import CarrierCommand
from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, AsJson, File, give_up, load_testbed
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.terminal import err, out, print_folded, print_table
from lightrig.harness.signals import ended_by_signal
from lightrig.testbeds import InstrumentSpec, ServerSpec, SwitchSpec, Testbed
from lightrig.testbeds.credentials import CredentialError, look_up
from lightrig.testbeds.references import references_path

if TYPE_CHECKING:
    from lightrig.harness.cli.served_lab import ServedLab

LOGIN = "LIGHTRIG_SERVED"
"""The variable that a served testbed's file names for the login."""
LAST_PORT = 65535
LOOK_AGAIN_S = 1.0
"""Period at which a simulation that has ended is noticed, in s."""

Port = Annotated[
    int,
    typer.Option(
        min=0,
        max=LAST_PORT,
        help="First TCP port; each instrument takes the next one. 0: any free.",
    ),
]
Write = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the testbed's file with these addresses."),
]
Seed = Annotated[int, typer.Option(help="Seed of the simulated world.")]
OnCarrier = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Start COMMAND once, and write it a line for each change of a carrier: the port, up "
        "or down, and the time in ns of CLOCK_MONOTONIC.",
    ),
]


def serve(
    file: File,
    port: Port = 17000,
    write: Write = None,
    seed: Seed = 0,
    on_carrier: OnCarrier = None,
    as_json: AsJson = False,
) -> None:
    """Serve the simulated instruments on loopback until Ctrl-C; print where each one is.

    They accept the credentials that `login:` names, where those exist, and report the model, the
    firmware and, behind SIM, the serial number of `identity:`. A switch with several wires offers
    all of them at once; those that its address does not name listen behind all others. Servers
    that are network namespaces get an SSH server of their own. Ports with an `interface:` of this
    machine are joined by it while both have light, and have no carrier without. With --write,
    another terminal can measure all of them as if they were hardware, with the references that are
    stored beside FILE.
    """
    testbed = load_testbed(file)
    # The simulated world, with SSH servers: not for help and not for errors in the file.
    from lightrig.harness.cli.served_lab import ServedLab, servers_elsewhere  # noqa: PLC0415

    if write is not None and write.resolve() == file.resolve():
        give_up(f"{write} is the file to be served; write to another one", BAD_INPUT)
    elsewhere = {server.name for server in servers_elsewhere(testbed)}
    servers = [name for name in testbed.servers if name not in elsewhere]
    parts = (*testbed.optical_switches, *testbed.instruments, *servers)
    if port + len(parts) - 1 > LAST_PORT:
        give_up(f"{len(parts)} ports from {port} on: {LAST_PORT} is the last one", BAD_INPUT)
    with contextlib.ExitStack() as stack:
        over = stack.enter_context(ended_by_signal())
        try:
            stated = stated_logins(testbed)
            command = None if on_carrier is None else lab(lambda: CarrierCommand(on_carrier))
            if command is not None:
                stack.callback(command.close)
            listener = None if command is None else command.write
            served = lab(lambda: ServedLab(testbed, seed, port, stated, listener))
        except OSError as error:
            problem = f"port {port} and those after it: {error.strerror}; try another --port"
            give_up(problem, BAD_INPUT)
        stack.callback(served.close)
        if not served.services:
            give_up(f"{file}: none of its instruments has a wire", BAD_INPUT)
        if write is not None:
            _write(testbed, write, served, stated)
        for line in served.lacking:
            err.print(f"lacking here: {line}", soft_wrap=True)
        if as_json:
            _print_line(served)
        else:
            _print_table(file, served, write, stated)
        while not over.wait(LOOK_AGAIN_S):
            if served.failure is not None:
                give_up(f"the simulation has ended: {served.failure}", LAB_ERROR)
            if command is not None and command.failure is not None:
                give_up(str(command.failure), LAB_ERROR)


def stated_logins(testbed: Testbed) -> dict[str, tuple[str, str]]:
    """Return the credentials that the file names and that exist, by instrument."""
    found = {}
    parts: dict[str, SwitchSpec | InstrumentSpec | ServerSpec] = {
        **testbed.optical_switches,
        **testbed.instruments,
        **testbed.servers,
    }
    for name, spec in parts.items():
        if spec.login is not None:
            with contextlib.suppress(CredentialError):
                found[name] = look_up(spec.login)
    return found


def _write(testbed: Testbed, target: Path, served: ServedLab, stated: Collection[str]) -> None:
    from lightrig.testbeds.readdressing import readdressed  # noqa: PLC0415 - loads ruamel.yaml

    known_hosts = target.with_name(f"{target.stem}.known_hosts")
    certificates = target.with_name(f"{target.stem}.certificates")
    addresses = {name: service.address for name, service in served.services.items()}
    text = readdressed(
        testbed.path,
        addresses,
        login=f"env:{LOGIN}",
        known_hosts=known_hosts,
        target=target,
        keep_login=stated,
        certificates=certificates,
        keep_ssh_config=served.interfaces_pid is not None,
    )
    try:
        every = [*served.services.values(), *itertools.chain(*served.further_wires.values())]
        lines = [s.known_hosts for s in every if s.known_hosts]
        if served.interfaces_pid is not None and testbed.known_hosts is not None:
            lines += testbed.known_hosts.read_text().splitlines()  # of servers that are not served
        known_hosts.write_text("".join(f"{line}\n" for line in lines))
        if shown := "".join(service.certificate for service in every):
            certificates.write_text(shown)
        target.write_text(text)
        if (references := references_path(testbed.path)).exists():
            references_path(target).write_bytes(references.read_bytes())
    except OSError as error:
        give_up(f"{error.filename}: {error.strerror}", BAD_INPUT)


def _print_line(served: ServedLab) -> None:
    rows = [
        {
            "name": name,
            "address": service.address,
            "user": service.login[0],
            "password": service.login[1],
            "known_hosts": service.known_hosts,
            "certificate": service.certificate,
            "further_wires": [
                {
                    "address": further.address,
                    "known_hosts": further.known_hosts,
                    "certificate": further.certificate,
                }
                for further in served.further_wires.get(name, ())
            ],
        }
        for name, service in served.services.items()
    ]
    sys.stdout.write(json.dumps(rows) + "\n")
    sys.stdout.flush()


def _print_table(
    file: Path, served: ServedLab, written: Path | None, stated: Collection[str]
) -> None:
    table = Table("instrument", "address", box=None, padding=(0, 2, 0, 0))
    for name, service in served.services.items():
        table.add_row(name, service.address)
        for further in served.further_wires.get(name, ()):
            table.add_row("", further.address)
    print_folded(f"{file}: simulated, in real time; Ctrl-C ends it")
    print_table(table)
    if served.interfaces_pid is not None:
        print_folded(
            f"interfaces: in the network of process {served.interfaces_pid}; "
            f"nsenter --net --target {served.interfaces_pid} ip -br link"
        )
    drawn = {":".join(s.login) for name, s in served.services.items() if name not in stated}
    logins = sorted(drawn)
    if logins:
        out.print(f"login {' '.join(logins)}", soft_wrap=True)
    if stated:
        print_folded(f"login of {', '.join(stated)}: as {file} names it")
    if written is not None:
        out.print(
            (f"export {LOGIN}={logins[0]}\n" if logins else "")
            + f"{SUITES} {os.path.relpath(written)} --instruments hardware",
            soft_wrap=True,  # to be copied
        )
