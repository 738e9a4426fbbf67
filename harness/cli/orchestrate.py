"""`lightrig orchestrate SYSTEM FILE`: a system's control plane as a service over HTTP."""

import contextlib
import json
import signal
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import httpx
import typer

from lightrig.harness.bench.lab_folder import file_name
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    AsJson,
    File,
    Group,
    give_up,
    print_json,
    readable,
    structure_of,
)
from lightrig.harness.cli.lab import lab
from lightrig.harness.machine_folder import machine_folder
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SimulatedSwitches, SwitchSessions
from lightrig.harness.orchestration.wiring import Structure
from lightrig.harness.system_registry import System, installed_systems
from lightrig.harness.vocabulary import InstalledNames
from lightrig.testbeds import SizesOnlyError, Testbed, load
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.private_files import PrivateFileError, read_private
from lightrig.testbeds.schema import Document

HOST = "127.0.0.1"
FIRST_PORT = 17900
_TIMEOUT_S = 300.0
_LOOK_AGAIN_S = 1.0

Port = Annotated[int, typer.Option(min=0, max=65535, help="TCP port on loopback; 0: any free.")]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What is wanted, for a restart; by default beside leases."),
]
Period = Annotated[
    float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="Time between two probes.")
]
Instruments = Annotated[
    Literal["hardware", "simulated"],
    typer.Option(help="Drive the switches, or simulated ones in this process."),
]
Ask = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Send one request to the service that runs, and end."),
]


def _group() -> typer.Typer:
    """Return the command group, with one command for each installed system with a control plane."""
    group = typer.Typer(cls=Group, help="Run a published system's control plane as a service.")

    @group.callback()
    def systems() -> None:
        """Run a published system's control plane as a service."""

    for name, system in installed_systems().items():
        if system.orchestrator is not None:
            epilog = f"Example: lightrig orchestrate {name} testbeds/mine.yaml"
            group.command(name, epilog=epilog)(_command(system))
    return group


def _command(system: System) -> Any:
    def command(
        file: File,
        port: Port = FIRST_PORT,
        state: State = None,
        period: Period = 1.0,
        ask: Ask = None,
        instruments: Instruments = "hardware",
        as_json: AsJson = False,
    ) -> None:
        simulated = instruments == "simulated"
        state = state or _state_file(file, simulated)
        if ask is not None:
            _ask(port, state, ask)
            return
        testbed = _fabric(file)
        serving = _http_api()
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        layout = lab(lambda: system.load("orchestrator")(testbed))
        switches = SimulatedSwitches(testbed) if simulated else SwitchSessions(testbed)
        running = lab(lambda: Orchestrator(testbed, layout, switches, state))
        with contextlib.closing(running):
            lab(running.start)
            token = lab(lambda: serving.read_token(_token(state), make=True))
            try:
                listening = socket.create_server((HOST, port))
            except OSError as error:
                give_up(f"port {port}: {error.strerror}; try another --port", BAD_INPUT)
            with contextlib.closing(serving.HttpServer(running, listening, token)):
                loop = threading.Thread(target=running.run, args=(over, period), daemon=True)
                loop.start()
                address = f"{HOST}:{listening.getsockname()[1]}"
                if as_json:
                    document = {
                        "address": address,
                        "token": str(_token(state)),
                        "simulated": simulated,
                    }
                    sys.stdout.write(json.dumps(document) + "\n")
                else:
                    if simulated:
                        sys.stdout.write(
                            "The switches are simulated in this process, without wires or times: "
                            "no switch of the lab is driven\n"
                        )
                    sys.stdout.write(
                        f"{file}: http://{address}, token in {_token(state)}; Ctrl-C ends it\n"
                    )
                sys.stdout.flush()
                while not over.wait(_LOOK_AGAIN_S) and running.alive:
                    pass
            failed = not over.is_set()
            over.set()
            loop.join()
        if failed:
            give_up("the service ended by an error of its own; its state is on disk", LAB_ERROR)

    command.__doc__ = (
        f"Place jobs and drive the switches of {system.title}, until Ctrl-C.\n\n"
        "    Requests come over HTTP on loopback, with the token of a file that this account and "
        "root can read: docs/how-to/orchestrate.md. The service may be killed at any time: started "
        "again, it brings the switches to what was wanted. Exit 0, or 1 where a request was "
        "refused, 2 for an invalid file, 3 if the service did not answer or another one drives the "
        "switches."
    )
    return command


def _fabric(file: Path) -> Testbed | Structure:
    names = InstalledNames()
    with readable(file):
        try:
            return load(file, quantities=names.quantities)
        except SizesOnlyError as found:
            return structure_of(file, found, names)


def _state_file(file: Path, simulated: bool) -> Path:
    """Return the file of what is wanted; simulated switches have another than those of the lab."""
    with readable(file):
        document, _, _ = read_as(Document, file)
    folder = file.parent / document.lab_folder if document.lab_folder else machine_folder()
    kind = "orchestrate-simulated" if simulated else "orchestrate"
    return folder / f"{kind}-{file_name(str(file.absolute()))}.json"


def _http_api() -> ModuleType:
    """Return the API's module, which an extra installs."""
    try:
        return import_module("lightrig.harness.orchestration.http_api")
    except ModuleNotFoundError as error:
        give_up(f"{error}: pip install 'lightrig[api]'", BAD_INPUT)


def _ask(port: int, state: Path, text: str) -> None:
    """Send one request to the service at `port` and print its answer."""
    try:
        request = json.dumps(from_json(text))
    except ValueError as error:
        give_up(f"{text!r} is no JSON: {error}", BAD_INPUT)
    try:
        token = read_private(_token(state), group=False).decode("ascii", "replace").strip()
        answered = httpx.post(
            f"http://{HOST}:{port}/v1/requests",
            content=request,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_S,
            trust_env=False,
        )
        answer = answered.json()
    except (httpx.HTTPError, ValueError, PrivateFileError) as error:
        give_up(f"{HOST}:{port}: {error}; does `lightrig orchestrate` run there?", LAB_ERROR)
    print_json(answer)
    if answered.is_error:
        raise typer.Exit(NO)


def _token(state: Path) -> Path:
    return state.with_suffix(".token")


orchestrate = _group()
