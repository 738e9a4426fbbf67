"""Series of the paper's figures that can be computed; none is read off a plot."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from lightrig.harness.claims.figures.curves import (
    Curve,
    Figures,
    Values,
    drawn_curve,
    time_below,
)
from lightrig.harness.systems.infinitehbd.planning.costs import INTERCONNECTS, aggregate_cost
from lightrig.harness.systems.infinitehbd.planning.placement import orchestrate
from lightrig.harness.systems.infinitehbd.planning.traffic import careless, cross_tor_share, job_of
from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree
from lightrig.suites.claims.infinitehbd.architectures import ARCHITECTURES, Architecture, waste
from lightrig.suites.claims.infinitehbd.claims import (
    COMPUTED,
    GPU_DOLLARS,
    SCALED,
    TP,
    crossings,
    scattered,
)
from lightrig.suites.claims.infinitehbd.replay import (
    DRAWS,
    GPUS,
    cluster,
    clusters,
    largest_job,
    waiting,
)
from lightrig.suites.claims.infinitehbd.trace import (
    DAY,
    States,
    independent,
    node_fault_share,
    production_trace,
    states,
)

GROUPS = (8, 16, 32, 64)
_MODEL = 60
"""Drawn states of a fault model for each share of faulty nodes."""


@cache
def _clusters() -> tuple[States, ...]:
    return tuple(clusters())


@cache
def _wastes(architecture: Architecture, group: int) -> tuple[Values, ...]:
    """Return the waste in each state of each drawn cluster."""
    return tuple(waste(architecture, found.faulty, 4, group) for found in _clusters())


def _means(architecture: Architecture, group: int) -> list[float]:
    drawn = zip(_clusters(), _wastes(architecture, group), strict=True)
    return [found.mean(wasted) for found, wasted in drawn]


def waste_distribution(group: int) -> Sequence[Curve]:
    """Return the share of the time below each waste over the production trace (Fig. 13, 21)."""
    levels = np.linspace(0, 0.3, 151)
    return [
        drawn_curve(
            one.name,
            levels,
            [
                time_below(found.durations, wasted, levels)
                for found, wasted in zip(_clusters(), _wastes(one, group), strict=True)
            ],
            {"mean": _means(one, group)},
        )
        for one in ARCHITECTURES
    ]


def waste_over_time(group: int) -> Sequence[Curve]:
    """Return the waste of one drawn cluster on each day of the trace (Fig. 20)."""
    found = _clusters()[0]
    ends = np.cumsum(found.durations) / DAY
    days = np.arange(0, int(ends[-1]) + 1)
    return [
        Curve(one.name, tuple(days.tolist()), *(tuple(daily.tolist()),) * 3)
        for one in ARCHITECTURES
        for daily in [_wastes(one, group)[0][np.searchsorted(ends, days, side="right")]]
    ]


def waste_over_faults(group: int) -> Sequence[Curve]:
    """Return waste under independent faults, by the share of faulty nodes (Fig. 14, 22)."""
    shares = np.linspace(0, 0.15, 16)
    random = np.random.default_rng(1)
    drawn = [independent(GPUS // 4, share, _MODEL, random) for share in shares.tolist()]
    return [
        drawn_curve(one.name, shares, np.column_stack([waste(one, m, 4, group) for m in drawn]))
        for one in ARCHITECTURES
    ]


def waste_over_gpu_faults(group: int) -> Sequence[Curve]:
    """Return waste under independent faults, by the share of faulty GPUs (Fig. 22)."""
    shares = np.linspace(0, 0.04, 17)
    random = np.random.default_rng(2)
    drawn = [
        independent(GPUS // 4, node_fault_share(share, 4), _MODEL, random)
        for share in shares.tolist()
    ]
    return [
        drawn_curve(one.name, shares, np.column_stack([waste(one, m, 4, group) for m in drawn]))
        for one in ARCHITECTURES
    ]


def largest_jobs() -> Sequence[Curve]:
    """Return the largest job that never waits, by TP (Fig. 15)."""
    curves = []
    for one in ARCHITECTURES:
        found = [[largest_job(each, one, 4, group) for group in GROUPS] for each in _clusters()]
        drawn = drawn_curve(one.name, GROUPS, found)
        names = tuple(f"TP-{group}" for group in GROUPS)
        curves.append(Curve(one.name, names, drawn.y, drawn.lower, drawn.upper, drawn.n))
    return curves


@cache
def _repaired_alike() -> tuple[States, ...]:
    return tuple(cluster(np.random.default_rng(seed), fixed=True) for seed in range(DRAWS))


def waiting_times(group: int) -> Sequence[Curve]:
    """Return the share of the time that jobs of a size wait for repairs (Fig. 16, 23)."""
    jobs = np.arange(0.80, 1.0001, 0.01)
    sizes = [round(job * GPUS) for job in jobs.tolist()]
    return [
        drawn_curve(
            one.name, jobs, [waiting(found, one, 4, group, sizes) for found in _repaired_alike()]
        )
        for one in ARCHITECTURES
    ]


def waiting_days(group: int) -> Sequence[Curve]:
    """Return the days that jobs of a size wait for repairs (Fig. 23)."""
    days = float(_repaired_alike()[0].durations.sum()) / DAY
    return [
        replace(
            one,
            y=tuple(days * each for each in one.y),
            lower=tuple(days * each for each in one.lower),
            upper=tuple(days * each for each in one.upper),
        )
        for one in waiting_times(group)
    ]


def crossing_by_cluster() -> Sequence[Curve]:
    """Return traffic across ToRs by the size of the cluster, 85 % of it in the job (Fig. 17a).

    By Algorithm 1 alone: the service is tried at the size of the other panels.
    """
    nodes = (512, 1024, 2048)
    found = np.array([[_alone(each, seed) for each in nodes] for seed in range(DRAWS)])
    gpus = [4.0 * each for each in nodes]
    return [
        drawn_curve("Algorithm 1 alone", gpus, found[..., 0]),
        drawn_curve("Baseline", gpus, found[..., 1]),
    ]


def _alone(nodes: int, seed: int) -> tuple[float, float]:
    """Return the share across ToRs at 5 % of faults, placed by Algorithm 1 and of the baseline."""
    tree = FatTree(nodes=nodes, per_tor=2, per_domain=512)
    groups, random = int(0.85 * nodes * 4) // TP, np.random.default_rng(seed)
    faulty = np.zeros(nodes, dtype=bool)
    faulty[random.permutation(nodes)[: round(0.05 * nodes)]] = True
    best = orchestrate(tree, faulty, TP // 4, 3, groups)
    if best is None:
        return float("nan"), float("nan")
    ours = cross_tor_share(tree, job_of(tree, best, groups))
    return ours, cross_tor_share(tree, careless(tree, faulty, TP // 4, 3, groups, random))


def _crossings(x: Sequence[float], cases: Sequence[tuple[float, float]]) -> list[Curve]:
    """Return the service's traffic across ToRs, and the baseline's, by faults and job's share."""
    optimized = np.column_stack([crossings((share,) * DRAWS, job) for share, job in cases])
    baseline = np.array([[_careless(*case, seed) for case in cases] for seed in range(DRAWS)])
    return [drawn_curve("Optimized", x, optimized), drawn_curve("Baseline", x, baseline)]


