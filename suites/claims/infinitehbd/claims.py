"""Claims that computation answers, by their names in results/published."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from lightrig.harness.claims.computed import Computed, Registry, exactly, over_draws
from lightrig.harness.systems.infinitehbd.planning.costs import (
    INTERCONNECTS,
    Interconnect,
    aggregate_cost,
)
from lightrig.harness.systems.infinitehbd.planning.traffic import careless, cross_tor_share
from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree, Mask, k_hop
from lightrig.suites.claims.infinitehbd.architectures import (
    Architecture,
    Cubes,
    Islands,
    KHop,
    waste,
)
from lightrig.suites.claims.infinitehbd.exchange import largest_parallelism
from lightrig.suites.claims.infinitehbd.further_claims import FURTHER
from lightrig.suites.claims.infinitehbd.model_flops import (
    GPT_MOE,
    LLAMA,
    TENSOR,
    Strategy,
    best,
)
from lightrig.suites.claims.infinitehbd.replay import DRAWS, clusters, mean_wastes
from lightrig.suites.claims.infinitehbd.service import Crossing
from lightrig.suites.claims.infinitehbd.stored import COMMAND, replays
from lightrig.suites.claims.infinitehbd.theory import (
    MODEL_USE,
    PcieFraming,
    ring_utilisation,
    waste_bound,
)
from lightrig.suites.claims.infinitehbd.trace import (
    States,
    gpu_fault_share,
    node_fault_share,
    production_trace,
    states,
)

TP = 32
P99 = {4: 0.0367, 8: 0.0722}
"""Faulty nodes of 4 and of 8 GPUs at the 99th percentile, as printed."""
_ON_TRACE = (
    "the public trace, 360 of its 400 nodes drawn, each split into two of 4 GPUs that stand "
    "anywhere in the row"
)
_UNSAID = (
    "The paper names neither which 360 nodes nor in which order they stand; with halves side by "
    "side, two hops waste 1.4 %, three 0.53 %, NVL-72 10.3 % and TPUv4 5.6 %"
)

SCALED = FatTree(nodes=2048, per_tor=2, per_domain=512)
"""8,192 GPUs in nodes of 4. The paper prints neither p nor d: both are guesses.

Two nodes a ToR were chosen since they alone keep traffic from crossing up to about 7 % of faults
at 85 % of the GPUs: with one it would be 12 %, with four 3 %. The size of a domain moves it from
6.2 % (256 nodes) to 7.4 % (2,048).
"""
_ON_TREE = (
    "2 nodes a ToR, 512 a domain (guesses); placed as the service does, by Algorithm 1 and, where "
    "that leaves traffic across ToRs, whole sets first; the share of rings between groups, by a "
    "measure of ours, since the paper's is not defined"
)

GPU_DOLLARS = 30_000.0
"""A guess: the paper does not print what a GPU costs."""

MOE_GPUS = (1024, 2048, 4096, 8192, 16384)
"""Sizes of Table 5."""

RING_RATE = 96 * 16e9
"""96 lanes of PCIe 4.0 (§5.2), in bit/s."""
MESSAGE, STEP_NS = 1 << 30, 2_000.0
"""Bytes of an all-reduce and what a step costs beside them: guesses that hardly matter."""


# ------------------------------------------------------------------------- the trace


def _faulty_mean() -> Computed:
    """From the first event, or from day 0, which the trace's own description takes for it."""
    trace = production_trace()
    first, zero = (
        found.mean(found.faulty.mean(axis=1))
        for found in (states(trace), states(replace(trace, begin=0)))
    )
    return Computed(
        first,
        min(first, zero),
        max(first, zero),
        1,
        "400 nodes from the first event to the last, or from day 0, 3.9 days before the first",
    )


def _faulty_p99() -> Computed:
    found = states(production_trace())
    return exactly(
        found.quantile(found.faulty.mean(axis=1), 0.99),
        "31 of the trace's 400 nodes. 7.22 % is 26 of 360, as many as are simulated: of drawn sets "
        "of 360, some have it",
    )


