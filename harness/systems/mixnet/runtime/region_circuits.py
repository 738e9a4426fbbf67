"""The circuits of a region on a fabric, and the way of its packets over them."""

import threading
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.bench.lanes import Lanes
from lightrig.harness.jobs.bench.port_traffic import (
    PortTraffic,
    port_traffic,
    segments_sent_again,
)
from lightrig.harness.jobs.planning.routes import LaneRoutes
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.systems.mixnet.planning.cross_connects import cross_connects, plan_region
from lightrig.harness.systems.mixnet.planning.demand import Matrix, server_traffic
from lightrig.harness.systems.mixnet.planning.expert_regions import ExpertRegion
from lightrig.harness.systems.mixnet.planning.lanes import (
    exchange_time,
    lane_routes,
    lane_shares,
    routing_in,
)
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime.exchanges import TCP
from lightrig.harness.systems.mixnet.runtime.served_regions import ServedRegions
from lightrig.harness.systems.mixnet.runtime.trained import NewCircuits
from lightrig.testbeds import Circuit, Plan, Port


class RegionSwitches:
    """The switches of a fabric, whose circuits several regions change side by side.

    A region changes its own circuits alone; those of one switch take turns.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._circuits: dict[tuple[str, int], frozenset[Circuit]] = {}

    def bring(self, region: int, plan: Plan) -> int:
        """Bring the circuits of a region to a plan; return how many were made.

        Raises as `Fabric.apply` does.
        """
        moved = 0
        for switch, circuits in sorted(plan.circuits.items()):
            with self._turns[switch]:
                self._circuits[switch, region] = circuits
                on = [each for (name, _), each in self._circuits.items() if name == switch]
                whole = frozenset[Circuit]().union(*on)
                transition = self._fabric.prepare(Plan(plan.name, {switch: whole}))
                transition.apply()
                moved += transition.moved
        return moved


class RegionCircuits:
    """The circuits of one region.

    Args:
        fabric: with its switch, or of a service whose controller plans and moves its circuits.
        switches: of the fabric.
        lanes: of all servers; the first `width` follow circuits, the others are of packets alone.
        whole: all servers.
        number: of the region, in its job.
        region: its servers and ranks.
    """

    def __init__(
        self,
        fabric: Fabric,
        switches: RegionSwitches,
        lanes: Lanes,
        width: int,
        whole: Region,
        number: int,
        region: ExpertRegion,
    ) -> None:
        self._fabric, self._switches, self._lanes = fabric, switches, lanes
        self._testbed, self._width, self._number = fabric.testbed, width, number
        self.clock = fabric.bench.clock
        self._names = [whole.servers[server].name for server in region.servers]
        self._whole, self._servers = whole, whole.of_servers(self._names)
        self.region, self.placement = region, region.placement
        self._demand: Matrix = np.triu(np.ones((len(self._names),) * 2), 1)

    def first_plan(self) -> Plan:
        """Return circuits for a demand that is the same between all servers."""
        return self.plan_for(self._demand, "before the first gate", None)

    def plan_for(self, demand: npt.ArrayLike, name: str, present: Plan | None) -> Plan:
        """Plan circuits for a demand of server pairs, keeping those of `present` that fit."""
        self._demand = np.asarray(demand, dtype=float)
        if isinstance(self._fabric, ServedRegions):
            links = self._fabric.planned(self._number, self._names, self._demand)
        else:
            current = () if present is None else self._testbed.links(present)
            links = plan_region(self._servers, self._demand, current)
        whole = cross_connects(self._testbed, links, name)
        on = self.region.switch
        return Plan(name, {on: whole.circuits[on]})

    def bring_in(self, plan: Plan, present: Plan | None) -> NewCircuits:
        """Change from the circuits of `present` to those of `plan`.

        First packets leave the circuits that are to move.
        """
        now = self.clock.now
        if present is not None:
            unmoved = {name: each & plan.circuits[name] for name, each in present.circuits.items()}
            self._route(self._routing(Plan(f"{present.name} and {plan.name}", unmoved)))
        left = now()
        if isinstance(self._fabric, ServedRegions):
            self._fabric.set(self._number, self._names, self._demand)
            before = {} if present is None else present.circuits
            moved = sum(
                len(each - before.get(name, frozenset())) for name, each in plan.circuits.items()
            )
        else:
            moved = self._switches.bring(self._number, plan)
        switched = now()
        routing = self._routing(plan)
        used = {port for link in routing.links for port in (link.a, link.b)}
        used |= {port for server in routing.region.servers for port in server.packet}
        await_carriers(self._fabric.bench, self._lanes.dark, used)
        lit = now()
        self._route(routing)
        return NewCircuits(routing, moved, left, switched, lit, now())

    def traffic(self) -> tuple[dict[Port, PortTraffic], dict[str, int]]:
        """Return what kernels have counted at NIC ports, and segments that each has sent again.

        Raises `InstrumentError`.
        """
        servers = {name: self._lanes.servers[name] for name in self._names}
        counted = port_traffic(self._testbed, servers, self.clock)
        return counted, segments_sent_again(servers, self.clock)

    def shares(self, routing: Routing, rows: Matrix) -> tuple[Matrix, float]:
        """Return each lane's rows, lanes x ranks x ranks, and the share of them on circuits.

        The share is of those between servers.
        """
        servers = [self._names[number] for number in self.placement.server_of]
        lanes = np.array(lane_shares(routing, servers, rows, self._width))
        between = server_traffic(rows, self.placement)
        optical = sum(
            between[a, b]
            for a, b in np.argwhere(between > 0).tolist()
            if all(hop.medium == "optical" for hop in routing.route(a, b))
        )
        return lanes, float(optical / max(between.sum(), 1))

    def predicted(self, plan: Plan, routing: Routing, lanes: Matrix, size: int) -> float:
        """Return the duration of an all-to-all by the model of flows, in ns."""
        between = [server_traffic(lane * size, self.placement) for lane in lanes]
        shares = tuple(tuple(map(tuple, lane.astype(int).tolist())) for lane in between)
        return exchange_time(self._testbed, plan, routing, self._names, shares, TCP)

    def _routing(self, plan: Plan) -> Routing:
        return routing_in(self._testbed, plan, self._servers)

    def _route(self, routing: Routing) -> None:
        packets = packet_lanes(self._whole, self._lanes.count - self._width, self._names)
        self._lanes.route([*lane_routes(routing, self._width), *packets])


def packet_lanes(whole: Region, count: int, sources: Sequence[str]) -> LaneRoutes:
    """Return the ways of `count` lanes over packets alone, from some servers to all."""
    packets = lane_routes(Routing(whole, ()), count)
    return [{ends: hop for ends, hop in lane.items() if ends[0] in sources} for lane in packets]
