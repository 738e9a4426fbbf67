"""`lightrig serve`: the simulated instruments of a testbed on loopback, in real time."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from lightrig.harness.cli.common import BAD_INPUT, AsJson, File, give_up, load_testbed
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.terminal import out
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.world.world import World
from lightrig.testbeds.readdressing import readdressed

LOGIN = "LIGHTRIG_SERVED"
"""The variable that a served testbed's file names for the login."""
LAST_PORT = 65535

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
Seed = Annotated[int, typer.Option(help="One seed, one simulated world.")]


def serve(
    file: File,
    port: Port = 17000,
    write: Write = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Serve the simulated instruments on loopback until Ctrl-C; print where each one is.

    With --write, another terminal can measure them as if they were hardware.
    """
    testbed = load_testbed(file)
    if write is not None and write.resolve() == file.resolve():
        give_up(f"{write} is the file to be served; write to another one", BAD_INPUT)
    parts = (*testbed.optical_switches, *testbed.instruments, *testbed.servers)
    if port + len(parts) - 1 > LAST_PORT:
        give_up(f"{len(parts)} ports from {port} on: {LAST_PORT} is the last one", BAD_INPUT)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    clock = SystemClock()
    try:
        world = lab(lambda: World(testbed, clock, seed, first_port=port))
    except OSError as error:
        give_up(f"port {port} and those after it: {error.strerror}; try another --port", BAD_INPUT)
    try:
        if not world.services:
            give_up(f"{file}: nothing in it is spoken to over a wire", BAD_INPUT)
        if write is not None:
            _write(file, write, world)
        if as_json:
            _print_line(world)
        else:
            _print_table(file, world, write)
        over.wait()
    finally:
        world.close()
        clock.close()


def _write(file: Path, target: Path, world: World) -> None:
    known_hosts = target.with_name(f"{target.stem}.known_hosts")
    addresses = {name: service.address for name, service in world.services.items()}
    text = readdressed(
        file, addresses, login=f"env:{LOGIN}", known_hosts=known_hosts, target=target
    )
    try:
        known_hosts.write_text(
            "".join(f"{s.known_hosts}\n" for s in world.services.values() if s.known_hosts)
        )
        target.write_text(text)
    except OSError as error:
        give_up(f"{error.filename}: {error.strerror}", BAD_INPUT)


def _print_line(world: World) -> None:
    rows = [
        {
            "name": name,
            "address": service.address,
            "user": service.login[0],
            "password": service.login[1],
            "known_hosts": service.known_hosts,
        }
        for name, service in world.services.items()
    ]
    sys.stdout.write(json.dumps(rows) + "\n")
    sys.stdout.flush()


def _print_table(file: Path, world: World, written: Path | None) -> None:
    table = Table("instrument", "address", box=None, padding=(0, 2, 0, 0))
    for name, service in world.services.items():
        table.add_row(name, service.address)
    out.print(f"{file}: simulated, in real time; Ctrl-C ends it", markup=False)
    out.print(table)
    logins = sorted({":".join(service.login) for service in world.services.values()})
    out.print(f"login {' '.join(logins)}", markup=False)
    if written is not None:
        out.print(
            f"export {LOGIN}={logins[0]}\n"
            f"pytest suites --testbed {os.path.relpath(written)} --instruments hardware",
            markup=False,
        )
