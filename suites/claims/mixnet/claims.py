"""Figures of MixNet's paper that arithmetic answers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from lightrig.harness.claims.computed import Computed, exactly, over_draws
from lightrig.harness.systems.mixnet.planning.calendar import LayerTimes, calendar
from lightrig.harness.systems.mixnet.planning.copilot import Copilot
from lightrig.harness.systems.mixnet.planning.costs import PRICES, fat_tree_cost, mixnet_cost
from lightrig.harness.systems.mixnet.planning.demand import Placement, server_demand
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.topology import plan_links
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.suites.claims.mixnet.link_counts import plan_links_as_printed
from lightrig.suites.claims.mixnet.prediction import top_k_accuracy
from lightrig.suites.claims.mixnet.released import ITERATION_TIMES
from lightrig.suites.claims.mixnet.simulated_claims import SIMULATED
from lightrig.testbeds import Testbed, load

Network: TypeAlias = Literal["topoopt", "fat_tree", "rail_optimized"]
MIXTRAL = ("Mixtral 8x22B", "Mixtral 8x7B")

_SWITCH_PORTS = 500
"""Switching time of the paper's millisecond switch (§4.2), in ns."""
_NIC_FAILS = 0.057e-2
"""The chance that a NIC or link fails during a training job (§5.4)."""
_DRAWS = 20
_LEARNED, _RECORDS = 60, 120
_PANEL_PORTS = 1008
"""Ports of the patch panel in Table 2."""
_RELEASED = "the authors' released table of simulated iteration times"


def _circuits() -> Computed:
    """Links for eight servers with one rank and six optical NICs each, by generated gates."""
    placement = Placement.even(ranks=8, servers=8)
    exchanges = Gating(experts=8, layers=1).exchanges(ranks=8, count=_DRAWS, seed=1)
    demands = [server_demand(tokens, placement) for tokens in exchanges]
    printed = [plan_links_as_printed(demand, 6).sum() / 2 for demand in demands]
    return over_draws(
        [float(plan_links(demand, 6).sum()) / 2 for demand in demands],
        "Algorithm 1 passing over pairs without free ports, on generated exchanges of eight "
        f"ranks; as printed it makes {np.mean(printed):.1f} on average. Where all ranks choose "
        "alike the least loaded server gets no circuit, and there are 21",
    )


def _servers(optical: int) -> Computed:
    return exactly(
        _SWITCH_PORTS // optical, f"{_SWITCH_PORTS} ports, {optical} of each server, rounded down"
    )


def _dual_failure() -> Computed:
    return exactly(_NIC_FAILS**2, "0.057 % squared, if the two fail independently")


def _cost(rate: int) -> float:
    prices = PRICES[rate]
    return fat_tree_cost(prices) / mixnet_cost(prices)


def _mean_cost() -> Computed:
    return exactly(
        float(np.mean([_cost(rate) for rate in PRICES])),
        "Table 4's prices, eight NICs a server, three-tier fat tree, fibers left out; the mean "
        "over 100 to 800 Gbit/s",
    )


def _cost_400() -> Computed:
    return exactly(
        _cost(400), "Table 4's prices, eight NICs a server, three-tier fat tree, fibers left out"
    )


def _speedup(model: str) -> Computed:
    ratios = [against.topoopt for against in ITERATION_TIMES[model].values()]
    return exactly(
        float(np.mean(ratios)),
        f"{_RELEASED}; the mean of {min(ratios):.2f} to {max(ratios):.2f} over 100 to 800 Gbit/s",
    )


def _greatest_speedup() -> Computed:
    ratio, model, rate = max(
        (against.topoopt, model, rate)
        for model, rates in ITERATION_TIMES.items()
        for rate, against in rates.items()
    )
    return exactly(ratio, f"{_RELEASED}; {model} at {rate} Gbit/s")


