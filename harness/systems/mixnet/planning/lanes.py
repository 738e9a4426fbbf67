"""An exchange of servers on lanes: ways side by side, one for each of parallel NIC ports.

A kernel leads all packets for an address one way. So that parallel NICs share the traffic of two
servers, every server has an address for each lane, and every lane its own ports.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.jobs.planning.routes import LaneHop, LaneRoutes
from lightrig.harness.systems.mixnet.planning.demand import DemandError
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.routing import Hop, Routing, UnreachableError
from lightrig.instruments.jobs.flows.collectives import unequal_all_to_all
from lightrig.instruments.jobs.flows.of_testbed import explicit_route, fabric_links, network_of
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import FREE, Costs, duration
from lightrig.testbeds import Plan, Testbed

Shares: TypeAlias = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each lane the bytes, or rows, from each rank to each other."""


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
            if a != b and (hops := _hops(routing, a, b)):
                for lane, of_lane in enumerate(routes):
                    of_lane[source, sink] = _on(hops[0], lane)
    return routes


def lane_shares(
    routing: Routing, ranks: Sequence[str], traffic: npt.ArrayLike, lanes: int
) -> Shares:
    """The bytes of each lane, so that the parallel ports between two servers carry as much each.

    The bytes from one server to another are dealt to their lanes in turn, rank pair after rank
    pair. Those between ranks of one server, which no port carries, are on the first lane.

    ranks: the server of each. traffic: bytes from each rank to each other. Raises `DemandError`
    for another shape, `UnreachableError` where nothing leads from a server to another that it
    sends to.
    """
    wanted = np.array(traffic, dtype=np.int64)
    count = len(ranks)
    if wanted.shape != (count, count):
        raise DemandError(f"found traffic of shape {wanted.shape}, expected {count} x {count}")
    shares = np.zeros((lanes, count, count), dtype=np.int64)
    np.fill_diagonal(wanted, 0)
    ranks_of = {server: [n for n, on in enumerate(ranks) if on == server] for server in ranks}
    for source, sink in itertools.product(ranks_of, repeat=2):
        rows, columns = np.ix_(ranks_of[source], ranks_of[sink])
        sent = wanted[rows, columns]
        if sent.any():
            hops = routing.route(*(routing.region.number_of[end] for end in (source, sink)))
            used = min(lanes, max((len(hop.ports) for hop in hops), default=1))
            marks = np.cumsum([0, *sent.flat]) + np.arange(used)[:, np.newaxis]
            shares[:used, rows, columns] = np.diff(marks // used).reshape(used, *sent.shape)
    return tuple(tuple(tuple(row) for row in lane) for lane in shares.tolist())


def exchange_time(
    testbed: Testbed,
    plan: Plan,
    routing: Routing,
    ranks: Sequence[str],
    shares: Shares,
    costs: Costs = FREE,
) -> float:
    """Return the duration of the exchange on the links of `plan`, by the model of flows, in ns.

    ranks: their servers, one on each.
    Lanes are flows of their own, which share ports max-min fairly. Raises `UnreachableError`.
    """
    up = fabric_links(testbed, plan)
    router = Router(network_of(testbed, up, forwarding=True))
    number_of = routing.region.number_of
    for source in ranks:
        for sink in ranks:
            if source != sink and any(_sent(shares, ranks, source, sink)):
                hops = routing.route(number_of[source], number_of[sink])
                for lane in range(len(shares)):
                    vertices = explicit_route([_on(hop, lane) for hop in hops], up)
                    router.state(*vertices, lane=lane)
    return duration(router, unequal_all_to_all(ranks, shares), costs)


def _sent(shares: Shares, ranks: Sequence[str], source: str, sink: str) -> list[int]:
    return [lane[ranks.index(source)][ranks.index(sink)] for lane in shares]


def _hops(routing: Routing, source: int, sink: int) -> tuple[Hop, ...]:
    try:
        return routing.route(source, sink)
    except UnreachableError:
        return ()


def _on(hop: Hop, lane: int) -> LaneHop:
    return LaneHop(*hop.ports[lane % len(hop.ports)])
