"""Time and memory of InfiniteHBD's control plane: placement of jobs, a year of faults.

Placement is the whole search over a fat-tree, with 5 % of the nodes faulty and 85 % of the GPUs
wanted. Limits: a million GPUs in 2 s, 348 days for all architectures in 30 s, 1 GiB of memory;
the time must grow as n log n. One failure among 2,048 nodes is replaced in 0.2 s by the policy
`repair`, up to 6 % of failures one after the other.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from benchmarks.figures import beside_limit, peak_mib
from lightrig.harness.orchestration.jobs import Job
from lightrig.harness.orchestration.wanted import Wanted
from lightrig.harness.systems.infinitehbd.planning.placement import orchestrate
from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree, k_hop
from lightrig.harness.systems.infinitehbd.runtime.layout import Row, RowLayout
from lightrig.suites.claims.infinitehbd.architectures import ARCHITECTURES
from lightrig.suites.claims.infinitehbd.replay import (
    cluster,
    largest_job,
    mean_waste,
    waiting,
)
from lightrig.suites.claims.infinitehbd.trace import DAY, production_trace, states, synthetic

T = TypeVar("T")

PLACED_S, REPLAYED_S, MEMORY_MIB, REPAIRED_S = 2.0, 30.0, 1024, 0.2
GPUS, TP = 4, 32
MILLION = FatTree(nodes=250_000, per_tor=2, per_domain=500)
LARGE = 28_800
GROUPS = (8, 16, 32, 64)
TURNS = 5


def main() -> None:
    growth()
    tree = MILLION
    took, placement = _placed(tree)
    assert placement is not None
    beside_limit(
        f"{GPUS * tree.nodes:,} GPUs placed", took, PLACED_S, "s",
        f"{len(placement.groups):,} groups, {placement.constraints:,} of {tree.constraints:,} "
        "constraints kept",
    )  # fmt: skip
    repair()
    replay()
    replay_made_up()
    peak = peak_mib()
    beside_limit("memory, most", peak, MEMORY_MIB, "MiB")


def growth() -> None:
    """Print the time over the size, and the fit of c n log2 n to it."""
    # Smaller ones fit a processor's cache, and would look cheaper than they are.
    sizes = np.array([1 << power for power in range(16, 22)])
    times = np.array([_placed(FatTree(int(nodes), 2, 512))[0] for nodes in sizes])
    work = sizes * np.log2(sizes)
    # Least squares of the logarithms, so that each size counts alike.
    scale = np.exp(np.mean(np.log(times / work)))
    power = np.polyfit(np.log(work), np.log(times), 1)[0]
    print(
        f"placement; the fit is {1e9 * scale:.2f} ns n log2 n, the best power of that {power:.2f}"
    )
    print(f"  {'GPUs':>11}{'s':>9}{'of the fit':>12}")
    for nodes, took, fitted in zip(sizes, times, scale * work, strict=True):
        print(f"  {GPUS * nodes:>11,}{took:>9.3f}{took / fitted:>12.2f}")


def repair() -> None:
    """Print what replacing each of 6 % of failures takes, from the failure to all new groups."""
    tree, groups = FatTree(2048, 2, 512), int(0.85 * 8192) // TP
    nodes = tuple(f"node{number}" for number in range(tree.nodes))
    layout = RowLayout(Row(k_hop(tree.nodes, 3, closed=True), nodes, tree, GPUS))
    times = []
    for seed in range(3):
        job = Job("a", {"gpus": TP, "groups": groups}, 0, False, False, (None,) * groups)
        wanted = Wanted((job,)).placed(layout)
        for place in np.random.default_rng(seed).permutation(tree.nodes)[: int(0.06 * tree.nodes)]:
            failed = replace(wanted, reported=wanted.reported | {nodes[place]})
            begun = time.process_time()
            wanted = failed.placed(layout)
            times.append(time.process_time() - begun)
            assert not wanted.jobs[0].missing
    beside_limit(
        "one failure of 2,048 nodes, processor time, most", max(times), REPAIRED_S, "s",
        f"median {np.median(times):.3f} s, n {len(times)}",
    )  # fmt: skip


def replay() -> None:
    """Print what a replay of the production trace takes, for all that is asked of it."""
    trace = production_trace()
    begun = time.perf_counter()
    found = cluster(np.random.default_rng(1), fixed=True)
    jobs = [share * GPUS * found.faulty.shape[1] // 100 for share in range(80, 101)]
    for architecture in ARCHITECTURES:
        for group in GROUPS:
            mean_waste(found, architecture, GPUS, group)
            largest_job(found, architecture, GPUS, group)
            waiting(found, architecture, GPUS, group, jobs)
    took = time.perf_counter() - begun
    beside_limit(
        f"{(trace.end - trace.begin) / DAY:.0f} days, {len(found.durations):,} states of "
        f"{found.faulty.shape[1]:,} nodes, {len(ARCHITECTURES)} architectures, TP {GROUPS}: waste, "
        "largest job and waiting",
        took, REPLAYED_S, "s",
    )  # fmt: skip


def replay_made_up() -> None:
    """Print what ten times the cluster takes, with faults made up like the trace's."""
    trace = synthetic(production_trace(), LARGE // GPUS, np.random.default_rng(1))
    begun = time.perf_counter()
    found = states(trace)
    for architecture in ARCHITECTURES:
        mean_waste(found, architecture, GPUS, TP)
    took = time.perf_counter() - begun
    beside_limit(
        f"{LARGE:,} GPUs, made up: {len(found.durations):,} states, waste at TP {TP} for all",
        took, REPLAYED_S, "s",
    )  # fmt: skip


def _placed(tree: FatTree) -> tuple[float, object]:
    faulty = np.random.default_rng(1).random(tree.nodes) < 0.05
    groups = int(0.85 * tree.nodes) * GPUS // TP
    return _least(lambda: orchestrate(tree, faulty, TP // GPUS, 3, groups))


def _least(action: Callable[[], T]) -> tuple[float, T]:
    """The least of a few times: what else the machine does only adds."""
    times = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        done = action()
        times.append(time.perf_counter() - begun)
    return min(times), done


if __name__ == "__main__":
    main()
