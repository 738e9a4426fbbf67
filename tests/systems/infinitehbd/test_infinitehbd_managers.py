"""Rings out of paths, and the two managers through failures, repairs and silence."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.infinitehbd.planning.managers import (
    ClusterManager,
    NodeFabricManager,
    PathChange,
)
from lightrig.harness.systems.infinitehbd.planning.placement import place
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    InfiniteHbdError,
    k_hop,
)
from lightrig.suites.claims.infinitehbd.exchange import powers_of_two
from lightrig.testbeds import Circuit


def ends(wiring, taken):
    """Return the end of each bundle's light: node and bundle to the node, or itself in loopback."""
    lit = {}
    for node, row in enumerate(taken.tolist()):
        for bundle, path in enumerate(row):
            hop = 0 if path == Path.LOOPBACK else bundles(wiring)[bundle][path - 1]
            lit[node, bundle] = wiring.neighbour(node, hop) if hop else node
    return lit


@st.composite
def faulty_rows(draw):
    wiring = k_hop(draw(st.integers(7, 24)), draw(st.integers(2, 3)), closed=draw(st.booleans()))
    faulty = np.zeros(wiring.nodes, dtype=bool)
    faulty[list(draw(st.sets(st.integers(0, wiring.nodes - 1), max_size=9)))] = True
    return wiring, faulty


# ------------------------------------------------------------------------------ paths


def test_two_hops_take_a_bundle_to_each_side_and_a_third_takes_one_to_both():
    assert bundles(k_hop(9, 2)) == ((1, 2), (-1, -2))
    assert bundles(k_hop(9, 3)) == ((1, 2), (-1, -2), (3, -3))
    assert bundles(powers_of_two(20, 4)) == ((1, 2), (4, 8), (-1, -2), (-4, -8))


@given(faulty_rows(), st.integers(1, 5))
def test_a_group_is_lit_from_end_to_end_and_nothing_else_is(drawn, size):
    wiring, faulty = drawn
    groups = place(faulty, size, wiring.reach, closed=wiring.closed)
    taken, joined = paths(wiring, groups)
    lit = ends(wiring, taken)
    neighbours = {node: set() for node in range(wiring.nodes)}
    for (node, _), far in lit.items():
        if far != node:
            neighbours[node].add(far)
    wanted = {node: set() for node in range(wiring.nodes)}
    for row in groups[joined].tolist():
        for a, b in pairwise(row):
            wanted[a].add(b)
            wanted[b].add(a)
    assert neighbours == wanted
    assert joined.all() or wiring.reach == 3


def test_with_three_hops_one_bundle_cannot_serve_both_sides():
    wiring = k_hop(7, 3)
    taken, joined = paths(wiring, np.array([[0, 3, 6]]))
    assert not joined.any()
    assert (taken == Path.LOOPBACK).all()
    assert paths(wiring, np.array([[0, 3, 5]]))[1].all()


def test_groups_that_no_link_joins_or_that_share_a_node_are_refused():
    with pytest.raises(InfiniteHbdError, match="no link between"):
        paths(k_hop(9, 2), np.array([[0, 3]]))
    with pytest.raises(InfiniteHbdError, match="two groups"):
        paths(k_hop(9, 2), np.array([[0, 1], [1, 2]]))


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True), st.sampled_from([2, 4, 8])
)
def test_a_ring_passes_every_gpu_once_and_steps_to_the_next_node_at_most(nodes, gpus):
    ring = gpu_ring(nodes, gpus)
    assert sorted(ring) == sorted((node, gpu) for node in nodes for gpu in range(gpus))
    place_of = {node: at for at, node in enumerate(nodes)}
    for (a, _), (b, _) in zip(ring, ring[1:] + ring[:1], strict=True):
        assert abs(place_of[a] - place_of[b]) <= 1


def test_all_modules_of_a_bundle_take_its_path():
    assert circuits(Path.EXTERNAL_2, 2) == {Circuit(1, 4), Circuit(2, 7)}
    assert circuits(Path.LOOPBACK, 1) == {Circuit(1, 4)}


# --------------------------------------------------------------------------- managers


def test_a_node_changes_what_differs_and_the_same_order_twice_nothing():
    node = NodeFabricManager.idle(3, 2)
    assert node.settled
    told, moves = node.ordered((Path.EXTERNAL_1, Path.LOOPBACK))
    assert moves == [PathChange(3, 0, Path.LOOPBACK, Path.EXTERNAL_1)]
    assert not told.settled
    assert told.ordered((Path.EXTERNAL_1, Path.LOOPBACK))[1] == []
    assert told.switched(0).settled
    with pytest.raises(InfiniteHbdError, match="node 3 was told 1 paths and has 2 bundles"):
        node.ordered((Path.LOOPBACK,))


