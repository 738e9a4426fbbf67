"""Whether RailX's mechanisms do what the paper describes, checked on small fabrics.

Each function returns the share of its checks that hold, from 0 to 1. They are the short form of
what the tests show at length.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType

import numpy as np

from lightrig.harness.systems.railx.planning import allocation, collectives, costs, scheduling
from lightrig.harness.systems.railx.planning.chip_graph import ChipGraph, edge_port, node_diameter
from lightrig.harness.systems.railx.planning.cross_connects import Difference, Settings
from lightrig.harness.systems.railx.planning.deadlock import (
    Hop,
    free_of_deadlock,
    mesh_dependencies,
    raised_channels,
    routes_free_of_deadlock,
    torus_dependencies,
    torus_network_channels,
)
from lightrig.harness.systems.railx.planning.flit_network import (
    PACKET_FLITS,
    railx_network,
    ring_network,
)
from lightrig.harness.systems.railx.planning.flits import Load, run, stored_points
from lightrig.harness.systems.railx.planning.hamiltonian import (
    DecompositionError,
    decomposition,
    undirected_cycles,
)
from lightrig.harness.systems.railx.planning.minimal_routing import minimal_routes
from lightrig.harness.systems.railx.planning.physical import Fabric
from lightrig.harness.systems.railx.planning.topologies import (
    Axis,
    balanced,
    configure,
    dragonfly,
    hyperx,
    hyperx_graph,
    rail_rings,
    same_graph,
    split_hyperx,
    switched_phases,
    torus,
    torus_graph,
    uneven,
)
from lightrig.harness.systems.railx.planning.workload import LISTING_1

FIVE = Fabric(mesh=2, ports=2, columns=5, rows=5, radix=10)
"""The 25 nodes of Fig. 7."""
RAILS = tuple(range(FIVE.rails))
DETOUR = (
    Hop((4, 4), "x", 2),
    Hop((1, 4), "x", 0, along=True),
    Hop((1, 0), "y", 1, along=True),
    Hop((4, 0), "x", 0, along=True),
    Hop((4, 0), "x", 3),
)
"""The non-minimal route of Fig. 10, and the free hop after it."""


def share(checks: Iterable[bool]) -> float:
    """Return the share of `checks` that hold."""
    return float(np.mean([bool(check) for check in checks]))


def decomposed(sizes: Iterable[int]) -> float:
    """Return the share of sizes with a verified decomposition; 4 and 6 must be refused."""

    def right(nodes: int) -> bool:
        try:
            return len(decomposition(nodes)) == nodes - 1
        except DecompositionError:
            return nodes in (4, 6)

    return share(right(nodes) for nodes in sizes)


def dragonfly_21() -> Settings:
    """Return the Dragonfly of Fig. 8: 21 groups of five nodes, 20 global rails each."""
    return dragonfly(Fabric(mesh=2, ports=2, columns=21, rows=5, radix=42))


def _chips() -> float:
    fabric = Fabric.full(128, 7, 9)
    per_chip = fabric.optical_ports / fabric.chips
    return share(
        [
            fabric.mesh_links == 2 * 7 * 6,
            fabric.optical_ports == 4 * 63 * fabric.nodes,
            abs(per_chip - 4 * 9 / 7) < 1e-12,
            fabric.interfaces == costs.PORTS,
        ]
    )


def _opposite_edges() -> float:
    zero, rails = np.zeros(4, dtype=np.int64), np.arange(4)
    x_plus, _ = edge_port(FIVE, "x", zero, rails, zero, plus=True)
    x_minus, _ = edge_port(FIVE, "x", zero, rails, zero, plus=False)
    return share([(x_plus % 2 == 1).all(), (x_minus % 2 == 0).all(), (x_plus == x_minus + 1).all()])


def _cabling() -> float:
    fabric = Fabric.full(8, 2, 1)
    switch_ports = [switch for _, switch in fabric.cabling()]
    used = {switch[:3] for switch in switch_ports}
    return share(
        [
            len(set(switch_ports)) == len(switch_ports),
            len(switch_ports) == fabric.switches * fabric.radix,
            len(used) == fabric.switches,
        ]
    )


def _one_switch_a_hop() -> float:
    settings = hyperx(FIVE)
    optical = ChipGraph.of(settings).peer_chip[:, 4:]
    return share([int((optical >= 0).sum()) == 2 * len(settings)])


def _rail_rings() -> float:
    graph = rail_rings(FIVE, 5).node_graph()
    pairs = [(a, b) for a in range(5) for b in range(a)]
    return share(graph.number_of_edges((a, 0), (b, 0)) == 2 for a, b in pairs)


def _fallback() -> float:
    return share(len(undirected_cycles(nodes)[0]) == nodes // 2 - 1 for nodes in (4, 6))


def _split() -> float:
    fabric = Fabric(mesh=2, ports=2, columns=9, rows=9, radix=18)
    settings = split_hyperx(fabric, 2)
    return share(
        [
            same_graph(settings.node_graph(), hyperx_graph([3, 3, 3, 3])),
            node_diameter(settings) == 4,
        ]
    )


def _five_dimensional() -> Settings:
    fabric = Fabric(mesh=2, ports=2, columns=9, rows=8, radix=18)
    first, second = balanced(fabric, [1, 1])
    x = [Axis(3, "ring", first), Axis(3, "all-to-all", second)]
    return configure(fabric, x, [Axis(2, "ring", first), Axis(4, "ring", second)])


def _mixed_groups() -> float:
    graph = _five_dimensional().node_graph()
    return share(degree == 16 for _, degree in graph.degree())


def _mapping() -> float:
    """Check the links of every context, expert, data and pipeline group of the 5D example."""
    graph = _five_dimensional().node_graph()
    checks = []
    for i, j in graph:
        ring = (i // 3 * 3 + (i + 1) % 3, j)
        experts = [(i % 3 + 3 * peer, j) for peer in range(3) if peer != i // 3]
        data, pipeline = (i, j ^ 1), (i, (j + 2) % 8)
        checks += [graph.has_edge((i, j), peer) for peer in (ring, *experts, data, pipeline)]
    return share(checks)


def _multiple() -> float:
    fabric = Fabric(mesh=2, ports=4, columns=5, rows=5, radix=10)
    return share([same_graph(hyperx(fabric, 5).node_graph(), hyperx_graph([5, 5], 4))])


def _dragonfly() -> float:
    graph = dragonfly_21().node_graph()
    groups = [
        sum(graph.number_of_edges((g, a), (h, b)) for a, b in product(range(5), repeat=2)) == 2
        for g in range(21)
        for h in range(g)
    ]
    return share([*groups, node_diameter(dragonfly_21()) == 3])


def _split_ports() -> float:
    return share(
        [
            allocation.split_ports(9, 1, 12, "sum") == (9, 3),
            allocation.split_ports(2, 1, 12, "slowest") == (8, 4),
        ]
    )


def _phases() -> float:
    fabric = Fabric(mesh=2, ports=2, columns=10, rows=3, radix=20)
    y = [Axis(3, "ring", RAILS)]
    context, expert = switched_phases(fabric, [(2, "ring"), (5, "all-to-all")], y)
    change = Difference(context, expert)
    return share(c.dimension == "x" for c in [*change.removed(), *change.added()])


def _algorithm_1() -> float:
    routes = minimal_routes(hyperx(FIVE))
    walk = routes.walk()
    return share([routes_free_of_deadlock(routes), walk.optical.max() == 2, walk.mesh.max() <= 4])


def _mesh_rules() -> float:
    return share(
        [
            free_of_deadlock(mesh_dependencies(4, "dimension-order")),
            free_of_deadlock(mesh_dependencies(4, "north-last")),
            not free_of_deadlock(mesh_dependencies(4, "any")),
        ]
    )


def _raised() -> float:
    return share([raised_channels(DETOUR[:4]) == [1, 2, 3, 4]])


def _torus_channels() -> float:
    return share(
        [
            free_of_deadlock(torus_dependencies(5, 2)),
            not free_of_deadlock(torus_dependencies(5, 1)),
            max(torus_network_channels(DETOUR)) + 1 == 4,
        ]
    )


def _mesh_as_switch() -> float:
    bounds = {point.multiple: point.bound for point in stored_points()}
    return share([bounds[1] < 0.7 * bounds[2], bounds[2] == bounds[4]])


def _bubble() -> float:
    load = Load(4.0, warm_up=0, cycles=600, credit_delay=False)
    stalled = [
        run(ring_network(8), replace(load, bubble=bubble), "numpy").stalled
        for bubble in (False, True)
    ]
    return share([stalled[0] > 300, stalled[1] < 10])


def _lossless() -> float:
    network = railx_network(minimal_routes(hyperx(Fabric(2, 1, 3, 3, 6))), 2)
    found = run(network, Load(2.0, warm_up=0, cycles=300), "numpy")
    generated = round(found.offered * 300 * network.chips / PACKET_FLITS)
    accepted = generated - round(found.refused * generated)
    return share([found.packets + found.in_flight == accepted, found.stalled < 10])


def _bypass() -> float:
    faults = [(0, 1), (3, 3)]
    job = scheduling.largest_job(5, faults)
    x, y = (Axis(len(side), "ring", RAILS) for side in (job.columns, job.rows))
    settings = scheduling.place_jobs(FIVE, [scheduling.Job(job, (x,), (y,))])
    graph = settings.node_graph()
    graph.remove_nodes_from([node for node in list(graph) if not graph.degree(node)])
    sizes = [len(job.columns), len(job.rows)]
    return share([same_graph(graph, torus_graph(sizes, 4))])


def _algorithm_2() -> float:
    draw = random.Random(1)  # noqa: S311 (no secret is drawn)
    checks = []
    for _ in range(100):
        faults = [(draw.randrange(9), draw.randrange(9)) for _ in range(draw.randint(0, 7))]
        checks.append(scheduling.algorithm_2(9, faults) == scheduling.brute_force(9, faults))
    return share(checks)


def _packed() -> float:
    jobs = scheduling.pack(8, 8, [(1, 2), (1, 5), (4, 1), (4, 6)])
    return share([len(jobs) == 3, sum(job.size for job in jobs) == 60])


def _jobs_apart() -> float:
    rows, columns = (0, 2, 3), (0, 3, 4)
    ring = (Axis(3, "ring", RAILS),)
    pair = (Axis(2, "ring", RAILS),)
    first = scheduling.Job(scheduling.Allocation(rows, columns), ring, ring)
    second = scheduling.Job(scheduling.Allocation(rows[:2], (1, 2)), pair, pair)
    change = Difference(
        scheduling.place_jobs(FIVE, [first, second]), scheduling.place_jobs(FIVE, [first])
    )
    return share([change.additions == 0, change.removals == 4 * 2 * 2 * 2])


def _swing() -> float:
    known = {rank: {rank} for rank in range(16)}
    for step in range(4):
        peers = {rank: collectives.swing_peer(rank, step, 16) for rank in known}
        known = {rank: known[rank] | known[peer] for rank, peer in peers.items()}
    return share(len(found) == 16 for found in known.values())


def _groups() -> float:
    groups = LISTING_1.groups().values()
    return share(sorted(r for g in kind for r in g) == list(range(64)) for kind in groups)


def _no_twist() -> float:
    """Check that X-rails never lead to another row, which a twisted torus needs."""
    graph = torus(FIVE).node_graph()
    return share(a[1] == b[1] for a, b, data in graph.edges(data=True) if data["dimension"] == "x")


def pairing_rule(draws: int = 200) -> float:
    """Return how often the highest with the lowest volume is a best pairing of random ones."""
    draw = random.Random(1)  # noqa: S311 (no secret is drawn)
    checks = []
    for _ in range(draws):
        found = {name: 10 ** draw.uniform(0, 3) for name in ("EP", "CP", "DP", "PP")}
        order = sorted(found, key=found.__getitem__)
        pairs = allocation.best_pairing(found, 18, "sum")
        checks.append(
            {frozenset(p) for p in pairs}
            == {frozenset({order[0], order[3]}), frozenset({order[1], order[2]})}
        )
    return share(checks)


CHECKS: Mapping[str, Callable[[], float]] = MappingProxyType(
    {
        "M01": _chips,
        "M02": _opposite_edges,
        "M03": _cabling,
        "M04": _one_switch_a_hop,
        "M05": _rail_rings,
        "M06": lambda: decomposed(range(3, 130, 2)),
        "M07": lambda: decomposed(range(4, 65, 2)),
        "M08": _fallback,
        "M09": _split,
        "M10": _mixed_groups,
        "M11": lambda: share([same_graph(torus(FIVE).node_graph(), torus_graph([5, 5], 4))]),
        "M12": lambda: share([same_graph(hyperx(FIVE).node_graph(), hyperx_graph([5, 5]))]),
        "M13": _multiple,
        "M14": _dragonfly,
        "M16": _mixed_groups,
        "M17": lambda: share(
            [uneven(FIVE, [3, 1])[0] == (0, 1, 2), len(balanced(FIVE, [1, 1])) == 2]
        ),
        "M18": _split_ports,
        "M19": _phases,
        "M20": _mesh_as_switch,
        "M21": _algorithm_1,
        "M22": _mesh_rules,
        "M23": lambda: share(
            [node_diameter(dragonfly_21()) + 1 == 4, node_diameter(hyperx(FIVE)) + 1 == 3]
        ),
        "M24": _raised,
        "M25": _torus_channels,
        "M26": _bubble,
        "M27": _lossless,
        "M38": _groups,
        "M39": _mapping,
        "M40": _groups,
        "M42": _bypass,
        "M43": _algorithm_2,
        "M44": _packed,
        "M45": _jobs_apart,
        "M46": _swing,
        "M51": _no_twist,
    }
)
"""Functions that show the mechanisms, by its number in the list of mechanisms."""
