"""RailX at full size: planning time and memory, jobs on failed grids, and flits under load.

Limits: 200,704 chips (R=128, m=7, n=9) planned and written in 10 s; as a fabric given by its sizes
checked in 20 s, a job on all of it planned, and planned anew around a failed node, in 1 s each.
Algorithm 2 equals brute force
on 10,000 random grids. All-to-all on 2D-HyperX of 1,296 chips (m=4, n=2) for k = 1, 2 and 4, with
10,000 cycles after 5,000, credits that come back at once and credits that take as long as flits;
with numba some minutes, without an hour. Beside it HammingMesh and tori of 1,296 chips.
"""

import io
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.figures import beside_limit, peak_mib
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SimulatedSwitches
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.planning.hamiltonian import decomposition
from lightrig.harness.systems.railx.planning.physical import RailFabric
from lightrig.harness.systems.railx.planning.scheduling import (
    algorithm_2,
    availability,
    brute_force,
    largest_job,
)
from lightrig.harness.systems.railx.planning.topologies import hyperx, torus
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.harness.systems.railx.runtime.structure import GridStructure
from lightrig.harness.vocabulary import InstalledNames
from lightrig.suites.claims.railx.compared_networks import COMPARED, uniform_bound
from lightrig.suites.claims.railx.deadlock import routes_free_of_deadlock
from lightrig.suites.claims.railx.flit_network import railx_network
from lightrig.suites.claims.railx.flits import Load, Point, run, stored_points
from lightrig.suites.claims.railx.minimal_routing import minimal_routes, throughput_bound
from lightrig.suites.claims.railx.setting_changes import Difference

PLANNED_S = 10.0
CHECKED_S, PLACED_S = 20.0, 1.0
GRIDS = 10_000


def main() -> None:
    plan()
    hall()
    jobs()
    routing()
    flits()
    compared()


def plan() -> None:
    """Print how long the headline system takes from sizes to written cross-connects."""
    decomposition.cache_clear()
    fabric = RailFabric.full(128, 7, 9)
    begun = time.perf_counter()
    settings = hyperx(fabric)
    made = time.perf_counter() - begun
    text = io.StringIO()
    settings.write(text)
    took = time.perf_counter() - begun
    peak = peak_mib()
    arrays = (settings.x.nbytes + settings.y.nbytes) / 1e6
    beside_limit(
        f"{fabric.chips:,} chips, {fabric.switches:,} switches, {len(settings):,} cross-connects "
        f"planned, with {text.tell() / 1e6:.1f} MB of text",
        took,
        PLANNED_S,
        "s",
        f"without {made:.2f} s; settings {arrays:.1f} MB, process at most {peak:.0f} MiB",
    )
    change = Difference(torus(fabric), settings)
    begun = time.perf_counter()
    counts = change.removals, change.additions, change.unchanged
    took = time.perf_counter() - begun
    removed, added, stay = (f"{count:,}" for count in counts)
    print(f"from a torus: {removed} removed, {added} added, {stay} stay: {took:.2f} s")