def _cost_efficiency(rate: int, of: Network = "fat_tree") -> Computed:
    """Performance per dollar against a network: quotient of times, times quotient of costs.

    A rail-optimised network has a fat tree's parts in another order, and its price.
    """
    found = [getattr(rates[rate], of) * _cost(rate) for rates in ITERATION_TIMES.values()]
    return Computed(
        float(np.mean(found)),
        min(found),
        max(found),
        len(found),
        f"{_RELEASED}, four models from least to most, times Table 4's quotient of costs",
    )


def _efficiency_of(model: str, rate: int) -> Computed:
    value = ITERATION_TIMES[model][rate].fat_tree * _cost(rate)
    return exactly(value, f"{_RELEASED}, times Table 4's quotient of costs")


def _pareto() -> Computed:
    """Share of models and rates at which no other network is as fast and as cheap."""
    best = [
        against.topoopt > 1 and (_cost(rate) > 1 or min(against[1:]) > 1)
        for rates in ITERATION_TIMES.values()
        for rate, against in rates.items()
    ]
    return exactly(
        float(np.mean(best)),
        f"{_RELEASED}, four models at four rates; TopoOpt is slower in all, and dearer networks "
        "cannot dominate",
    )


def _slowest(models: Sequence[str], of: Network) -> Computed:
    """The longest iteration of MixNet over another network's."""
    ratio, model, rate = max(
        (1 / getattr(against, of), model, rate)
        for model in models
        for rate, against in ITERATION_TIMES[model].items()
    )
    return exactly(ratio, f"{_RELEASED}; {model} at {rate} Gbit/s")


def _narrowing() -> Computed:
    """Share of steps to a higher rate at which TopoOpt comes nearer."""
    nearer = [
        slow.topoopt > fast.topoopt
        for model in MIXTRAL
        for slow, fast in pairwise(ITERATION_TIMES[model].values())
    ]
    return exactly(float(np.mean(nearer)), f"{_RELEASED}, two models, three steps each")


def _larger_gap() -> Computed:
    """Share of comparisons in which more experts are further from a fat tree."""
    qwen = ITERATION_TIMES["Qwen-MoE"]
    further = [
        qwen[rate].fat_tree < ITERATION_TIMES[model][rate].fat_tree
        for model in MIXTRAL
        for rate in qwen
    ]
    narrower = [slow.fat_tree < fast.fat_tree for slow, fast in pairwise(qwen.values())]
    return exactly(
        float(np.mean(further + narrower)),
        f"{_RELEASED}: Qwen-MoE against both Mixtral models at each rate, and at rising rates",
    )


def copper_costs(rate: int) -> tuple[float, float]:
    """Return dollars of a server's share of a fat tree and of MixNet, copper to the first switch.

    Its cables have no transceivers; their own price is not printed and left out.
    """
    prices = PRICES[rate]
    saved = 2 * prices.transceiver
    return fat_tree_cost(prices) - 8 * saved, mixnet_cost(prices) - 2 * saved


def _copper(rate: int) -> Computed:
    """Quotient of costs where NICs reach the first switch by cables without transceivers."""
    fat_tree, mixnet = copper_costs(rate)
    return exactly(fat_tree / mixnet, "Table 4's prices; the cables' are not printed and left out")


def _nic_price() -> Computed:
    return exactly(1.5 * PRICES[400].nic, "1.5 times the price of the 400 Gbit/s NIC")


def _changes() -> Computed:
    times = LayerTimes(attention=0, experts=0, attention_backward=0, experts_backward=0)
    layers = [change.layer for change in calendar(8, times, delay=0)]
    return exactly(
        layers.count(3),
        "in a layer between others; the last one's circuits are still there for its backward pass",
    )


def _blocked() -> Computed:
    # Any times above the delay hide all that the calendar can hide.
    times = LayerTimes(*[100_000_000] * 4)
    blocked = {change.blocked for change in calendar(8, times, delay=25_000_000)}
    return exactly(
        max(blocked),
        "what the calendar leaves exposed of 25 ms, where computation lasts 100 ms: all of the "
        "first exchange's, nothing of the others'",
    )


