"""Series of the paper's figures: costs by generated fabrics, times by a flow model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lightrig.harness.claims.computed import over_draws
from lightrig.harness.claims.figures.curves import Curve, Figures, exact_curve
from lightrig.harness.systems.acos.planning import costs
from lightrig.harness.systems.acos.planning.exchanges import (
    skewed,
    slowdown,
    torus_edges,
    uniform,
    without,
)
from lightrig.harness.systems.acos.planning.expanders import DEGREE, random_regular, splittable
from lightrig.suites.claims.acos.claims import hall_cost, rack
from lightrig.suites.claims.acos.performance import (
    MODELS,
    SWITCH,
    FabricTimes,
    Model,
    iteration_seconds,
)
from lightrig.suites.claims.acos.simulated_steps import step_time

SEEDS = range(1, 6)
RATES = (800e9, 1600e9, 3200e9)
TORUS_SHARE = 3.0
"""A dimension of a 3D torus has a third of the bandwidth (§6.1)."""
_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)


def ethernet() -> Sequence[Curve]:
    """Return dollars a GPU of a packet network, with transceivers, by GPUs (Fig. 6a)."""
    return [exact_curve("Ethernet", {float(n): float(costs.Ethernet(n).cost) for n in _SIZES})]


def small_scale() -> Sequence[Curve]:
    """Return costs over those of a packet switch, 16 GPUs (Fig. 6b)."""
    packet = float(costs.Ethernet(16).cost)
    spec = rack("16").spec
    baselines = costs.Baselines(spec.lanes, 2)
    return [
        exact_curve(
            "over a packet switch",
            {
                "ACOS-16": _acos("16", baselines.transceiver) / packet,
                "NxN OCS": baselines.matrix / packet,
                "robotic panels": baselines.robotic / packet,
            },
        )
    ]


def _acos(name: str, transceiver: int) -> float:
    return transceiver + float(costs.switch_cost(rack(name).fabric))


def rack_scale() -> Sequence[Curve]:
    """Return dollars a GPU with transceivers, by cluster (Fig. 7)."""
    baselines = costs.Baselines(8, 4)
    names = {"64": 64, "72": 72, "144": 144}
    return [
        exact_curve("ACOS", {f"{n} GPUs": _acos(n, costs.FR8D) for n in names}),
        exact_curve("NxN OCS", {f"{n} GPUs": float(baselines.matrix) for n in names}),
        exact_curve("robotic panels", {f"{n} GPUs": float(baselines.robotic) for n in names}),
        exact_curve(
            "Ethernet", {f"{n} GPUs": float(costs.Ethernet(gpus).cost) for n, gpus in names.items()}
        ),
    ]


def large_scale() -> Sequence[Curve]:
    """Return dollars a GPU with transceivers, by GPUs (Fig. 8); by the rows of Tables 5 and 6."""
    sizes = (1024, 4096, 32_768)
    tables = {
        "ACOS, rack resilience": "T5",
        "ACOS, node resilience": "T6-node",
        "ACOS, both": "T6-both",
    }
    return [
        *(
            exact_curve(
                name, {f"{n:,} GPUs": float(costs.table_cost(table)) + costs.FR8D for n in sizes}
            )
            for name, table in tables.items()
        ),
        exact_curve("Ethernet", {f"{n:,} GPUs": float(costs.Ethernet(n).cost) for n in sizes}),
    ]


def generated_halls() -> Sequence[Curve]:
    """Return the same of generated fabrics of 4,096 GPUs."""
    kinds = {
        "ACOS, rack resilience": (False, True),
        "ACOS, node resilience": (True, False),
        "ACOS, both": (True, True),
    }
    return [
        exact_curve(f"{name}, generated", {"4,096 GPUs": costs.FR8D + hall_cost(node, racks).value})
        for name, (node, racks) in kinds.items()
    ]


def _expanders(half: int = 8) -> list[float]:
    return [slowdown(range(2 * half), splittable(half, s).merged, uniform(2 * half)) for s in SEEDS]


def _torus_exchange(model: Model) -> float:
    sizes = {8: (2, 2, 2), 16: (4, 2, 2), 32: (4, 4, 2)}.get(model.ep)
    return slowdown(range(model.ep), torus_edges(*sizes), uniform(model.ep)) if sizes else 1.0


def _drawn(name: str, found: Mapping[str, Sequence[float]]) -> Curve:
    """Return a bar for each category: its mean over seeds, and what one more would have."""
    values = [over_draws(each) for each in found.values()]
    return Curve(
        name,
        tuple(found),
        tuple(one.value for one in values),
        tuple(one.lower for one in values),
        tuple(one.upper for one in values),
        len(SEEDS),
    )


def _times(names: Sequence[str], rate_bps: float) -> Sequence[Curve]:
    """Return the time of an iteration in ns on a switch, ACOS and a 3D torus, by model."""
    models = [MODELS[name] for name in names]

    def acos(model: Model, tax: float) -> float:
        exchange = tax if model.ep > 8 else 8 / 7  # a split expander is a complete graph
        return 1e9 * iteration_seconds(model, FabricTimes(1.0, exchange), rate_bps)

    taxes = _expanders()
    return [
        exact_curve(
            "switch", {one.name: 1e9 * iteration_seconds(one, SWITCH, rate_bps) for one in models}
        ),
        _drawn("ACOS", {one.name: [acos(one, tax) for tax in taxes] for one in models}),
        exact_curve(
            "3D torus",
            {
                one.name: 1e9
                * iteration_seconds(one, FabricTimes(TORUS_SHARE, _torus_exchange(one)), rate_bps)
                for one in models
            },
        ),
    ]


def iteration_times(rate_bps: float, models: Sequence[str]) -> Sequence[Curve]:
    """Return iteration times by model (Fig. 9, 10a)."""
    return _times(models, rate_bps)


def slowdowns(rate_bps: float, models: Sequence[str]) -> Sequence[Curve]:
    """Return iteration times over a switch's, the labels of Fig. 9's bars."""
    switch, *found = _times(models, rate_bps)
    curves = []
    for one in found:
        y, lower, upper = (
            tuple(a / b for a, b in zip(each, switch.y, strict=True))
            for each in (one.y, one.lower, one.upper)
        )
        curves.append(replace(one, y=y, lower=lower, upper=upper))
    return curves


def breakdown(rate_bps: float, model: str) -> Sequence[Curve]:
    """Return the time in ns of the parts of an iteration, by fabric (Fig. 10b).

    The pipeline's bubble lengthens each part but the reduction of gradients.
    """
    one = MODELS[model]
    fabrics = {
        "switch": [SWITCH],
        "ACOS": [FabricTimes(1.0, tax) for tax in _expanders()],
        "3D torus": [FabricTimes(TORUS_SHARE, _torus_exchange(one))],
    }
    curves = []
    for name, each in fabrics.items():
        parts = [_parts(one, fabric, rate_bps) for fabric in each]
        drawn = {part: [found[part] for found in parts] for part in parts[0]}
        if len(each) > 1:
            curves.append(_drawn(name, drawn))
        else:
            curves.append(exact_curve(name, {part: found[0] for part, found in drawn.items()}))
    return curves


def _parts(model: Model, fabric: FabricTimes, rate_bps: float) -> Mapping[str, float]:
    """Return the parts of an iteration as what it is shorter by without them, in ns."""

    def time(one: Model, ring: float, exchange: float) -> float:
        return 1e9 * iteration_seconds(one, FabricTimes(ring, exchange), rate_bps)

    computed = time(model, 0.0, 0.0)
    rings = time(model, fabric.ring, 0.0)
    activations = time(replace(model, parameters=0.0), fabric.ring, 0.0)
    return {
        "computation": computed,
        "TP and PP": activations - computed,
        "EP": time(model, fabric.ring, fabric.all_to_all) - rings,
        "DP": rings - activations,
    }


def slowdowns_by_sequence() -> Sequence[Curve]:
    """Return Qwen-2's simulated step on ACOS over that on a switch, by tokens (Table 9)."""
    found = {
        f"{length // 1024}k": [
            step_time("Qwen2-57B", length, "selected", seed)
            / step_time("Qwen2-57B", length, "packet")
            for seed in SEEDS
        ]
        for length in (4096, 8192, 16_384)
    }
    return [_drawn("ACOS", found)]


