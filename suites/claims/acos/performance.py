"""All-to-all on ACOS's graphs, and iteration times by a flow model.

Models only: no value here was measured. Paths are the shortest ones, shared evenly; the paper
names no routing. Every topology has the same bandwidth per GPU, split evenly over its links (§6).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.acos.planning.expanders import Edge
from lightrig.harness.systems.acos.planning.optics import Ints
from lightrig.instruments.jobs.flows.network import Network, duplex
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Flow, loads

Demand: TypeAlias = npt.NDArray[np.float64]


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


@dataclass(frozen=True, slots=True)
class Model:
    """A language model and its job in Table 7.

    layers, hidden, parameters, active parameters and experts per token are the models' public
    ones. sparse: share of layers with experts.
    """

    name: str
    layers: int
    hidden: int
    parameters: float
    active: float
    per_token: int
    sparse: float
    tp: int
    pp: int
    dp: int
    ep: int
    sequence: int
    batch: int
    microbatches: int = 16


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("Llama3-8B", 32, 4096, 8.0e9, 8.0e9, 0, 0.0, 4, 4, 4, 0, 8196, 256),
        Model("Llama3-70B", 80, 8192, 70.6e9, 70.6e9, 0, 0.0, 4, 4, 4, 0, 8196, 256),
        Model("Mixtral-8x7B", 32, 4096, 46.7e9, 12.9e9, 2, 1.0, 1, 4, 16, 8, 8196, 256),
        Model("Mixtral-8x22B", 56, 6144, 141e9, 39e9, 2, 1.0, 1, 4, 16, 8, 8196, 256),
        Model("Qwen2-57B", 28, 3584, 57.4e9, 14.2e9, 8, 1.0, 1, 4, 16, 16, 16384, 64),
        Model("Llama-4-Maverick", 48, 5120, 400e9, 17e9, 1, 0.5, 8, 8, 16, 32, 4096, 1024),
    )
}
"""Configurations of Table 7; "Num uB" is read as the number of microbatches."""
FLOPS, UTILIZATION = 989e12, 0.4
"""Dense BF16 of an H200, and the share of it that training reaches, assumed."""


@dataclass(frozen=True, slots=True)
class FabricTimes:
    """Times of rings and of an all-to-all on a fabric, relative to an ideal switch.

    reconfiguration_s: exposed at each change to or from the expander.
    """

    ring: float
    all_to_all: float
    reconfiguration_s: float = 0.0


def iteration_seconds(
    model: Model, fabric: FabricTimes, rate_bps: float = 800e9, utilization: float = UTILIZATION
) -> float:
    """Time of an iteration, collectives and computation one after the other.

    Volumes: four all-reduces of activations a layer for TP, four all-to-alls for EP, one
    all-reduce of gradients for DP; pipeline with its bubble, 1F1B.
    """
    byte = rate_bps / 8
    tokens = model.batch * model.sequence / model.dp
    gpus_of_model = model.tp * model.pp
    compute = 6 * model.active * tokens / gpus_of_model / (FLOPS * utilization)
    layers = model.layers / model.pp
    activations = tokens * model.hidden * 2.0
    ring = 2 * (model.tp - 1) / model.tp * activations / byte * 4 * layers
    routed = activations * model.per_token / model.tp
    share = (model.ep - 1) / model.ep if model.ep else 0.0
    exchange = routed * share / byte * 4 * layers * model.sparse
    passed = 2 * activations / model.tp / byte * (model.pp > 1)
    replicas = model.dp
    gradients = 2 * model.parameters / gpus_of_model / (model.ep or 1) / byte
    reduce = 2 * (replicas - 1) / replicas * gradients
    changes = model.microbatches * 4 * fabric.reconfiguration_s * bool(model.ep)
    steps = compute + ring * fabric.ring + exchange * fabric.all_to_all + passed * fabric.ring
    bubble = 1 + (model.pp - 1) / model.microbatches
    return (steps + changes) * bubble + reduce * fabric.ring


SWITCH = FabricTimes(1.0, 1.0)


def relative_time(
    model: Model, fabric: FabricTimes, rate_bps: float = 800e9, utilization: float = UTILIZATION
) -> float:
    """Iteration time over that on an ideal packet switch."""
    ours, ideal = (
        iteration_seconds(model, each, rate_bps, utilization) for each in (fabric, SWITCH)
    )
    return ours / ideal


def ring_all_reduce_bytes(ranks: int, size: float) -> float:
    """Bytes that each rank of a ring sends for an all-reduce: the least that any needs."""
    return 2 * (ranks - 1) / ranks * size
