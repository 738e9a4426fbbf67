"""Equations 2 to 13, tables 2 to 6, and the flow model beside the formulas."""

from collections import Counter, defaultdict
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.systems.railx.planning import allocation, costs
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import hyperx, torus
from lightrig.harness.systems.railx.planning.workload import (
    LISTING_1,
    Model,
    Parallelism,
    global_batch,
    links_missing,
    volumes,
)
from lightrig.suites.claims.railx import collectives, flow_model
from lightrig.suites.claims.railx.bandwidths import (
    all_to_all_bound,
    dragonfly_exact,
    dragonfly_minimal_bound,
    hyperx_exact,
    low_diameter_printed,
    mesh_bisection_per_port,
    torus_printed,
)
from lightrig.suites.claims.railx.chip_graph import node_diameter
from lightrig.suites.claims.railx.collectives import NodeGroup
from lightrig.suites.claims.railx.further_topologies import dragonfly

BPS, ALPHA, SIZE = 800e9, 300.0, 64e6


def test_equation_6_is_what_the_flow_model_takes():
    assert flow_model.equation_6(6) == pytest.approx(1)


def test_equation_7_is_what_the_flow_model_takes_on_the_generated_torus():
    assert flow_model.equation_7(4) == pytest.approx(1)


@pytest.mark.parametrize("mesh", [2, 4])
def test_equation_8_among_nodes_is_what_the_flow_model_takes(mesh):
    assert flow_model.equation_8_among(mesh, side=3) == pytest.approx(1)


def test_a_slow_mesh_makes_equation_8_too_short():
    assert flow_model.equation_8_among(2, side=3, multiple=0.5) > 1.5


def test_equation_8_within_nodes_is_what_the_flow_model_takes():
    assert flow_model.equation_8_within(4, ports=2, multiple=4) == pytest.approx(1)


def test_equation_12_is_what_the_flow_model_takes_on_a_hyperx_of_single_chips():
    assert flow_model.equation_12(5) == pytest.approx(1)
    direct = collectives.direct(5, SIZE, 4 * BPS, ALPHA)
    assert collectives.all_to_all(5, SIZE, BPS, ALPHA) == pytest.approx(direct)


def test_equation_13_takes_all_rails_as_equally_loaded():
    assert flow_model.equation_13_among(1, 4, 5) == pytest.approx(1)
    # Two links a pair, of which Algorithm 1 sends three chips of four by the nearer.
    assert flow_model.equation_13_among(2, 2, 5) == pytest.approx(1.5, abs=0.01)


def test_equation_13_follows_from_p_and_not_from_its_printed_middle_line():
    group = NodeGroup(4, 16, 800e9, 4, 1_000.0)
    size = 1e9 / 4
    good, printed = collectives.hyperx(group, size), collectives.hyperx_middle_line(group, size)
    assert printed > good
    # The third line of the equation, written out.
    share = 8e9 * size / 800e9
    line = 15 / 16 * share / 4 + 4 * 1_000 + 255 / 256 * share / 16 / (2 / 4)
    assert good == pytest.approx(line)


@given(mesh=st.integers(2, 8), side=st.integers(2, 64), multiple=st.floats(1.0, 8))
def test_printed_forms_leave_out_lower_orders_only(mesh, side, multiple):
    group = NodeGroup(mesh, side, BPS, multiple, ALPHA)
    for exact, printed in (
        (collectives.ring_2d, collectives.ring_2d_printed),
        (collectives.hierarchical, collectives.hierarchical_printed),
        (collectives.hyperx, collectives.hyperx_printed),
    ):
        assert exact(group, SIZE) <= printed(group, SIZE) * (1 + 1e-12)


@pytest.mark.parametrize(("mesh", "least"), [(2, 4), (4, 8 / 3), (7, 7 / 3)])
def test_the_hierarchy_needs_more_than_twice_the_bandwidth(mesh, least):
    assert collectives.hierarchical_from(mesh) == pytest.approx(least)
    for multiple, better in ((least * 0.99, False), (least * 1.01, True)):
        group = NodeGroup(mesh, 8, BPS, multiple, 0.0)
        won = collectives.hierarchical_printed(group, SIZE) < collectives.ring_2d_printed(
            group, SIZE
        )
        assert won is better


