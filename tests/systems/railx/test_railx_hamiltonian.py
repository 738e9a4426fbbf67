"""Rings of rails that join every node with every other."""

import json
from pathlib import Path

import numpy as np
import pytest
from systems.railx.railx_five_cycles import search_five_cycles

from lightrig.harness.systems.railx.planning.hamiltonian import (
    DecompositionError,
    decomposition,
    even_decomposition,
    successors,
    undirected_cycles,
    verify,
)

FIXTURES = json.loads(
    Path(__file__).with_name("data").joinpath("hamiltonian_decompositions.json").read_text()
)


def around(ring):
    """Each node of a ring with the next."""
    return list(zip(ring, [*ring[1:], ring[0]], strict=True))


@pytest.mark.parametrize("nodes", [*range(3, 130, 2), *range(8, 65, 2)])
def test_each_ordered_pair_is_joined_from_plus_to_minus_on_exactly_one_rail(nodes):
    rings = decomposition(nodes)
    assert rings.shape == (nodes - 1, nodes)
    assert all(sorted(ring) == list(range(nodes)) for ring in rings.tolist())
    arcs = {
        (a, b) for ring in rings.tolist() for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)
    }
    assert len(arcs) == nodes * (nodes - 1)


@pytest.mark.parametrize("nodes", [nodes for nodes, found in FIXTURES.items() if found["rings"]])
def test_an_independent_decomposition_passes_the_verifier(nodes):
    verify(np.array(FIXTURES[nodes]["rings"]))


def test_odd_rings_are_the_printed_construction():
    def cycles(rings):
        return {
            frozenset(map(frozenset, zip(ring, [*ring[1:], ring[0]], strict=True)))
            for ring in rings
        }

    for nodes in (3, 5, 7, 9, 11, 13):
        ours = decomposition(nodes).tolist()
        assert cycles(ours) == cycles(FIXTURES[str(nodes)]["rings"])


@pytest.mark.parametrize("nodes", [4, 6])
def test_four_and_six_nodes_are_refused_with_the_reason(nodes):
    assert FIXTURES[str(nodes)]["rings"] is None
    with pytest.raises(DecompositionError, match="no Hamiltonian decomposition"):
        decomposition(nodes)


@pytest.mark.parametrize("nodes", [0, 1, 66])
def test_sizes_without_known_rings_are_refused(nodes):
    with pytest.raises(DecompositionError):
        decomposition(nodes)


@pytest.mark.parametrize("nodes", [8, 10, 12])
def test_the_search_finds_the_stored_cycles_again(nodes):
    found = search_five_cycles(nodes, seed=1)
    verify(even_decomposition(nodes, found))
    stored = decomposition(nodes)[-5:]
    assert np.array_equal(stored, np.array(found))


@pytest.mark.parametrize("nodes", [6, 7])
def test_the_search_is_for_even_sizes_from_8(nodes):
    with pytest.raises(DecompositionError, match="even number from 8"):
        search_five_cycles(nodes)


def test_the_verifier_notices_a_pair_that_is_joined_twice():
    rings = decomposition(9).copy()
    rings[1] = rings[0]
    with pytest.raises(DecompositionError, match="joined"):
        verify(rings)


def test_stored_rings_cannot_be_changed_by_a_caller():
    with pytest.raises(ValueError, match="read-only"):
        decomposition(9)[0, 0] = 1


@pytest.mark.parametrize("nodes", [5, 9, 8, 16, 64, 4, 6])
def test_undirected_cycles_join_each_pair_once_with_half_the_rails(nodes):
    import networkx as nx

    cycles, mates = undirected_cycles(nodes)
    graph = nx.MultiGraph()
    for ring in cycles.tolist():
        graph.add_edges_from(around(ring))
    graph.add_edges_from((a, b) for a, b in enumerate(mates.tolist()) if a < b)
    assert len(cycles) == (nodes - 1) // 2
    assert all(graph.number_of_edges(a, b) == 1 for a in range(nodes) for b in range(a))


def test_a_successor_follows_its_node_on_the_ring():
    rings = decomposition(7)
    following = successors(rings)
    assert all(following[k, ring[0]] == ring[1] for k, ring in enumerate(rings.tolist()))
