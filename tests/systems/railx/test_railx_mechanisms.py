"""Mechanisms of RailX's paper on small fabrics: each test shows the claims that mark it.

`make claims` runs these and stores their outcomes beside the published values. A case that is
expected to fail is a part of the paper's statement that does not hold.
"""

import random
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from lightrig.harness.systems.railx.planning import allocation, costs, scheduling
from lightrig.harness.systems.railx.planning.cross_connects import DARK
from lightrig.harness.systems.railx.planning.hamiltonian import (
    DecompositionError,
    decomposition,
    undirected_cycles,
)
from lightrig.harness.systems.railx.planning.physical import RailFabric
from lightrig.harness.systems.railx.planning.topologies import Axis, configure, hyperx, torus
from lightrig.harness.systems.railx.planning.workload import LISTING_1
from lightrig.suites.claims.railx import collectives
from lightrig.suites.claims.railx.chip_graph import ChipGraph, edge_port, node_diameter
from lightrig.suites.claims.railx.deadlock import (
    Hop,
    adaptive_dependencies,
    free_of_deadlock,
    mesh_dependencies,
    routes_free_of_deadlock,
    torus_dependencies,
    torus_network_channels,
)
from lightrig.suites.claims.railx.flit_network import (
    PACKET_FLITS,
    adaptive_network,
    railx_network,
    ring_network,
)
from lightrig.suites.claims.railx.flits import Load, run, stored_points
from lightrig.suites.claims.railx.further_topologies import (
    balanced,
    dragonfly,
    rail_rings,
    split_hyperx,
    switched_phases,
    uneven,
)
from lightrig.suites.claims.railx.minimal_routing import minimal_routes
from lightrig.suites.claims.railx.setting_changes import Difference

pytestmark = pytest.mark.long  # most have a shorter test beside them

FIVE = RailFabric(mesh=2, ports=2, columns=5, rows=5, radix=10)
"""The 25 nodes of Fig. 7."""
RAILS = tuple(range(FIVE.rails))
LINE = RailFabric(mesh=2, ports=2, columns=9, rows=8, radix=18)
"""Nodes of the five logical dimensions: 3 x 3 on one physical dimension, 2 x 4 on the other."""
DETOUR = (
    Hop((4, 4), "x", 2),
    Hop((1, 4), "x", 0, along=True),
    Hop((1, 0), "y", 1, along=True),
    Hop((4, 0), "x", 0, along=True),
    Hop((4, 0), "x", 3),
)
"""The non-minimal route of Fig. 10, and the free hop after it."""


def claim(name):
    return pytest.mark.claim(f"railx:{name}")


def edges(graph):
    """Return how many links join each pair of nodes."""
    return Counter(frozenset(edge[:2]) for edge in graph.edges)


def grid(side, number, *, ring):
    """Return the links of a side x side grid by hand: rings, or all pairs, on each line."""
    found = Counter()
    for line in range(side):
        for a, b in product(range(side), repeat=2):
            if a < b and (not ring or (b - a) % side in (1, side - 1)):
                found[frozenset({(a, line), (b, line)})] += number
                found[frozenset({(line, a), (line, b)})] += number
    return found


@pytest.fixture(scope="module")
def dragonfly_21():
    """The Dragonfly of Fig. 8: 21 groups of five nodes, 20 global rails each."""
    return dragonfly(RailFabric(mesh=2, ports=2, columns=21, rows=5, radix=42))


# -------------------------------------------------------------------------------- hardware


@claim("M01")
def test_a_node_is_a_mesh_with_ports_on_its_edges():
    fabric = RailFabric.full(128, 7, 9)
    _, port = np.nonzero(ChipGraph.of(hyperx(FIVE)).peer_chip != DARK)
    assert (port < 4).sum() == 2 * 4 * 25  # both ends of four links in each of 25 nodes
    assert fabric.optical_ports == 4 * 63 * fabric.nodes
    assert fabric.optical_ports / fabric.chips == pytest.approx(4 * 9 / 7)
    assert fabric.interfaces == costs.PORTS