@cache
def _drawn(*, apart: bool = True) -> tuple[States, ...]:
    return tuple(clusters(DRAWS, apart=apart))


@cache
def _wastes(architecture: Architecture, *, apart: bool = True) -> tuple[float, ...]:
    return tuple(mean_wastes(_drawn(apart=apart), architecture, 4, TP))


def _waste(architecture: Architecture, note: str = _UNSAID) -> Computed:
    return over_draws(_wastes(architecture), f"{_ON_TRACE}. {note}")


def _waste_side_by_side(architecture: Architecture) -> Computed:
    return over_draws(
        _wastes(architecture, apart=False),
        "the same with the two halves of a node side by side, as Appendix A maps them",
    )


def _of_row(hops: int, *, apart: bool = True) -> Computed:
    """Waste of the running service, which joins a line; a ring wastes a little less."""
    found = replays(hops, TP, apart=apart)
    if found is None:
        line = KHop(hops, closed=False)
        counted = _waste(line) if apart else _waste_side_by_side(line)
        return replace(
            counted, note=f"{counted.note}. By Algorithm 2 itself: {COMMAND} has not run"
        )
    how = _UNSAID if apart else "the two halves of a node side by side, as Appendix A maps them"
    note = f"the public trace through the service's own steps, {found.day}. {how}"
    return over_draws([row["waste"] for row in found.rows], note)


def _waste_ratio(architecture: Architecture) -> Computed:
    theirs, found = _wastes(architecture), replays(3, TP)
    ours = (
        {row["seed"]: row["waste"] for row in found.rows}
        if found
        else dict(enumerate(_wastes(_LINE_3)))
    )
    return over_draws([theirs[seed] / share for seed, share in ours.items()], _ON_TRACE)


_LINE_2, _LINE_3 = KHop(2, closed=False), KHop(3, closed=False)
_CUBES = (
    "A faulty node costs the fixed part of a cube that its group uses, which of two readings comes "
    "nearer, and is what SiP-Ring loses as well. The paper does not print its model"
)
_WHOLE_CUBES = "A faulty node costs its whole cube of 64, the fault radius that §2.2 states"


# ------------------------------------------------------------------------ the fat-tree


def scattered(share: float, seed: int) -> Mask:
    """A share of `SCALED`'s nodes, drawn, that are faulty."""
    faulty = np.zeros(SCALED.nodes, dtype=bool)
    faulty[np.random.default_rng(seed).permutation(SCALED.nodes)[: round(share * SCALED.nodes)]] = 1
    return faulty


@cache
def crossings(shares: tuple[float, ...], job: float) -> tuple[float, ...]:
    """Of a job of the service, with as great a share of nodes reported as failed, a seed each."""
    with tempfile.TemporaryDirectory() as folder:
        service = Crossing(SCALED, 3, TP, job, Path(folder))
        return tuple(service.beside(scattered(share, seed)) for seed, share in enumerate(shares))


def _cross_tor(share: float, job: float) -> Computed:
    found = over_draws(crossings((share,) * DRAWS, job), _ON_TREE)
    return replace(found, lower=max(found.lower, 0.0), upper=min(found.upper, 1.0))