def hall() -> None:
    """Print how long the orchestrator takes for a job on all chips and for a node that fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "hall.yaml")
        file.write_text(render(64, 64, mesh=7, ports=9), encoding="utf-8")
        begun = time.perf_counter()
        fabric = GridStructure(str(file), InstalledNames())
        _beside("hall checked", begun, CHECKED_S)
        switches, state = SimulatedSwitches(fabric), Path(folder, "state.json")
        running = Orchestrator(fabric, GridLayout(fabric), switches, state)
        running.start()
        begun = time.perf_counter()
        running.request({"do": "submit", "job": "all", "shape": {"columns": 0, "rows": 0}})
        _beside("job on all nodes planned", begun, PLACED_S)
        begun = time.perf_counter()
        running.request({"do": "failed", "nodes": ["node17-40"]})
        _beside("planned anew around a failed node", begun, PLACED_S)


def _beside(what: str, begun: float, limit: float) -> None:
    """Print the seconds since `begun` beside their limit."""
    beside_limit(what, time.perf_counter() - begun, limit, "s")


def jobs() -> None:
    """Print how many random grids the three algorithms agree on, and the availability."""
    draw = random.Random(1)
    agreed = 0
    for _ in range(GRIDS):
        side = draw.randint(1, 16)
        faults = [(draw.randrange(side), draw.randrange(side)) for _ in range(draw.randint(0, 10))]
        found = {f(side, faults) for f in (algorithm_2, brute_force)}
        agreed += found == {largest_job(side, faults).size}
    print(f"Algorithm 2, brute force and groups agree on {agreed:,} of {GRIDS:,} random grids")
    for side in (8, 16, 32, 64):
        shares = availability(side, 0.001, draws=1_000, seed=1)
        low, high = np.percentile(shares, [2.5, 97.5])
        print(
            f"  {side:>2} x {side:<2} nodes, 0.1 % failed, 1,000 draws: mean {shares.mean():.1%}, "
            f"95 % of draws {low:.1%} to {high:.1%}, least {shares.min():.1%}, "
            f"{(shares <= 0.9).mean():.1%} of draws not above 90 %"
        )


def routing() -> None:
    """Print whether Algorithm 1 is free of deadlock on 1,296 chips, and its longest paths there.

    These, and the loads of links, also of 200,704 chips.
    """
    begun = time.perf_counter()
    routes = minimal_routes(hyperx(RailFabric(4, 2, 9, 9, 18)))
    dependencies, walk = len(routes.dependencies()), routes.walk()
    free = "free of" if routes_free_of_deadlock(routes) else "NOT free of"
    print(
        f"1,296 chips, all {len(walk.loads) ** 2:,} pairs: {free} deadlock ({dependencies:,} "
        f"dependencies), at most {walk.mesh} mesh hops: {time.perf_counter() - begun:.1f} s"
    )
    begun = time.process_time()
    walk = minimal_routes(hyperx(RailFabric.full(128, 7, 9))).walk()
    print(
        f"{len(walk.loads):,} chips, all pairs: at most {walk.mesh} mesh hops, "
        f"{walk.loads.max():,} pairs on the most loaded link: "
        f"{time.process_time() - begun:.1f} s of processor time, process at most "
        f"{peak_mib():.0f} MiB"
    )


def flits() -> None:
    """Print throughput and latency over k, rate and credits, and whether they are as stored."""
    stored = {point[:3]: point for point in stored_points()}
    for point in simulated():
        found = point.outcome
        same = point[:3] in stored and stored[point[:3]] == point
        print(
            f"  k = {point.multiple}, credits {'delayed' if point.credit_delay else 'at once'}, "
            f"offered {found.offered:.3f} of at most {point.bound:.3f}: {found.throughput:.3f} "
            f"({found.lower:.3f} to {found.upper:.3f}) flits a cycle and chip, "
            f"{found.latency:.0f} cycles, {found.packets:,} packets, "
            f"{'as stored' if same else 'NOT as stored'}",
            flush=True,
        )


def compared() -> None:
    """Print HammingMesh and tori of as many chips with as many ports, in sizes chosen here."""
    for name, make in COMPARED.items():
        network = make()
        bound = uniform_bound(network)
        for rate in (0.2, 0.4, 0.6, 0.8, 1.0):
            found = run(network, Load(rate, credit_delay=False))
            print(
                f"  {name}: credits at once, offered {found.offered:.3f} of at most {bound:.3f}: "
                f"{found.throughput:.3f} ({found.lower:.3f} to {found.upper:.3f}) flits a cycle "
                f"and chip, {found.latency:.0f} cycles, {found.packets:,} packets",
                flush=True,
            )


def store(path: Path) -> None:
    """Simulate, and write the points that the claims about load and latency show."""
    points = list(simulated())
    lines = ",\n".join(json.dumps([*point[:-1], list(point.outcome)]) for point in points)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def simulated() -> Iterator[Point]:
    """Yield the points of the load-latency curves of 1,296 chips."""
    routes = minimal_routes(hyperx(RailFabric(4, 2, 9, 9, 18)))
    loads = routes.walk().loads
    for credit_delay in (False, True):
        for multiple in (1, 2, 4):
            network = railx_network(routes, multiple)
            bound = throughput_bound(routes.graph, loads, multiple)
            for rate in (0.2, 0.4, 0.6, 0.8, 1.0):
                outcome = run(network, Load(rate, credit_delay=credit_delay))
                yield Point(credit_delay, multiple, rate, bound, outcome)


if __name__ == "__main__":
    main()
