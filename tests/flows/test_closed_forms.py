"""The flow model gives the times that papers have by formula."""

import pytest

from testbeds.flows import Router, collectives, duration, joined
from testbeds.flows import closed_forms as formula
from testbeds.flows.collectives import binary_exchange_partners
from testbeds.flows.network import (
    Edge,
    Network,
    duplex,
    full_mesh_pairs,
    grid_pairs,
    ring_pairs,
)
from testbeds.flows.steps import Schedule
from testbeds.flows.two_dimensional import all_reduce_2d, both_ways_round, railx_all_reduce

RATE = 100e9
ALPHA = 700.0
SIZE = 6e7
CLOSE = 1e-9


def ranks(count: int) -> list[str]:
    return [f"rank{index}" for index in range(count)]


def grid(side: int) -> list[list[str]]:
    return [[f"rank{row}.{column}" for column in range(side)] for row in range(side)]


def flat(rows: list[list[str]]) -> list[str]:
    return [rank for row in rows for rank in row]


def modelled(network: Network, schedule: Schedule) -> float:
    return duration(Router(network), schedule)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
def test_ring_all_reduce(count: int) -> None:
    network = joined(ring_pairs(ranks(count)), RATE, ALPHA)
    found = modelled(network, collectives.ring_all_reduce(ranks(count), SIZE))
    assert found == pytest.approx(formula.ring_all_reduce(count, SIZE, RATE, ALPHA), rel=CLOSE)


@pytest.mark.parametrize("count", [2, 5, 8])
def test_the_other_ring_collectives(count: int) -> None:
    network = joined(ring_pairs(ranks(count)), RATE, ALPHA)
    once = formula.ring_reduce_scatter(count, SIZE, RATE, ALPHA)
    for schedule in (collectives.ring_reduce_scatter, collectives.ring_all_gather):
        assert modelled(network, schedule(ranks(count), SIZE)) == pytest.approx(once, rel=CLOSE)
    sent = modelled(network, collectives.send_receive(ranks(count), SIZE))
    assert sent == pytest.approx(ALPHA + 8e9 * SIZE / RATE, rel=CLOSE)


@pytest.mark.parametrize("count", [3, 4, 9, 16])
def test_all_to_all_on_a_ring_that_forwards(count: int) -> None:
    schedule = collectives.direct_all_to_all(ranks(count), SIZE)
    found = modelled(joined(ring_pairs(ranks(count)), RATE), schedule)
    assert found == pytest.approx(formula.all_to_all_on_ring(count, SIZE, RATE), rel=CLOSE)
    one_way = Network(tuple(Edge(a, b, RATE) for a, b in ring_pairs(ranks(count))))
    expected = formula.all_to_all_on_ring(count, SIZE, RATE, both_ways=False)
    assert modelled(one_way, schedule) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_all_to_all_on_a_ring_that_is_broken(count: int) -> None:
    line = ring_pairs(ranks(count))[: count - 1]
    found = modelled(joined(line, RATE), collectives.direct_all_to_all(ranks(count), SIZE))
    assert found == pytest.approx(formula.all_to_all_on_line(count, SIZE, RATE), rel=CLOSE)


@pytest.mark.parametrize("side", [3, 4])
def test_all_to_all_on_a_torus(side: int) -> None:
    network = joined(grid_pairs(grid(side), wrapped=True), RATE)
    found = modelled(network, collectives.direct_all_to_all(flat(grid(side)), SIZE))
    assert found == pytest.approx(formula.all_to_all_on_torus(side, SIZE, RATE), rel=CLOSE)


def test_all_to_all_on_a_full_mesh() -> None:
    network = joined(full_mesh_pairs(ranks(6)), RATE)
    found = modelled(network, collectives.direct_all_to_all(ranks(6), SIZE))
    assert found == pytest.approx(formula.all_to_all_on_full_mesh(6, SIZE, RATE), rel=CLOSE)


@pytest.mark.parametrize("count", [2, 4, 8, 32])
def test_binary_exchange(count: int) -> None:
    hypercube = [
        (f"rank{rank}", f"rank{rank ^ distance}")
        for distance in (2**power for power in range(count.bit_length() - 1))
        for rank in range(count)
        if rank < rank ^ distance
    ]
    network = joined(hypercube, RATE, ALPHA)
    found = modelled(network, collectives.binary_exchange_all_to_all(ranks(count), SIZE))
    assert found == pytest.approx(formula.binary_exchange(count, SIZE, RATE, ALPHA), rel=CLOSE)


@pytest.mark.parametrize("count", [2, 4, 8, 16])
def test_binary_exchange_brings_everything_to_everybody(count: int) -> None:
    held = [{(rank, to) for to in range(count)} for rank in range(count)]
    for step in range(1, count.bit_length()):
        sent = []
        for rank in range(count):
            partner, block = binary_exchange_partners(rank, count, step)
            parcel = {(source, to) for source, to in held[rank] if to in block}
            assert len(parcel) == count // 2
            sent.append((rank, partner, parcel))
        for rank, partner, parcel in sent:
            held[rank] -= parcel
            held[partner] |= parcel
    assert held == [{(source, rank) for source in range(count)} for rank in range(count)]


def test_three_ranks_have_no_binary_exchange() -> None:
    with pytest.raises(collectives.ScheduleError, match="power of two"):
        collectives.binary_exchange_all_to_all(ranks(3), SIZE)


