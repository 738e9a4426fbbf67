"""Traffic split over rails: every byte arrives, and ports are loaded as the topology allows."""

import pathlib
from itertools import permutations

import pytest

from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.harness.systems.railx.planning.rail_lanes import RailLanes, rail_of
from lightrig.testbeds import Link, Port, load

TESTBED = load(pathlib.Path("testbeds/railx5.yaml"))
NODES = list(TESTBED.servers)


def lanes_of(name):
    return RailLanes.of(NODES, TESTBED.links(name))


@pytest.mark.parametrize("name", ["torus", "hyperx"])
def test_every_pair_gets_all_of_its_bytes(name):
    shares = lanes_of(name).all_to_all(1001)
    for i, j in permutations(range(5), 2):
        assert sum(lane[i][j] for lane in shares) == 1001
    assert all(lane[i][i] == 0 for lane in shares for i in range(5))


def test_rail_rings_carry_an_all_to_all_over_direct_links_alone():
    lanes = lanes_of("hyperx")
    routes, shares = lanes.routes(), lanes.all_to_all(1000)
    for lane, hops in zip(shares, routes, strict=True):
        for i, j in permutations(range(5), 2):
            if lane[i][j]:
                assert lane[i][j] == 500
                assert hops[NODES[i], NODES[j]].towards.owner == NODES[j]
    assert set(lanes.port_loads(shares).values()) == {500}
    assert lanes.bound(shares) == 1


def test_a_torus_forwards_half_of_an_all_to_all():
    lanes = lanes_of("torus")
    shares = lanes.all_to_all(1000)
    # Two peers at one link and two at two, over eight ports of a node.
    assert set(lanes.port_loads(shares).values()) == {(1000 + 1000 + 2000 + 2000) // 8}
    assert lanes.bound(shares) == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", ["torus", "hyperx"])
def test_rings_load_every_port_alike(name):
    lanes = lanes_of(name)
    shares = lanes.rings(700)
    loads = lanes.port_loads(shares)
    assert len(loads) == 40
    assert set(loads.values()) == {700}
    assert lanes.bound(shares) == 1


@pytest.mark.parametrize("name", ["torus", "hyperx"])
def test_one_way_rings_load_plus_ports_alone(name):
    lanes = lanes_of(name)
    shares = lanes.rings(700, plus_only=True)
    loads = lanes.port_loads(shares)
    assert {port.name.partition(".")[2] for port in loads} == {"p0"}
    assert set(loads.values()) == {700}
    assert lanes.bound(shares) == 0.5


@pytest.mark.parametrize("name", ["torus", "hyperx"])
def test_routes_stay_on_their_rail_and_reach_every_node(name):
    lanes = lanes_of(name)
    for rail, hops in zip(lanes.rails, lanes.routes(), strict=True):
        for source, sink in permutations(NODES, 2):
            at, steps = source, 0
            while at != sink:
                hop = hops[at, sink]
                assert rail_of(hop.port) == rail_of(hop.towards) == rail
                assert hop.port.owner == at
                at, steps = hop.towards.owner, steps + 1
            assert steps <= 2


def test_two_nodes_without_a_rail_are_refused():
    link = Link(Port(NODES[0], "x0.p0"), Port(NODES[1], "x0.p1"))
    with pytest.raises(RailxError, match="no rail leads from"):
        RailLanes.of(NODES, [link]).all_to_all(8)


def test_a_link_between_two_rails_is_refused():
    link = Link(Port(NODES[0], "x0.p0"), Port(NODES[1], "x1.p1"))
    with pytest.raises(RailxError, match="joins two rails"):
        RailLanes.of(NODES, [link])
