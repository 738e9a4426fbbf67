"""A cluster of ACOS on served switches: controller, an agent for each host, and ranks that select.

A rank is a thread that asks the agent of its host over a Unix socket before each collective. What a
collective needs is judged by the light: ports are followed along the fibers of the file through the
circuits that the served switches hold while all members are in the collective.
"""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from lightrig.harness.bench import bind_only
from lightrig.harness.orchestration.agents import (
    AgentSwitches,
    HostAgent,
    ServerCarriers,
    switches_by_host,
)
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SwitchSessions
from lightrig.harness.systems.acos.runtime.rack_layout import RackLayout
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Testbed, load
from lightrig.testbeds.readdressing import readdressed
from tests.campaigns.orchestrations import present
from tests.campaigns.switchroom import beams

LOGIN = "LIGHTRIG_SERVED"
LIMIT_S = 1800.0
"""Hundreds of processes and threads share two processors: only what hangs is ended by a time."""
PATIENT = "timeouts: {connect: 600 s, reply: 600 s}"
PATIENT_SERVER = "timeouts: {connect: 600 s, banner: 600 s, login: 600 s, answer: 600 s}"
PROGRAM = "from lightrig.harness.cli import main; main()"

Rank = tuple[str, str]
"""Host and NIC of a GPU."""