def _careless(share: float, job: float, seed: int) -> float:
    groups, random = int(job * SCALED.nodes * 4) // TP, np.random.default_rng(seed)
    faulty = scattered(share, seed)
    return cross_tor_share(SCALED, careless(SCALED, faulty, TP // 4, 3, groups, random))


def crossing_by_job() -> Sequence[Curve]:
    """Return traffic across ToRs by the share of GPUs in the job, 5 % faulty (Fig. 17b)."""
    jobs = (0.7, 0.75, 0.8, 0.85, 0.9)
    return _crossings(jobs, [(0.05, job) for job in jobs])


def crossing_by_faults() -> Sequence[Curve]:
    """Return traffic across ToRs by the share of faulty nodes, 85 % in the job (Fig. 17c)."""
    shares = (0.0, 0.02, 0.04, 0.06, 0.07, 0.08, 0.1)
    return _crossings(shares, [(share, 0.85) for share in shares])


def aggregate_costs(group: int = 32) -> Sequence[Curve]:
    """Return the cost of interconnect, wasted and faulty GPUs together (Fig. 17d)."""
    names = {
        "InfiniteHBD (K=2)": "infinitehbd-2",
        "InfiniteHBD (K=3)": "infinitehbd-3",
        "NVL-36": "nvl-36",
        "NVL-72": "nvl-72",
        "NVL-576": "nvl-576",
        "TPUv4": "tpuv4",
    }
    shares = np.linspace(0, 0.2, 21)
    random = np.random.default_rng(1)
    drawn = [independent(GPUS // 4, share, _MODEL, random) for share in shares.tolist()]
    curves = []
    for one in ARCHITECTURES:
        if one.name in names:
            lost = [waste(one, m, 4, group) + m.mean(axis=1) for m in drawn]
            price = aggregate_cost(
                INTERCONNECTS[names[one.name]], np.column_stack(lost), GPU_DOLLARS
            )
            curves.append(drawn_curve(one.name, shares, price))
    return curves


def _faulty() -> tuple[States, Values]:
    found = states(production_trace())
    return found, np.asarray(found.faulty.mean(axis=1), dtype=float)


def faults_over_time() -> Sequence[Curve]:
    """Return the share of faulty 8-GPU nodes on each day of the trace (Fig. 18a)."""
    found, share = _faulty()
    ends = np.cumsum(found.durations) / DAY
    days = np.arange(0, ends[-1], 0.5)
    daily = tuple(share[np.searchsorted(ends, days, side="right")].tolist())
    numbers = {"mean": COMPUTED["faulty-nodes"](), "p99": COMPUTED["faulty-nodes-p99"]()}
    return [Curve("production trace", tuple(days.tolist()), daily, daily, daily, 1, numbers)]


def faults_distribution() -> Sequence[Curve]:
    """Return the share of the time with at most each share of faulty nodes (Fig. 18b)."""
    found, share = _faulty()
    levels = np.linspace(0, 0.12, 241)
    below = tuple(time_below(found.durations, share, levels).tolist())
    numbers = {"mean": COMPUTED["faulty-nodes"](), "p99": COMPUTED["faulty-nodes-p99"]()}
    return [Curve("production trace", tuple(levels.tolist()), below, below, below, 1, numbers)]


FIGURES: Figures = {
    "waste-distribution": waste_distribution,
    "waste-over-time": waste_over_time,
    "waste-over-faults": waste_over_faults,
    "waste-over-gpu-faults": waste_over_gpu_faults,
    "waiting-days": waiting_days,
    "largest-jobs": largest_jobs,
    "waiting-times": waiting_times,
    "crossing-by-cluster": crossing_by_cluster,
    "crossing-by-job": crossing_by_job,
    "crossing-by-faults": crossing_by_faults,
    "aggregate-costs": aggregate_costs,
    "faults-over-time": faults_over_time,
    "faults-distribution": faults_distribution,
}
"""Functions that return series, by the names that results/published/figures uses."""
