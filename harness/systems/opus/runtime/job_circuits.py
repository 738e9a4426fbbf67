"""The circuits of a job on a fabric, and the ways of its packets over them."""

from collections.abc import Callable, Collection, Mapping, Sequence

from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.jobs.planning.routes import Hop, Routes, shortest_routes
from lightrig.harness.measure.light import NO_LIGHT_DBM
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.run_events import ChangeStamps
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, Topology, TopologyId
from lightrig.harness.systems.opus.runtime.carriers import BACK, Carriers, CarriersDownError
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.testbeds import Circuit, Plan

SLOW_LINKS = 100_000_000
"""Time from acknowledgement to carrier, in ns, from which on monitors are read for the light."""

_READINGS = 100

_NEVER = 1 << 62


class JobCircuits:
    """The circuits of all rails of a job, and the ways of its ranks' packets, kept in step.

    Args:
        rails: which switch each rail is on, and its wiring.
        fabric: brings its switches to plans.
        job: whose ranks they are.
        overlay: leads packets.
        carriers: tells when links are back.

    Attributes:
        carrier: returns the rail that carries each rank's traffic; each rank's own by default.
        took: what the last change of all rails took until its links were back, in ns; None before
            one has moved a circuit.
    """

    def __init__(
        self, rails: FabricRails, fabric: Fabric, job: RailJob, overlay: Overlay, carriers: Carriers
    ) -> None:
        self._on_fabric, self._fabric, self._job = rails, fabric, job
        self._overlay, self._carriers = overlay, carriers
        self._routes: list[Routes] = []
        self._slow = False
        self.took: int | None = None
        self.carrier: Callable[[], Sequence[int]] = lambda: self._job.rail_of

    def plan(self, topology: Topology) -> Plan:
        """Return the plan in which all rails have `topology`."""
        return self._on_fabric.plan([topology] * self._job.rails)

    def move(self, plan: Plan) -> None:
        """Bring the switches to `plan`, and wait for the links that are new."""
        began = self._fabric.bench.clock.now()
        transition = self._fabric.prepare(plan)
        made = {name: change.add for name, change in transition.changes.items()}
        transition.begin()
        transition.acknowledged()
        transition.verify()
        self._await_links(Plan("made", made), began)

    def ring(self) -> None:
        """Bring all rails to the giant ring, and lead all packets over it."""
        self._set(GIANT_RING)
        self._routes = [self._rail_routes(rail, GIANT_RING) for rail in self._carrying()]
        self._overlay.follow(*self._routes)

    def reform(self) -> None:
        """Bring all rails to the giant ring after a failure, with a carrier at each of its ports.

        Raises `LinksDownError` where one stays dark, and as `Fabric.apply` does.
        """
        self._carriers.abandoned = False
        self.ring()
        links = self._fabric.links(self.plan(GIANT_RING))
        ports = {port for link in links for port in (link.a, link.b)}
        await_carriers(self._fabric.bench, self._carriers.dark, ports, BACK)

    def take(self, topology: Topology) -> Mapping[str, frozenset[Circuit]]:
        """Leave the giant ring for `topology`; return what the switches hold then."""
        self._set(topology)
        self._routes = [self._hops_by_server(rail) for rail in self._carrying()]
        self._overlay.follow(*self._routes)
        return self._on_fabric.circuits()

    def apply(self, rewires: Sequence[Rewire]) -> ChangeStamps:
        """Rewire rails of one switch, and wait for their links; return when that happened.

        Raises `CarriersDownError`, also once the job has failed, and as `Fabric.apply` does.
        """
        if self._carriers.abandoned:
            raise CarriersDownError("no circuits are changed: the job has failed")
        clock = self._fabric.bench.clock
        began = clock.now()
        applied = self._on_fabric.apply(rewires)
        made: frozenset[Circuit] = frozenset()
        for rewire in rewires:
            switch = self._on_fabric.switches[rewire.rail]
            made |= rewire.add
            ring = self._on_fabric.wirings[rewire.rail].giant_ring
            if ring <= self._on_fabric.circuits()[switch]:
                self._follow_ring(rewire.rail)
        acknowledged = applied.acknowledged.latest
        lit = self._light(switch, {circuit.egress for circuit in made}, acknowledged)
        up = self._await_links(Plan("made", {switch: made}), began)
        # A port that was never seen without carrier tells nothing of its light.
        carriers = max(acknowledged, acknowledged if up is None else up)
        self._slow = carriers - acknowledged > SLOW_LINKS
        lit = Span(min(lit.earliest, carriers), min(lit.latest, carriers))
        return ChangeStamps(applied.sent.earliest, acknowledged, lit, carriers)

    def _carrying(self) -> list[int]:
        """Return the rail that carries each rail's traffic at first."""
        return [self._on_fabric.carrying(rail) for rail in range(self._job.rails)]

    def _set(self, topology: Topology) -> None:
        began = self._fabric.bench.clock.now()
        made = self._on_fabric.make(topology)
        self._await_links(Plan("made", made), began)
        if any(made.values()):
            self.took = self._fabric.bench.clock.now() - began

    def _light(self, switch: str, egresses: Collection[int], acknowledged: int) -> Span:
        """Return between which moments all egresses have light, as far as monitors tell.

        They are read where the links of the change before came up slowly: a reading takes time,
        and fast links tell as much. Without them, and where a service has the switch, it is only
        known that a carrier needs light.
        """
        dark, switches = acknowledged, self._fabric.bench.switches
        if not (self._slow and egresses and switch in switches):
            return Span(dark, _NEVER)
        monitor = switches[switch]
        if isinstance(monitor, PowerMonitor):
            latency = self._fabric.testbed.switches[switch].monitor_latency_ns
            for _ in range(_READINGS):
                reading = monitor.power(sorted(egresses))
                if min(reading.dbm.values()) > NO_LIGHT_DBM:
                    return Span(dark, max(dark, reading.answered))
                dark = max(dark, reading.asked - reading.window - latency)
                self._fabric.bench.clock.sleep(reading.window)
        return Span(dark, _NEVER)

    def _await_links(self, made: Plan, began: int) -> int | None:
        links = self._fabric.links(made)
        ports = {port for link in links for port in (link.a, link.b)}
        return self._carriers.await_back(ports, began)

    def _follow_ring(self, rail: int) -> None:
        """Lead the traffic of all ranks that `rail` carries over its giant ring."""
        ring = self._rail_routes(rail, GIANT_RING)
        for rank, carrier in enumerate(self.carrier()):
            if carrier == rail:
                self._routes[self._job.rail_of[rank]] = ring
        self._overlay.follow(*self._routes)

    def _rail_routes(self, rail: int, topology: Topology) -> Routes:
        """Return the shortest ways over the circuits of one rail."""
        switch, wiring = self._on_fabric.switches[rail], self._on_fabric.wirings[rail]
        plan = Plan(f"rail {rail}, {topology}", {switch: wiring.circuits(topology)})
        return shortest_routes(list(self._overlay.servers), self._fabric.links(plan))

    def _hops_by_server(self, rail: int) -> dict[str, dict[str, Hop]]:
        """The ways of all topologies at once: no two lead to the same neighbour by other ports."""
        dimensions = {group.dimension for group in self._job.groups.values()}
        servers = list(self._overlay.servers)
        hops_by_server: dict[str, dict[str, Hop]] = {server: {} for server in servers}
        for dimension in sorted(dimensions):
            topology = TopologyId.uniform(self._job.stages, dimension)
            for source, hops in self._rail_routes(rail, topology).items():
                hops_by_server[source] |= hops
        return hops_by_server
