"""Ways for packets through a fabric whose servers forward for each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

from lightrig.testbeds import Link, Port


class Hop(NamedTuple):
    """The port through which packets leave a server, and the server at its other end."""

    port: Port
    towards: str


Routes: TypeAlias = Mapping[str, Mapping[str, Hop]]
"""Of each server, the first hop to every other that it can reach."""


class LaneHop(NamedTuple):
    """The port by which packets leave a server, and the port that receives them."""

    port: Port
    towards: Port


LaneRoutes: TypeAlias = Sequence[Mapping[tuple[str, str], LaneHop]]
"""Of each lane the first hop from each server to each other that it can reach."""


MOST_MOVES_BY_TWO = 100
"""Up to how many other choices two of them are tried at once."""


def shortest_routes(servers: Sequence[str], links: Iterable[Link]) -> Routes:
    """Ways over the fewest links, spread so that crowded ones are spared.

    If every server sends to every other alike: no other choice of a hop that leads as near, nor
    two at once where there are few, would lower the sum of the squares of what the link
    directions carry. A server that no link leads to is in no route.
    """
    choices = _choices(servers, links)
    routes = {server: dict[str, Hop]() for server in servers}
    for (source, sink), hops in choices.items():
        routes[source][sink] = hops[0]
    moves = [(*pair, hop) for pair, hops in choices.items() if len(hops) > 1 for hop in hops]
    together = (1, 2) if len(moves) <= MOST_MOVES_BY_TWO else (1,)
    while any(_improve(routes, combinations(moves, count)) for count in together):
        pass
    return routes


def _improve(
    routes: dict[str, dict[str, Hop]], tries: Iterable[Iterable[tuple[str, str, Hop]]]
) -> bool:
    """Make every change of `tries` that lessens the crowding; whether one did."""
    least, improved = _crowding(routes), False
    for changes in tries:
        previous = [(source, sink, routes[source][sink]) for source, sink, _ in changes]
        for source, sink, hop in changes:
            routes[source][sink] = hop
        crowding = _crowding(routes)
        if crowding < least:
            least, improved = crowding, True
            continue
        for source, sink, hop in previous:
            routes[source][sink] = hop
    return improved


def _choices(servers: Sequence[str], links: Iterable[Link]) -> dict[tuple[str, str], list[Hop]]:
    """For each pair that can reach each other, the hops that lead nearer."""
    import networkx as nx  # loads slowly, and most runs look for no route

    ports: defaultdict[tuple[str, str], list[Port]] = defaultdict(list)
    graph = nx.Graph()
    graph.add_nodes_from(servers)
    for link in sorted(links):
        graph.add_edge(link.a.owner, link.b.owner)
        ports[link.a.owner, link.b.owner].append(link.a)
        ports[link.b.owner, link.a.owner].append(link.b)
    away = dict(nx.all_pairs_shortest_path_length(graph))
    return {
        (source, sink): [
            Hop(port, near)
            for near in servers
            if near in graph[source] and away[near][sink] < away[source][sink]
            for port in ports[source, near]
        ]
        for source in servers
        for sink in servers
        if source != sink and sink in away[source]
    }


def _crowding(routes: Routes) -> int:
    return sum(count * count for count in crossings(routes).values())


def crossings(routes: Routes) -> Counter[Port]:
    """Return the number of server pairs whose route leaves by each port."""
    return Counter(
        port
        for source, hops in routes.items()
        for sink in hops
        for port in _ports_between(routes, source, sink)
    )


def _ports_between(routes: Routes, source: str, sink: str) -> list[Port]:
    ports = []
    while source != sink:
        hop = routes[source][sink]
        ports.append(hop.port)
        source = hop.towards
    return ports
