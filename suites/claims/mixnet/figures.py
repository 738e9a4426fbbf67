"""Series of the paper's figures: costs, released quotients, volumes by model, predictions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lightrig.harness.claims.computed import exactly, over_draws
from lightrig.harness.claims.figures.curves import Curve, Figures, exact_curve
from lightrig.harness.systems.mixnet.planning.calendar import (
    FirstExchange,
    LayerTimes,
    calendar,
    waiting,
)
from lightrig.harness.systems.mixnet.planning.copilot import Copilot
from lightrig.harness.systems.mixnet.planning.costs import (
    PRICES,
    Prices,
    fat_tree_cost,
    mixnet_cost,
)
from lightrig.suites.claims.mixnet.claims import copper_costs
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.suites.claims.mixnet.optical_ports import optical_ports
from lightrig.suites.claims.mixnet.prediction import top_k_accuracy
from lightrig.suites.claims.mixnet.prototype import prototype_steps
from lightrig.suites.claims.mixnet.released import ITERATION_TIMES
from lightrig.suites.claims.mixnet.simulated_steps import (
    efficiency_by_size,
    failures,
    ratios_by_rate,
    steps_by_degree,
    steps_by_latency,
    steps_by_rate,
    throughput_by_size,
)

NETWORKS = {"TopoOpt": "topoopt", "Fat-tree": "fat_tree", "Rail-optimized": "rail_optimized"}
SERVERS = (128, 256, 512, 1024, 2048, 4096)
GPUS = 8
"""Of a server, each with a NIC."""
OVERSUBSCRIPTION = 3
_SEEDS = range(5, 15)
_LEARNED, _RECORDS = 60, 120
_VALUE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Trained:
    """A model of Table 1; hidden size, attention's parameters and experts a token are public."""

    blocks: int
    hidden: int
    attention: float
    per_token: int
    ep: int
    tp: int
    pp: int = 4
    sequence: int = 4096
    micro_batch: int = 8


MODELS = {
    "Mixtral 8x7B": Trained(32, 4096, 41.9e6, 2, ep=8, tp=4),
    "LLaMA-MoE": Trained(32, 4096, 67.1e6, 4, ep=16, tp=1),
    "Qwen-MoE": Trained(24, 2048, 16.8e6, 4, ep=16, tp=1),
}


def volumes() -> Sequence[Curve]:
    """Return the share of a GPU's bytes in an iteration by parallelism and model (Fig. 2).

    One micro-batch; four ring all-reduces of activations a block for TP and four all-to-alls for
    EP, whose tokens the TP ranks share; activations and their gradients between stages; one ring
    all-reduce of attention's gradients for DP.
    """
    found = {name: _shares(model) for name, model in MODELS.items()}
    return [
        exact_curve(kind, {name: shares[kind] for name, shares in found.items()})
        for kind in ("TP", "EP", "PP", "DP")
    ]


def _shares(model: Trained) -> dict[str, float]:
    tokens = model.micro_batch * model.sequence * model.hidden * _VALUE_BYTES
    blocks = model.blocks / model.pp
    sizes = {
        "TP": 4 * blocks * 2 * (model.tp - 1) / model.tp * tokens,
        "EP": 4 * blocks * (model.ep - 1) / model.ep * tokens * model.per_token / model.tp,
        "PP": 2 * tokens / model.tp,
        "DP": 2 * blocks * model.attention / model.tp * _VALUE_BYTES,
    }
    total = sum(sizes.values())
    return {kind: size / total for kind, size in sizes.items()}


def _oversubscribed(prices: Prices) -> float:
    """Return a server's share of a fat tree with a third of the links above the leaves."""
    port = prices.packet_port + prices.transceiver
    return GPUS * (prices.nic + prices.transceiver + port * (1 + 4 / OVERSUBSCRIPTION))


def network_costs(rate: int) -> Sequence[Curve]:
    """Return dollars by servers at a link rate in Gbit/s (Fig. 11)."""
    prices = PRICES[rate]
    each = {
        "Fat-tree, Rail-optimized": float(fat_tree_cost(prices)),
        "OverSub. Fat-tree": _oversubscribed(prices),
        "MixNet": float(mixnet_cost(prices)),
    }
    return [
        exact_curve(name, {float(count): cost * count for count in SERVERS})
        for name, cost in each.items()
    ]


def cost_ratios() -> Sequence[Curve]:
    """Return the cost of a fat tree over MixNet's, by link rate in bit/s."""
    found = {rate: fat_tree_cost(one) / mixnet_cost(one) for rate, one in PRICES.items()}
    one = exact_curve("Fat-tree over MixNet", {rate * 1e9: each for rate, each in found.items()})
    return [_with_mean(one)]


def _with_mean(one: Curve) -> Curve:
    mean = float(np.mean(one.y))
    return Curve(one.name, one.x, one.y, one.lower, one.upper, 1, {"mean": exactly(mean)})


def iteration_times(model: str) -> Sequence[Curve]:
    """Return released iteration times over MixNet's, by link rate in bit/s (Fig. 12)."""
    rates = ITERATION_TIMES[model]
    return [
        _with_mean(
            exact_curve(name, {rate * 1e9: getattr(each, column) for rate, each in rates.items()})
        )
        for name, column in NETWORKS.items()
    ]


def efficiencies(model: str) -> Sequence[Curve]:
    """Return MixNet's performance per dollar over two networks', by rate (Fig. 13)."""
    return [
        exact_curve(
            f"over {name}",
            {
                rate * 1e9: getattr(each, NETWORKS[name])
                * fat_tree_cost(PRICES[rate])
                / mixnet_cost(PRICES[rate])
                for rate, each in ITERATION_TIMES[model].items()
            },
        )
        for name in ("Fat-tree", "Rail-optimized")
    ]


