"""Iteration times of ACOS by a closed form; no value here was measured."""

from collections.abc import Mapping
from dataclasses import dataclass


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
