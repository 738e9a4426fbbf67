"""Traffic of a simulated fabric: times of transfers and collectives by the flow model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.flows.collectives import schedule_of
from lightrig.instruments.jobs.flows.of_testbed import INSIDE, network_of, rank_vertices
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Costs, Flow, Step, duration
from lightrig.instruments.simulated.protocols.ssh_server import PendingOutcome, ProgramOutcome
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.simulated.world.world import World
from lightrig.testbeds import Delay, Link, Port, Testbed


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time that a library adds to that of the wire; all values are guesses.

    Attributes:
        launch_ns: what an operation takes before its first step.
        step_ns: what each step takes before its first bit leaves.
        efficiency: the share of a link's rate, and of a memory's, that is left for data.
        spread: one standard deviation of an operation's time, as a share of it.
    """

    launch_ns: int
    step_ns: int
    efficiency: float
    spread: float


NCCL = Overheads(launch_ns=12_000, step_ns=3_000, efficiency=0.93, spread=0.01)
VERBS = Overheads(launch_ns=400, step_ns=0, efficiency=0.96, spread=0.02)

_CONNECT_NS = 30_000_000
"""Time from the start of a client to its first packet, in ns."""


_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))


@dataclass(frozen=True, slots=True)
class Listener:
    """A server program that waits for its client.

    Attributes:
        argv: program with its arguments.
        pending: ends the program.
    """

    argv: tuple[str, ...]
    pending: PendingOutcome


class Listeners:
    """Server programs that wait for a client, by server and TCP port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listening: dict[tuple[str, int], Listener] = {}

    def listen(self, server: str, port: int, argv: tuple[str, ...], in_use: str) -> ProgramOutcome:
        """Wait for a client; where the port is taken, end at once with the message `in_use`."""
        if (server, port) in self._listening:
            return ProgramOutcome("", in_use, 1)
        pending = PendingOutcome()
        self._listening[server, port] = Listener(argv, pending)
        return ProgramOutcome("", pending=pending)

    def servers(self, port: int) -> list[str]:
        """Return the servers on which a program waits at a TCP port, the latest last."""
        return [server for server, at in self._listening if at == port]

    def connect(
        self,
        client: str,
        server: str | None,
        port: int,
        program: str,
        transfer: Callable[[Listener | None], tuple[ProgramOutcome, ProgramOutcome]],
    ) -> ProgramOutcome:
        """Connect a program of `client` to the listener at `server`, shortly after its start.

        `transfer` returns the outcomes of client and server; it gets None where no listener of
        that program is.
        """
        pending = PendingOutcome()
        place = server or "", port

        def connect() -> None:
            listener = self._listening.get(place)
            if listener is not None and listener.argv[0].rpartition("/")[2] != program:
                listener = None
            client_outcome, server_outcome = transfer(listener)
            if listener is not None:
                del self._listening[place]
                listener.pending.end(server_outcome)
            pending.end(client_outcome)

        self._clock.schedule(self._clock.now() + _CONNECT_NS, client, connect)
        return ProgramOutcome("", pending=pending)


class FabricTraffic:
    """The links that are up in a simulated world, and the times of transfers over them.

    Attributes:
        listeners: programs that wait for a client.
        wrong_values: how many values of each operation come out wrong, for a broken fabric.
    """

    def __init__(self, testbed: Testbed, links: NicLinks, clock: Clock, chance: Chance) -> None:
        self.testbed = testbed
        self.clock = clock
        self.chance = chance
        self.wrong_values = 0
        self.listeners = Listeners(clock)
        self._links = links
        self._known: tuple[frozenset[Link], Router] | None = None
        self._draws = chance.stream("traffic")
        self._servers = {
            alias: spec.name
            for spec in testbed.servers.values()
            for alias in (spec.name, urlsplit(spec.address).hostname or spec.name)
        }

    def server(self, host: str) -> str | None:
        """Return the server of a host name: its name, or that of its address."""
        return self._servers.get(host)

    def server_of_listener(self, client: str, host: str, port: int) -> str | None:
        """Return the server that a program of `client` reaches at a host name and TCP port.

        `lightrig serve` has all servers at one address of loopback; there it is the one that
        began to listen last, another than the client where any does.
        """
        if host not in _LOOPBACK:
            return self.server(host)
        there = self.listeners.servers(port)
        return next((one for one in reversed(there) if one != client), next(iter(there), None))

    def up(self) -> frozenset[Link]:
        """Return the links that pass traffic now, in both directions."""
        return frozenset(
            Link(spec.port, partner)
            for spec in self.testbed.nic_ports
            if (partner := self._partner(spec.port)) is not None
            and self._partner(partner) == spec.port
        )

    def router(self) -> Router:
        """Return the router of the links that are up now; servers do not forward."""
        up = self.up()
        if self._known is None or self._known[0] != up:
            self._known = up, Router(network_of(self.testbed, up))
        return self._known[1]

    def collective_times(
        self, collective: Collective, ranks: Sequence[str], size: float, count: int
    ) -> list[int]:
        """Return the times of `count` operations of NCCL among servers in ring order, in ns.

        Raises `NoRouteError` where a link is missing, `RanksError` where a server lacks a GPU.
        """
        vertices = rank_vertices(self.testbed, ranks)
        # A rank alone has nobody to send to.
        steps = schedule_of(collective, vertices, size) if len(vertices) > 1 else []
        return self.times(steps, NCCL, count)

    def times(self, schedule: Sequence[Step], adds: Overheads, count: int) -> list[int]:
        """Return the times of `count` runs of `schedule`, in ns; raise `NoRouteError`."""
        costs = Costs(adds.step_ns, adds.efficiency)
        mean = adds.launch_ns + duration(self.router(), schedule, costs)
        spread = Delay(max(round(mean), 1), max(round(mean * adds.spread), 1))
        return [max(self._draws.duration(spread), 1) for _ in range(count)]

    def wire_ns(self, source: Port, sink: Port, size: float, adds: Overheads) -> float:
        """Return the time of `size` bytes from memory to memory, from `source` to `sink`, in ns.

        Raises `NoRouteError` where the two are not joined.
        """
        step = Step((Flow(str(source), str(sink), size),))
        costs = Costs(adds.step_ns + 2 * INSIDE.nic_latency_ns, adds.efficiency)
        return adds.launch_ns + duration(self.router(), [step], costs)

    def deviates(self, spread: float, count: int) -> list[float]:
        """Factors around 1 for the times of `count` operations; none is below 1 - `spread`."""
        return [
            1 + spread * max(math.expm1(0.5 * deviate), -1.0)
            for deviate in self._draws.normals(count).tolist()
        ]

    def port(self, server: str, device: str) -> Port | None:
        """Return the NIC port of a server's network or RDMA device."""
        for nic in self.testbed.servers[server].nics.values():
            for spec in nic.ports:
                if device in (spec.netdev, spec.rdma):
                    return spec.port
        return None

    def _partner(self, port: Port) -> Port | None:
        timeline = self._links.timeline(port)
        return timeline.partner if timeline.is_up("datagram", self.clock.now()) else None


_traffic: WeakKeyDictionary[World, FabricTraffic] = WeakKeyDictionary()


def traffic_of(world: World) -> FabricTraffic:
    """Return the traffic of a world, one and the same for all its servers."""
    if world not in _traffic:
        _traffic[world] = FabricTraffic(world.testbed, world.links, world.clock, world.chance)
    return _traffic[world]