def link_costs() -> Sequence[Curve]:
    """Return dollars of a server's share at 400 Gbit/s, by links of the packet part (Fig. 24)."""
    prices = PRICES[400]
    fat_tree, mixnet = copper_costs(400)
    kinds = {
        "transceivers": (float(fat_tree_cost(prices)), float(mixnet_cost(prices))),
        "DAC or AOC to the first switch": (float(fat_tree), float(mixnet)),
    }
    return [
        exact_curve("Fat-tree", {kind: each[0] for kind, each in kinds.items()}),
        exact_curve("MixNet", {kind: each[1] for kind, each in kinds.items()}),
    ]


def link_cost_ratios() -> Sequence[Curve]:
    """Return the fat tree's cost over MixNet's of the same links."""
    fat_tree, mixnet = link_costs()
    ratios = [a / b for a, b in zip(fat_tree.y, mixnet.y, strict=True)]
    return [
        exact_curve("Fat-tree over MixNet", dict(zip(map(str, fat_tree.x), ratios, strict=True)))
    ]


def prediction_accuracy() -> Sequence[Curve]:
    """Return the share of the top K experts that are named, by K: generated gates (Fig. 19)."""
    guesses: dict[str, Callable[[Copilot, np.ndarray, np.random.Generator], np.ndarray]] = {
        "MixNet-Copilot": lambda copilot, before, _: copilot.predict(before),
        "unchanged": lambda _, before, __: before,
        "random": lambda _, before, random: random.random(before.size),
    }
    ks = (1, 2, 3, 4)
    found: dict[str, list[list[float]]] = {name: [] for name in guesses}
    for seed in _SEEDS:
        copilot, random = Copilot(), np.random.default_rng(seed)
        hits: dict[str, list[list[float]]] = {name: [] for name in guesses}
        gates = Gating(experts=8, layers=2).iterations(_RECORDS, seed=seed)
        for number, (before, after) in enumerate(gates):
            if number >= _LEARNED:
                for name, guess in guesses.items():
                    named = guess(copilot, before, random)
                    hits[name].append([top_k_accuracy(named, after, k) for k in ks])
            copilot.record(before, after)
        for name, each in hits.items():
            found[name].append(np.mean(each, axis=0).tolist())
    curves = []
    for name, draws in found.items():
        values = [over_draws(list(column)) for column in zip(*draws, strict=True)]
        curves.append(
            Curve(
                name,
                tuple(map(float, ks)),
                tuple(one.value for one in values),
                tuple(max(one.lower, 0.0) for one in values),
                tuple(min(one.upper, 1.0) for one in values),
                len(_SEEDS),
            )
        )
    return curves


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Public sizes of Mixtral 8x22B, and its job (Appendix D.1)."""

    blocks: int = 56
    hidden: int = 6144
    feed_forward: int = 16_384
    key_value: int = 1024
    per_token: int = 2
    tp: int = 8
    pp: int = 8
    sequence: int = 4096
    micro_batch: int = 8


FLOPS, UTILIZATION = 312e12, 0.4
"""Of an A100 in BF16, and the share that training reaches: guesses, the paper names neither."""
_LATENCIES = tuple(10.0**power for power in range(3, 11))
"""1 us to 10 s (D.7), in ns."""


def layer_times(sizes: _Sizes | None = None) -> LayerTimes:
    """Return the computation of a layer of Mixtral 8x22B in ns; backward takes twice as long."""
    one = sizes or _Sizes()
    tokens = one.micro_batch * one.sequence
    projections = 2 * one.hidden * (2 * one.hidden + 2 * one.key_value)
    attention = tokens * (projections + 4 * one.sequence * one.hidden)
    experts = tokens * one.per_token * 2 * 3 * one.hidden * one.feed_forward
    rate = FLOPS * UTILIZATION * one.tp / 1e9
    return LayerTimes(
        round(attention / rate),
        round(experts / rate),
        round(2 * attention / rate),
        round(2 * experts / rate),
    )


def latency_impact() -> Sequence[Curve]:
    """Return iteration time over that without switching, by latency in ns (Fig. 28).

    Computation, and what the calendar of changes leaves exposed; transfers take no time.
    """
    times, layers = layer_times(), _Sizes().blocks // _Sizes().pp
    computed = layers * (
        times.attention + times.experts + times.attention_backward + times.experts_backward
    )
    strategies: dict[str, FirstExchange] = {
        "first exchange blocks": "block",
        "first exchange is predicted": "predict",
    }
    return [
        exact_curve(
            name,
            {
                latency: 1 + waiting(calendar(layers, times, round(latency), first)) / computed
                for latency in _LATENCIES
            },
        )
        for name, first in strategies.items()
    ]


FIGURES: Figures = {
    "latency-impact": latency_impact,
    "volumes": volumes,
    "network-costs": network_costs,
    "cost-ratios": cost_ratios,
    "iteration-times": iteration_times,
    "efficiencies": efficiencies,
    "link-costs": link_costs,
    "link-cost-ratios": link_cost_ratios,
    "prediction-accuracy": prediction_accuracy,
    "optical-ports": optical_ports,
    "prototype-steps": prototype_steps,
    "failures": failures,
    "steps-by-rate": steps_by_rate,
    "ratios-by-rate": ratios_by_rate,
    "throughput-by-size": throughput_by_size,
    "efficiency-by-size": efficiency_by_size,
    "steps-by-degree": steps_by_degree,
    "steps-by-latency": steps_by_latency,
}
"""Functions that return series, by the names that results/published/figures uses."""
