"""`lightrig orchestrate SYSTEM FILE`: a system's control plane as a service over HTTP."""

import contextlib
import hashlib
import ipaddress
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, cast
from urllib.parse import quote

import httpx
import typer

from lightrig.harness.bench.lab_folder import file_name
from lightrig.harness.bench.lease import LeaseConflictError
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    AsJson,
    CommandGroup,
    File,
    echo,
    give_up,
    print_json,
    readable,
    structure_of,
)
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.requests import takes
from lightrig.harness.machine_folder import machine_folder
from lightrig.harness.orchestration.agents import AgentSwitches, switches_by_host
from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.layout import Layout
from lightrig.harness.orchestration.listener_account import AccountTransport, TokenAuth, token_of
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.rank_messages import RankMessages
from lightrig.harness.orchestration.status_page import PageWriter
from lightrig.harness.orchestration.switch_sessions import (
    SimulatedSwitches,
    Switches,
    SwitchSessions,
)
from lightrig.harness.orchestration.wiring import Structure, Wiring, wiring_of
from lightrig.harness.signals import ended_by_signal
from lightrig.harness.system_registry import System, installed_systems
from lightrig.harness.vocabulary import InstalledNames
from lightrig.testbeds import LightrigError, SizesOnlyError, Testbed, load
from lightrig.testbeds.json_text import from_strict_json
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.schema import Document

HOST = "127.0.0.1"
FIRST_PORT = 17900
_TIMEOUT_S = 300.0
LOOK_AGAIN_S = 1.0
"""Period at which a command looks whether its service has ended."""

Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="TCP port on loopback, with a token; 0: any free."),
]
Address = Annotated[
    str | None,
    typer.Option(metavar="IP", help="Address of the service; beyond loopback with --key."),
]
Key = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Key file of `lightrig night --make-keys`: mutual TLS, no token."
    ),
]
UnixSocket = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="Another Unix socket than that of this account in the machine's folder.",
    ),
]


@dataclass(frozen=True, slots=True)
class OrchestrateOptions:
    """Arguments and options of the command."""

    file: File
    port: Port = None
    address: Address = None
    key: Key = None
    at: UnixSocket = None
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What is wanted, for a restart; by default beside leases."
        ),
    ] = None
    period: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="SECONDS", help="Time between two probes.")
    ] = 1.0
    ask: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Send one request to the service that runs, and end."),
    ] = None
    instruments: Annotated[
        Literal["hardware", "simulated"],
        typer.Option(help="Drive the switches, or simulated ones in this process."),
    ] = "hardware"
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another process leads, and follow it."),
    ] = False
    agents: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help="Sockets of the agents of hosts, such as /run/lightrig/{host}.socket, or "
            "{host}:17901 with --key.",
        ),
    ] = None
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page of the fabric that reloads itself."),
    ] = None
    as_json: AsJson = False

    @property
    def simulated(self) -> bool:
        """Whether no switch of the lab is driven."""
        return self.instruments == "simulated"

    def socket_of(self, state: Path) -> Path | None:
        """Return the Unix socket of a state's service; None where an option asks for TCP.

        Its folder is this account's alone: the state's may be one that hosts or accounts share.
        """
        if any(each is not None for each in (self.port, self.address, self.key)):
            return None
        name = hashlib.sha256(str(state.absolute()).encode()).hexdigest()[:12]
        return machine_folder() / f"orchestrate-{os.geteuid()}" / f"{name}.socket"

    def switches(self, layout: Layout, wiring: Wiring, control: Control) -> Switches:
        """Return the switches: of this process, or of the agents of hosts."""
        switches: Switches = (
            SimulatedSwitches(wiring) if self.simulated else SwitchSessions(wiring, control)
        )
        if self.agents is None:
            return switches
        by_host = switches_by_host(layout, wiring.switches)
        return AgentSwitches(by_host, clients_of(self.agents, by_host, self.key), switches, control)

    def written(self, running: Orchestrator) -> contextlib.AbstractContextManager[object]:
        """Keep the page written while the service runs, if one is wanted."""
        if self.page is None:
            return contextlib.nullcontext()
        try:
            return contextlib.closing(PageWriter(running, self.file.name, self.page))
        except OSError as error:
            give_up(f"{self.page}: {error.strerror}", BAD_INPUT)

    def announce(self, place: "ServicePlace") -> None:
        """Print where the service is reached."""
        if self.as_json:
            document = {**place.document(), "simulated": self.simulated}
            sys.stdout.write(json.dumps(document) + "\n")
        else:
            if self.simulated:
                sys.stdout.write(
                    "The switches are simulated in this process, without wires or times: "
                    "no switch of the lab is driven\n"
                )
            sys.stdout.write(f"{self.file}: {place}; Ctrl-C ends it\n")
        sys.stdout.flush()