@pytest.mark.parametrize(("groups", "within"), [(2, 4), (4, 3), (3, 8)])
def test_hierarchical_ring(groups: int, within: int) -> None:
    inner, outer = 4 * RATE, RATE
    names = [[f"node{group}.{rank}" for rank in range(within)] for group in range(groups)]
    edges = [
        edge
        for line, rate in [(n, inner) for n in names]
        + [(p, outer) for p in zip(*names, strict=True)]
        for a, b in ring_pairs(line)
        for edge in duplex(a, b, rate)
    ]
    found = modelled(Network(tuple(edges)), collectives.hierarchical_ring_all_reduce(names, SIZE))
    expected = formula.hierarchical_ring(groups, within, SIZE, inner, outer)
    assert found == pytest.approx(expected, rel=CLOSE)


def test_groups_of_unlike_sizes_have_no_hierarchy() -> None:
    with pytest.raises(collectives.ScheduleError, match="2, 1"):
        collectives.hierarchical_ring_all_reduce([["a", "b"], ["c"]], SIZE)


@pytest.mark.parametrize("side", [3, 4, 6])
def test_2d_ring_all_reduce(side: int) -> None:
    network = joined(grid_pairs(grid(side), wrapped=True), RATE, ALPHA)
    found = modelled(network, all_reduce_2d(grid(side), SIZE, both_ways_round))
    assert found == pytest.approx(formula.railx_2d_ring(side, SIZE, RATE, ALPHA), rel=CLOSE)


def test_2d_ring_as_printed_is_its_limit() -> None:
    size, side = 1e12, 200
    printed = 4 * side * ALPHA + 8e9 * size / (2 * RATE)
    assert formula.railx_2d_ring(side, size, RATE, ALPHA) == pytest.approx(printed, rel=0.01)


def railx(nodes: int, mesh: int, multiple: float, *, direct: bool) -> tuple[Network, list]:
    """p x p nodes of m x m chips: rings within, and rows and columns of each place across."""
    chips = [
        [[f"{x}.{y}.{chip}" for chip in range(mesh * mesh)] for y in range(nodes)]
        for x in range(nodes)
    ]
    edges = [
        edge
        for row in chips
        for node in row
        for a, b in ring_pairs(node)
        for edge in duplex(a, b, multiple * RATE)
    ]
    shared = RATE / mesh
    pairs = full_mesh_pairs if direct else ring_pairs
    across = 2 * shared / (nodes - 1) if direct else shared
    for place in range(mesh * mesh):
        lines = [[node[place] for node in row] for row in chips]
        lines += [list(column) for column in zip(*lines, strict=True)]
        edges += [e for line in lines for a, b in pairs(line) for e in duplex(a, b, across, ALPHA)]
    return Network(tuple(edges)), chips


@pytest.mark.parametrize(("nodes", "mesh", "multiple"), [(3, 2, 2), (4, 2, 4), (3, 3, 4)])
def test_railx_all_reduce(nodes: int, mesh: int, multiple: float) -> None:
    network, chips = railx(nodes, mesh, multiple, direct=False)
    within, among = railx_all_reduce(chips, SIZE, both_ways_round)
    expected = formula.railx_hierarchical_exact(nodes, mesh, SIZE, RATE, multiple, ALPHA)
    assert modelled(network, [*within, *among]) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize(("nodes", "mesh", "multiple"), [(3, 2, 2), (4, 2, 4)])
def test_railx_all_reduce_on_hyperx(nodes: int, mesh: int, multiple: float) -> None:
    network, chips = railx(nodes, mesh, multiple, direct=True)
    within, among = railx_all_reduce(chips, SIZE, collectives.direct_all_to_all)
    expected = formula.railx_hyperx(nodes, mesh, SIZE, RATE, multiple, ALPHA)
    assert modelled(network, [*within, *among]) == pytest.approx(expected, rel=CLOSE)


def test_railx_hyperx_needs_p_in_both_dimensions() -> None:
    """The closed form that is printed, not the middle line above it."""
    nodes, mesh, multiple = 8, 4, 4.0
    closed = (
        (mesh**2 - 1) / mesh**2 * 8e9 * SIZE / (multiple * RATE)
        + 4 * ALPHA
        + (1 - 1 / nodes**2) * 8e9 * SIZE / mesh**2 / (2 * RATE / mesh)
    )
    found = formula.railx_hyperx(nodes, mesh, SIZE, RATE, multiple, ALPHA)
    assert found == pytest.approx(closed, rel=1e-12)


def test_railx_beats_the_2d_ring_only_with_more_bandwidth_than_is_said() -> None:
    """From k > 2 m / (m - 1), not from k > 2."""
    for mesh in (2, 4, 7):
        edge = 2 * mesh / (mesh - 1)
        for multiple, better in ((edge * 0.99, False), (edge * 1.01, True)):
            railx_time = formula.railx_hierarchical(64, mesh, 1e15, RATE, multiple, 0.0)
            ring_time = 8e9 * 1e15 / (2 * RATE)
            assert (railx_time < ring_time) is better


def test_rows_must_be_as_many_as_columns() -> None:
    with pytest.raises(collectives.ScheduleError, match="as many rows as columns"):
        all_reduce_2d([["a", "b", "c"], ["d", "e", "f"]], SIZE, both_ways_round)


@pytest.mark.parametrize("side", [2, 4])
def test_all_to_all_on_a_mesh_takes_at_least_what_its_middle_lets_through(side: int) -> None:
    """The half of all pairs that crosses the middle, over `side` edges there; some wait."""
    network = joined(grid_pairs(grid(side), wrapped=False), RATE)
    found = modelled(network, collectives.direct_all_to_all(flat(grid(side)), SIZE))
    bound = 8e9 * SIZE / side**2 * (side**2 / 2) ** 2 / side / RATE
    assert bound * (1 - CLOSE) <= found < 1.5 * bound
