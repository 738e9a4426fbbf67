"""Ports that are joined for each topology, and the graph that results."""

import io
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.railx.planning.cross_connects import DARK, Settings, dark
from lightrig.harness.systems.railx.planning.hamiltonian import DecompositionError
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailPort, RailxError
from lightrig.harness.systems.railx.planning.topologies import (
    Axis,
    configure,
    hyperx,
    nearest,
    torus,
)
from lightrig.suites.claims.railx.chip_graph import ChipGraph, node_diameter
from lightrig.suites.claims.railx.further_topologies import (
    balanced,
    dragonfly,
    dragonfly_groups,
    hyperx_graph,
    rail_rings,
    same_graph,
    split_hyperx,
    switched_phases,
    torus_graph,
    uneven,
)
from lightrig.suites.claims.railx.setting_changes import Difference

FIVE = RailFabric(mesh=2, ports=2, columns=5, rows=5, radix=10)


def links(graph, a, b):
    return graph.number_of_edges(a, b)


def test_no_switch_port_is_cabled_twice_and_a_rail_meets_only_its_number():
    fabric = RailFabric(mesh=2, ports=1, columns=3, rows=4, radix=8)
    cabling = list(fabric.cabling())
    assert len({switch for _, switch in cabling}) == len(cabling) == fabric.optical_ports
    assert all(node.rail == switch.rail for node, switch in cabling)
    assert all(1 <= switch.port <= fabric.radix for _, switch in cabling)
    assert fabric.switch_port(RailPort(2, 3, "x", 1, True)) == ("x", 3, 1, 5)
    assert fabric.switch_port(RailPort(2, 3, "y", 1, False)) == ("y", 2, 1, 8)


@pytest.mark.parametrize(("radix", "mesh"), [(128, 5), (320, 2)])
def test_equation_1_gives_more_than_100k_chips(radix, mesh):
    fabric = RailFabric.full(radix, mesh, ports=4)
    assert fabric.chips == 102_400
    assert fabric.switches == fabric.rails * radix
    assert fabric.optical_ports == fabric.switches * radix


def test_a_line_with_more_nodes_than_the_switch_has_ports_is_refused():
    with pytest.raises(RailxError, match="need 12 switch ports"):
        RailFabric(mesh=2, ports=2, columns=6, rows=5, radix=10)


def test_a_minus_port_cannot_be_joined_twice():
    settings_ = torus(FIVE)
    x = settings_.x.copy()
    x[3, 1, 0] = x[3, 1, 1]
    with pytest.raises(RailxError, match=r"X-OCS \(3, 1\)"):
        Settings(FIVE, x, settings_.y)


def test_a_torus_has_parallel_rings_in_both_dimensions():
    graph = torus(FIVE).node_graph()
    assert same_graph(graph, torus_graph([5, 5], FIVE.rails))
    assert node_diameter(torus(FIVE)) == 4


def test_five_by_five_nodes_with_four_rails_are_a_hyperx():
    graph = hyperx(FIVE).node_graph()
    assert same_graph(graph, hyperx_graph([5, 5]))
    assert not same_graph(graph, torus_graph([5, 5], 2))
    assert node_diameter(hyperx(FIVE)) == 2


@pytest.mark.parametrize(("mesh", "ports", "copies"), [(2, 4, 2), (2, 2, 1), (4, 2, 2)])
def test_grouped_rails_give_two_links_a_pair_for_each_group(mesh, ports, copies):
    rails = mesh * ports
    size = rails // copies + 1
    fabric = RailFabric(mesh, ports, size, size, 2 * size)
    graph = hyperx(fabric, size).node_graph()
    assert all(links(graph, (0, 0), (i, 0)) == 2 * copies for i in range(1, size))


def test_one_link_a_pair_reaches_twice_as_many_nodes():
    fabric = RailFabric(mesh=2, ports=2, columns=9, rows=9, radix=18)
    one = hyperx(fabric, 9, "single-link")
    assert same_graph(one.node_graph(), hyperx_graph([9, 9], links=1))
    with pytest.raises(RailxError, match="needs 8 rails"):
        hyperx(fabric, 9)


