"""Time and memory to generate, configure, check and re-plan ACOS's fabrics.

Limit: 32,768 active GPUs with node and rack backups, 41,472 in all, in 60 s, for two
parallelisms that between them move every kind of adaptation switch. Also, at 4,096 GPUs, every
single failed rack and a sample of failed nodes, and all pairs of failed nodes in two racks.

Re-planning a failed node, rack and 2x2 at 1,024, 4,096 and 32,768 GPUs with both kinds of backups:
limit 30 s each, wiring included, and 4 GiB; beside it the shares of claims m28, m44 and m46.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from benchmarks.figures import beside_limit, peak_mib
from lightrig.harness.systems.acos.planning.datacentre import (
    HALLS,
    DataCentre,
    Hall,
    build_hall,
)
from lightrig.harness.systems.acos.planning.datacentre_plans import configure_hall, hall_errors
from lightrig.harness.systems.acos.planning.optics import Array, Ints
from lightrig.harness.systems.acos.planning.rack import Rack
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported, topology_errors
from lightrig.harness.systems.acos.planning.replanning import Failures, Replanned, replan
from lightrig.harness.systems.acos.planning.rings import NODES
from lightrig.suites.claims.acos.claims import rack

LIMIT_S = 60.0
REPLAN_LIMIT_S, REPLAN_LIMIT_GIB = 30.0, 4.0
LARGEST = Hall(8, (4, 2), node_backups=True, rack_backups=True)
JOBS = ((8, 8, 64), (4, 4, 16))


def offset_pairs(rack: Rack, tp: int, *, free: bool) -> Mapping[str, int]:
    """Outcomes of all pairs of one spare node in each of two racks.

    free: whether the controller may choose the direction of a rack's shift; otherwise it is
    fixed, and alternates from rack to rack, as §4.3 has it.
    """
    degrees = next(d for d in supported(rack.spec) if d.tp == tp and d.pp == rack.spec.stages // 2)
    found: Counter[str] = Counter()
    for spare in product(range(NODES + 1), repeat=2):
        choices = product((False, True), repeat=2) if free else [(False, True)]
        matched = any(
            not topology_errors(rack, configure(rack, degrees, spare, lefts)) for lefts in choices
        )
        found["matched" if matched else "shuffled"] += 1
    return dict(found)


def main() -> None:
    before = time.perf_counter()
    made = build_hall(LARGEST)
    built = time.perf_counter() - before
    errors = [hall_errors(made, configure_hall(made, *job)) for job in JOBS]
    spent = time.perf_counter() - before
    peak = peak_mib()
    beside_limit(
        f"{LARGEST.active:,} active GPUs of {LARGEST.gpus:,}, {made.fabric.switches:,} switches, "
        f"generated and {len(JOBS)} jobs checked",
        spent, LIMIT_S, "s", f"generated in {built:.2f} s; {peak:.0f} MiB at most",
    )  # fmt: skip
    if any(errors) or spent > LIMIT_S:
        raise SystemExit(f"errors: {errors}")
    failed_racks()
    failed_nodes()
    replanned()


def replanned() -> None:
    """Print what re-planning costs at each size, and shares of drawn failures that it mends."""
    late = []
    for gpus, base in HALLS.items():
        before = time.perf_counter()
        made = build_hall(Hall(base.ring, base.further, node_backups=True, rack_backups=True))
        built = time.perf_counter() - before
        switch = made.fabric.arrays["TP-split-forward"].first
        for what, failures in (
            ("a node", Failures(nodes=frozenset({(0, 3)}))),
            ("a rack", Failures(racks=frozenset({0}))),
            ("a 2x2", Failures(switches=frozenset({switch}))),
        ):
            before = time.perf_counter()
            found = replan(made, (8, 8, 64), failures)
            spent = built + time.perf_counter() - before
            late += [what] if spent > REPLAN_LIMIT_S else []
            beside_limit(
                f"{gpus:,} GPUs, {what} failed", spent, REPLAN_LIMIT_S, "s",
                f"{_outcome(found)}, {found.moved} tasks move, {found.changed} switches change",
            )  # fmt: skip
        for claim, shares in _shares(made).items():
            print(f"{gpus:,} GPUs, {claim}: {shares}")
    peak = peak_mib() / 1024
    beside_limit("memory of re-planning, most", peak, REPLAN_LIMIT_GIB, "GiB")
    if late or peak > REPLAN_LIMIT_GIB:
        raise SystemExit(f"late: {late}")


def _shares(made: DataCentre) -> Mapping[str, Mapping[str, int]]:
    """Return outcomes of failures drawn at random, seed 1, by claim."""
    dice, count = np.random.default_rng(1), max(2, 40_000 // made.hall.gpus)
    hall, found = made.hall, {}
    exchanges = [a for a in made.fabric.arrays.values() if a.kind == "2x2"]
    racks = made.column[:, : hall.ring].reshape(-1)

    def node(rack: int) -> tuple[int, int]:
        return int(rack), int(dice.integers(8))

    draws = {
        "m28, a 2x2": lambda: Failures(
            switches=frozenset({_drawn_switch(dice, exchanges)}),
        ),
        "m44, a node in one rack": lambda: Failures(nodes=frozenset({node(dice.choice(racks))})),
        "m44, a node in every rack": lambda: Failures(nodes=frozenset(map(node, racks))),
        "m46, a rack and a node of another": lambda: _rack_and_node(dice, racks),
    }
    for name, draw in draws.items():
        outcomes = (_outcome(replan(made, (8, 8, 64), draw())) for _ in range(count))
        found[name] = dict(Counter(outcomes))
    return found


def _drawn_switch(dice: np.random.Generator, arrays: Sequence[Array]) -> int:
    counts = np.array([each.count for each in arrays])
    array = arrays[int(dice.choice(len(arrays), p=counts / counts.sum()))]
    return array.first + int(dice.integers(array.count))


def _rack_and_node(dice: np.random.Generator, racks: Ints) -> Failures:
    one, two = (int(each) for each in dice.choice(racks, 2, replace=False))
    return Failures(frozenset({one}), frozenset({(two, int(dice.integers(8)))}))


def _outcome(found: Replanned) -> str:
    if not found.is_whole:
        return "refused"
    return "shuffled" if found.shuffled else "re-formed"


def failed_racks() -> None:
    """Print what becomes of every single failed rack of 4,096 GPUs."""
    made = build_hall(Hall(8, rack_backups=True))
    found: Counter[str] = Counter()
    for stage, place, pp in product(range(8), range(9), (4, 8)):
        spare = np.full(8, 8)
        spare[stage] = place
        errors = hall_errors(made, configure_hall(made, 8, pp, 64, None, spare))
        found["; ".join(errors) or "restored"] += 1
    print(f"4,096 GPUs, a failed rack: {dict(found)}")


def failed_nodes() -> None:
    """Print what becomes of failed nodes: all in one rack, a node in each of two, at random."""
    made = rack("72")
    found = Counter(
        "restored" if not topology_errors(made, configure(made, job, [node])) else "not"
        for job, node in product(supported(made.spec), range(9))
    )
    print(f"72 GPUs, a failed node, every parallelism: {dict(found)}")
    for tp, free in product((4, 8, 16), (False, True)):
        directions = "free" if free else "fixed"
        pairs = offset_pairs(rack("144"), tp, free=free)
        print(f"144 GPUs, a spare node a rack, TP {tp}, {directions} directions: {pairs}")


if __name__ == "__main__":
    main()
