"""`lightrig orchestrate SYSTEM FILE`: a system's control plane as a service, one JSON a line."""

import contextlib
import json
import signal
import socket
import socketserver
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.bench.binding import state_folder
from lightrig.harness.bench.lab_folder import file_name
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    AsJson,
    File,
    Group,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.lab import lab
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SwitchSessions
from lightrig.harness.system_registry import System, installed_systems
from lightrig.instruments.loopback_peers import is_trusted
from lightrig.testbeds import LightrigError, Testbed
from lightrig.testbeds.json_text import from_json

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
        as_json: AsJson = False,
    ) -> None:
        if ask is not None:
            _ask(port, ask)
            return
        testbed = load_testbed(file)
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        running = lab(lambda: _orchestrator(system, testbed, state))
        with contextlib.closing(running):
            lab(running.start)
            loop = threading.Thread(target=running.run, args=(over, period), daemon=True)
            loop.start()
            try:
                served = _Server((HOST, port), running)
            except OSError as error:
                give_up(f"port {port}: {error.strerror}; try another --port", BAD_INPUT)
            with served:
                threading.Thread(target=served.serve_forever, daemon=True).start()
                address = f"{HOST}:{served.server_address[1]}"
                if as_json:
                    sys.stdout.write(json.dumps({"address": address}) + "\n")
                else:
                    sys.stdout.write(f"{file}: requests at {address}; Ctrl-C ends it\n")
                sys.stdout.flush()
                while not over.wait(_LOOK_AGAIN_S):
                    pass
                served.shutdown()

    command.__doc__ = (
        f"Place jobs and drive the switches of {system.title}, until Ctrl-C.\n\n"
        "    Requests come over TCP on loopback, one JSON object a line, and each is answered with "
        "one: the status, or an `error`. They are taken from this account and root alone. The "
        "service may be killed at any time: started again, it brings the switches to what was "
        "wanted. Exit 0, or 1 where a request was refused, 2 for an invalid file, 3 if the service "
        "or a switch did not answer."
    )
    return command


def _orchestrator(system: System, testbed: Testbed, state: Path | None) -> Orchestrator:
    """Return the orchestrator of a testbed on hardware, with its file of state."""
    layout = system.load("orchestrator")(testbed)
    if state is None:
        name = f"orchestrate-{file_name(str(Path(testbed.path).absolute()))}.json"
        state = state_folder(testbed) / name
    return Orchestrator(testbed, layout, SwitchSessions(testbed), state)


def _ask(port: int, text: str) -> None:
    """Send one request to the service at `port` and print its answer."""
    try:
        request = json.dumps(from_json(text))
    except ValueError as error:
        give_up(f"{text!r} is no JSON: {error}", BAD_INPUT)
    try:
        with socket.create_connection((HOST, port), timeout=_TIMEOUT_S) as opened:
            opened.sendall(request.encode() + b"\n")
            answer = from_json(opened.makefile("rb").readline())
    except (OSError, ValueError) as error:
        give_up(f"{HOST}:{port}: {error}; does `lightrig orchestrate` run there?", LAB_ERROR)
    print_json(answer)
    if "error" in answer:
        raise typer.Exit(NO)


class _Server(socketserver.ThreadingTCPServer):
    """Answers requests to one orchestrator, a thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], running: Orchestrator) -> None:
        super().__init__(address, _Connection)
        self.running = running


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer each line until the other end closes."""
        if not is_trusted(self.connection):
            refusal = {"error": "requests are taken from this service's own account and from root"}
            self.wfile.write(json.dumps(refusal).encode() + b"\n")
            return
        for line in self.rfile:
            try:
                answer: object = self.server.running.request(from_json(line))
            except (LightrigError, ValueError, AttributeError, TypeError) as error:
                answer = {"error": str(error)}
            self.wfile.write(json.dumps(answer).encode() + b"\n")


orchestrate = _group()
