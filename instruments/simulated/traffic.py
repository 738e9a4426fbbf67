"""What the simulated fabric carries now: times of transfers and collectives by the flow model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from instruments.clock import Clock
from instruments.simulated.links import NicLinks
from instruments.simulated.listeners import Listeners
from instruments.simulated.randomness import Chance
from testbeds import Distribution, Link, Port, Testbed
from testbeds.flows import (
    INSIDE,
    Collective,
    Costs,
    Flow,
    Router,
    Step,
    duration,
    network_of,
    rank_vertices,
    schedule_of,
)


@dataclass(frozen=True, slots=True)
class Overheads:
    """What a library adds to the time of the wire; all of it guesses.

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
MPI = Overheads(launch_ns=1_500, step_ns=1_500, efficiency=0.90, spread=0.02)
VERBS = Overheads(launch_ns=400, step_ns=0, efficiency=0.96, spread=0.02)
TCP = Overheads(launch_ns=0, step_ns=20_000, efficiency=0.941, spread=0.01)


class FabricTraffic:
    """The links that are up in a simulated world, and what they carry.

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
        """The server that a host name means: its own, or that of its address."""
        return self._servers.get(host)

    def up(self) -> frozenset[Link]:
        """The links that traffic passes now, both ways."""
        return frozenset(
            Link(spec.port, partner)
            for spec in self.testbed.nic_ports
            if (partner := self._partner(spec.port)) is not None
            and self._partner(partner) == spec.port
        )

    def router(self) -> Router:
        """Ways through what is up now; servers forward nothing."""
        up = self.up()
        if self._known is None or self._known[0] != up:
            self._known = up, Router(network_of(self.testbed, up))
        return self._known[1]

    def collective_times(
        self, collective: Collective, ranks: Sequence[str], size: float, count: int
    ) -> list[int]:
        """How long each of `count` operations takes with NCCL, in ns, among servers in ring order.

        Raises `NoRouteError` where a link is missing, `RanksError` where a server lacks a GPU.
        """
        vertices = rank_vertices(self.testbed, ranks)
        # A rank alone has nobody to send to.
        steps = schedule_of(collective, vertices, size) if len(vertices) > 1 else []
        return self.times(steps, NCCL, count)

    def times(self, schedule: Sequence[Step], adds: Overheads, count: int) -> list[int]:
        """How long each of `count` runs of `schedule` takes, in ns; raises `NoRouteError`."""
        costs = Costs(adds.step_ns, adds.efficiency)
        mean = adds.launch_ns + duration(self.router(), schedule, costs)
        spread = Distribution(max(round(mean), 1), max(round(mean * adds.spread), 1))
        return [max(self._draws.duration(spread), 1) for _ in range(count)]

    def wire_ns(self, source: Port, sink: Port, size: float, adds: Overheads) -> float:
        """What `size` bytes need from memory to memory, out by `source` and in by `sink`.

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
        """The NIC port of a server that a network or RDMA device's name means."""
        for nic in self.testbed.servers[server].nics.values():
            for spec in nic.ports:
                if device in (spec.netdev, spec.rdma):
                    return spec.port
        return None

    def _partner(self, port: Port) -> Port | None:
        timeline = self._links.timeline(port)
        return timeline.partner if timeline.is_up("datagram", self.clock.now()) else None