def test_two_hyperx_share_the_switches_of_a_line():
    import networkx as nx

    fabric = RailFabric(mesh=2, ports=1, columns=7, rows=3, radix=14)
    graph = hyperx(fabric, 3).node_graph()
    parts = sorted(map(len, nx.connected_components(graph)))
    # The seventh column has Y-rails only.
    assert parts == [3, 9, 9]


@pytest.mark.parametrize(("columns", "groups"), [(21, 21), (7, 7), (16, 8)])
def test_a_dragonfly_joins_all_groups_by_two_links(columns, groups):
    fabric = RailFabric(mesh=2, ports=2, columns=columns, rows=5, radix=2 * columns)
    settings_ = dragonfly(fabric, groups)
    graph = settings_.node_graph()
    inside = {(a, b) for a, b in product(range(5), repeat=2) if a < b}
    assert all(links(graph, (g, a), (g, b)) == 2 for g in range(groups) for a, b in inside)
    between = {
        (g, h): sum(links(graph, (g, a), (h, b)) for a, b in product(range(5), repeat=2))
        for g, h in product(range(groups), repeat=2)
        if g < h
    }
    spare = 20 // (groups - 1)
    assert set(between.values()) == {2 * spare}


def test_the_example_dragonfly_has_21_groups_and_diameter_3():
    fabric = RailFabric(mesh=2, ports=2, columns=21, rows=5, radix=42)
    assert dragonfly_groups(fabric) == 21
    assert node_diameter(dragonfly(fabric)) == 3


def test_four_rails_in_two_groups_join_three_by_three_nodes_in_a_row():
    fabric = RailFabric(mesh=2, ports=2, columns=9, rows=9, radix=18)
    settings_ = split_hyperx(fabric, 2)
    assert same_graph(settings_.node_graph(), hyperx_graph([3, 3, 3, 3]))
    assert node_diameter(settings_) == 4


def test_the_five_dimensional_example_splits_both_dimensions():
    import networkx as nx

    fabric = RailFabric(mesh=2, ports=2, columns=9, rows=8, radix=18)
    first, second = balanced(fabric, [1, 1])
    x = [Axis(3, "ring", first), Axis(3, "all-to-all", second)]
    y = [Axis(2, "ring", first), Axis(4, "ring", second)]
    graph = configure(fabric, x, y).node_graph()
    assert nx.is_connected(graph)
    # A ring of 3, an all-to-all of 3, a ring of 2 and one of 4, each on two rails.
    assert sorted(graph.degree(node) for node in graph) == [16] * 72
    with pytest.raises(RailxError, match="do not fit"):
        configure(fabric, x, [Axis(3, "ring", first), Axis(3, "ring", second)])


def test_rails_are_split_evenly_or_unevenly():
    fabric = RailFabric(mesh=2, ports=3, columns=3, rows=3, radix=6)
    assert balanced(fabric, [2, 1]) == [(0, 1, 3, 4), (2, 5)]
    assert uneven(fabric, [5, 1]) == [(0, 1, 2, 3, 4), (5,)]
    with pytest.raises(RailxError):
        balanced(fabric, [2, 2])
    with pytest.raises(RailxError):
        uneven(fabric, [2, 2])


def test_one_rail_cannot_serve_two_logical_dimensions():
    with pytest.raises(RailxError, match="rails of its own"):
        configure(FIVE, [Axis(2, "ring", (0,)), Axis(2, "ring", (0,))], [])


@pytest.mark.parametrize("size", [4, 6])
def test_a_hyperx_of_four_or_six_nodes_a_line_is_refused(size):
    with pytest.raises(DecompositionError, match="no Hamiltonian"):
        hyperx(RailFabric(mesh=3, ports=2, columns=6, rows=6, radix=12), size)


def test_any_two_of_five_nodes_are_joined_on_two_rails():
    graph = rail_rings(FIVE, 5).node_graph()
    for a, b in product(range(5), repeat=2):
        if a < b:
            rails = {data["rail"] for data in graph[(a, 0)][(b, 0)].values()}
            assert len(rails) == 2


