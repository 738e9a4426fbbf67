"""Further figures of InfiniteHBD: by size of group, by wiring, and of set-ups."""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from lightrig.harness.claims.computed import Computed, Registry, exactly
from lightrig.harness.systems.infinitehbd.planning.costs import INTERCONNECTS, aggregate_cost
from lightrig.harness.systems.infinitehbd.planning.wiring import k_hop
from lightrig.suites.claims.infinitehbd.architectures import (
    Architecture,
    BigSwitch,
    Cubes,
    Islands,
    KHop,
    StaticRings,
    waste,
)
from lightrig.suites.claims.infinitehbd.exchange import exchange_ns
from lightrig.suites.claims.infinitehbd.replay import (
    GPUS,
    clusters,
    largest_job,
    mean_waste,
)
from lightrig.suites.claims.infinitehbd.stored import replays
from lightrig.suites.claims.infinitehbd.theory import (
    MODEL_USE,
    waste_bound,
)
from lightrig.suites.claims.infinitehbd.trace import (
    States,
    independent,
    production_trace,
)

GROUPS = (8, 16, 32, 64)
"""Sizes of tensor-parallel groups in Figs. 13 to 16."""
_LINE_2, _LINE_3 = KHop(2, closed=False), KHop(3, closed=False)
_DRAWS = 4
_ON_TRACE = f"the public trace, {_DRAWS} draws"
_NODE_FAULTS = 0.0117
"""Mean share of faulty nodes of 4 GPUs (Appendix A)."""
_P99 = {4: 0.0367, 8: 0.0722}


@cache
def _drawn() -> tuple[States, ...]:
    return tuple(clusters(_DRAWS))


@cache
def _wasted(architecture: Architecture, group: int) -> float:
    return float(np.mean([mean_waste(found, architecture, 4, group) for found in _drawn()]))


def _reserved() -> Computed:
    """Waste of NVL-36 and NVL-72 without faults, TP 16 and 32."""
    values = [
        float(waste(Islands(size), np.zeros((1, size), dtype=bool), 1, group)[0])
        for size in (36, 72)
        for group in (16, 32)
    ]
    return Computed(float(np.mean(values)), min(values), max(values), 1, "no faults, TP 16 and 32")


def _reserved_64() -> Computed:
    none = np.zeros((1, 36), dtype=bool)
    return exactly(float(waste(Islands(36), none, 1, 64)[0]), "no faults: no group of 64 fits")


def _of_row(hops: int, group: int, name: str) -> float:
    """Mean `waste`, or `least` GPUs in groups, of the service, or of Algorithm 2 alone."""
    if (found := replays(hops, group)) is not None:
        return found.mean(name)
    line = KHop(hops, closed=False)
    if name == "waste":
        return _wasted(line, group)
    return float(np.mean([largest_job(each, line, 4, group) for each in _drawn()]))


def _below(compared: Sequence[Architecture]) -> Computed:
    """The least quotient of another architecture's waste and that of three hops, of all groups."""
    ratios = {
        group: min(_wasted(one, group) for one in compared) / _of_row(3, group, "waste")
        for group in GROUPS
    }
    listed = ", ".join(f"TP {group}: {ratio:.1f}" for group, ratio in ratios.items())
    return exactly(min(ratios.values()), f"{_ON_TRACE}; {listed}")


def _largest_waste() -> Computed:
    found = {group: _of_row(3, group, "waste") for group in GROUPS}
    listed = ", ".join(f"TP {group}: {share:.2%}" for group, share in found.items())
    return exactly(max(found.values()), f"{_ON_TRACE}; {listed}")


def _less_fragmented() -> Computed:
    """Share of group sizes for which NVL-576 wastes least of the three NVL."""
    least = [
        _wasted(Islands(576), group) < min(_wasted(Islands(36), group), _wasted(Islands(72), group))
        for group in GROUPS
    ]
    return exactly(float(np.mean(least)), f"{_ON_TRACE}, TP 8 to 64")


def _degrades() -> Computed:
    """Waste of TPUv4 at TP 64 over that at TP 8, by whole cubes."""
    small, large = (_wasted(Cubes(), group) for group in (8, 64))
    return exactly(large / small, f"{_ON_TRACE}, by parts of cubes")


def _leading_jobs() -> Computed:
    """Share of group sizes for which two and three hops and NVL-576 support the largest jobs."""

    def job(architecture: Architecture, group: int) -> float:
        return float(np.mean([largest_job(found, architecture, 4, group) for found in _drawn()]))

    leading = [
        min(*(_of_row(hops, group, "least") for hops in (2, 3)), job(Islands(576), group))
        > max(job(one, group) for one in (Islands(36), Islands(72), StaticRings()))
        for group in GROUPS
    ]
    return exactly(
        float(np.mean(leading)),
        f"{_ON_TRACE}, {GPUS:,} GPUs, against NVL-36, NVL-72 and SiP-Ring",
    )


def _linear() -> Computed:
    small, large = (len(k_hop(nodes, 3, closed=True).links()) for nodes in (64, 128))
    return exactly(large / small, "links of 128 nodes over those of 64, three hops")


def _unbypassed() -> Computed:
    return exactly(_NODE_FAULTS**3, "1.17 % of nodes faulty, three in a row")


