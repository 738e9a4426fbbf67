"""Routes through a network: shortest paths, shared evenly, or an explicit one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lightrig.instruments.jobs.flows.network import Floats, Indices, Network
from lightrig.testbeds.errors import LightrigError


class NoRouteError(LightrigError):
    """There is no path from one vertex to another."""

    def __init__(self, source: str, sink: str) -> None:
        self.source = source
        self.sink = sink
        super().__init__(f"no path from {source} to {sink}")


class Route(NamedTuple):
    """The edges that a flow crosses, each with the share of the flow that it carries.

    `latency_ns` is that of the slowest path; `hops` is its number of edges.
    """

    edges: Indices
    shares: Floats
    latency_ns: float
    hops: int


class Router:
    """Finds routes in one network, with a cache."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._routes: dict[tuple[str, str, int], Route] = {}
        self._distances: dict[str, dict[str, int]] = {}

    def route(self, source: str, sink: str, lane: int = 0) -> Route:
        """Return all paths of fewest hops, with traffic split evenly at each vertex (ECMP).

        lane: number of an explicit route, if there are several. Raises `NoRouteError`.
        """
        key = source, sink, lane
        if key not in self._routes:
            self._routes[key] = self._shortest(source, sink)
        return self._routes[key]

    def reaches(self, source: str, sink: str) -> bool:
        """Whether there is a path."""
        return source in self._hops_to(sink)

    def state(self, *vertices: str, lane: int = 0) -> None:
        """Set an explicit route over `vertices` for a lane, from the first to the last.

        Parallel edges share it evenly. Raises `NoRouteError` if two vertices have no edge.
        """
        network = self.network
        edges: list[int] = []
        shares: list[float] = []
        latency = 0.0
        for here, there in pairwise(vertices):
            parallel = [i for i in network.outgoing.get(here, ()) if network.edges[i].sink == there]
            if not parallel:
                raise NoRouteError(here, there)
            edges += parallel
            shares += [1 / len(parallel)] * len(parallel)
            latency += max(network.edges[index].latency_ns for index in parallel)
        self._routes[vertices[0], vertices[-1], lane] = Route(
            np.array(edges, dtype=np.int64), np.array(shares), latency, len(vertices) - 1
        )

    def _shortest(self, source: str, sink: str) -> Route:
        left = self._hops_to(sink)
        if source not in left:
            raise NoRouteError(source, sink)
        edges: list[int] = []
        shares: list[float] = []
        share: defaultdict[str, float] = defaultdict(float, {source: 1.0})
        latest: defaultdict[str, float] = defaultdict(float)
        for layer in self._layers(source, left):
            for here in layer:
                onward = self._onward(here, left)
                for index in onward:
                    edge = self.network.edges[index]
                    part = share[here] / len(onward)
                    edges.append(index)
                    shares.append(part)
                    share[edge.sink] += part
                    latest[edge.sink] = max(latest[edge.sink], latest[here] + edge.latency_ns)
        return Route(np.array(edges, dtype=np.int64), np.array(shares), latest[sink], left[source])

    def _layers(self, source: str, left: dict[str, int]) -> Sequence[Sequence[str]]:
        """Return the vertices on shortest paths by their distance from `source`, without `sink`."""
        layers = [[source]]
        for _ in range(left[source] - 1):
            following = {
                self.network.edges[i].sink: None
                for here in layers[-1]
                for i in self._onward(here, left)
            }
            layers.append(list(following))
        return layers if left[source] else []

    def _onward(self, here: str, left: dict[str, int]) -> list[int]:
        nearer = left[here] - 1
        edges = self.network.edges
        return [i for i in self.network.outgoing[here] if left.get(edges[i].sink) == nearer]

    @cached_property
    def _incoming(self) -> dict[str, list[str]]:
        incoming: defaultdict[str, list[str]] = defaultdict(list)
        for edge in self.network.edges:
            incoming[edge.sink].append(edge.source)
        return incoming

    def _hops_to(self, sink: str) -> dict[str, int]:
        """Return the distance of each vertex to `sink`, in edges."""
        if sink in self._distances:
            return self._distances[sink]
        incoming = self._incoming
        found = {sink: 0}
        waiting = deque([sink])
        while waiting:
            here = waiting.popleft()
            if here != sink and here in self.network.ends:
                continue
            for before in incoming.get(here, ()):
                if before not in found:
                    found[before] = found[here] + 1
                    waiting.append(before)
        self._distances[sink] = found
        return found