@claim("M02")
@pytest.mark.parametrize("dimension", ["x", "y"])
def test_a_rail_ends_on_opposite_edges_of_one_line_of_chips(dimension):
    """The chips of a node are numbered row by row: 0 and 1 above 2 and 3."""
    zero, rails = np.zeros(4, dtype=np.int64), np.arange(4)
    plus, _ = edge_port(FIVE, dimension, zero, rails, zero, plus=True)
    minus, _ = edge_port(FIVE, dimension, zero, rails, zero, plus=False)
    lines = {"x": {(0, 1), (2, 3)}, "y": {(0, 2), (1, 3)}}[dimension]
    assert {
        tuple(sorted(ends)) for ends in zip(plus.tolist(), minus.tolist(), strict=True)
    } == lines
    assert (plus != minus).all()


@claim("M03")
def test_each_rail_of_a_line_has_a_switch_and_each_port_one_fiber():
    fabric = RailFabric.full(8, 2, 1)
    switch_ports = [switch for _, switch in fabric.cabling()]
    assert len(set(switch_ports)) == len(switch_ports) == fabric.switches * fabric.radix
    assert len({switch[:3] for switch in switch_ports}) == fabric.switches


@claim("M04")
def test_an_optical_hop_passes_one_switch():
    settings = hyperx(FIVE)
    optical = ChipGraph.of(settings).peer_chip[:, 4:]
    assert int((optical >= 0).sum()) == 2 * len(settings)


# ------------------------------------------------------------------------------ topologies


@claim("M05")
def test_rail_rings_join_any_two_of_five_nodes_twice():
    graph = rail_rings(FIVE, 5).node_graph()
    pairs = [(a, b) for a in range(5) for b in range(a)]
    assert {graph.number_of_edges((a, 0), (b, 0)) for a, b in pairs} == {2}


def cycles_of(nodes):
    """Return the arcs of a decomposition, and whether each cycle visits every node."""
    cycles = decomposition(nodes)
    arcs = [(c[k], c[(k + 1) % nodes]) for c in cycles for k in range(nodes)]
    return arcs, all(sorted(c) == list(range(nodes)) for c in cycles)


@claim("M06")
def test_odd_complete_graphs_split_into_hamiltonian_cycles():
    for nodes in range(3, 130, 2):
        arcs, whole = cycles_of(nodes)
        assert whole
        assert len(set(arcs)) == len(arcs) == nodes * (nodes - 1)


@claim("M07")
def test_even_complete_graphs_split_but_for_4_and_6():
    for nodes in range(8, 65, 2):
        arcs, whole = cycles_of(nodes)
        assert whole
        assert len(set(arcs)) == len(arcs) == nodes * (nodes - 1)
    for nodes in (4, 6):
        with pytest.raises(DecompositionError):
            decomposition(nodes)


@claim("M08")
@pytest.mark.parametrize("nodes", [4, 6])
def test_4_and_6_nodes_are_undirected_rings_and_a_matching(nodes):
    rings, matching = undirected_cycles(nodes)
    links = [frozenset((c[k], c[(k + 1) % nodes])) for c in rings for k in range(nodes)]
    links += {frozenset((a, int(matching[a]))) for a in range(nodes)}
    assert len(rings) == nodes // 2 - 1
    assert len(set(links)) == len(links) == nodes * (nodes - 1) // 2


@claim("M09")
def test_rails_in_groups_make_a_hyperx_of_two_dimensions_in_each():
    fabric = RailFabric(mesh=2, ports=2, columns=9, rows=9, radix=18)
    settings = split_hyperx(fabric, 2)
    wanted = Counter()
    for line, a, b in product(range(9), range(9), range(9)):
        same_row, same_column = a // 3 == b // 3, a % 3 == b % 3
        if a < b and same_row != same_column:
            wanted[frozenset({(a, line), (b, line)})] = 2
            wanted[frozenset({(line, a), (line, b)})] = 2
    assert edges(settings.node_graph()) == wanted
    assert node_diameter(settings) == 4


def five_dimensional():
    first, second = balanced(LINE, [1, 1])
    x = [Axis(3, "ring", first), Axis(3, "all-to-all", second)]
    return configure(LINE, x, [Axis(2, "ring", first), Axis(4, "ring", second)]).node_graph()