def _copilot() -> Computed:
    """Top-1 accuracy of Copilot over that of the load of the layer before, 8 experts."""
    copilot, predicted, unchanged = Copilot(), [], []
    for number, loads in enumerate(Gating(experts=8, layers=2).iterations(_RECORDS, seed=5)):
        before, after = loads
        if number >= _LEARNED:
            predicted.append(top_k_accuracy(copilot.predict(before), after, 1))
            unchanged.append(top_k_accuracy(before, after, 1))
        copilot.record(before, after)
    return exactly(
        float(np.mean(predicted) - np.mean(unchanged)),
        f"top-1 {np.mean(predicted):.2f} against {np.mean(unchanged):.2f} unchanged and 0.12 at "
        f"random, {_RECORDS - _LEARNED} generated gates of 8 experts that fit its assumption",
    )


def _testbed() -> Testbed:
    folder = Path(str(resources.files("lightrig.testbeds")))
    return load(folder / "mixnet.yaml")


def _ports(kind: str) -> Computed:
    region = Region.of(_testbed())
    counts = {
        "GPUs": sum(server.gpu_count for server in region.servers),
        "NICs": sum(len(server.ports) for server in region.servers),
        "optical": sum(region.degrees),
        "packet": sum(len(server.packet) for server in region.servers),
    }
    return exactly(counts[kind], "counted in testbeds/mixnet.yaml")


COMPUTED: Mapping[str, Callable[[], Computed]] = {
    **SIMULATED,
    "circuits": _circuits,
    "servers-two": lambda: _servers(2),
    "servers-six": lambda: _servers(6),
    "dual-nic-failure": _dual_failure,
    "cost-mean": _mean_cost,
    "cost-400": _cost_400,
    "nic-price-800": _nic_price,
    "speedup-mixtral-8x22b": lambda: _speedup("Mixtral 8x22B"),
    "speedup-mixtral-8x7b": lambda: _speedup("Mixtral 8x7B"),
    "speedup-qwen-moe": lambda: _speedup("Qwen-MoE"),
    "speedup-most": _greatest_speedup,
    "cost-efficiency-100": lambda: _cost_efficiency(100),
    "cost-efficiency-400": lambda: _cost_efficiency(400),
    "cost-efficiency-200": lambda: _cost_efficiency(200),
    "cost-efficiency-800": lambda: _cost_efficiency(800),
    **{
        f"cost-efficiency-rail-{rate}": partial(_cost_efficiency, rate, "rail_optimized")
        for rate in PRICES
    },
    "cost-efficiency-400-8x7b": lambda: _efficiency_of("Mixtral 8x7B", 400),
    "cost-efficiency-400-8x22b": lambda: _efficiency_of("Mixtral 8x22B", 400),
    "cost-efficiency-100-8x7b": lambda: _efficiency_of("Mixtral 8x7B", 100),
    "pareto": _pareto,
    "comparable-mixtral": lambda: _slowest(MIXTRAL, "fat_tree"),
    "comparable-qwen": lambda: _slowest(["Qwen-MoE"], "fat_tree"),
    "narrowing": _narrowing,
    "more-experts": _larger_gap,
    "copper-400": lambda: _copper(400),
    "copilot": _copilot,
    "panel": lambda: exactly(_PANEL_PORTS, "a port for each GPU's NIC, one tier"),
    "region": lambda: exactly(8 * 8, "8 servers of 8 GPUs, an expert-parallel group of 64"),
    "region-ports": lambda: exactly(8 * 6, "8 servers of an EP group of 64, six optical NICs each"),
    "link-share": lambda: exactly(5.67 / (5.67 + 0.04144), "5.67 s of 5.67 s + 41.44 ms"),
    "testbed-gpus": lambda: _ports("GPUs"),
    "testbed-nics": lambda: _ports("NICs"),
    "testbed-optical": lambda: _ports("optical"),
    "testbed-packet": lambda: _ports("packet"),
    "reconfigurations-per-layer": _changes,
    "blocked": _blocked,
}
"""Functions that compute claims, by their names in the file of published values."""