def _group() -> typer.Typer:
    """Return the command group, with one command for each installed system with a control plane."""
    group = typer.Typer(
        cls=CommandGroup, help="Run a published system's control plane as a service."
    )

    @group.callback()
    def systems() -> None:
        """Run a published system's control plane as a service."""

    for name, system in installed_systems().items():
        if system.orchestrator is not None:
            epilog = f"Example: lightrig orchestrate {name} testbeds/mine.yaml"
            group.command(name, epilog=epilog)(command_of(system))
    return group


def command_of(system: System) -> Any:
    """Return the command that runs a system's control plane."""

    @takes(OrchestrateOptions)
    def command(options: OrchestrateOptions) -> None:
        state = options.state or _state_file(options.file, options.simulated)
        at = options.at or options.socket_of(state)
        token = state.with_suffix(".token")
        place = ServicePlace(options.address, options.port, options.key, at, token)
        if options.ask is None:
            _serve(system, options, state, place)
        else:
            _ask(place, options.ask)

    command.__doc__ = (
        f"Place jobs and drive the switches of {system.title}, until Ctrl-C.\n\n"
        "    Requests come over HTTP: on a Unix socket for this account and root, with --port on "
        "loopback with the token of a file, with --key over mutual TLS: "
        "docs/how-to/orchestrate.md. The "
        "service may be killed at any time: started again, or followed by one with --standby, it "
        "brings the switches to what was wanted. Exit 0, or 1 where a request was refused, 2 for "
        "an invalid file, 3 if the service did not answer or another one drives the switches."
    )
    return command


def _serve(system: System, options: OrchestrateOptions, state: Path, place: "ServicePlace") -> None:
    """Drive the switches and answer requests until a signal, or end the command."""
    fabric = read_fabric(options.file)
    serving = http_api()
    with contextlib.ExitStack() as stack:
        over = stack.enter_context(ended_by_signal())
        layout = lab(lambda: system.load("orchestrator")(fabric))
        control = lab(lambda: Control(state))
        leaders: list[str] = []
        if not lab(lambda: _lead(control, over, leaders, standby=options.standby)):
            return
        wiring = wiring_of(fabric)
        switches = options.switches(layout, wiring, control)
        running = lab(lambda: Orchestrator(wiring, layout, switches, state, control))
        # Switches are given up before the lead.
        stack.callback(control.release)
        stack.callback(running.close)
        lab(running.start)
        ranks = None
        if (taking := system.load("rank_messages")) is not None:
            heard = state.with_name(f"{state.stem}-ranks.json")
            ranks = lab(lambda: taking(running, heard, control))
            stack.callback(ranks.close)
            ranks.start()
        # Clients of the service that this one follows go on with its token.
        server = lab(lambda: place.server(serving, running, ranks, follows=bool(leaders)))
        with contextlib.closing(server), options.written(running):
            arguments = over, options.period, lambda why: echo(why, err=True)
            loop = threading.Thread(target=running.run, args=arguments, daemon=True)
            loop.start()
            options.announce(place)
            while not over.wait(LOOK_AGAIN_S) and running.alive:
                pass
        failed = not over.is_set()
        over.set()
        loop.join()
    if running.ended:
        give_up(f"another process leads: {running.ended}", LAB_ERROR)
    if failed:
        give_up("the service ended by an error of its own; its state is on disk", LAB_ERROR)


def clients_of(
    template: str, hosts: Mapping[str, frozenset[str]], key: Path | None
) -> dict[str, httpx.Client]:
    """Return a client of the agent of each host."""
    if not hosts or "{host}" not in template:
        wrong = "has {host} in it" if hosts else "is of a system whose hosts drive switches"
        give_up(f"found --agents {template}, expected one that {wrong}", BAD_INPUT)
    found = {}
    for host in hosts:
        at = template.replace("{host}", host)
        if "/" in at:
            found[host] = ServicePlace(HOST, 0, None, Path(at), Path()).client()
        elif key is not None:
            context = tls_of(key, server=False)
            found[host] = httpx.Client(base_url=f"https://{at}", verify=context, trust_env=False)
        else:
            give_up(f"found --agents {template}: state --key FILE, or a path", BAD_INPUT)
    return found


def _lead(control: Control, over: threading.Event, leaders: list[str], *, standby: bool) -> bool:
    """Lead; on standby, once no other process does, unless `over` is set before.

    leaders: receives the processes that led meanwhile.
    """

    def report(leader: str) -> None:
        leaders.append(leader)
        echo(f"standby: {leader}, leads", err=True)

    if standby:
        return control.wait(over, report)
    try:
        control.take()
    except LeaseConflictError as error:
        raise LeaseConflictError(f"{error}, leads; --standby waits to follow it") from None
    return True


def read_fabric(file: Path) -> Testbed | Structure:
    """Return the fabric that a file describes whole, or by its sizes."""
    names = InstalledNames()
    with readable(file):
        try:
            return load(file, quantities=names.quantities)
        except SizesOnlyError as found:
            return cast("Structure", structure_of(file, found, names))


