"""A RailX fabric of 3 rows and 5 columns, and a rail whose nodes have unequal numbers of links."""

import io

import pytest
from uneven import COLUMNS, LINES, TRAFFIC, TREE

from lightrig.harness.systems.railx.planning.cross_connects import DARK, CrossConnect, dark
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailPort, RailxError
from lightrig.harness.systems.railx.planning.rail_lanes import RailLanes
from lightrig.harness.systems.railx.planning.topologies import Axis, configure, hyperx, torus
from lightrig.testbeds import Link, Port

OBLONG = RailFabric(mesh=2, ports=1, columns=COLUMNS, rows=LINES, radix=12)


def test_sizes_of_an_oblong_fabric():
    assert (OBLONG.rails, OBLONG.nodes, OBLONG.chips) == (2, 15, 60)
    assert OBLONG.switches == 2 * (5 + 3)
    assert OBLONG.optical_ports == 4 * 2 * 15
    assert (OBLONG.length("x"), OBLONG.lines("x")) == (5, 3)
    assert (OBLONG.length("y"), OBLONG.lines("y")) == (3, 5)
    assert OBLONG.switch_port(RailPort(4, 1, "x", 1, True)) == ("x", 1, 1, 9)
    assert OBLONG.switch_port(RailPort(4, 1, "y", 0, False)) == ("y", 4, 0, 4)
    with pytest.raises(RailxError, match="5 nodes in a line need 10 switch ports"):
        RailFabric(mesh=2, ports=1, columns=COLUMNS, rows=LINES, radix=9)
    with pytest.raises(RailxError, match="5 nodes in a line need 10 switch ports"):
        RailFabric(mesh=2, ports=1, columns=LINES, rows=COLUMNS, radix=9)


def test_a_torus_of_an_oblong_fabric_has_long_rows_and_short_columns():
    import networkx as nx

    made = torus(OBLONG)
    wanted = nx.grid_2d_graph(COLUMNS, LINES, periodic=True)
    graph = made.node_graph()
    assert {frozenset(edge) for edge in graph.edges()} == {frozenset(edge) for edge in wanted.edges}
    lengths = {
        dimension: sum(data["dimension"] == dimension for *_, data in graph.edges(data=True))
        for dimension in ("x", "y")
    }
    assert lengths == {"x": 2 * 3 * 5, "y": 2 * 5 * 3}
    assert len(made) == 60
    # The last node of a row is followed by the first: plus port 9, minus port 2.
    assert made.cross_connects("x", 2, 1)[-1] == CrossConnect("x", 2, 1, 9, 2)
    assert made.cross_connects("y", 4, 0)[1] == CrossConnect("y", 4, 0, 3, 6)


def test_lines_of_a_setting_name_each_switch_of_each_line():
    made = configure(OBLONG, [Axis(2, "ring", (1,))], [Axis(3, "ring", (0,))])
    stream = io.StringIO()
    assert made.write(stream) == 16
    lines = stream.getvalue().splitlines()
    assert lines[:6] == [
        "x-ocs[0,0]: ",
        "x-ocs[0,1]: 1<>4 3<>2 5<>8 7<>6",
        "x-ocs[1,0]: ",
        "x-ocs[1,1]: 1<>4 3<>2 5<>8 7<>6",
        "x-ocs[2,0]: ",
        "x-ocs[2,1]: 1<>4 3<>2 5<>8 7<>6",
    ]
    assert lines[6:8] == ["y-ocs[0,0]: 1<>4 3<>6 5<>2", "y-ocs[0,1]: "]
    assert len(made) == 3 * 4 + 5 * 3
    assert (made.x[:, :, 4] == DARK).all()


def test_the_largest_hyperx_fits_the_shorter_side():
    import networkx as nx

    graph = hyperx(OBLONG).node_graph()
    parts = sorted(map(len, nx.connected_components(graph)))
    assert parts == [3, 3, 9]  # columns 3 and 4 have Y-rails alone
    assert dark(OBLONG).x.shape == (3, 2, 5)


def tree_of(rail):
    """Return the links of TREE on a rail, from a plus port each, one of them named from its end."""
    links = [Link(Port(f"n{a}", f"{rail}.p0"), Port(f"n{b}", f"{rail}.p1")) for a, b in TREE]
    return [*links[:2], Link(links[2].b, links[2].a), links[3]]


def crossing(a, b):
    """Return the bytes of TRAFFIC that go over an edge of TREE from `a` to `b`."""
    import networkx as nx

    graph = nx.Graph(TREE)
    graph.remove_edge(a, b)
    sources, sinks = (nx.node_connected_component(graph, end) for end in (a, b))
    return sum(TRAFFIC[source][sink] for source in sources for sink in sinks)


def test_forwarded_bytes_load_the_ports_of_a_tree_unequally():
    lanes = RailLanes.of([f"n{n}" for n in range(5)], tree_of("x0"))
    loads = lanes.port_loads((TRAFFIC,))
    wanted = {}
    for a, b in TREE:
        wanted[Port(f"n{a}", "x0.p0")] = wanted.get(Port(f"n{a}", "x0.p0"), 0) + crossing(a, b)
        wanted[Port(f"n{b}", "x0.p1")] = crossing(b, a)
    assert loads == wanted
    # Over 1-0 go 4 + 19 + 9 + 12 bytes, over 1-2 all that the third receives.
    assert loads[Port("n1", "x0.p0")] == 48 + (5 + 1 + 3 + 8 + 7 + 13)
    assert lanes.bound((TRAFFIC,)) == pytest.approx(61 / (2 * 1 * max(wanted.values())))


def test_an_all_to_all_takes_the_nearest_rails_of_two_that_differ():
    """x0 is a tree; on x1 the first and the last are neighbours, and the third is alone."""
    names = [f"n{n}" for n in range(5)]
    beside = [Link(Port("n0", "x1.p0"), Port("n4", "x1.p1"))]
    beside += [Link(Port("n0", "x1.p1"), Port("n1", "x1.p0"))]
    tree, other = RailLanes.of(names, [*tree_of("x0"), *beside]).all_to_all(7)
    assert (tree[0][4], other[0][4]) == (0, 7)
    # Neighbours on both rails: 7 // 2 bytes on the first, the rest on the second.
    assert (tree[0][1], other[0][1]) == (3, 4)
    assert (tree[1][0], other[1][0]) == (3, 4)
    # Two links on x1 by way of n0, two on x0 by way of n3.
    assert (tree[1][4], other[1][4]) == (3, 4)
    assert (tree[2][4], other[2][4]) == (7, 0)


def test_rings_of_unequal_degrees_send_once_a_link():
    lanes = RailLanes.of([f"n{n}" for n in range(5)], tree_of("x0"))
    (both,) = lanes.rings(3)
    assert [sum(row) for row in both] == [3, 9, 3, 6, 3]
    (plus,) = lanes.rings(3, plus_only=True)
    assert [sum(row) for row in plus] == [3, 6, 0, 3, 0]
    assert plus[1][3] == plus[0][1] == plus[3][4] == 3
