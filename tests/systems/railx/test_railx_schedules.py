"""Schedules of RailX's all-reduces take the times of its equations in the flow model."""

import pytest

from lightrig.instruments.jobs.flows import collectives
from lightrig.instruments.jobs.flows.network import Network, duplex, joined, ring_pairs
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import duration
from lightrig.suites.claims.closed_forms import full_mesh_pairs, grid_pairs
from lightrig.suites.claims.railx import collectives as formula
from lightrig.suites.claims.railx.collectives import NodeGroup
from lightrig.suites.claims.two_dimensional import (
    all_reduce_2d,
    both_ways_round,
    hierarchical_2d_all_reduce,
)

RATE, ALPHA, SIZE, CLOSE = 100e9, 700.0, 6e7, 1e-9


@pytest.mark.parametrize("side", [3, 4, 6])
def test_2d_rings_take_the_time_of_equation_7(side: int) -> None:
    grid = [[f"rank{row}.{column}" for column in range(side)] for row in range(side)]
    network = joined(grid_pairs(grid, wrapped=True), RATE, ALPHA)
    found = duration(Router(network), all_reduce_2d(grid, SIZE, both_ways_round))
    expected = formula.ring_2d(NodeGroup(1, side, RATE, 1, ALPHA), SIZE)
    assert found == pytest.approx(expected, rel=CLOSE)


def fabric(group: NodeGroup, *, direct: bool) -> tuple[Network, list[list[list[str]]]]:
    """p x p nodes of m x m chips: rings within, and rows and columns of each place across."""
    nodes, places = range(group.side), range(group.mesh**2)
    chips = [[[f"{x}.{y}.{place}" for place in places] for y in nodes] for x in nodes]
    edges = [
        edge
        for row in chips
        for node in row
        for a, b in ring_pairs(node)
        for edge in duplex(a, b, group.multiple * RATE)
    ]
    shared = RATE / group.mesh
    pairs = full_mesh_pairs if direct else ring_pairs
    across = 2 * shared / (group.side - 1) if direct else shared
    for place in places:
        lines = [[node[place] for node in row] for row in chips]
        lines += [list(column) for column in zip(*lines, strict=True)]
        edges += [e for line in lines for a, b in pairs(line) for e in duplex(a, b, across, ALPHA)]
    return Network(tuple(edges)), chips


@pytest.mark.parametrize(("nodes", "mesh", "multiple"), [(3, 2, 2), (4, 2, 4), (3, 3, 4)])
def test_the_hierarchy_takes_the_time_of_equation_8(nodes: int, mesh: int, multiple: float) -> None:
    group = NodeGroup(mesh, nodes, RATE, multiple, ALPHA)
    network, chips = fabric(group, direct=False)
    within, among = hierarchical_2d_all_reduce(chips, SIZE, both_ways_round)
    found = duration(Router(network), [*within, *among])
    assert found == pytest.approx(formula.hierarchical(group, SIZE), rel=CLOSE)


@pytest.mark.parametrize(("nodes", "mesh", "multiple"), [(3, 2, 2), (4, 2, 4)])
def test_the_hierarchy_on_hyperx_takes_the_time_of_equation_13(
    nodes: int, mesh: int, multiple: float
) -> None:
    group = NodeGroup(mesh, nodes, RATE, multiple, ALPHA)
    network, chips = fabric(group, direct=True)
    within, among = hierarchical_2d_all_reduce(chips, SIZE, collectives.direct_all_to_all)
    found = duration(Router(network), [*within, *among])
    assert found == pytest.approx(formula.hyperx(group, SIZE), rel=CLOSE)
