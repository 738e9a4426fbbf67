"""Values of the ACOS paper that are computed again, by their name in results/published."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial
from math import comb

import numpy as np

from lightrig.harness.claims.computed import Computed, exactly, over_draws
from lightrig.harness.systems.acos.planning import costs
from lightrig.harness.systems.acos.planning.datacentre import PP_8_4, DataCentre, Hall, build_hall
from lightrig.harness.systems.acos.planning.exchanges import (
    mesh_edges,
    skewed,
    slowdown,
    torus_edges,
    uniform,
    without,
)
from lightrig.harness.systems.acos.planning.expanders import DEGREE, random_regular, splittable
from lightrig.harness.systems.acos.planning.optics import Kind
from lightrig.harness.systems.acos.planning.rack import CLUSTERS, Degrees, Rack, build
from lightrig.suites.claims.acos import availability
from lightrig.suites.claims.acos.avoidable_switches import avoidable_switches
from lightrig.suites.claims.acos.expander_hops import diameter_and_mean
from lightrig.suites.claims.acos.performance import (
    MODELS,
    FabricTimes,
    relative_time,
    ring_all_reduce_bytes,
)
from lightrig.suites.claims.acos.simulated_steps import over_a_switch, step_time, with_tax


@cache
def rack(name: str) -> Rack:
    """Cluster of the paper by its number of GPUs."""
    return build(CLUSTERS[name])


@cache
def hall(ring: int, *, node: bool = False, racks: bool = False) -> DataCentre:
    """Data centre with a two-dimensional torus."""
    return build_hall(Hall(ring, node_backups=node, rack_backups=racks))


_FAULTY = 0.001
_MODEL = "flow model with public model sizes and 40 % of an H200's FLOPS, an assumption"
_SEEDS = range(1, 6)
Rows = Mapping[tuple[str, str, Kind], Fraction]


def _cost(name: str) -> Computed:
    return exactly(float(costs.switch_cost(rack(name).fabric)), "from the generated fabric")


@cache
def _hall_rows(node: bool, racks: bool) -> Rows:
    return costs.hall_rows(hall(8, node=node, racks=racks))


def hall_cost(node: bool, racks: bool, note: str = "") -> Computed:
    value = float(costs.rows_cost(_hall_rows(node, racks)))
    return exactly(value, f"from the generated fabric of 4,096 GPUs. {note}".strip())


_OFFSETS = (
    "Without the 0.67 2x2 of offsetting links, 33.33 $: what TP 4 would need is two a fiber, 2.67"
)


def _row(rows: Rows, purpose: str, *dimensions: str) -> float:
    return float(
        sum(
            costs.PRICES[kind] * count
            for (why, where, kind), count in rows.items()
            if why == purpose and where in dimensions
        )
    )


def _rack_row(name: str, purpose: str, *dimensions: str) -> Computed:
    return exactly(_row(costs.per_gpu(rack(name).fabric), purpose, *dimensions), "dollars a GPU")


def _rows_sum(rows: Rows, *purposes: str) -> Computed:
    return exactly(sum(_row(rows, p, "all", "TP", "DP", "PP", "EP") for p in purposes))


def _count(rows: Rows, kind: Kind) -> float:
    return float(sum(count for (_, _, k), count in rows.items() if k == kind))


def _saving(table: str, gpus: int, overhead: float = 1.0) -> float:
    acos = float(costs.table_cost(table)) + costs.FR8D
    return 1 - acos * overhead / float(costs.Ethernet(gpus).cost)


def _headline(gpus: int) -> Computed:
    low, middle, high = (_saving("T6-both", gpus, (9 / 8) ** k) for k in (2, 1, 0))
    return Computed(
        middle,
        low,
        high,
        1,
        "backup racks counted once; not at all, and backup nodes as well, bound it",
    )


def _against_ethernet(name: str, gpus: int) -> Computed:
    acos = float(costs.switch_cost(rack(name).fabric)) + costs.FR8D
    return exactly(acos / float(costs.Ethernet(gpus).cost), "with transceivers, of packet switches")


@cache
def _splittable_times(half: int) -> tuple[float, ...]:
    return tuple(
        slowdown(range(2 * half), splittable(half, s).merged, uniform(2 * half)) for s in _SEEDS
    )


@cache
def _random_times(nodes: int) -> tuple[float, ...]:
    return tuple(
        slowdown(range(nodes), random_regular(nodes, DEGREE, s), uniform(nodes)) for s in _SEEDS
    )


def _splittable_against_random() -> Computed:
    pairs = zip(_splittable_times(8), _random_times(16), strict=True)
    return over_draws(
        [a / b for a, b in pairs], "16 GPUs, completion of uniform all-to-all (model)"
    )


def _expander_tax() -> float:
    return float(np.mean(_splittable_times(8)))


def _degraded(failed: int) -> Computed:
    values = []
    for seed in _SEEDS:
        made = splittable(9, seed)
        lost = list(range(0, 18, 9))[:failed]
        whole = slowdown(range(1, 17), made.merged, uniform(16))
        ranks = [n for n in range(18) if n not in lost][:16]
        values.append(slowdown(ranks, without(made.merged, lost), uniform(16), DEGREE) / whole - 1)
    return over_draws(values, "against 16 ranks of 18 with none failed, five seeds (model)")


def _skew() -> Computed:
    values = []
    for seed in _SEEDS:
        made = splittable(8, seed)
        ranks = range(16)
        even = slowdown(ranks, made.merged, uniform(16))
        values.append(slowdown(ranks, made.merged, skewed(16, seed)) / even - 1)
    return over_draws(
        values, "generated skew; the recording is not public (model, all-to-all alone)"
    )


def _over_a_switch(sequence: int, seed: int) -> float:
    packet = step_time("Qwen2-57B", sequence, "packet")
    return step_time("Qwen2-57B", sequence, "selected", seed) / packet


def _iteration(skew: float = 0.0) -> Computed:
    """Return the nanoseconds of Qwen-2's step, over five seeds of the expander and of the skew."""
    found = [step_time("Qwen2-57B", 16_384, "selected", seed, skew) for seed in _SEEDS]
    traffic = "receivers are drawn, as exp(0.3 x)" if skew else "traffic is even"
    return over_draws(found, f"simulated by the rules of MLSynth, on five expanders; {traffic}")