def _state_file(file: Path, simulated: bool) -> Path:
    """Return the file of what is wanted; simulated switches have another than those of the lab."""
    with readable(file):
        document, _, _ = read_as(Document, file)
    folder = file.parent / document.lab_folder if document.lab_folder else machine_folder()
    kind = "orchestrate-simulated" if simulated else "orchestrate"
    return folder / f"{kind}-{file_name(str(file.absolute()))}.json"


def http_api() -> ModuleType:
    """Return the API's module, which an extra installs."""
    try:
        return import_module("lightrig.harness.orchestration.http_api")
    except ModuleNotFoundError as error:
        give_up(f"{error}: pip install 'lightrig[api]'", BAD_INPUT)


def tls_of(key: Path, *, server: bool) -> ssl.SSLContext:
    """Return TLS with a key file; raises `LightrigError` for one that cannot be used."""
    import_module("lightrig.harness.night.keys").read_key(key)
    context: ssl.SSLContext = http_api().tls(key, server=server)
    return context


class ServicePlace:
    """Where a service is reached, and by which proof of who asks: at a Unix socket, or over TCP.

    address, port: None for those of a service that states none.
    """

    def __init__(
        self,
        address: str | None,
        port: int | None,
        key: Path | None,
        path: Path | None,
        token: Path,
    ) -> None:
        address = HOST if address is None else address
        port = FIRST_PORT if port is None else port
        try:
            is_local = ipaddress.ip_address(address).is_loopback
        except ValueError:
            give_up(f"found --address {address}, expected an IP address", BAD_INPUT)
        if not (is_local or key or path):
            give_up(f"{address} is beyond loopback: state --key FILE as well", BAD_INPUT)
        self._address, self._port, self._key, self._path = address, port, key, path
        self._token = None if key or path else token

    def __str__(self) -> str:
        where = f"socket {self._path}" if self._path else self._url()
        return where + (f", token in {self._token}" if self._token else "")

    def document(self) -> dict[str, str | None]:
        """Return it as JSON has it."""
        address = f"unix:{self._path}" if self._path else self._host()
        return {"address": address, "token": str(self._token) if self._token else None}

    def server(
        self,
        api: ModuleType,
        running: Any,
        ranks: RankMessages | None = None,
        *,
        follows: bool = False,
    ) -> Any:
        """Serve an orchestrator, or an application, there; raises `LightrigError`.

        ranks: what takes messages of ranks of the orchestrator's jobs. follows: whether another
        process served it until now, whose token stays.
        """
        token = None
        if self._token:
            follows = follows and self._token.exists()
            token = token_of(self._token) if follows else api.new_token(self._token)
        context = tls_of(self._key, server=True) if self._key else None
        try:
            if self._path:
                listening = api.unix_socket(self._path)
            else:
                family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
                listening = socket.create_server((self._address, self._port), family=family)
                self._port = listening.getsockname()[1]
        except OSError as error:
            give_up(f"{self}: {error.strerror}; try another place", BAD_INPUT)
        return api.HttpServer(running, listening, token, context, ranks)

    def client(self) -> httpx.Client:
        """Return a client of the service; raises `LightrigError`."""
        transport = None
        if self._path or self._token:
            transport = AccountTransport(_TIMEOUT_S, self._path)
        return httpx.Client(
            base_url=self._url(),
            auth=TokenAuth(self._token) if self._token else None,
            timeout=_TIMEOUT_S,
            trust_env=False,
            verify=tls_of(self._key, server=False) if self._key else True,
            transport=transport,
        )

    def _host(self) -> str:
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"{host}:{self._port}"

    def _url(self) -> str:
        if self._path:
            return "http://lightrig"
        return f"{'https' if self._key else 'http'}://{self._host()}"


def _ask(place: ServicePlace, text: str) -> None:
    """Send one request to the service at `place` and print its answer."""
    try:
        request = from_strict_json(text)
    except ValueError as error:
        give_up(f"{text!r} is no JSON: {error}", BAD_INPUT)
    try:
        with place.client() as client:
            match request:
                case {"do": "withdraw", "job": str(job), **more} if more.keys() <= {"dry_run"}:
                    path = f"/v1/jobs/{quote(job, safe='')}"
                    answered = client.delete(
                        path, params={"dry_run": json.dumps(more.get("dry_run", False))}
                    )
                case _:
                    answered = client.post("/v1/requests", content=json.dumps(request))
            answer = answered.json()
    except (httpx.HTTPError, ValueError, LightrigError) as error:
        give_up(f"{place}: {error}; does `lightrig orchestrate` run there?", LAB_ERROR)
    print_json(answer)
    if answered.is_error:
        raise typer.Exit(NO)


orchestrate = _group()