def test_a_failed_node_is_passed_and_its_ring_made_again_with_a_spare():
    manager, _ = ClusterManager.start(k_hop(8, 2), 3)
    assert manager.groups.tolist() == [[0, 1, 2], [3, 4, 5]]
    after, orders = manager.failed(4)
    assert after.groups.tolist() == [[0, 1, 2], [3, 5, 6]]
    assert orders == {
        3: (Path.EXTERNAL_2, Path.LOOPBACK),
        5: (Path.EXTERNAL_1, Path.EXTERNAL_2),
        6: (Path.LOOPBACK, Path.EXTERNAL_1),
    }
    # Back again, it is a spare; nobody is disturbed for its sake.
    back, orders = after.repaired(4)
    assert back.groups.tolist() == after.groups.tolist()
    assert orders == {}


def test_a_manager_that_does_not_answer_has_failed():
    manager, orders = ClusterManager.start(k_hop(8, 2), 3)
    for node in {*orders} - {4}:
        manager = manager.acknowledged(node)
    assert not manager.ready
    manager, orders = manager.silent()
    assert manager.faulty.tolist() == [node == 4 for node in range(8)]
    for node in orders:
        manager = manager.acknowledged(node)
    assert manager.ready
    assert manager.silent()[1] == {}


@settings(max_examples=50, deadline=None)
@given(faulty_rows(), st.integers(2, 5), st.data())
def test_through_failures_and_repairs_rings_hold_and_others_are_left_alone(drawn, size, data):
    wiring, _ = drawn
    manager, orders = ClusterManager.start(wiring, size)
    nodes = [NodeFabricManager.idle(n, len(bundles(wiring))) for n in range(wiring.nodes)]
    for turn in range(6):
        for node, wanted in orders.items():
            nodes[node], moves = nodes[node].ordered(wanted)
            assert moves
            for move in moves:
                nodes[node] = nodes[node].switched(move.bundle)
            manager = manager.acknowledged(node)
        assert manager.ready
        check(wiring, manager, nodes)
        before = manager
        node = data.draw(st.integers(0, wiring.nodes - 1))
        if manager.faulty[node]:
            manager, orders = manager.repaired(node)
            nodes[node] = NodeFabricManager.idle(node, len(bundles(wiring)))
        elif turn == 4:
            manager, orders = manager.repack()
            assert len(manager.groups) <= manager.most
            continue
        else:
            manager, orders = manager.failed(node)
            assert node not in orders
        whole = before.groups[~(before.groups == node).any(axis=1)]
        assert not set(orders) & set(whole.ravel().tolist())
        assert {*map(tuple, whole.tolist())} <= {*map(tuple, manager.groups.tolist())}


def check(wiring, manager, nodes):
    assert not manager.faulty[manager.groups].any()
    wanted, joined = paths(wiring, manager.groups)
    assert joined.all()
    healthy = ~manager.faulty
    done = np.array([node.paths for node in nodes])
    assert (done[healthy] == wanted[healthy]).all()
    # Nothing that fits was left out, but for a bundle that cannot serve both sides.
    free = manager.faulty.copy()
    free[manager.groups] = True
    more = place(free, manager.size, wiring.reach, closed=wiring.closed)
    assert len(more) == 0 or wiring.reach == 3


def test_rings_need_links_to_all_of_the_next():
    with pytest.raises(InfiniteHbdError, match=r"hops \(1, 2, 4\), expected all from 1 to 4"):
        ClusterManager.start(powers_of_two(20, 3), 2)
    manager, _ = ClusterManager.start(k_hop(8, 2), 2)
    with pytest.raises(InfiniteHbdError, match="found node 8, expected 0 to 7"):
        manager.failed(8)


def gpu_ring(nodes: list[int], gpus: int) -> list[tuple[int, int]]:
    """The ring of GPUs, as (node, GPU), that a group of nodes with `gpus` GPUs each closes.

    It leads out along the first half of each node's GPUs and back along the second, and turns
    in the loopback of the two ends; of a single node, both are its own. Which GPU is of which
    half is a guess.
    """
    half = gpus // 2
    out = [(node, gpu) for node in nodes for gpu in range(half)]
    back = [(node, gpu) for node in reversed(nodes) for gpu in range(half, gpus)]
    return out + back
