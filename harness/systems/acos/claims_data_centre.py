"""Mechanisms of ACOS's data centres: the share of failures that generated halls recover from."""

from collections.abc import Iterable
from functools import cache
from itertools import product

import numpy as np

from lightrig.harness.claims.computed import Computed, share
from lightrig.harness.systems.acos.planning.datacentre import STAGES, DataCentre, Hall, build_hall
from lightrig.harness.systems.acos.planning.datacentre_plans import configure_hall, hall_errors
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES, shifted


@cache
def hall(ring: int, *, node: bool = False, racks: bool = False) -> DataCentre:
    """Data centre with a two-dimensional torus."""
    return build_hall(Hall(ring, node_backups=node, rack_backups=racks))


def hall_cases(made: DataCentre, jobs: Iterable[tuple[int, int, int]]) -> list[bool]:
    """Return for each job, of TP, DP and PP, whether its topologies are whole."""
    return [not hall_errors(made, configure_hall(made, *job)) for job in jobs]


@cache
def rack_failures() -> Computed:
    """One failed rack in a row of the 4,096-GPU data centre, each place once."""
    made = hall(8, racks=True)
    found = []
    for place in (0, 2, 5, 7):
        spare = np.full(8, 8)
        spare[place % 8] = place
        plan = configure_hall(made, 8, (8, 4)[place % 2], 64, None, spare)
        found.append(not hall_errors(made, plan))
    return share(found, "places of a row of nine racks, TP 8; all stages in the benchmark")


@cache
def hall_node_failures() -> Computed:
    """One failed node in a rack of the 4,096-GPU data centre."""
    made = hall(8, node=True)
    found = []
    for rack_number, node, tp in ((0, 3, 8), (9, 7, 16), (30, 5, 8)):
        spare = np.full(made.hall.columns, BACKUP)
        spare[rack_number] = node
        found.append(not hall_errors(made, configure_hall(made, tp, 8, 64, spare)))
    return share(
        found,
        "TP 8 and 16. With TP 4 ranks end shuffled: the 2x2 of offsetting links at the point "
        "where rings split are not built between racks; the printed 0.67 a GPU fits no wiring",
    )


def both_failures() -> Computed:
    """A failed rack and a failed node in the same row of nine racks, at 4,096 GPUs."""
    made = hall(8, node=True, racks=True)
    spare = np.full(8, 8)
    spare[3] = 2
    found = []
    for place in (1, 3, 5):
        nodes = np.full(made.hall.columns, BACKUP)
        nodes[made.column[3, place]] = 4
        found.append(not hall_errors(made, configure_hall(made, 8, 8, 64, nodes, spare)))
    return share(
        found,
        "places of the node in the row. In a ring of nine racks shifts cannot alternate: beside "
        "the failed rack two racks of equal direction meet, and one diagonal serves one direction",
    )


def offsets_matched(*, double: bool) -> Computed:
    """Pairs of spare nodes in adjacent rings whose equal ranks a straight link or diagonal joins.

    Shifts are right in one ring and left in the other with single diagonals, which lead from a
    node to the one before; with double ones both shift right.
    """
    found = []
    for a, b in product(range(NODES + 1), repeat=2):
        one, two = shifted(8, a), shifted(8, b, left=not double)
        steps = {(q - p) % (NODES + 1) for p, q in zip(one, two, strict=True)}
        found.append(steps <= ({0, 1, NODES} if double else {0, NODES}))
    return share(found, "pairs of nine spare nodes each, TP 8")


def double_offsets() -> Computed:
    """Share of pairs of failed nodes after which double offsetting links keep all DP ranks.

    In a generated data centre of 1,024 GPUs every pair of spare nodes stands in adjacent racks.
    """
    made = build_hall(Hall(2, node_backups=True, double_offsets=True))
    pairs = list(product(range(NODES + 1), repeat=2))
    cases = []
    for first in range(0, len(pairs), STAGES):
        found = (pairs[first : first + STAGES] * STAGES)[:STAGES]
        plan = configure_hall(made, 8, 8, 64, np.array(found).reshape(-1))
        cases.append(all(error.startswith("PP") for error in hall_errors(made, plan)))
    fiber_switches = made.fabric.counts()["Resiliency between racks", "DP", "1x3"]
    return share(
        [*cases, offsets_matched(double=True).value == 1],
        f"settings of eight stages, {len(pairs)} pairs of spare nodes in all, TP 8; "
        f"{fiber_switches / made.hall.gpus:g} 1x3 a GPU, which Table 6 does not count",
    )
