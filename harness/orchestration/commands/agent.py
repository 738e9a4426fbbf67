"""`lightrig agent SYSTEM FILE --host NAME`: a host's own part of a system's control plane."""

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.bench import bind_only
from lightrig.harness.bench.assembly import open_namespace
from lightrig.harness.cli.common import BAD_INPUT, AsJson, CommandGroup, File, give_up, load_testbed
from lightrig.harness.cli.lab import Queue, in_turn, interruptible, lab
from lightrig.harness.cli.requests import takes
from lightrig.harness.orchestration.agents import (
    LINK_TIMEOUT_S,
    HostAgent,
    ServerCarriers,
    switches_by_host,
)
from lightrig.harness.orchestration.commands.orchestrate import (
    HOST,
    Address,
    Key,
    Port,
    ServicePlace,
    UnixSocket,
    http_api,
)
from lightrig.harness.orchestration.switch_sessions import SwitchSessions
from lightrig.harness.signals import ended_by_signal
from lightrig.harness.system_registry import System, installed_systems
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Testbed

FIRST_PORT = 17901
_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Arguments and options of the command."""

    file: File
    host: Annotated[str, typer.Option(metavar="NAME", help="The server whose switches it drives.")]
    at: UnixSocket = None
    address: Address = HOST
    port: Port = FIRST_PORT
    key: Key = None
    ranks: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A further Unix socket, at which ranks of a job select their topologies.",
        ),
    ] = None
    link_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, metavar="SECONDS", help="How long a rank waits for its neighbours."
        ),
    ] = LINK_TIMEOUT_S
    queue: Queue = ""
    as_json: AsJson = False


def _group() -> typer.Typer:
    """Return the command group, with one command for each installed system with a control plane."""
    group = typer.Typer(
        cls=CommandGroup, help="Drive the switches of one host for the control plane."
    )

    @group.callback()
    def systems() -> None:
        """Drive the switches of one host for the control plane."""

    for name, system in installed_systems().items():
        if system.orchestrator is not None:
            epilog = f"Example: lightrig agent {name} testbeds/mine.yaml --host gpu1"
            group.command(name, epilog=epilog)(_command(system))
    return group


def _command(system: System) -> Any:
    @takes(AgentOptions)
    def command(options: AgentOptions) -> None:
        _serve(system, options)

    command.__doc__ = (
        f"Drive the switches at the ports of one server of {system.title}, until Ctrl-C.\n\n"
        "    It opens no other switch, takes orders from `lightrig orchestrate --agents` on a Unix "
        "socket or over mutual TLS, and reads the carriers of its server's ports for it: "
        "docs/how-to/orchestrate.md. It may be killed at any time; circuits stay. Exit 0, or 2 for "
        "an invalid file or an unknown host."
    )
    return command


def _serve(system: System, options: AgentOptions) -> None:
    """Take orders of the control plane until a signal, or end the command."""
    if not (options.at or options.key):
        give_up("state --socket PATH, or --address IP with --key FILE", BAD_INPUT)
    place = ServicePlace(options.address, options.port, options.key, options.at, Path())
    testbed = load_testbed(options.file)
    serving = http_api()
    from lightrig.harness.orchestration.agent_api import (  # noqa: PLC0415
        agent_application,
        rank_application,
    )

    with contextlib.ExitStack() as stack:
        layout = lab(lambda: system.load("orchestrator")(testbed))
        names = switches_by_host(layout, testbed.optical_switches).get(options.host)
        if names is None:
            hosts = ", ".join(switches_by_host(layout, testbed.optical_switches)) or "none"
            give_up(f"found --host {options.host}; hosts with switches are {hosts}", BAD_INPUT)
        sessions, wanted = SwitchSessions(testbed), {*names, options.host}
        if options.queue:
            with interruptible("no switch was driven"):
                in_turn(testbed, options.queue, lambda: sessions.open(names), names=wanted)
        over = stack.enter_context(ended_by_signal())
        agent = HostAgent(
            options.host,
            names,
            sessions,
            lambda: _carriers(testbed, options.host),
            link_timeout_s=options.link_timeout,
        )
        stack.callback(agent.close)
        server = lab(lambda: place.server(serving, agent_application(agent)))
        stack.enter_context(contextlib.closing(server))
        if options.ranks:
            at = ServicePlace(HOST, 0, None, options.ranks, Path())
            for_ranks = lab(lambda: at.server(serving, rank_application(agent)))
            stack.enter_context(contextlib.closing(for_ranks))
        document = {**place.document(), "host": options.host, "switches": sorted(names)}
        if options.as_json:
            sys.stdout.write(json.dumps(document) + "\n")
        else:
            sys.stdout.write(f"{options.host}, {len(names)} switches: {place}; Ctrl-C ends it\n")
        sys.stdout.flush()
        while not over.wait(_LOOK_AGAIN_S):
            pass


def _carriers(testbed: Testbed, host: str) -> ServerCarriers:
    """Watch the carriers of a host's NIC ports; a namespace is the one that this process is in."""
    ports = {spec.netdev: str(spec.port) for spec in testbed.nic_ports if spec.port.owner == host}
    spec = testbed.servers[host]
    if spec.is_local_namespace:
        clock = SystemClock()
        server = open_namespace(spec, os.getpid(), clock, {})

        def close() -> None:
            server.close()
            clock.close()

        return ServerCarriers(server, ports, clock, close)
    bench = bind_only(testbed, {host}, "lightrig agent")
    return ServerCarriers(bench.servers[host], ports, bench.clock, bench.close)


agent = _group()