@pytest.mark.parametrize("mesh", [3, 5, 7])
def test_an_odd_mesh_has_no_ring_of_single_hops(mesh):
    with pytest.raises(RailxError, match="no ring"):
        collectives.mesh_ring(mesh)


@pytest.mark.parametrize("ranks", [4, 8, 16, 32])
def test_swing_sums_over_all_ranks(ranks):
    known = {rank: {rank} for rank in range(ranks)}
    for step in range(ranks.bit_length() - 1):
        peers = {rank: collectives.swing_peer(rank, step, ranks) for rank in range(ranks)}
        assert all(peers[peer] == rank for rank, peer in peers.items())
        known = {rank: known[rank] | known[peer] for rank, peer in peers.items()}
    assert all(found == set(range(ranks)) for found in known.values())


def test_one_dimension_is_an_all_reduce_on_a_ring():
    time = collectives.many_dimensional([8], [BPS], SIZE, ALPHA)
    assert time == pytest.approx(collectives.ring_1d(8, SIZE, BPS, ALPHA))
    group = NodeGroup(4, 16, BPS, 4, ALPHA)
    assert collectives.node_level(group, SIZE, 2) < collectives.node_level(group, SIZE, 1)


@pytest.mark.parametrize(("size", "mesh", "ports"), [(9, 4, 2), (5, 2, 2), (13, 4, 3)])
def test_equations_2_to_4_are_cuts_of_the_generated_settings(size, mesh, ports):
    whole = RailFabric.full(16, mesh, ports)
    assert all_to_all_bound(torus(whole)) == pytest.approx(torus_printed(whole))
    fabric = RailFabric(mesh, ports, size, size, 2 * size)
    assert all_to_all_bound(hyperx(fabric)) == pytest.approx(hyperx_exact(fabric))
    assert hyperx_exact(fabric) - low_diameter_printed(fabric) == pytest.approx(2 / mesh**2)
    assert dragonfly_exact(fabric) == pytest.approx(low_diameter_printed(fabric))


@pytest.mark.parametrize(("columns", "rows"), [(8, 4), (4, 8)])
def test_the_bound_is_over_the_narrower_dimension(columns, rows):
    """Equation 2 on a torus of 8 by 4 nodes of 2x2 chips with 2 ports a side, by hand.

    Half the columns are separated by a cut of 2 links of each of 4 rails in each of 4 rows: 32
    links, 64 ports; half the rows by twice as many. 2 B_c / N is 2 x 64 / (32 x 4).
    """
    fabric = RailFabric(2, 2, columns, rows, 16)
    assert all_to_all_bound(torus(fabric)) == pytest.approx(1.0)


def test_local_links_limit_a_dragonfly_more_than_equation_4():
    settings_ = dragonfly(RailFabric(2, 2, 21, 5, 42))
    rows = defaultdict(list)
    for row, rail, here in product(range(5), range(4), range(21)):
        there = int(settings_.x[row, rail, here])
        rows[here, there].append(row)
        rows[there, here].append(row)
    across, within = Counter(), Counter()
    for (g, a), (h, b) in permutations(product(range(21), range(5)), 2):
        if g == h:
            within[g, a, b] += 1
            continue
        for row in rows[g, h]:
            part = 1 / len(rows[g, h])
            across[g, h, row] += part / rows[g, h].count(row)
            within[g, a, row] += part * (a != row)
            within[h, row, b] += part * (b != row)
    expected = 105 / 4 / max(across.values()), 105 / 4 / (max(within.values()) / 2)
    found = dragonfly_minimal_bound(settings_, 21)
    assert found == pytest.approx(expected)
    assert found[1] < dragonfly_exact(settings_.fabric) <= found[0]


def test_equation_5_asks_for_more_than_twice_the_bandwidth():
    fabric = RailFabric.full(128, 7, 9)
    assert mesh_bisection_per_port(fabric, 2) == 1
    assert mesh_bisection_per_port(fabric, 2.1) > 1