def test_a_difference_touches_only_what_changes():
    before, after = torus(FIVE), hyperx(FIVE)
    change = Difference(before, after)
    removed, added = set(change.removed()), set(change.added())
    assert (len(removed), len(added)) == (change.removals, change.additions)
    whole = {c for s in before.switches() for c in before.cross_connects(*s)}
    wanted = {c for s in after.switches() for c in after.cross_connects(*s)}
    assert (whole - removed) | added == wanted
    assert removed.isdisjoint(added)
    assert change.unchanged == len(whole & wanted)
    assert Difference(after, after).removals == Difference(after, after).additions == 0
    assert Difference(dark(FIVE), after).additions == len(after)


def test_settings_of_two_fabrics_have_no_difference():
    with pytest.raises(RailxError, match="two fabrics"):
        Difference(torus(FIVE), torus(RailFabric(2, 2, 4, 4, 8)))


def test_rings_assigned_to_different_rails_change_fewer_cross_connects():
    fabric = RailFabric(mesh=1, ports=4, columns=5, rows=5, radix=10)
    wanted = hyperx(fabric)
    shuffled = Settings(fabric, wanted.x[:, [2, 0, 3, 1]], wanted.y[:, [1, 0, 2, 3]])
    assert Difference(shuffled, wanted).removals > 0
    assert nearest(shuffled, wanted) == shuffled
    start = torus(fabric)
    least = nearest(start, wanted)
    assert Difference(start, least).removals <= Difference(start, wanted).removals
    assert same_graph(least.node_graph(), wanted.node_graph())


def test_context_and_expert_groups_have_all_rails_of_a_dimension_in_turn():
    fabric = RailFabric(mesh=2, ports=2, columns=10, rows=3, radix=20)
    y = [Axis(3, "ring", (0, 1, 2, 3))]
    context, expert = switched_phases(fabric, [(2, "ring"), (5, "all-to-all")], y)
    change = Difference(context, expert)
    assert {c.dimension for c in [*change.removed(), *change.added()]} == {"x"}
    assert (context.y == expert.y).all()
    rows = [settings_.node_graph() for settings_ in (context, expert)]
    assert {abs(a[0] - b[0]) for a, b in rows[0].edges() if a[1] == b[1]} == {1}
    assert {(a[0] - b[0]) % 2 for a, b in rows[1].edges() if a[1] == b[1]} == {0}
    assert all(rows[1].number_of_edges((0, 0), (2 * e, 0)) == 2 for e in range(1, 5))


def test_each_switch_is_written_on_a_line():
    stream = io.StringIO()
    fabric = RailFabric(mesh=1, ports=1, columns=3, rows=2, radix=6)
    assert torus(fabric).write(stream) == fabric.switches
    assert stream.getvalue().splitlines()[0] == "x-ocs[0,0]: 1<>4 3<>6 5<>2"


@settings(max_examples=40)
@given(
    mesh=st.integers(1, 3),
    ports=st.integers(1, 3),
    columns=st.integers(2, 12),
    rows=st.integers(2, 12),
)
def test_every_switch_setting_is_a_matching(mesh, ports, columns, rows):
    fabric = RailFabric(mesh, ports, columns, rows, radix=24)
    settings_ = [torus(fabric)]
    if min(fabric.rails + 1, columns, rows) not in (4, 6):
        settings_.append(hyperx(fabric))
    for found in settings_:
        for switch in found.switches():
            connects = found.cross_connects(*switch)
            ports_used = [port for connect in connects for port in (connect.plus, connect.minus)]
            assert len(set(ports_used)) == len(ports_used)
            assert all(1 <= port <= fabric.radix for port in ports_used)


def test_chips_are_joined_both_directions():
    graph = ChipGraph.of(hyperx(FIVE))
    chip, port = np.nonzero(graph.peer_chip != DARK)
    there, back = graph.peer_chip[chip, port], graph.peer_port[chip, port]
    assert (graph.peer_chip[there, back] == chip).all()
    assert (graph.peer_port[there, back] == port).all()
    assert (port >= 4).sum() == FIVE.optical_ports
    assert (port < 4).sum() == 4 * FIVE.mesh * (FIVE.mesh - 1) * FIVE.nodes


def test_the_headline_system_is_one_hyperx_of_64_by_64_nodes():
    fabric = RailFabric.full(128, 7, 9)
    settings_ = hyperx(fabric)
    assert fabric.chips == 200_704
    assert fabric.rails + 1 == 64 == settings_.x.shape[2]
    assert len(settings_) == 516_096
    assert (settings_.x[0] == settings_.x[-1]).all()
