"""One ring through all healthy nodes: it closes past every failure that its links can pass."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.infinitehbd.planning.bypass import RingManager, plan_of, wiring_of
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, k_hop
from lightrig.testbeds import load

REACHES = st.sampled_from((2, 3))


def heard(manager):
    """Return the nodes that each healthy one's light comes to, by bundles not in loopback."""
    wiring = manager.wiring
    lit = {node: [] for node in manager.healthy}
    for each in manager.nodes:
        if each.node in manager.faulty:
            continue
        for pair, path in zip(bundles(wiring), each.wanted, strict=True):
            if path != Path.LOOPBACK:
                lit[each.node].append(wiring.neighbour(each.node, pair[path - 1]))
    return lit


def is_one_ring(manager):
    """Does every node light the next and the one before, and nobody else?"""
    alive = manager.healthy
    beside = zip(alive, alive[1:] + alive[:1], alive[-1:] + alive[:-1], strict=True)
    wanted = {node: sorted((after, before)) for node, after, before in beside}
    return {node: sorted(far) for node, far in heard(manager).items()} == wanted


@pytest.mark.parametrize("reach", [2, 3])
@pytest.mark.parametrize("more", [1, 2, 5])
def test_the_ring_closes_past_every_single_failure_and_is_then_as_it_was(reach, more):
    wiring = k_hop(2 * reach + more, reach, closed=True)
    whole, _ = RingManager.start(wiring)
    whole = whole.switched()
    assert is_one_ring(whole)
    for node in range(wiring.nodes):
        after, moves = whole.failed(node)
        assert is_one_ring(after)
        beside = {(node - 1) % wiring.nodes, (node + 1) % wiring.nodes}
        assert {move.node for move in moves} == beside
        assert all(move.after == Path.EXTERNAL_2 for move in moves)
        back, moves = after.switched().repaired(node)
        assert [each.wanted for each in back.nodes] == [each.wanted for each in whole.nodes]
        assert {move.node for move in moves} == beside | {node}


@settings(max_examples=25, deadline=None)
@given(REACHES, st.integers(7, 20), st.sets(st.integers(0, 19), max_size=4))
def test_the_ring_closes_or_no_link_reaches(reach, nodes, drawn):
    wiring = k_hop(nodes, reach, closed=True)
    faulty = {node % nodes for node in drawn}
    alive = sorted({*range(nodes)} - faulty)
    gaps = [(b - a) % nodes for a, b in zip(alive, alive[1:] + alive[:1], strict=True)]
    whole, _ = RingManager.start(wiring)
    if max(gaps) > reach:
        with pytest.raises(InfiniteHbdError, match="no link between"):
            whole.failed(*faulty)
    elif any(a == b == 3 for a, b in zip(gaps, gaps[1:] + gaps[:1], strict=True)):
        with pytest.raises(InfiniteHbdError, match="one of its bundles for both"):
            whole.failed(*faulty)
    else:
        assert is_one_ring(whole.failed(*faulty)[0])


def test_a_line_has_no_such_ring_and_a_pair_is_none():
    with pytest.raises(InfiniteHbdError, match="found a line"):
        RingManager.start(k_hop(9, 2))
    whole, _ = RingManager.start(k_hop(5, 2, closed=True))
    with pytest.raises(InfiniteHbdError, match="found 2 healthy nodes"):
        whole.failed(0, 2, 4)


def test_moves_become_cross_connects_of_the_bundles_that_move():
    testbed = load("testbeds/infinitehbd5.yaml")
    whole, _ = RingManager.start(wiring_of(testbed))
    _, moves = whole.switched().failed(2)
    assert plan_of("past 2", moves).circuits == {
        "trx0-node1": circuits(Path.EXTERNAL_2, 1),
        "trx1-node3": circuits(Path.EXTERNAL_2, 1),
    }
    with pytest.raises(InfiniteHbdError, match="no bundles of a node"):
        wiring_of(load("testbeds/infinitehbd.yaml"))