def groups(name):
    """Return the groups of one logical dimension as sorted sets of nodes, by hand."""
    sizes = {
        "context": lambda i, j: (i // 3, j),
        "expert": lambda i, j: ("e", i % 3, j),
        "data": lambda i, j: (i, j // 2),
        "pipeline": lambda i, j: (i, "p", j % 2),
    }
    found = {}
    for i, j in product(range(9), range(8)):
        found.setdefault(sizes[name](i, j), []).append((i, j))
    return list(found.values())


@claim("M16")
@pytest.mark.parametrize("name", ["context", "expert", "data", "pipeline"])
def test_every_group_of_a_logical_dimension_is_joined_by_itself(name):
    """Four dimensions of links; the fifth, tensor parallelism, is a node."""
    import networkx as nx

    graph = five_dimensional()
    for members in groups(name):
        assert nx.is_connected(nx.Graph(graph.subgraph(members)))
        degrees = {len(set(graph.subgraph(members).neighbors(node))) for node in members}
        assert degrees == {min(2, len(members) - 1)}


@claim("M10")
def test_groups_of_unlike_kinds_share_a_node_s_rails():
    """Rings of three, all-to-alls of three, rings of two and of four; each rail is used."""
    graph = five_dimensional()
    wanted = set()
    for i, j in product(range(9), range(8)):
        ring = {(i // 3 * 3 + (i + s) % 3, j) for s in (1, 2)}
        experts = {(i % 3 + 3 * k, j) for k in range(3) if k != i // 3}
        lines = {(i, j ^ 1)} | {(i, j % 2 + 2 * ((j // 2 + s) % 4)) for s in (1, 3)}
        wanted |= {frozenset({(i, j), peer}) for peer in ring | experts | lines}
    assert set(edges(graph)) == wanted
    assert {degree for _, degree in graph.degree()} == {16}  # eight rails, both ends


@claim("M39")
@pytest.mark.parametrize("name", ["context", "expert", "data", "pipeline"])
def test_the_mapping_has_the_links_of_every_group(name):
    """Successive members of each group have a link, and the last one leads to the first."""
    graph = five_dimensional()
    for members in groups(name):
        following = [*members[1:], members[0]]
        assert all(graph.has_edge(*pair) for pair in zip(members, following, strict=True))


@claim("M11")
def test_the_torus_joins_neighbours_of_rows_and_columns():
    assert edges(torus(FIVE).node_graph()) == grid(5, 4, ring=True)


@claim("M12")
def test_hyperx_joins_all_pairs_of_rows_and_columns_twice():
    assert edges(hyperx(FIVE).node_graph()) == grid(5, 2, ring=False)


@claim("M13")
def test_more_rails_make_more_links_of_an_all_to_all():
    fabric = RailFabric(mesh=2, ports=4, columns=5, rows=5, radix=10)
    assert edges(hyperx(fabric, 5).node_graph()) == grid(5, 4, ring=False)


@claim("M14")
def test_any_two_groups_of_the_dragonfly_are_joined(dragonfly_21):
    graph = dragonfly_21.node_graph()
    joined = Counter(frozenset({a[0], b[0]}) for a, b, *_ in graph.edges if a[0] != b[0])
    assert set(joined.values()) == {2}
    assert len(joined) == 21 * 20 // 2
    assert node_diameter(dragonfly_21) == 3


@claim("M17")
def test_rails_are_split_evenly_for_each_line_or_unevenly():
    assert uneven(FIVE, [3, 1])[0] == (0, 1, 2)
    first, second = balanced(FIVE, [1, 1])
    assert sorted([*first, *second]) == list(RAILS)
    by_line = [[rail // FIVE.ports for rail in part] for part in (first, second)]
    assert sorted(by_line[0]) == sorted(by_line[1]) == [0, 1]


@claim("M18")
def test_ports_go_by_the_root_of_volumes_or_by_volumes():
    """9 : 1 is 3 : 1 by the root, of 12 ports 9 and 3; 2 : 1 of 12 ports is 8 and 4."""
    assert allocation.split_ports(9, 1, 12, "sum") == (9, 3)
    assert allocation.split_ports(2, 1, 12, "slowest") == (8, 4)


@claim("M19")
def test_a_phase_moves_x_rails_alone():
    fabric = RailFabric(mesh=2, ports=2, columns=10, rows=3, radix=20)
    y = [Axis(3, "ring", RAILS)]
    context, expert = switched_phases(fabric, [(2, "ring"), (5, "all-to-all")], y)
    change = Difference(context, expert)
    moved = [*change.removed(), *change.added()]
    assert moved
    assert {each.dimension for each in moved} == {"x"}


@claim("M20")
def test_the_mesh_limits_throughput_at_k_1_and_not_from_2():
    bounds = {point.multiple: point.bound for point in stored_points()}
    assert bounds[1] < 0.7 * bounds[2]
    assert bounds[2] == bounds[4]


@claim("M51")
def test_x_rails_lead_to_no_other_row():
    graph = torus(FIVE).node_graph()
    rows = {a[1] == b[1] for a, b, data in graph.edges(data=True) if data["dimension"] == "x"}
    assert rows == {True}


# --------------------------------------------------------------------------------- routing


@claim("M21")
def test_algorithm_1_arrives_in_two_optical_hops_without_deadlock():
    routes = minimal_routes(hyperx(FIVE))
    paths = [routes.path(a, b) for a in range(0, 100, 9) for b in range(100)]
    assert routes_free_of_deadlock(routes)
    assert max(sum(port >= 4 for _, port, _ in path) for path in paths) == 2
    assert (routes.walk().mesh, routes.channels) == (4, 3)


@claim("M22")
@pytest.mark.parametrize(
    ("rule", "free"), [("dimension-order", True), ("north-last", True), ("any", False)]
)
def test_turns_of_a_mesh_on_one_channel(rule, free):
    assert free_of_deadlock(mesh_dependencies(4, rule)) is free


@claim("M23")
def test_channels_are_the_diameter_plus_one(dragonfly_21):
    assert node_diameter(dragonfly_21) + 1 == 4
    assert node_diameter(hyperx(FIVE)) + 1 == minimal_routes(hyperx(FIVE)).channels == 3


@cache
def to_the_next_column(longest):
    """Throughput where all 25 nodes of one chip send to the next one of their row."""
    routes = minimal_routes(hyperx(RailFabric(1, 4, 5, 5, 10)))
    row, column = np.divmod(np.arange(25), 5)
    network = adaptive_network(routes, 4, longest) if longest else railx_network(routes, 4)
    load = Load(3.5, warm_up=300, cycles=900, credit_delay=False)
    found = run(network, load, "numpy", row * 5 + (column + 1) % 5)
    assert found.stalled < 10
    return found.throughput


@claim("M24")
def test_detours_carry_what_one_link_cannot():
    """One link leads to the next column. By three others a packet takes two links of five nodes."""
    assert to_the_next_column(None) == pytest.approx(1, abs=0.01)
    assert 0.95 < to_the_next_column(2) / (1 + 3 / 2) <= 1.01
    assert 0.95 < to_the_next_column(4) / (1 + 3 / 2) <= 1.01


@claim("M24")
@pytest.mark.parametrize("longest", [2, 4])
def test_a_channel_for_each_node_hop_keeps_detours_free_of_deadlock(longest):
    network = adaptive_network(minimal_routes(hyperx(RailFabric(2, 1, 3, 3, 6))), 2, longest)
    found = adaptive_dependencies(network)
    assert free_of_deadlock(found)
    assert max(channel for pair in found for *_, channel in pair) == longest
    # Were the channel not raised, a circle of detours could wait for itself.
    assert not free_of_deadlock([(one[:2], two[:2]) for one, two in found])


@claim("M25")
@pytest.mark.parametrize(("channels", "free"), [(2, True), (1, False)])
def test_a_torus_needs_two_channels(channels, free):
    assert free_of_deadlock(torus_dependencies(5, channels)) is free


@claim("M25")
def test_the_example_of_torus_networks_needs_four_channels():
    assert max(torus_network_channels(DETOUR)) + 1 == 4


@claim("M26")
def test_a_bubble_lets_a_saturated_ring_move_on():
    load = Load(4.0, warm_up=0, cycles=600, credit_delay=False)
    assert run(ring_network(8), replace(load, bubble=False), "numpy").stalled > 300
    assert run(ring_network(8), replace(load, bubble=True), "numpy").stalled < 10


@claim("M27")
def test_virtual_cut_through_loses_no_packet():
    network = railx_network(minimal_routes(hyperx(RailFabric(2, 1, 3, 3, 6))), 2)
    found = run(network, Load(2.0, warm_up=0, cycles=300), "numpy")
    generated = round(found.offered * 300 * network.chips / PACKET_FLITS)
    accepted = generated - round(found.refused * generated)
    assert found.packets + found.in_flight == accepted
    assert found.stalled < 10


@claim("M46")
@pytest.mark.parametrize("ranks", [8, 16, 32])
def test_swing_reaches_all_ranks_in_log2_p_steps(ranks):
    known = {rank: {rank} for rank in range(ranks)}
    for step in range(ranks.bit_length() - 1):
        peers = {rank: collectives.swing_peer(rank, step, ranks) for rank in known}
        known = {rank: known[rank] | known[peer] for rank, peer in peers.items()}
    assert {len(found) for found in known.values()} == {ranks}


# ------------------------------------------------------------------------ jobs and groups


@claim("M38")
@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        ("tensor", [4]), ("context", [3]), ("expert", [2]), ("pipeline", [0]),
        ("data-vocabulary", [1, 2]), ("data-qkv", [1, 2, 3]), ("data-ffn", [1, 3]),
    ],
)  # fmt: skip
def test_process_groups_of_attention_and_expert_layers(kind, axes):
    """Ranks in the order of Listing 1: tensor fastest, then context, expert, data, pipeline."""
    one = LISTING_1
    shape = (one.pipeline, one.expert_data, one.expert, one.context, one.tensor)
    ranks = np.moveaxis(np.arange(64).reshape(shape), axes, range(-len(axes), 0))
    size = int(np.prod([shape[axis] for axis in axes]))
    wanted = {frozenset(group) for group in ranks.reshape(-1, size).tolist()}
    assert {frozenset(group) for group in one.groups()[kind]} == wanted


@claim("M40")
def test_process_groups_are_partitions_of_the_ranks():
    for kind in LISTING_1.groups().values():
        assert sorted(rank for group in kind for rank in group) == list(range(64))


@claim("M42")
def test_failed_nodes_are_bypassed_with_their_rows_and_columns():
    import networkx as nx

    job = scheduling.largest_job(5, [(0, 1), (3, 3)])
    x, y = (Axis(len(side), "ring", RAILS) for side in (job.columns, job.rows))
    settings = scheduling.place_jobs(FIVE, [scheduling.PlacedJob(job, (x,), (y,))])
    graph = settings.node_graph()
    used = [node for node in graph if graph.degree(node)]
    assert not {(1, 0), (3, 3)} & set(used)
    assert sorted(used) == sorted(product(job.columns, job.rows))
    graph = nx.Graph(graph.subgraph(used))
    rings = nx.cartesian_product(nx.cycle_graph(len(job.columns)), nx.cycle_graph(len(job.rows)))
    assert nx.is_isomorphic(graph, rings)


@claim("M43")
def test_algorithm_2_finds_the_largest_job():
    draw = random.Random(1)
    for _ in range(100):
        faults = [(draw.randrange(9), draw.randrange(9)) for _ in range(draw.randint(0, 7))]
        assert scheduling.algorithm_2(9, faults) == scheduling.brute_force(9, faults)


@claim("M44")
def test_three_jobs_use_all_nodes_that_work():
    faults = [(1, 2), (1, 5), (4, 1), (4, 6)]
    jobs = scheduling.pack(8, 8, faults)
    nodes = [node for job in jobs for node in product(job.rows, job.columns)]
    assert len(jobs) == 3
    assert len(set(nodes)) == len(nodes) == 64 - len(faults)
    assert not set(nodes) & set(faults)


@claim("M45")
def test_a_job_stops_without_touching_another():
    rows, columns = (0, 2, 3), (0, 3, 4)
    ring, pair = (Axis(3, "ring", RAILS),), (Axis(2, "ring", RAILS),)
    first = scheduling.PlacedJob(scheduling.Allocation(rows, columns), ring, ring)
    second = scheduling.PlacedJob(scheduling.Allocation(rows[:2], (1, 2)), pair, pair)
    change = Difference(
        scheduling.place_jobs(FIVE, [first, second]), scheduling.place_jobs(FIVE, [first])
    )
    assert (change.additions, change.removals) == (0, 4 * 2 * 2 * 2)