def test_table_2_has_the_diameters_of_the_generated_settings():
    fabric = RailFabric(2, 2, 21, 5, 42)
    assert node_diameter(hyperx(RailFabric(2, 1, 3, 3, 6))) == 2
    assert node_diameter(dragonfly(fabric)) == 3
    # The wrapped torus has R / 2; the printed R is that of a mesh.
    assert node_diameter(torus(RailFabric.full(16, 1, 1))) == 8


@pytest.mark.parametrize(
    ("row", "chips", "switches", "copper", "optical", "cost"),
    [
        ("fat-tree-2", 2048, 3456, 0, 294.9, 415.9),
        ("tapered-3", 3072, 2880, 0, 294.9, 395.7),
        ("hx4", 16384, 2304, 0, 294.9, 375.6),
        ("hx7", 50176, 4032, 0, 516.1, 657.2),
        ("torus-ocs", 4096, 288, 30.7, 36.9, 54.6),
        ("torus", 4096, 0, 30.7, 36.9, 44.5),
        ("rail-only", 4096, 2304, 0, 294.9, 375.6),
        ("railx4", 65536, 4608, 0, 589.8, 751.1),
        ("railx7", 200704, 8064, 0, 1032.2, 1314.4),
        ("fat-tree-4", 196608, 774144, 0, 56623, 83718),
        ("tapered-49", 200704, 149760, 0, 16810, 22052),
        ("hx7-200k", 200704, 48384, 0, 4128, 5822),
    ],
)
def test_table_6_follows_from_the_structure(row, chips, switches, copper, optical, cost):
    network = costs.table_6()[row]
    assert (network.chips, network.switches) == (chips, switches)
    assert network.copper / 1e3 == pytest.approx(copper, abs=0.05)
    assert network.optical / 1e3 == pytest.approx(optical, abs=0.05 if optical < 4_000 else 1)
    assert network.cost / 1e6 == pytest.approx(cost, abs=0.05 if cost < 5_000 else 0.5)


def test_the_printed_cost_of_the_circuit_switched_torus_has_another_rows_switches():
    rows = costs.table_6()
    torus_row, hx7 = rows["torus-ocs"], rows["hx7"]
    slip = torus_row.cost + (hx7.switches - torus_row.switches) * costs.SWITCH
    assert slip / 1e6 == pytest.approx(185.7, abs=0.05)


def test_networks_that_switches_cannot_make_are_refused():
    with pytest.raises(RailxError):
        costs.fat_tree(200_704, 3)
    with pytest.raises(RailxError):
        costs.hamming_mesh(7, 64, 1)
    with pytest.raises(RailxError, match="do not fill"):
        costs.tapered_fat_tree(3000, 3, 2)


def test_railx_needs_less_power_than_a_fat_tree_of_its_size():
    rows = costs.table_6()
    assert rows["railx7"].power_w == pytest.approx(rows["railx7"].optical * 2)
    assert rows["railx7"].power_w / rows["fat-tree-4"].power_w < 0.01


@given(
    first=st.floats(1, 1e9),
    second=st.floats(1, 1e9),
    ports=st.integers(2, 36),
    wait=st.floats(0, 1e8),
)
def test_the_static_allocation_is_the_best_of_all_divisions(first, second, ports, wait):
    traffic = allocation.Traffic(first, wait), allocation.Traffic(second)
    best = allocation.static_allocation(*traffic, ports, BPS)
    every = allocation.split_times(*traffic, ports, BPS)
    assert sum(best.ports) == ports
    assert len(every) == ports - 1
    assert all(best.time_ns <= split.time_ns for split in every)


