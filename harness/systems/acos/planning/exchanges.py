"""All-to-alls on ACOS's graphs, over the time of one through a switch.

Paths are the shortest ones, shared evenly; the paper names no routing. Every topology has the same
bandwidth per GPU, split evenly over its links (section 6).
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.acos.planning.expanders import (
    DEGREE,
    Edge,
    random_regular,
    splittable,
)
from lightrig.harness.systems.acos.planning.optics import FabricError, Ints
from lightrig.instruments.jobs.flows.network import Network, duplex
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Flow, loads

Demand: TypeAlias = npt.NDArray[np.float64]

LARGEST = 256
"""Ranks of an all-to-all whose paths are still computed in a second or two."""


def uniform(ranks: int) -> Demand:
    """One byte from every rank to every other, as a share of what a rank sends."""
    demand = np.full((ranks, ranks), 1 / (ranks - 1))
    np.fill_diagonal(demand, 0.0)
    return demand


def skewed(ranks: int, seed: int, spread: float = 0.3) -> Demand:
    """Demand of generated, not recorded, skew: popular receivers, the same total."""
    random = np.random.default_rng(seed)
    demand = np.tile(random.lognormal(0.0, spread, ranks), (ranks, 1))
    np.fill_diagonal(demand, 0.0)
    scaled: Demand = demand * (ranks / demand.sum())
    return scaled


def slowdown(
    nodes: Sequence[int], edges: Iterable[Edge], demand: Demand, degree: int | None = None
) -> float:
    """Time of an all-to-all over that of an ideal switch for a uniform one of the same bytes.

    nodes: ranks in the order of `demand`; further nodes of the graph only forward. degree: links
    that a GPU's bandwidth is split over, the greatest of the graph where omitted.
    """
    links = list(edges)
    counts: dict[int, int] = {}
    for edge in links:
        for node in edge:
            counts[node] = counts.get(node, 0) + 1
    rate = 8.0 / (degree or max(counts.values()))
    network = Network(tuple(e for u, v in links for e in duplex(str(u), str(v), rate)))
    flows = [
        Flow(str(nodes[i]), str(nodes[j]), float(demand[i, j]))
        for i, j in product(range(len(nodes)), repeat=2)
        if demand[i, j]
    ]
    carried = loads(Router(network), flows)
    return float((8.0 * carried / network.capacities).max())


def torus_edges(*sizes: int) -> list[Edge]:
    """Links of a torus; a dimension of two has two links between the same nodes."""
    number: Ints = np.arange(int(np.prod(sizes))).reshape(sizes)
    found: list[Edge] = []
    for axis in range(len(sizes)):
        after = np.roll(number, -1, axis=axis)
        found += [(int(u), int(v)) for u, v in zip(number.flat, after.flat, strict=True)]
    return found


def mesh_edges(nodes: int) -> list[Edge]:
    """Links between all nodes."""
    return [(u, v) for u in range(nodes) for v in range(u + 1, nodes)]


def without(edges: Iterable[Edge], failed: Sequence[int]) -> list[Edge]:
    """Links that do not end at failed nodes, which forward nothing."""
    return [(u, v) for u, v in edges if u not in failed and v not in failed]


def demand_of(ranks: int, spread: float, seed: int) -> Demand:
    """Return even demand, or one of generated skew where `spread` is above 0."""
    return skewed(ranks, seed, spread) if spread else uniform(ranks)


@cache
def expander_slowdown(ranks: int, spread: float = 0.0, seed: int = 1) -> float:
    """Return an all-to-all's time on ACOS's expander of so many GPUs, over a switch's of the same.

    Up to nine GPUs are joined all to all, by as many of their eight links as divide evenly. 16 and
    more of an even half are a splittable expander; others are random regular graphs.
    Raises `FabricError` beyond `LARGEST`.
    """
    if ranks < 2:
        return 1.0
    if ranks > LARGEST:
        raise FabricError(f"found an all-to-all of {ranks} ranks, expected at most {LARGEST}")
    if ranks <= DEGREE + 1:
        edges: Sequence[Edge] = mesh_edges(ranks) * (DEGREE // (ranks - 1))
    elif ranks >= 2 * DEGREE and ranks % 4 == 0:
        edges = splittable(ranks // 2, seed).merged
    else:
        edges = random_regular(ranks, DEGREE, seed)
    demand = demand_of(ranks, spread, seed)
    return slowdown(range(ranks), edges, demand, DEGREE) / switch_slowdown(ranks, spread, seed)


@cache
def torus_slowdown(ranks: int, spread: float = 0.0, seed: int = 1) -> float:
    """Return the same on a torus of three dimensions as even as powers of two can be."""
    if ranks < 2:
        return 1.0
    if ranks > LARGEST or ranks & (ranks - 1):
        raise FabricError(
            f"found an all-to-all of {ranks} ranks, expected a power of two up to {LARGEST}"
        )
    bits = ranks.bit_length() - 1
    sizes = [2 ** ((bits + more) // 3) for more in (2, 1, 0)]
    edges = torus_edges(*(size for size in sizes if size > 1))
    demand = demand_of(ranks, spread, seed)
    return slowdown(range(ranks), edges, demand) / switch_slowdown(ranks, spread, seed)


@cache
def switch_slowdown(ranks: int, spread: float = 0.0, seed: int = 1) -> float:
    """Return the same through a switch, over a uniform one: its busiest rank, in or out."""
    if ranks < 2:
        return 1.0
    demand = demand_of(ranks, spread, seed)
    return float(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
