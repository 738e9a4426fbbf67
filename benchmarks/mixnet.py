"""MixNet's control plane: how good its circuits are, and how fast it plans them.

Links of eight servers with six optical NICs, as meant and as printed; the greedy's completion
time against the least possible one; planning times; and the prediction of loads. Demands are
generated, see `suites.claims.mixnet.gating`. Whoever has a recorded exchange, ranks x experts
as JSON (a list of rows, or an object that has one under "matrix"), names its file in
MIXNET_TOKENS.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import beside_limit
from lightrig.harness.systems.mixnet.planning.copilot import Copilot
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.planning.demand import Placement, server_demand
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.topology import completion, plan_links
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.suites.claims.mixnet.link_counts import (
    best_links,
    plan_links_as_printed,
    uniform_links,
)
from lightrig.suites.claims.mixnet.prediction import mean_top_k

EIGHT = Placement.even(ranks=8, servers=8)
REGION = Region.uniform(8, optical=6, packet=2)
CASES = 500
SERVERS, LIMIT_MS = 128, 5.0
REGIONS, LIMIT_S = 4096, 5.0
RECORDS, LEARNED = 120, 60


def main() -> None:
    _circuits()
    _against_the_best()
    _planning_time()
    _regions()
    _prediction()


def _circuits() -> None:
    recorded = os.environ.get("MIXNET_TOKENS")
    if recorded:
        found = json.loads(Path(recorded).read_text(encoding="utf-8"))
        tokens = found["matrix"] if isinstance(found, dict) else found
        demand = server_demand(tokens, EIGHT)
        meant, printed = (int(plan(demand, 6).sum()) // 2 for plan in PLANNERS)
        print(f"8 servers, 6 circuits each, {recorded}: {meant} of 24 links, as printed {printed}")
    demands = [server_demand(e, EIGHT) for e in Gating(layers=1).exchanges(8, CASES, seed=1)]
    for planner, how in zip(PLANNERS, ("meant", "printed"), strict=True):
        counts = Counter(int(planner(demand, 6).sum()) // 2 for demand in demands)
        printed = ", ".join(f"{links}: {times}" for links, times in sorted(counts.items()))
        print(f"links of 24 as {how}, in {CASES} generated exchanges: {printed}")


def _against_the_best() -> None:
    random = np.random.default_rng(1)
    greedy, uniform = [], []
    for _ in range(CASES):
        servers, degree = int(random.integers(3, 6)), int(random.integers(1, 4))
        (tokens,) = Gating(experts=servers, layers=1).exchanges(
            servers, 1, seed=int(random.integers(1 << 30))
        )
        demand = server_demand(tokens, Placement.even(servers, servers))
        least = completion(demand, best_links(demand, degree))
        greedy.append(completion(demand, plan_links(demand, degree)) / least)
        uniform.append(completion(demand, uniform_links(degree, servers)) / least)
    ours, theirs = np.array(greedy), np.array(uniform)
    marks = np.quantile(ours, [0.5, 0.9, 0.99])
    print(f"completion time against the least possible, {CASES} cases of 3 to 5 servers with 1 to")
    print("3 circuits each and one packet NIC (ours: the paper's algorithm leaves packets out)")
    print(
        f"  greedy    best {np.mean(ours < 1 + 1e-6):.0%}, median {marks[0]:.2f}, "
        f"p90 {marks[1]:.2f}, p99 {marks[2]:.2f}, worst {ours.max():.2f}"
    )
    print(
        f"  uniform   best {np.mean(theirs < 1 + 1e-6):.0%}, median {np.median(theirs):.2f}, "
        f"worst {theirs.max():.2f}"
    )
    print(
        f"  greedy is worse than uniform in {np.mean(ours > theirs + 1e-9):.1%}, "
        f"better in {np.mean(ours < theirs - 1e-9):.1%}"
    )


def _planning_time() -> None:
    random = np.random.default_rng(2)
    region = Region.uniform(SERVERS, optical=6, packet=2)
    demand = np.triu(random.pareto(1.5, (SERVERS, SERVERS)), 1)
    changed = demand * np.triu(random.lognormal(0, 0.5, demand.shape), 1)
    present = plan_region(region, demand)
    counted = _milliseconds(lambda: plan_links(changed, 6))
    fresh = _milliseconds(lambda: plan_region(region, changed))
    incremental = _milliseconds(lambda: plan_region(region, changed, present))
    same = len(set(present) & set(plan_region(region, changed, present)))
    print(f"{SERVERS} servers of 6 circuits, processor time, least of 20")
    print(
        f"  link counts {counted:.1f} ms, with NIC ports {fresh:.1f} ms, keeping what fits "
        f"{incremental:.1f} ms ({same} of {len(present)} links stay)"
    )
    beside_limit(f"{SERVERS} servers planned with NIC ports", fresh, LIMIT_MS, "ms")


def _milliseconds(work: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(20):
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return least * 1e3


def _regions() -> None:
    workers = len(os.sched_getaffinity(0))
    exchanges = Gating(layers=1).exchanges(8, REGIONS, seed=4)
    demands = [server_demand(tokens, EIGHT) for tokens in exchanges]
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_plan_one, demands[:workers]))  # started, and everything imported
        start = time.perf_counter()
        links = sum(pool.map(_plan_one, demands, chunksize=64))
        took = time.perf_counter() - start
    beside_limit(
        f"{REGIONS} regions of 8 servers planned by {workers} processes, {links} links",
        took, LIMIT_S, "s",
    )  # fmt: skip


def _plan_one(demand: NDArray[np.float64]) -> int:
    return len(plan_region(REGION, demand))


def _prediction() -> None:
    print(f"top-k accuracy over {RECORDS - LEARNED} iterations of a generated gate that Copilot's")
    print("assumption fits: predicted / unchanged / uniform; nothing of it is about real gates")
    for experts in (8, 16, 64):
        predictor, predicted, unchanged, actual = Copilot(), [], [], []
        for number, loads in enumerate(Gating(experts=experts, layers=2).iterations(RECORDS, 3)):
            before, after = loads
            if number >= LEARNED:
                predicted.append(predictor.predict(before))
                unchanged.append(before)
                actual.append(after)
            predictor.record(before, after)
        printed = "  ".join(
            f"k={k}: {mean_top_k(predicted, actual, k):.2f} / "
            f"{mean_top_k(unchanged, actual, k):.2f} / {k / experts:.2f}"
            for k in (1, 2, 4)
        )
        print(f"  {experts:>2} experts  {printed}")


PLANNERS = (plan_links, plan_links_as_printed)


if __name__ == "__main__":
    main()
