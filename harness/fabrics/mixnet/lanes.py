"""An exchange of servers on lanes: ways side by side, one for each of parallel NIC ports.

A kernel leads all packets for an address one way. So that parallel NICs share the traffic of two
servers, every server has an address for each lane, and every lane its own ports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.fabrics.mixnet.demand import DemandError
from harness.fabrics.mixnet.region import Region
from harness.fabrics.mixnet.routing import Hop, Routing, UnreachableError
from testbeds import Plan, Port, Testbed
from testbeds.flows import (
    FREE,
    Costs,
    Router,
    duration,
    fabric_links,
    network_of,
    stated_way,
    unequal_all_to_all,
)


class LaneHop(NamedTuple):
    """Where packets leave a server, and the port that hears them, behind the packet switch too."""

    port: Port
    towards: Port


LaneRoutes: TypeAlias = Sequence[Mapping[tuple[str, str], LaneHop]]
"""Of each lane the first hop from each server to each other that it can reach."""

Shares: TypeAlias = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each lane the bytes from each server to each other."""


def routing_in(testbed: Testbed, plan: Plan, region: Region) -> Routing:
    """The ways that `plan` leaves a region: circuits, and the packet NICs that it leads there.

    A plan may put NICs of the circuit switch on the packet switch. What `region` has no more,
    since it failed, is used in neither way.
    """
    left = {port for server in region.servers for port in server.packet}
    left |= {nic.port for server in region.servers for nic in server.optical}
    packet = testbed.switches.keys() - testbed.optical_switches.keys()
    ends = [(link.a, link.b) for link in fabric_links(testbed, plan)]
    wired = {a for a, b in (*ends, *((b, a) for a, b in ends)) if a in left and b.owner in packet}
    servers = (
        replace(server, packet=tuple(port for port in server.ports if port in wired))
        for server in region.servers
    )
    links = (link for link in testbed.links(plan) if {link.a, link.b} <= left)
    return Routing(Region(tuple(servers), region.failures), tuple(links))


def lane_routes(routing: Routing, lanes: int) -> LaneRoutes:
    """The first hop from each server to each other, on each lane; parallel ports take turns.

    Where a hop has fewer ports than there are lanes, several lanes go by one. Of servers that
    cannot reach each other there is nothing.
    """
    names = [server.name for server in routing.region.servers]
    routes: list[dict[tuple[str, str], LaneHop]] = [{} for _ in range(lanes)]
    for a, source in enumerate(names):
        for b, sink in enumerate(names):
            if a != b and (way := _way(routing, a, b)):
                for lane, hops in enumerate(routes):
                    hops[source, sink] = _on(way[0], lane)
    return routes


def lane_shares(
    routing: Routing, ranks: Sequence[str], traffic: npt.ArrayLike, lanes: int
) -> Shares:
    """The bytes of each lane, so that the parallel ports between two servers carry as much each.

    traffic: bytes from each of `ranks`, one a server, to each other. Raises `DemandError` for
    another shape, `UnreachableError` where nothing leads from one to another that it sends to.
    """
    wanted = np.asarray(traffic, dtype=np.int64)
    count = len(ranks)
    if wanted.shape != (count, count):
        raise DemandError(f"found traffic of shape {wanted.shape}, expected {count} x {count}")
    shares = np.zeros((lanes, count, count), dtype=np.int64)
    for i, j in np.argwhere(wanted > 0).tolist():
        if i != j:
            way = routing.route(*(routing.region.number_of[ranks[n]] for n in (i, j)))
            used = min(lanes, max(len(hop.ports) for hop in way))
            marks = wanted[i, j] * np.arange(used + 1) // used
            shares[:used, i, j] = np.diff(marks)
    return tuple(tuple(tuple(row) for row in lane) for lane in shares.tolist())


def exchange_time(
    testbed: Testbed,
    plan: Plan,
    routing: Routing,
    ranks: Sequence[str],
    shares: Shares,
    costs: Costs = FREE,
) -> float:
    """How long the exchange lasts on the links of `plan`, by the model of flows, in ns.

    Lanes are flows of their own, which share ports max-min fairly. Raises `UnreachableError`.
    """
    up = fabric_links(testbed, plan)
    router = Router(network_of(testbed, up, forwarding=True))
    number_of = routing.region.number_of
    for source in ranks:
        for sink in ranks:
            if source != sink and any(_sent(shares, ranks, source, sink)):
                way = routing.route(number_of[source], number_of[sink])
                for lane in range(len(shares)):
                    vertices = stated_way([_on(hop, lane) for hop in way], up)
                    router.state(*vertices, lane=lane)
    return duration(router, unequal_all_to_all(ranks, shares), costs)


def _sent(shares: Shares, ranks: Sequence[str], source: str, sink: str) -> list[int]:
    return [lane[ranks.index(source)][ranks.index(sink)] for lane in shares]


def _way(routing: Routing, source: int, sink: int) -> tuple[Hop, ...]:
    try:
        return routing.route(source, sink)
    except UnreachableError:
        return ()


def _on(hop: Hop, lane: int) -> LaneHop:
    return LaneHop(*hop.ports[lane % len(hop.ports)])
