"""A network of directed edges, each with a capacity and a latency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lightrig.testbeds.errors import LightrigError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class NetworkError(LightrigError, ValueError):
    """An invalid network: an edge without capacity, or from a vertex to itself."""


class Edge(NamedTuple):
    """One direction of a link.

    `capacity_bps` is above 0; `latency_ns` is the delay of the last bit.
    """

    source: str
    sink: str
    capacity_bps: float
    latency_ns: float = 0.0


@dataclass(frozen=True)
class Network:
    """Vertices joined by directed edges; parallel edges are allowed.

    Attributes:
        edges: indexed by routes and loads.
        ends: vertices that do not forward, such as GPUs.
        capacities: of the edges, in bit/s.
        outgoing: the edges that leave each vertex, by index in `edges`.
    """

    edges: tuple[Edge, ...]
    ends: frozenset[str] = frozenset()
    capacities: Floats = field(init=False, repr=False, compare=False)
    outgoing: Mapping[str, Sequence[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        outgoing: defaultdict[str, list[int]] = defaultdict(list)
        for index, edge in enumerate(self.edges):
            if edge.source == edge.sink or not 0 < edge.capacity_bps < float("inf"):
                raise NetworkError(f"{edge}: an edge needs two ends and a capacity above 0 bit/s")
            if not 0 <= edge.latency_ns < float("inf"):
                raise NetworkError(f"{edge}: a latency is from 0 ns")
            outgoing[edge.source].append(index)
        derived: dict[str, Any] = {
            "edges": tuple(self.edges),
            "capacities": np.array([edge.capacity_bps for edge in self.edges], dtype=float),
            "outgoing": dict(outgoing),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def scaled(self, factor: float) -> Network:
        """Return the network with every capacity multiplied by `factor`."""
        edges = (edge._replace(capacity_bps=edge.capacity_bps * factor) for edge in self.edges)
        return Network(tuple(edges), self.ends)


def duplex(a: str, b: str, capacity_bps: float, latency_ns: float = 0.0) -> tuple[Edge, Edge]:
    """Return both directions of a link."""
    return Edge(a, b, capacity_bps, latency_ns), Edge(b, a, capacity_bps, latency_ns)


def joined(
    pairs: Iterable[tuple[str, str]], capacity_bps: float, latency_ns: float = 0.0
) -> Network:
    """Return a network of equal duplex links."""
    return Network(tuple(edge for a, b in pairs for edge in duplex(a, b, capacity_bps, latency_ns)))


def ring_pairs(ranks: Sequence[str]) -> list[tuple[str, str]]:
    """Return each rank with the next, and the last with the first; two ranks are one pair."""
    count = len(ranks) if len(ranks) > 2 else len(ranks) - 1
    return [(ranks[index], ranks[(index + 1) % len(ranks)]) for index in range(count)]