def _torus_ratio() -> Computed:
    worst = [relative_time(m, FabricTimes(3.0, 3.2)) for m in MODELS.values()]
    return exactly(min(worst), f"the least of six models; {_MODEL}")


def _avoidable() -> Computed:
    free, always = avoidable_switches(rack("72"), Degrees(8, 2, 4, 16))
    return exactly(
        len(free) / (len(free) + len(always)),
        f"{len(free):,} of {len(free) + len(always):,} switches of TP, DP and PP with TP 8, PP 2. "
        "A 2x2 on the doubled merge points of DP carries links of two nodes; one can be spared",
    )


def _merges_of_double_offsets() -> Computed:
    """2x2 a GPU that merge rings of racks, with double offsetting links over none."""
    row: tuple[str, str, Kind] = (PP_8_4, "DP", "2x2")
    plain, double = (
        build_hall(hall) for hall in (Hall(8), Hall(8, node_backups=True, double_offsets=True))
    )
    one, two = (each.fabric.counts()[row] / each.hall.gpus for each in (plain, double))
    return exactly(two / one, "2x2 a GPU for PP 8-4 at 4,096 GPUs: 1/2 against 1/4")


def _qwen_overhead() -> Computed:
    """Overhead at 3.2 Tbit/s, over five seeds of the expander and MFU from 30 to 50 %."""

    def overhead(tax: float, share: float) -> float:
        fabric, job = FabricTimes(1.0, tax), MODELS["Qwen2-57B"]
        return relative_time(job, fabric, 3200e9, share) - 1

    found = [overhead(tax, share) for tax in _splittable_times(8) for share in (0.3, 0.4, 0.5)]
    return Computed(
        overhead(_expander_tax(), 0.4),
        min(found),
        max(found),
        1,
        f"at 3.2 Tbit/s; five seeds of the expander, 30 to 50 % of the FLOPS; {_MODEL}",
    )


