"""Traffic of the nodes of one row, split over their rails: lane a carries what goes over rail a.

A kernel leads all packets for one address over one port. So that a node can use all its rails at
once, it has an address for each, and the traffic of two nodes is divided among those rails that
join them over the fewest links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lightrig.harness.jobs.planning.routes import LaneHop, LaneRoutes
from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.testbeds import Link, Port

Shares: TypeAlias = tuple[tuple[tuple[int, ...], ...], ...]
"""Of each lane the bytes from each node to each other."""

PLUS = "p0"
"""Name of the plus port of a rail, whose NIC has the rail's name; see the generator."""


def rail_of(port: Port) -> str:
    """Return the rail of a node's port, such as x3."""
    return port.name.partition(".")[0]


@dataclass(frozen=True)
class RailLanes:
    """The rails of `nodes` as lanes, each with the links that a plan closes on it."""

    nodes: tuple[str, ...]
    rails: tuple[str, ...]
    links: tuple[Link, ...]

    @classmethod
    def of(cls, nodes: Sequence[str], links: Iterable[Link]) -> RailLanes:
        """Sort `links` by rail. Raises `RailxError` where a link joins two rails."""
        found = tuple(sorted(links))
        for link in found:
            if rail_of(link.a) != rail_of(link.b):
                raise RailxError(f"{link} joins two rails, a circuit switch has one")
        return cls(tuple(nodes), tuple(sorted({rail_of(link.a) for link in found})), found)

    def routes(self) -> LaneRoutes:
        """Return for each lane the first hops over the fewest links of its rail."""
        import networkx as nx  # loads slowly, and few commands need it

        routes = []
        for rail in self.rails:
            graph = nx.Graph()
            hops: dict[tuple[str, str], LaneHop] = {}
            for link in self.links:
                if rail_of(link.a) == rail:
                    graph.add_edge(link.a.owner, link.b.owner)
                    for a, b in ((link.a, link.b), (link.b, link.a)):
                        # Of two links of a pair on one rail, the plus port's is taken.
                        if (a.owner, b.owner) not in hops or a.name.endswith(PLUS):
                            hops[a.owner, b.owner] = LaneHop(a, b)
            first = {
                (source, sink): hops[source, path[1]]
                for source, paths in nx.all_pairs_shortest_path(graph)
                for sink, path in paths.items()
                if sink != source
            }
            routes.append(first)
        return routes

    def all_to_all(self, size: int) -> Shares:
        """Return `size` bytes from each node to each other, on the rails that are nearest.

        Raises `RailxError` where no rail leads from one node to another.
        """
        routes = self.routes()
        shares = [[[0] * len(self.nodes) for _ in self.nodes] for _ in self.rails]
        for i, source in enumerate(self.nodes):
            for j, sink in enumerate(self.nodes):
                if source == sink:
                    continue
                away = {
                    lane: len(_path(hops, source, sink))
                    for lane, hops in enumerate(routes)
                    if (source, sink) in hops
                }
                if not away:
                    raise RailxError(f"no rail leads from {source} to {sink}")
                near = [lane for lane, hop in away.items() if hop == min(away.values())]
                for place, lane in enumerate(near):
                    begin, end = (size * n // len(near) for n in (place, place + 1))
                    shares[lane][i][j] = end - begin
        return tuple(tuple(map(tuple, lane)) for lane in shares)

    def rings(self, size: int, *, plus_only: bool = False) -> Shares:
        """Return `size` bytes from each node to both its neighbours on the ring of each rail.

        That is the traffic of bidirectional ring collectives, one on each rail, without their
        steps: a node sends to neighbours only. plus_only: plus ports send, as in directed rings.
        """
        number = {name: place for place, name in enumerate(self.nodes)}
        shares = [[[0] * len(self.nodes) for _ in self.nodes] for _ in self.rails]
        for link in self.links:
            lane = shares[self.rails.index(rail_of(link.a))]
            a, b = number[link.a.owner], number[link.b.owner]
            if not plus_only or link.a.name.endswith(PLUS):
                lane[a][b] += size
            if not plus_only or link.b.name.endswith(PLUS):
                lane[b][a] += size
        return tuple(tuple(map(tuple, lane)) for lane in shares)

    def port_loads(self, shares: Shares) -> Counter[Port]:
        """Return the bytes that each port sends, forwarded ones included."""
        loads: Counter[Port] = Counter()
        for hops, lane in zip(self.routes(), shares, strict=True):
            for i, source in enumerate(self.nodes):
                for j, sink in enumerate(self.nodes):
                    if lane[i][j]:
                        for hop in _path(hops, source, sink):
                            loads[hop.port] += lane[i][j]
        return loads

    def bound(self, shares: Shares) -> float:
        """Return the greatest share of its line rate at which a node can send `shares`.

        All ports of a node are counted; 1 where no port carries more than any other. It is what
        the busiest port allows, since all ports have one rate.
        """
        loads = self.port_loads(shares)
        injected = max(
            sum(lane[i][j] for lane in shares for j in range(len(self.nodes)))
            for i in range(len(self.nodes))
        )
        return injected / (2 * len(self.rails) * max(loads.values()))


def _path(hops: Mapping[tuple[str, str], LaneHop], source: str, sink: str) -> list[LaneHop]:
    path = []
    while source != sink:
        path.append(hops[source, sink])
        source = path[-1].towards.owner
    return path
