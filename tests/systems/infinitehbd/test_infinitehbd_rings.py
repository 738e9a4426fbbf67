"""Rings out of paths: light goes from end to end, and past failed nodes as far as links reach."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.infinitehbd.planning.placement import place
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    InfiniteHbdError,
    k_hop,
    powers_of_two,
)
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


def test_all_modules_of_a_bundle_take_its_path():
    assert circuits(Path.EXTERNAL_2, 2) == {Circuit(1, 4), Circuit(2, 7)}
    assert circuits(Path.LOOPBACK, 1) == {Circuit(1, 4)}


def one_ring(wiring, faulty):
    """Return the paths of one ring through all nodes but `faulty`, and whether they close it."""
    alive = sorted({*range(wiring.nodes)} - {*faulty})
    taken, joined = paths(wiring, np.array([alive]), closed=True)
    lit = ends(wiring, taken)
    beside = zip(alive, alive[1:] + alive[:1], alive[-1:] + alive[:-1], strict=True)
    wanted = {node: sorted((after, before)) for node, after, before in beside}
    found = {
        node: sorted(far for (of, _), far in lit.items() if of == node != far) for node in alive
    }
    assert bool(joined.all()) == (found == wanted)
    return taken, joined.all()


@pytest.mark.parametrize("reach", [2, 3])
@pytest.mark.parametrize("more", [1, 2, 5])
def test_the_ring_closes_past_every_single_failure(reach, more):
    wiring = k_hop(2 * reach + more, reach, closed=True)
    whole, closed = one_ring(wiring, ())
    assert closed
    for node in range(wiring.nodes):
        past, closed = one_ring(wiring, (node,))
        assert closed
        moved = {*np.flatnonzero((past != whole).any(axis=1)).tolist()} - {node}
        assert moved == {(node - 1) % wiring.nodes, (node + 1) % wiring.nodes}
        assert (past[sorted(moved)] == Path.EXTERNAL_2).any(axis=1).all()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from((2, 3)), st.integers(7, 20), st.sets(st.integers(0, 19), max_size=4))
def test_the_ring_closes_or_no_link_reaches(reach, nodes, drawn):
    wiring = k_hop(nodes, reach, closed=True)
    faulty = {node % nodes for node in drawn}
    alive = sorted({*range(nodes)} - faulty)
    gaps = [(b - a) % nodes for a, b in zip(alive, alive[1:] + alive[:1], strict=True)]
    if max(gaps) > reach:
        with pytest.raises(InfiniteHbdError, match="no link between"):
            one_ring(wiring, faulty)
    else:
        both = any(a == b == 3 for a, b in zip(gaps, gaps[1:] + gaps[:1], strict=True))
        assert one_ring(wiring, faulty)[1] != both
