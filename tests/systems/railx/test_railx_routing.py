"""Algorithm 1: every pair arrives, in few hops, on three channels without deadlock."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import hyperx, torus
from lightrig.suites.claims.railx.deadlock import (
    Hop,
    free_of_deadlock,
    mesh_dependencies,
    raised_channels,
    routes_free_of_deadlock,
    torus_dependencies,
    torus_network_channels,
)
from lightrig.suites.claims.railx.minimal_routing import (
    NoDirectLinkError,
    minimal_routes,
    throughput_bound,
)

CASES = [(2, 1, 3), (2, 2, 5), (3, 2, 7), (4, 1, 5)]


@cache
def routes_of(mesh, ports, size):
    return minimal_routes(hyperx(RailFabric(mesh, ports, size, size, 2 * size)))


@cache
def followed(mesh, ports, size):
    """Return mesh and optical hops of all pairs of chips, and the pairs that cross each link."""
    routes = routes_of(mesh, ports, size)
    table, _ = routes.table()
    count = len(table)
    hops, loads = np.zeros((count, count, 2), int), np.zeros_like(routes.graph.peer_chip)
    source, sink = np.nonzero(table >= 0)
    here = source
    while here.size:
        port = table[here, sink]
        hops[source, sink, (port >= 4).astype(int)] += 1
        np.add.at(loads, (here, port), 1)
        here = routes.graph.peer_chip[here, port]
        source, sink, here = (each[here != sink] for each in (source, sink, here))
    return hops, loads


@pytest.mark.parametrize(("mesh", "ports", "size"), CASES)
def test_all_pairs_arrive_by_at_most_two_optical_hops(mesh, ports, size):
    hops, _ = followed(mesh, ports, size)
    assert hops[..., 1].max() == 2
    # 2 Ho + (5 m - 6) Hi; printed for even m, and not exceeded for m = 3 either.
    assert hops[..., 0].max() <= 5 * mesh - 6


@pytest.mark.parametrize(("mesh", "ports", "size"), CASES)
def test_the_walk_agrees_with_following_all_pairs(mesh, ports, size):
    hops, loads = followed(mesh, ports, size)
    walk = routes_of(mesh, ports, size).walk()
    assert walk.mesh == hops[..., 0].max()
    assert (walk.loads == loads).all()


@pytest.mark.parametrize(("mesh", "ports", "size"), CASES)
def test_dependencies_are_those_of_all_pairs(mesh, ports, size):
    routes = routes_of(mesh, ports, size)
    port, channel = (table.astype(np.int64) for table in routes.table())
    peers = routes.graph.peer_chip
    chip, sink = np.nonzero(port >= 0)
    following = peers[chip, port[chip, sink]]

    def number(at):
        return (at * peers.shape[1] + port[at, sink]) * routes.channels + channel[at, sink]

    pairs = np.column_stack([number(chip), number(following)])[following != sink]
    assert (np.unique(pairs, axis=0) == routes.dependencies()).all()


def test_lines_that_are_joined_otherwise_keep_their_own_exits():
    settings = routes_of(2, 2, 5).graph.settings
    x = settings.x.copy()
    x[1] = x[1, ::-1]  # so that other rails have the nearest links
    changed = minimal_routes(replace(settings, x=x))
    alone = minimal_routes(replace(settings, x=np.broadcast_to(x[1], x.shape)))
    chips = np.arange(5 * 4)  # of a row
    for row, same in enumerate([routes_of(2, 2, 5), alone, *[routes_of(2, 2, 5)] * 3]):
        line = row * 20 + chips
        found, expected = (r.next_hops(line[:, None], line)[0] for r in (changed, same))
        assert (found == expected).all()
    assert (changed.table()[0] != routes_of(2, 2, 5).table()[0]).any()


@pytest.mark.parametrize(("mesh", "ports", "size"), CASES)
def test_three_channels_are_free_of_deadlock(mesh, ports, size):
    assert routes_free_of_deadlock(routes_of(mesh, ports, size))


def test_one_channel_would_deadlock():
    routes = routes_of(2, 2, 5)
    merged = routes.dependencies() // routes.channels
    assert not free_of_deadlock(merged.tolist())


def test_the_channel_never_falls_along_a_path():
    routes = routes_of(2, 1, 3)
    chips = routes.graph.fabric.chips
    for source in range(chips):
        for sink in range(chips):
            channels = [channel for _, _, channel in routes.path(source, sink)]
            assert channels == sorted(channels)


@pytest.mark.long
def test_the_paths_of_200_704_chips_cross_a_rail_for_each_column_and_row():
    routes = routes_of(7, 9, 64)
    walk = routes.walk()
    chips = 64 * 64 * 49
    assert walk.mesh == 28
    assert walk.loads[:, 4:].sum() == 2 * chips * (chips - chips // 64)


def test_a_packet_takes_the_nearest_of_the_two_links():
    routes = routes_of(4, 1, 5)
    # Every chip of node 0 to node 1 in its row: at most m / 2 - 1 hops to the edge column, and
    # m - 1 along it.
    steps = [
        sum(port < 4 for _, port, channel in routes.path(chip, 16 + chip) if channel == 0)
        for chip in range(16)
    ]
    assert max(steps) <= 4


def test_of_two_nearest_links_that_with_the_lower_rail_is_taken():
    routes = routes_of(2, 2, 5)
    settings = routes.graph.settings
    ties = 0
    for place in range(4):
        found = []
        for rail in range(4):
            for plus, a, b in ((True, 0, 1), (False, 1, 0)):
                if settings.x[0, rail, a] == b:
                    edge = (rail // 2) * 2 + (1 if plus else 0)
                    away = abs(edge % 2 - place % 2) + abs(edge // 2 - place // 2)
                    found.append((away, rail, not plus))
        ties += found[0][0] == found[1][0]
        _, rail, minus = min(found)
        optical = [port for _, port, _ in routes.path(place, 4) if port >= 4]
        assert optical == [4 + 2 * minus + rail % 2]
    assert ties


def test_a_torus_is_no_topology_for_algorithm_1():
    with pytest.raises(NoDirectLinkError, match="have no link"):
        minimal_routes(torus(RailFabric(2, 1, 4, 4, 8)))


def test_the_mesh_limits_the_throughput_at_k_1_only():
    fabric_routes = routes_of(4, 1, 5)
    loads = fabric_routes.walk().loads
    bounds = [throughput_bound(fabric_routes.graph, loads, k) for k in (1, 2, 4)]
    assert bounds[0] < bounds[1] <= bounds[2]
    assert bounds[2] <= 2 * 5 / 16


@pytest.mark.parametrize(
    ("rule", "free"), [("dimension-order", True), ("north-last", True), ("any", False)]
)
def test_turn_rules_decide_whether_a_mesh_channel_can_deadlock(rule, free):
    assert free_of_deadlock(mesh_dependencies(4, rule)) is free


@pytest.mark.parametrize(("channels", "free"), [(1, False), (2, True)])
def test_a_torus_needs_two_channels_without_bubbles(channels, free):
    assert free_of_deadlock(torus_dependencies(5, channels)) is free


def test_the_example_detour_needs_four_channels():
    # (0,4) -> (4,4), congestion, along X-rail 0 to (1,4) and Y-rail 1 to (1,0), then to (4,0).
    hops = [
        Hop((4, 4), "x", 2),
        Hop((1, 4), "x", 0, along=True),
        Hop((1, 0), "y", 1, along=True),
        Hop((2, 0), "x", 0, along=True),
        Hop((4, 0), "x", 3),
    ]
    assert torus_network_channels(hops) == [1, 1, 1, 2, 3]
    assert raised_channels(hops) == [1, 2, 3, 4, 5]


def test_channels_of_raised_routes_only_grow():
    import networkx as nx

    graph = nx.DiGraph()
    for length in range(2, 6):
        channels = raised_channels([Hop((n, 0), "x", 0) for n in range(length)])
        graph.add_edges_from(itertools.pairwise(channels))
    assert nx.is_directed_acyclic_graph(graph)


def test_dependencies_of_three_channels_on_a_torus_are_not_known():
    with pytest.raises(RailxError):
        torus_dependencies(4, 3)