def _ends() -> Computed:
    """Waste of a line over that of a ring, two hops."""
    faulty = independent(GPUS // 4, 0.05, 400, np.random.default_rng(1))
    line, ring = (
        float(waste(KHop(2, closed=closed), faulty, 4, 32).mean()) for closed in (False, True)
    )
    return exactly(line / ring, f"5 % of {GPUS // 4} nodes faulty, 400 draws, TP 32")


def _bounds() -> Computed:
    """Share of six cases in which the bound is at least the waste that is drawn."""
    above: dict[str, bool] = {}
    for gpus, share in _P99.items():
        faulty = independent(8192 // gpus, share, 400, np.random.default_rng(2))
        remainder = waste(BigSwitch(), faulty, gpus, 32)
        for hops in (2, 3, 4):
            excess = waste(KHop(hops, closed=False), faulty, gpus, 32) - remainder
            drawn = float(excess.mean())
            bound = waste_bound(hops, gpus, 32, share)
            above[f"{gpus} GPUs, {hops} hops: {drawn:.3%} of {bound:.3%}"] = drawn <= bound
    return exactly(
        float(np.mean(list(above.values()))),
        "8,192 GPUs, 400 draws, at the 99th percentile of faults; waste without "
        "that of the cluster's remainder, of the bound: " + "; ".join(above),
    )


def _lowest_aggregate() -> Computed:
    """Share of fault shares at which InfiniteHBD costs least in all."""
    random, shares = np.random.default_rng(3), np.linspace(0, 0.2, 11)
    built: dict[str, Architecture] = {
        "infinitehbd-2": _LINE_2,
        "infinitehbd-3": _LINE_3,
        "nvl-36": Islands(36),
        "nvl-72": Islands(72),
        "nvl-576": Islands(576),
        "tpuv4": Cubes(),
    }
    lowest = []
    for share in shares.tolist():
        faulty = independent(GPUS // 4, share, 40, random)
        costs = {
            name: float(
                aggregate_cost(
                    INTERCONNECTS[name],
                    float((waste(one, faulty, 4, 32) + faulty.mean(axis=1)).mean()),
                    _GPU_DOLLARS,
                )
            )
            for name, one in built.items()
        }
        lowest.append(min(costs, key=costs.__getitem__))
    ours = [name.startswith("infinitehbd") for name in lowest]
    return exactly(
        float(np.mean(ours)),
        f"0 to 20 % of nodes faulty, TP 32, a GPU for {_GPU_DOLLARS:,.0f} $ (a guess); lowest in "
        "turn: " + ", ".join(lowest),
    )


_GPU_DOLLARS = 30_000.0


def _lowest_power(*, by_bandwidth: bool) -> Computed:
    watts, name = min(
        (one.watts_per_gbyte if by_bandwidth else one.watts, name)
        for name, one in INTERCONNECTS.items()
    )
    return exactly(watts, f"{name}, of the interconnects of Table 8")


def _ring_difference() -> Computed:
    return exactly(0.7726 - 0.7711, "a rise, from 77.11 to 77.26 %")


def _products() -> Computed:
    right = [int(np.prod(row.parallel)) == gpus for gpus, row in MODEL_USE.items()]
    return exactly(float(np.mean(right)), "TP x PP x DP of seven rows")


def _limiting() -> Computed:
    """Fewest GPUs of Table 2 at which larger groups gain more than 5 %."""
    gpus = min(gpus for gpus, row in MODEL_USE.items() if row.best / row.tp8 > 1.05)
    return exactly(gpus, "by the quotients of Table 2, more than 1.05")


def _expert_load() -> Computed:
    """Share of choices k of n experts for which expert parallelism sends less, if k < n."""
    cases = [(k, n) for n in (2, 4, 8, 64) for k in range(1, n)]
    less = [2 * (n - 1) / n * k / n < 2 * (n - 1) / n for k, n in cases]
    return exactly(float(np.mean(less)), "h is missing in both formulas, and cancels out")


def _exchange_growth() -> Computed:
    """Time of a binary exchange of 64 ranks over that of 8, by the bytes that it sends."""
    small, large = (exchange_ns(ranks, 1, 8e9, 0.0) for ranks in (8, 64))
    return exactly(large / small, "64 log2 64 over 8 log2 8")


def _days() -> Computed:
    trace = production_trace()
    return exactly((trace.end - min(trace.begin, 0)) / 86_400e9, "of the public trace, from day 0")


FURTHER: Registry = {
    "trace-days": _days,
    "ring-difference": _ring_difference,
    "waste-nvl-reserved": _reserved,
    "waste-nvl-reserved-64": _reserved_64,
    "waste-below-nvl-72": partial(_below, (Islands(72),)),
    "waste-below-tpuv4": partial(_below, (Cubes(),)),
    "waste-near-zero": _largest_waste,
    "less-fragmented": _less_fragmented,
    "tpuv4-degrades": _degrades,
    "leading-jobs": _leading_jobs,
    "wiring-linear": _linear,
    "unbypassed": _unbypassed,
    "ends-of-line": _ends,
    "bounds-hold": _bounds,
    "lowest-aggregate": _lowest_aggregate,
    "lowest-power": partial(_lowest_power, by_bandwidth=False),
    "lowest-power-per-bandwidth": partial(_lowest_power, by_bandwidth=True),
    "table-2-products": _products,
    "limiting-size": _limiting,
    "expert-load": _expert_load,
    "exchange-growth": _exchange_growth,
    "multiple-of-576": lambda: exactly(3200 // 576 * 576, "of 3,200 GPUs"),
    "domain-rate": lambda: exactly(8 * 800e9, "eight bundles of 800 Gbit/s"),
    "cube": lambda: exactly(4**3),
    "host-rate": lambda: exactly(96 * 16e9 * 128 / 130, "96 lanes of 16 GT/s, 128 of 130 bits"),
    "power-sum": lambda: exactly(8.5 + 3.2, "8.5 W and 3.2 W"),
}
"""Functions that compute claims, by their names in the file of published values."""
