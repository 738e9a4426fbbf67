"""The flow model gives the times that papers have by formula."""

import pytest

from lightrig.instruments.jobs.flows import collectives
from lightrig.instruments.jobs.flows.network import Edge, Network, joined, ring_pairs
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Schedule, duration
from lightrig.suites.claims import closed_forms as formula
from lightrig.suites.claims.closed_forms import full_mesh_pairs, grid_pairs
from lightrig.suites.claims.two_dimensional import all_reduce_2d, both_ways_round

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
def test_ring_reduce_scatter_and_all_gather(count: int) -> None:
    network = joined(ring_pairs(ranks(count)), RATE, ALPHA)
    once = formula.ring_reduce_scatter(count, SIZE, RATE, ALPHA)
    for schedule in (collectives.ring_reduce_scatter, collectives.ring_all_gather):
        assert modelled(network, schedule(ranks(count), SIZE)) == pytest.approx(once, rel=CLOSE)
    sent = modelled(network, collectives.send_receive(ranks(count), SIZE))
    assert sent == pytest.approx(ALPHA + 8e9 * SIZE / RATE, rel=CLOSE)


@pytest.mark.parametrize("count", [3, 4, 9, 16])
def test_all_to_all_on_a_forwarding_ring(count: int) -> None:
    schedule = collectives.direct_all_to_all(ranks(count), SIZE)
    found = modelled(joined(ring_pairs(ranks(count)), RATE), schedule)
    assert found == pytest.approx(formula.all_to_all_on_ring(count, SIZE, RATE), rel=CLOSE)
    unidirectional = Network(tuple(Edge(a, b, RATE) for a, b in ring_pairs(ranks(count))))
    expected = formula.all_to_all_on_ring(count, SIZE, RATE, both_ways=False)
    assert modelled(unidirectional, schedule) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_all_to_all_on_a_broken_ring(count: int) -> None:
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


def test_grid_must_be_square() -> None:
    with pytest.raises(collectives.ScheduleError, match="as many rows as columns"):
        all_reduce_2d([["a", "b", "c"], ["d", "e", "f"]], SIZE, both_ways_round)


@pytest.mark.parametrize("side", [2, 4])
def test_all_to_all_on_a_mesh_is_bounded_by_its_bisection(side: int) -> None:
    """The half of all pairs that crosses the middle, over `side` edges there; some wait."""
    network = joined(grid_pairs(grid(side), wrapped=False), RATE)
    found = modelled(network, collectives.direct_all_to_all(flat(grid(side)), SIZE))
    bound = 8e9 * SIZE / side**2 * (side**2 / 2) ** 2 / side / RATE
    assert bound * (1 - CLOSE) <= found < 1.5 * bound