def _moore(diameter: int) -> int:
    beyond: list[int] = [DEGREE * (DEGREE - 1) ** k for k in range(diameter)]
    return 1 + sum(beyond)


def _doubled() -> Computed:
    one = costs.per_gpu(rack("64").fabric)["TP 4-8", "DP", "2x2"]
    two = costs.per_gpu(rack("72").fabric)["TP 4-8", "DP", "2x2"]
    return exactly(float(two / one), "2x2 a GPU for TP 4-8 in DP: 4 against 2")


def _diameters() -> Computed:
    means = [
        diameter_and_mean(n, random_regular(n, DEGREE, seed))[1] for n in (64,) for seed in _SEEDS
    ]
    return over_draws(means, "mean hops of 64 GPUs, degree 8")


def _number(value: float, note: str = "") -> Callable[[], Computed]:
    return lambda: exactly(value, note)


_PRICES = "from unit prices"
NUMBERS: Mapping[str, Callable[[], Computed]] = {
    "c001": lambda: _headline(4096),
    "c002": lambda: _headline(32_768),
    "c003": lambda: exactly(
        1 - 1325.5 / float(costs.Ethernet(128).cost), "16-GPU fabric against two tiers"
    ),
    "c006": _torus_ratio,
    "c007": lambda: exactly(len(MODELS)),
    "c009": lambda: exactly(_moore(2), "Moore bound of degree 8, diameter 2"),
    "c010": lambda: exactly(_moore(4), "Moore bound of degree 8, diameter 4"),
    "c015": lambda: exactly(
        ring_all_reduce_bytes(8, 1.0), "bytes sent per byte, 8 ranks: the bound"
    ),
    "c016": lambda: exactly(len(rack("64").selection.topologies)),
    "c020": lambda: exactly(1, "2x2 on a TP link of 64 GPUs; DP of 72 GPUs has two in a row"),
    "c024": lambda: exactly(
        float(costs.per_gpu(rack("64").fabric)["EP 8-16", "EP", "2x2"]), "per GPU: 32 for 16 GPUs"
    ),
    "c030": _doubled,
    "c031": lambda: exactly(float(costs.table_count("T6-both")) * 1024, "at 1,024 GPUs"),
    "c032": _number(125.0, "8 ms bound it"),
    "c034": lambda: exactly(rack("16").spec.lanes, "duplex lanes a GPU"),
    "c037": lambda: exactly(rack("16").fabric.counts()["Topology selection", "all", "1x2"] / 16),
    "c038": lambda: exactly(_count(costs.per_gpu(rack("16").fabric), "2x2") * 16),
    "c039": lambda: _cost("16"),
    "c040": lambda: exactly(125.5 / costs.SR8, "of the cheapest transceiver"),
    "c042": lambda: exactly(rack("64").spec.lanes),
    "c046": lambda: exactly(float(costs.per_gpu(rack("72").fabric)["TP 4-8", "TP", "2x2"])),
    "c047": lambda: exactly(float(costs.per_gpu(rack("72").fabric)["TP 8-16", "TP", "2x2"])),
    "c050": lambda: exactly(len(Hall(8, (4, 2)).further) + 2, "dimensions of the 32,768-GPU torus"),
    "c051": lambda: exactly(Hall(8, (4, 2)).active),
    "c055": lambda: _rows_sum(costs.per_gpu(rack("64").fabric), "Topology selection"),
    "c056": lambda: _rack_row("64", "TP 4-8", "TP", "DP"),
    "c057": lambda: _rack_row("64", "PP 4-2", "DP"),
    "c058": lambda: _cost("64"),
    "c058-count": lambda: exactly(
        _count(costs.per_gpu(rack("64").fabric), "2x2"), "from the generated fabric"
    ),
    "c059": lambda: _rack_row("72", "TP resiliency", "TP"),
    "c060": lambda: _rack_row("144", "PP resiliency", "PP"),
    "c061": lambda: _rack_row("72", "TP 4-8", "TP", "DP"),
    "c062": lambda: _rack_row("72", "TP 8-16", "TP"),
    "c063": lambda: _cost("72"),
    "c063-count": lambda: exactly(_count(costs.per_gpu(rack("72").fabric), "2x2")),
    "c064": lambda: _cost("144"),
    "c064-count": lambda: exactly(_count(costs.per_gpu(rack("144").fabric), "2x2")),
    "c065": lambda: exactly(_row(_hall_rows(False, True), PP_8_4, "DP"), "PP 8-4, dollars a GPU"),
    "c066": lambda: _rows_sum(_hall_rows(False, True), "Resiliency between racks"),
    "c067": lambda: hall_cost(False, True),
    "c068": lambda: exactly(_row(_hall_rows(True, False), "Resiliency between racks", "DP", "PP")),
    "c069": lambda: exactly(_row(_hall_rows(True, False), "TP 4-8", "TP", "DP")),
    "c070": lambda: exactly(_row(_hall_rows(True, True), "Resiliency between racks", "DP", "PP")),
    "c071": lambda: exactly(float(costs.table_cost("T6-node")), "from the printed rows"),
    "c071-fabric": lambda: hall_cost(True, False, _OFFSETS),
    "c072": lambda: exactly(float(costs.table_cost("T6-both")), "from the printed rows"),
    "c072-fabric": lambda: hall_cost(True, True, _OFFSETS),
    "c073": _number(costs.FR8D, "added to switches, 1,200 $ with two lanes"),
    "c074": lambda: exactly(1325.5 / float(costs.Ethernet(16).cost), _PRICES),
    "c075": lambda: exactly(costs.FR4L / 1325.5, _PRICES),
    "c076": lambda: exactly(1325.5 / costs.Baselines(2, 2).matrix, _PRICES),
    "c077": lambda: exactly(1325.5 / costs.Baselines(2, 2).robotic, _PRICES),
    "c080": lambda: exactly(float(costs.Ethernet(64).cost / costs.Ethernet(16).cost), _PRICES),
    "c081": lambda: exactly(float(costs.Ethernet(72).switches_per_gpu * 64), _PRICES),
    "c082": lambda: exactly(2595 / costs.Baselines(8, 4).matrix, _PRICES),
    "c083": lambda: exactly(2595 / costs.Baselines(8, 4).robotic, _PRICES),
    "c084": lambda: _against_ethernet("72", 72),
    "c084-64": lambda: _against_ethernet("64", 64),
    "c085": lambda: exactly(
        (costs.FR4L + 1495 / 4 - 25) / float(costs.Ethernet(128).cost),
        "a quarter of the fibers and no expander, 128 GPUs; the basis is not printed",
    ),
    "c086": lambda: exactly(costs.Ethernet(4096).tiers),
    "c087": lambda: exactly(1 - _saving("T6-both", 4096), "the dearest, backups of racks left out"),
    "c088": lambda: exactly(1 - _saving("T6-both", 1024), "two tiers suffice at 1,024 GPUs"),
    "c099": lambda: exactly(MODELS["Qwen2-57B"].per_token),
    "c096": lambda: exactly(
        relative_time(MODELS["Llama3-70B"], FabricTimes(1.0, _expander_tax(), 0.008)), _MODEL
    ),
    "c100": lambda: exactly(
        slowdown(range(8), [e for e in splittable(8, 1).split if max(e) < 8], uniform(8)),
        "all-to-all over a switch's: 7 of 8 lanes work, the eighth doubles others (model)",
    ),
    "c101": _qwen_overhead,
    "c103": lambda: exactly(
        relative_time(MODELS["Llama-4-Maverick"], FabricTimes(1.0, _expander_tax())) - 1, _MODEL
    ),
    "c105": _number(1 - 171.89 / 209.04, "from Table 8; as a speedup it is 21.6 %"),
    "c106": _number(205.39 / 171.89, "uniform against uniform, from Table 8"),
    "c107": _skew,
    "c107-table": _number(209.04 / 205.39 - 1, "from Table 8"),
    "c108": lambda: exactly(slowdown(range(16), mesh_edges(16), uniform(16)), "16 GPUs (model)"),
    "c110": _splittable_against_random,
    "c111": lambda: exactly(
        _expander_tax() / slowdown(range(16), torus_edges(4, 2, 2), uniform(16)),
        "16 GPUs, against a torus of 4x2x2 (model)",
    ),
    "c113": lambda: _degraded(1),
    "c114": lambda: _degraded(2),
    "c118": lambda: exactly(availability.pristine(1024, _FAULTY)),
    "c119": lambda: exactly(availability.pristine(32_768, _FAULTY)),
    "c120": lambda: exactly(
        availability.group_fails(_FAULTY), "the probability that a group fails"
    ),
    "c121": lambda: exactly(availability.groups(1024)),
    "c122": lambda: exactly(
        float(costs.table_count("T6-both")) * 32_768, "2.2 million; 269 thousand at 4,096 GPUs"
    ),
    "c124": lambda: exactly(availability.years_of_wear(1e10, 10)),
    "c125": lambda: exactly(
        availability.needed_mtbf_hours(65, _FAULTY) / 1e6, "million hours, 65 switches a GPU"
    ),
    "c125-count": lambda: exactly(float(costs.table_count("T6-both")), "a GPU, not a node"),
    "c109": lambda: over_draws(
        [_over_a_switch(4096, seed) - _over_a_switch(16_384, seed) for seed in _SEEDS],
        "of the ratio from 4k to 16k, simulated on five expanders",
    ),
    **{
        f"c{126 + 3 * row + column}": partial(over_a_switch, model, sequence)
        for row, model in enumerate(("Qwen2-57B", "Mixtral-8x7B", "Mixtral-8x22B"))
        for column, sequence in enumerate((4096, 8192, 16_384))
    },
    **{
        f"c{126 + column}-fitted": partial(with_tax, "Qwen2-57B", sequence, 1.6)
        for column, sequence in enumerate((4096, 8192, 16_384))
    },
    "c135": lambda: _iteration(skew=0.3),
    "c136": _iteration,
    "c137": lambda: exactly(
        with_tax("Qwen2-57B", 16_384, 1.0).value * step_time("Qwen2-57B", 16_384, "packet"),
        "simulated by the rules of MLSynth",
    ),
    "m27": _merges_of_double_offsets,
    "m28": _avoidable,
    "m47": lambda: exactly(Hall(8, rack_backups=True).columns / 72),
    "m50": lambda: exactly(float(costs.Baselines(8, 4).matrix < costs.Baselines(8, 4).robotic)),
    "m56": _number(3.0, "a third of the links serves one dimension"),
    "m61": _number(0.5, "one fiber a lane instead of two, each with its switches"),
    "c138": lambda: exactly(
        MODELS["Llama3-8B"].tp * MODELS["Llama3-8B"].pp * MODELS["Llama3-8B"].dp
    ),
    "c139": _number(4 * 8 * 2, "PP 4, EP 8, DP 2"),
    "c140": _number(4 * 16 * 1, "PP 4, EP 16, DP 1"),
    "c141": _number(8 * 32 * 4, "PP 8, EP 32, DP 4"),
    "c145": _diameters,
}

COMPUTED: Mapping[str, Callable[[], Computed]] = {
    **NUMBERS,
    "c005": lambda: exactly(
        max(
            relative_time(m, FabricTimes(1.0, _expander_tax() if m.ep > 8 else 8 / 7))
            for m in MODELS.values()
            if m.name != "Qwen2-57B"
        ),
        f"the greatest but Qwen-2's; {_MODEL}",
    ),
    "c052": lambda: exactly(0.0, f"{comb(72, 2) - 9 * comb(8, 2):,} pairs of GPUs in two nodes"),
}
"""Computation of each claim, by its name in results/published/acos.yaml."""