def test_the_time_of_a_transfer_is_that_of_both_directions():
    """Appendix A.4: V / (2 n B); 1 GB over 2 ports of 100 Gb/s is 8e9 / 4e11 s."""
    assert allocation.transfer_ns(1e9, 2, 100e9) == pytest.approx(20e6)
    first, second = allocation.Traffic(1e9), allocation.Traffic(3e9, overlap_ns=90e6)
    every = allocation.split_times(first, second, 4, 100e9)
    assert every == [
        ((1, 3), pytest.approx(40e6 + 90e6)),
        ((2, 2), pytest.approx(20e6 + 90e6)),
        ((3, 1), pytest.approx(40e6 / 3 + 120e6)),
    ]


def test_more_context_traffic_moves_ports_to_it_and_overlap_moves_more():
    data = allocation.Traffic(1e9)
    ports = [
        allocation.static_allocation(data, allocation.Traffic(v), 10, BPS).ports[1]
        for v in (1e7, 1e8, 1e9, 1e10)
    ]
    assert ports == sorted(ports)
    assert ports[0] < 5 < ports[-1]
    overlapped = allocation.Traffic(1e9, overlap_ns=5_000_000)
    moved = allocation.static_allocation(overlapped, allocation.Traffic(1e9), 10, BPS)
    assert moved.ports[1] > ports[2]


def test_the_two_objectives_divide_ports_by_root_and_by_volume():
    assert allocation.split_ports(100, 1, 11, "sum") == (10, 1)
    assert allocation.split_ports(9, 1, 12, "sum") == (9, 3)
    assert allocation.split_ports(2, 1, 12, "slowest") == (8, 4)


def test_the_highest_and_the_lowest_volume_share_a_dimension():
    order = {"EP": 16.0, "CP": 4.0, "DP": 2.0, "PP": 1.0}
    for objective in ("sum", "slowest"):
        pairs = allocation.best_pairing(order, 12, objective)
        assert {frozenset(pair) for pair in pairs} == {
            frozenset({"EP", "PP"}),
            frozenset({"CP", "DP"}),
        }


def test_switching_in_the_gap_gains_at_most_a_factor_of_two():
    quick = allocation.dynamic_gain(1e9, 1e9, 10, BPS, switching_ns=5e6)
    assert quick.speedup == pytest.approx(2)
    late = allocation.dynamic_gain(1e9, 1e9, 10, BPS, switching_ns=26e6)
    assert late.dynamic_ns - quick.dynamic_ns == pytest.approx(20e6)
    assert allocation.dynamic_gain(1e6, 1e6, 10, BPS, switching_ns=26e6).speedup < 1


def test_one_port_cannot_be_divided():
    with pytest.raises(RailxError):
        allocation.split_times(allocation.Traffic(1), allocation.Traffic(1), 1, BPS)


@given(st.builds(Parallelism, *[st.integers(1, 3)] * 5))
def test_every_kind_of_process_group_is_a_partition_of_the_ranks(degrees):
    for groups in degrees.groups().values():
        ranks = [rank for group in groups for rank in group]
        assert sorted(ranks) == list(range(degrees.ranks))


def test_the_listing_has_64_ranks_and_groups_of_table_4():
    assert LISTING_1.ranks == 64
    assert LISTING_1.data == 4
    groups = LISTING_1.groups()
    assert groups["context"][0] == (0, 4)
    assert groups["expert"][0] == (0, 8)
    assert groups["data-ffn"][0] == (0, 4, 16, 20)
    assert groups["pipeline"][0] == (0, 32)


def test_volumes_are_those_of_table_4():
    model = Model(1, 8, 8192, 8192, 80, 128_256, 64, 8, 28_672, 2)
    found = volumes(model, LISTING_1)
    assert found["tensor-attention"] == (8192 * 8192, 4 * 8 * 40)
    assert found["expert"].elements == found["tensor-expert"].elements / 8
    assert found["context"].elements == 8192 * 8192 * 0.25 / 4
    assert found["data-ffn"] == (3 * 8192 * 28_672 / 4, 40)
    assert global_batch(model, LISTING_1) == 32


def test_a_group_without_links_is_noticed():
    groups = [(0, 1, 2)]
    assert links_missing(groups, lambda a, b: True) == []
    assert links_missing(groups, lambda a, b: {a, b} != {0, 2}) == [(2, 0)]