def exchanges_by_size() -> Sequence[Curve]:
    """Return all-to-all time over a switch's, by GPUs: expanders and torus (Fig. 11)."""
    tori = {16: (4, 2, 2), 32: (4, 4, 2), 64: (4, 4, 4)}

    def over(graph: Callable[[int, int], float]) -> Mapping[str, Sequence[float]]:
        return {f"{n} GPUs": [graph(n, seed) for seed in SEEDS] for n in tori}

    return [
        _drawn(
            "splittable expander",
            over(lambda n, s: slowdown(range(n), splittable(n // 2, s).merged, uniform(n))),
        ),
        _drawn(
            "random expander",
            over(lambda n, s: slowdown(range(n), random_regular(n, DEGREE, s), uniform(n))),
        ),
        exact_curve(
            "3D torus",
            {
                f"{n} GPUs": slowdown(range(n), torus_edges(*sizes), uniform(n))
                for n, sizes in tori.items()
            },
        ),
        exact_curve("switch", {f"{n} GPUs": 1.0 for n in tori}),
    ]


def degraded_exchanges() -> Sequence[Curve]:
    """Return how much longer 16 ranks take on 18 GPUs with failed ones (Fig. 12, left)."""
    found: dict[str, Sequence[float]] = {}
    for failed in (0, 1, 2):
        values = []
        for seed in SEEDS:
            made = splittable(9, seed)
            whole = slowdown(range(1, 17), made.merged, uniform(16))
            lost = [0, 9][:failed]
            ranks = [n for n in range(18) if n not in lost][:16] if failed else list(range(1, 17))
            time = slowdown(ranks, without(made.merged, lost), uniform(16), DEGREE)
            values.append(time / whole - 1)
        found[f"{failed} failed"] = values
    return [_drawn("18-GPU expander", found)]


def oversized_exchanges() -> Sequence[Curve]:
    """Return the time of 16 ranks on larger expanders over that on one of 16 (Fig. 12, right)."""
    base = {s: slowdown(range(16), splittable(8, s).merged, uniform(16)) for s in SEEDS}
    found = {
        f"{size} GPUs": [
            slowdown(range(16), splittable(size // 2, s).merged, uniform(16)) / base[s]
            for s in SEEDS
        ]
        for size in (16, 32, 64)
    }
    skew = {
        f"{size} GPUs": [
            slowdown(range(16), splittable(size // 2, s).merged, skewed(16, s))
            / slowdown(range(16), splittable(8, s).merged, skewed(16, s))
            for s in SEEDS
        ]
        for size in (16, 32, 64)
    }
    return [
        _drawn("uniform traffic", found),
        _drawn("generated skew", skew),
    ]


FIGURES: Figures = {
    "ethernet": ethernet,
    "small-scale": small_scale,
    "rack-scale": rack_scale,
    "large-scale": large_scale,
    "generated-halls": generated_halls,
    "iteration-times": iteration_times,
    "slowdowns": slowdowns,
    "breakdown": breakdown,
    "slowdowns-by-sequence": slowdowns_by_sequence,
    "exchanges-by-size": exchanges_by_size,
    "degraded-exchanges": degraded_exchanges,
    "oversized-exchanges": oversized_exchanges,
}
"""Functions that return series, by the names that results/published/figures uses."""