def _careless(share: float, job: float) -> Computed:
    """The baseline: nodes in random order, as the measure of ours counts it."""

    def crossing(seed: int) -> float:
        groups, random = int(job * SCALED.nodes * 4) // TP, np.random.default_rng(seed)
        found = careless(SCALED, scattered(share, seed), TP // 4, 3, groups, random)
        return cross_tor_share(SCALED, found)

    found = over_draws([crossing(seed) for seed in range(DRAWS)], _ON_TREE)
    return replace(found, lower=max(found.lower, 0.0), upper=min(found.upper, 1.0))


def _knee() -> Computed:
    """The share of faulty nodes up to which less than 1 % of the traffic crosses."""
    low, high = np.zeros(DRAWS, dtype=int), np.full(DRAWS, SCALED.nodes // 8)
    while (high - low > 1).any():  # all seeds at once, so that they share a service
        middle = (low + high) // 2
        crosses = np.array(crossings(tuple((middle / SCALED.nodes).tolist()), 0.85)) >= 0.01
        low, high = np.where(crosses, low, middle), np.where(crosses, middle, high)
    note = f"{_ON_TREE}. Two were chosen to fit this figure, by Algorithm 1 alone: 6.8 %"
    return over_draws((low / SCALED.nodes).tolist(), note)


# ------------------------------------------------------------------- cost and formulas


def _aggregate_knee() -> Computed:
    """The share of faulty nodes up to which K = 2 costs less in all than K = 3."""
    two, three = INTERCONNECTS["infinitehbd-2"], INTERCONNECTS["infinitehbd-3"]

    def crossing(seed: int) -> float:
        # The same draws for every share, so that the two curves cross once.
        drawn = np.random.default_rng(seed).random((20, 3072 // 4))
        low, high = 0.01, 0.30
        while high - low > 0.0005:
            share = (low + high) / 2
            lost, lost_ring3 = (
                float(waste(ring, drawn < share, 4, TP).mean()) for ring in (_LINE_2, _LINE_3)
            )
            cheaper = aggregate_cost(two, lost, GPU_DOLLARS) < aggregate_cost(
                three, lost_ring3, GPU_DOLLARS
            )
            low, high = (share, high) if cheaper else (low, share)
        return (low + high) / 2

    return over_draws(
        [crossing(seed) for seed in range(DRAWS)],
        f"a GPU costs {GPU_DOLLARS:,.0f} $ (a guess; 20,000 $ gives 15 %, 40,000 $ 10 %); "
        "3,072 GPUs, faults independent",
    )


def _cost(what: Callable[[Interconnect], float], name: str) -> Computed:
    return exactly(what(INTERCONNECTS[name]), "from the parts of Table 8")


def _cost_ratio(over: str, under: str) -> Computed:
    a, b = (INTERCONNECTS[name].dollars_per_gbyte for name in (over, under))
    return exactly(a / b, "from the parts of Table 8")


def _bound(gpus: int, hops: int) -> Computed:
    share = P99[gpus]
    return exactly(waste_bound(hops, gpus, TP, share), f"{share:.2%} of the nodes faulty, TP {TP}")


def _ring(ranks: int) -> Computed:
    """With one answer a packet; two and none bound it."""
    value, lower, upper = (
        ring_utilisation(
            ranks, MESSAGE, RING_RATE, PcieFraming(answers=answers).efficiency, STEP_NS
        )
        for answers in (1.0, 2.0, 0.0)
    )
    framing = PcieFraming()
    return Computed(
        value,
        lower,
        upper,
        1,
        f"packets of {framing.payload} bytes, with one answer of the link each, from two to none; "
        f"{MESSAGE >> 30} GiB, {STEP_NS / 1000:g} µs a step: all guesses",
    )


def _ratio(gpus: int) -> Computed:
    row = MODEL_USE[gpus]
    return exactly(row.best / row.tp8, "the quotient of the two shares beside it in the table")


_MODEL = (
    "a model of ours: matrices at 60 % of the peak, all-reduces of TP in the open, a pipeline "
    "without interleaving, inputs of layers stored; all guesses, and none chosen to fit"
)
_IMBALANCE = 0.2
"""Of experts in Table 5 (§6.3)."""
_TABLE_4_GPUS = 16384
"""A guess: Table 4 names no number, and its 31.2 % is the 0.3116 of this row of Table 5."""


def _llama(gpus: int, tensor: Sequence[int] = TENSOR) -> Computed:
    share, by = best(LLAMA, gpus, tensor=tensor)
    return exactly(share, f"TP {by.tensor}, PP {by.pipeline}, DP {by.data}; {_MODEL}")


def _llama_tensor(gpus: int) -> Computed:
    return exactly(best(LLAMA, gpus)[1].tensor, _MODEL)


def _experts(gpus: int) -> tuple[float, Strategy]:
    return best(GPT_MOE, gpus, expert=(1, 2, 4, 8), imbalance=_IMBALANCE)


def _moe(gpus: int) -> Computed:
    share, by = _experts(gpus)
    degrees = f"TP {by.tensor}, PP {by.pipeline}, DP {by.data}, EP {by.expert}"
    return exactly(share, f"{degrees}; {_MODEL}")


def _moe_experts(imbalance: float | None) -> Computed:
    """With experts on GPUs of their own; None: all experts split over all GPUs."""
    share, _ = best(
        GPT_MOE,
        _TABLE_4_GPUS,
        expert=(1,) if imbalance is None else (GPT_MOE.experts,),
        imbalance=imbalance or 0.0,
    )
    return exactly(share, f"{_TABLE_4_GPUS:,} GPUs (a guess); {_MODEL}")


def _left_over(size: int) -> Computed:
    """GPUs wasted of 64 in domains of `size`, of which the first and the last have failed."""
    faulty = np.zeros((1, 64), dtype=bool)
    faulty[0, [0, -1]] = True
    usable = int(Islands(size).usable(faulty, 1, 16)[0])
    return exactly(64 - 2 - usable, f"TP 16, domains of {size}, GPUs that fail alone")


def _radius(architecture: Architecture, group: int) -> Computed:
    """GPUs that one faulty node of 4 takes with it, itself included."""
    faulty = np.zeros((2, 720), dtype=bool)
    faulty[1, 360] = True
    whole, less = (int(usable) for usable in architecture.usable(faulty, 4, group))
    return exactly(whole - less, f"2,880 GPUs in nodes of 4, groups of {group}")


def _no_faults() -> Computed:
    return exactly(float(waste(Islands(36), np.zeros((1, 36), dtype=bool), 1, 16)[0]), "no faults")


def _degree(hops: int) -> Computed:
    links = k_hop(64, hops, closed=True).links()
    return exactly(int(np.bincount(links.ravel()).max()), "links of each of 64 nodes in a ring")


def _before_third() -> Computed:
    order = FatTree(nodes=16, per_tor=4, per_domain=16).order().tolist()
    return exactly(order[order.index(2) - 1] + 1, "the order of deployment, counted from 1")


def _lowest_cost() -> Computed:
    cost, name = min((one.dollars_per_gbyte, name) for name, one in INTERCONNECTS.items())
    return exactly(cost, f"{name}, of the interconnects of Table 8")


def _reach(gpus: int) -> Computed:
    return exactly(largest_parallelism(gpus), "a bundle for each GPU, at distances 1, 2, 4, …")


# ---------------------------------------------------------------------------- by name


_COLUMNS: Mapping[str, Callable[[Interconnect], float]] = {
    "cost": lambda found: found.dollars,
    "power": lambda found: found.watts,
    "cost-per-bandwidth": lambda found: found.dollars_per_gbyte,
    "power-per-bandwidth": lambda found: found.watts_per_gbyte,
}

COMPUTED: Registry = {
    **FURTHER,
    "faulty-nodes": _faulty_mean,
    "faulty-nodes-p99": _faulty_p99,
    "waste-2-hop": partial(_of_row, 2),
    "waste-3-hop": partial(_of_row, 3),
    "waste-nvl-72": partial(_waste, Islands(72)),
    "waste-tpuv4": partial(_waste, Cubes(), _CUBES),
    "waste-tpuv4-cubes": partial(_waste, Cubes(whole=True), _WHOLE_CUBES),
    "waste-2-hop-side-by-side": partial(_of_row, 2, apart=False),
    "waste-3-hop-side-by-side": partial(_of_row, 3, apart=False),
    "waste-nvl-72-side-by-side": partial(_waste_side_by_side, Islands(72)),
    "waste-tpuv4-side-by-side": partial(_waste_side_by_side, Cubes()),
    "waste-tpuv4-cubes-side-by-side": partial(_waste_side_by_side, Cubes(whole=True)),
    "waste-ratio-nvl-72": partial(_waste_ratio, Islands(72)),
    "waste-ratio-tpuv4": partial(_waste_ratio, Cubes()),
    "gpu-faults": lambda: exactly(gpu_fault_share(0.0233, 8), "1 - (1 - 2.33 %)^(1/8)"),
    "node-faults": lambda: exactly(node_fault_share(gpu_fault_share(0.0233, 8), 4)),
    "half-faults": lambda: exactly(
        node_fault_share(gpu_fault_share(0.0233, 8), 4) / 0.0233, "without rounding in between"
    ),
    "gpu-faults-p99": lambda: exactly(gpu_fault_share(0.0722, 8), "1 - (1 - 7.22 %)^(1/8)"),
    "node-faults-p99": lambda: exactly(node_fault_share(gpu_fault_share(0.0722, 8), 4)),
    "cross-tor-90": partial(_cross_tor, 0.05, 0.90),
    "cross-tor-85": partial(_cross_tor, 0.06, 0.85),
    "cross-tor-baseline": partial(_careless, 0.05, 0.90),
    "cross-tor-knee": _knee,
    "aggregate-knee": _aggregate_knee,
    "cost-against-nvl-72": partial(_cost_ratio, "nvl-72", "infinitehbd-2"),
    "cost-against-tpuv4": partial(_cost_ratio, "tpuv4", "infinitehbd-2"),
    "cost-share-nvl-72": partial(_cost_ratio, "infinitehbd-2", "nvl-72"),
    "cost-share-tpuv4": partial(_cost_ratio, "infinitehbd-2", "tpuv4"),
    "ring-16": partial(_ring, 16),
    "ring-32": partial(_ring, 32),
    "waste-islands": partial(_left_over, 32),
    "waste-joined": partial(_left_over, 64),
    "waste-nvl-36-at-rest": _no_faults,
    "radius-tpuv4": partial(_radius, Cubes(whole=True), 64),
    "degree-3-hop": partial(_degree, 3),
    "deployed-before-third": _before_third,
    "lowest-cost": _lowest_cost,
    "all-to-all-4": partial(_reach, 4),
    "all-to-all-8": partial(_reach, 8),
    **{
        f"bound-{gpus}-gpus-{hops}-hop": partial(_bound, gpus, hops)
        for gpus in (4, 8)
        for hops in (2, 3, 4)
    },
    **{f"model-use-{gpus}": partial(_ratio, gpus) for gpus in MODEL_USE},
    **{f"mfu-llama-{gpus}": partial(_llama, gpus) for gpus in MODEL_USE},
    **{f"mfu-llama-tp8-{gpus}": partial(_llama, gpus, (1, 2, 4, 8)) for gpus in MODEL_USE},
    **{f"tensor-llama-{gpus}": partial(_llama_tensor, gpus) for gpus in MODEL_USE},
    **{f"mfu-moe-{gpus}": partial(_moe, gpus) for gpus in MOE_GPUS},
    "mfu-moe-tensor": partial(_moe_experts, None),
    **{
        f"mfu-moe-experts-{percent}": partial(_moe_experts, percent / 100)
        for percent in (0, 10, 20, 30)
    },
    "moe-expert-degree": lambda: exactly(
        max(_experts(gpus)[1].expert for gpus in MOE_GPUS), f"the greatest of five sizes; {_MODEL}"
    ),
    "moe-parameters": lambda: exactly(GPT_MOE.parameters, "from the sizes in Appendix B"),
    **{
        f"{column}-{name}": partial(_cost, what, name)
        for column, what in _COLUMNS.items()
        for name in INTERCONNECTS
    },
}