class Cluster:
    """Served switches and servers, their controller in this process, and their agents.

    text: of the testbed. processes: whether each agent is a process of its own.
    """

    def __init__(self, root: Path, text: str, *, processes: bool = False) -> None:
        self.root, self._stack = root, contextlib.ExitStack()
        self._in_order: dict[frozenset[Rank], list[Rank]] = {}
        text = re.sub(r"\{(?=model: [\w-]+, address:)", f"{{{PATIENT}, ", text)
        text = re.sub(r"( +)gpus: \{count: .*\n", rf"\g<0>\1{PATIENT_SERVER}\n", text)
        (root / "acos.yaml").write_text(f"{text}  nic: {{bring_up: {{mean: 20 ms, sd: 1 ms}}}}\n")
        self.drawn = load(root / "acos.yaml")
        self._clock = SystemClock()
        self._stack.callback(self._clock.close)
        self.world = SimulatedLab(self.drawn, self._clock, 1)
        self._stack.callback(self.world.close)
        os.environ[LOGIN] = ":".join(self.world.login)
        self._stack.callback(os.environ.pop, LOGIN)
        services = self.world.services
        known, self.file = root / "known_hosts", root / "served.yaml"
        known.write_text("".join(f"{each.known_hosts}\n" for each in services.values()))
        self.file.write_text(
            readdressed(
                self.drawn.path,
                {name: each.address for name, each in services.items()},
                login=f"env:{LOGIN}",
                known_hosts=known,
                target=self.file,
            )
        )
        self.testbed = load(self.file)
        self.layout = RackLayout(self.testbed)
        self.hosts = switches_by_host(self.layout, self.testbed.optical_switches)
        (self._by_processes if processes else self._by_threads)()
        clients = {host: self._client(f"{host}.socket") for host in self.hosts}
        self._at_ranks = {host: self._client(f"{host}.ranks") for host in self.hosts}
        switches = AgentSwitches(self.hosts, clients, SwitchSessions(self.testbed))
        self.service = Orchestrator(self.testbed, self.layout, switches, root / "state.json")
        self._stack.callback(self.service.close)

    def close(self) -> None:
        self._stack.close()

    def until(self, condition: Callable[[Mapping[str, Any]], object]) -> Mapping[str, Any]:
        """Let the controller step until its status is as wanted, and return it."""
        ends = time.monotonic() + LIMIT_S
        while not condition(status := self.service.status()):
            assert time.monotonic() < ends, status
            self.service.step()
        return status

    def select(self, rank: Rank, topology: str, number: int = 0) -> httpx.Response:
        """Ask the agent of a rank's host for a topology."""
        wish = {"nic": rank[1], "topology": topology, "number": number}
        return self._at_ranks[rank[0]].post("/v1/select", json=wish)

    def train(
        self, program: Sequence[str], groups: Mapping[str, Collection[Sequence[Rank]]]
    ) -> list[str]:
        """Run collectives on the topologies of `program`; return what light was wrong.

        groups: members of each collective, by topology.
        """
        of = {topology: [frozenset(each) for each in found] for topology, found in groups.items()}
        self._in_order = {frozenset(each): [*each] for each in groups.get("PP", ())}
        ranks = sorted(frozenset().union(*(each for found in of.values() for each in found)))
        barriers = {each: threading.Barrier(len(each)) for found in of.values() for each in found}
        wrong: list[str] = []

        def run(rank: Rank) -> None:
            for number, topology in enumerate(program):
                group = next(each for each in of[topology] if rank in each)
                answer = self.select(rank, topology, number)
                if answer.is_error:
                    wrong.append(answer.text)
                    barriers[group].abort()
                    return
                barrier = barriers[group]
                with contextlib.suppress(threading.BrokenBarrierError):
                    if barrier.wait(LIMIT_S) == 0:  # all are at the collective: light joins them
                        wrong.extend(self.ring_problems(topology, group))
                    barrier.wait(LIMIT_S)

        with ThreadPoolExecutor(len(ranks)) as pool:
            for each in [pool.submit(run, rank) for rank in ranks]:
                each.result()
        return wrong

    def ring_problems(self, topology: str, group: Collection[Rank]) -> list[str]:
        """Return a problem where the light of members does not lead round all of them.

        A pipeline is a chain: its members are joined to the next one, both ways, in their order.
        """
        after: defaultdict[Rank, set[Rank]] = defaultdict(set)
        for source, sink in beams(self.drawn, present(self.world, self.drawn)):
            one, two = ((p.owner, p.name.partition(".")[0]) for p in (source, sink))
            if one in group:
                after[one].add(two)
        if topology == "PP":
            chain = [
                pair for at in pairwise(self._in_order[frozenset(group)]) for pair in (at, at[::-1])
            ]
            return [
                f"PP: {one} does not reach {two}" for one, two in chain if two not in after[one]
            ]
        seen, edge = set(), [min(group)]
        while edge:
            at = edge.pop()
            if at not in seen:
                seen.add(at)
                edge += after[at]
        degree = {min(2, len(group) - 1)}
        if seen == {*group} and {len(after[rank]) for rank in group} == degree:
            return []
        return [f"{topology} of {sorted(group)} is {dict(after)}"]

    def _client(self, name: str) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.root / name), verify=False)
        return self._stack.enter_context(
            httpx.Client(base_url="http://agent", transport=transport, timeout=LIMIT_S)
        )

    def _by_threads(self) -> None:
        from lightrig.harness.orchestration import http_api
        from lightrig.harness.orchestration.agent_api import agent_application, rank_application

        for host, names in self.hosts.items():
            sessions = SwitchSessions(self.testbed)
            agent = HostAgent(
                host,
                names,
                sessions,
                lambda host=host: carriers(self.testbed, host),
                link_timeout_s=LIMIT_S / 2,
            )
            self._stack.callback(agent.close)
            for kind, app in (
                ("socket", agent_application(agent)),
                ("ranks", rank_application(agent)),
            ):
                listening = http_api.unix_socket(self.root / f"{host}.{kind}")
                self._stack.callback(http_api.HttpServer(app, listening, None).close)

    def _by_processes(self) -> None:
        environment = {**os.environ, "LIGHTRIG_STATE": str(self.root / "state")}
        processes = [
            self._stack.enter_context(
                subprocess.Popen(
                    [
                        *(sys.executable, "-c", PROGRAM, "agent", "acos", self.file),
                        *("--host", host, "--socket", self.root / f"{host}.socket"),
                        *("--ranks", self.root / f"{host}.ranks"),
                        *("--link-timeout", str(LIMIT_S / 2)),
                    ],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for host in self.hosts
        ]
        for process in processes:  # all are asked to end before one is waited for
            self._stack.callback(process.terminate)
        for process in processes:
            assert process.stdout is not None
            assert "switches: socket" in process.stdout.readline()


def carriers(testbed: Testbed, host: str) -> ServerCarriers:
    """Watch the carriers of a host's ports."""
    ports = {each.netdev: str(each.port) for each in testbed.nic_ports if each.port.owner == host}
    bench = bind_only(testbed, {host}, "lightrig agent")
    return ServerCarriers(bench.servers[host], ports, bench.clock, bench.close)
