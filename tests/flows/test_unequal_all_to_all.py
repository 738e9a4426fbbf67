"""An all-to-all in which every rank has a share of its own for each other: a matrix of traffic."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.instruments.jobs.flows.collectives import (
    ScheduleError,
    direct_all_to_all,
    unequal_all_to_all,
)
from lightrig.instruments.jobs.flows.network import Edge, Network, joined
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Flow, duration, loads
from lightrig.suites.claims import closed_forms as formula
from lightrig.suites.claims.closed_forms import full_mesh_pairs

RATE = 50e6
CLOSE = 1e-6

Sizes = list[list[int]]


def ranks(count: int) -> list[str]:
    return [f"rank{number}" for number in range(count)]


@st.composite
def matrices(draw: st.DrawFn) -> Sizes:
    count = draw(st.integers(2, 6))
    row = st.lists(st.integers(0, 10**7), min_size=count, max_size=count)
    return draw(st.lists(row, min_size=count, max_size=count))


@settings(max_examples=25)
@given(matrices())
def test_on_a_full_mesh_the_largest_share_is_the_last(sizes: Sizes) -> None:
    network = joined(full_mesh_pairs(ranks(len(sizes))), RATE)
    found = duration(Router(network), unequal_all_to_all(ranks(len(sizes)), [sizes]))
    assert found == pytest.approx(formula.unequal_all_to_all_on_full_mesh(sizes, RATE), rel=CLOSE)


@settings(max_examples=25)
@given(matrices())
def test_through_a_switch_the_busiest_port_is_a_bound(sizes: Sizes) -> None:
    """A fair share may leave a port idle that is needed later, but never a whole exchange long."""
    names = ranks(len(sizes))
    network = joined([(name, "switch") for name in names], RATE)
    found = duration(Router(network), unequal_all_to_all(names, [sizes]))
    bound = formula.unequal_all_to_all_at_least(sizes, RATE)
    assert bound * (1 - CLOSE) <= found <= 2 * bound * (1 + CLOSE)


def test_equal_shares_are_the_collective_that_tools_know() -> None:
    names = ranks(5)
    router = Router(joined([(name, "switch") for name in names], RATE))
    equal = duration(router, unequal_all_to_all(names, [[[1000.0] * 5] * 5]))
    assert equal == pytest.approx(duration(router, direct_all_to_all(names, 5000)))


def test_each_lane_has_a_route() -> None:
    """Of two ways side by side one is twice as wide: what is on the narrow one is the last."""
    edges = (
        *(Edge("rank0", "left", RATE), Edge("left", "rank1", RATE)),
        *(Edge("rank0", "right", 2 * RATE), Edge("right", "rank1", 2 * RATE)),
    )
    router = Router(Network(edges))
    router.state("rank0", "left", "rank1", lane=0)
    router.state("rank0", "right", "rank1", lane=1)
    lanes = [[[0, 1_000_000], [0, 0]], [[0, 1_000_000], [0, 0]]]
    (step,) = schedule = unequal_all_to_all(ranks(2), lanes)
    assert step.flows == tuple(Flow("rank0", "rank1", 1_000_000, lane) for lane in (0, 1))
    assert duration(router, schedule) == pytest.approx(8e9 * 1_000_000 / RATE)
    assert loads(router, step.flows).tolist() == [1_000_000] * 4


def test_an_invalid_traffic_matrix_is_refused() -> None:
    with pytest.raises(ScheduleError, match="2 ranks to as many"):
        unequal_all_to_all(ranks(2), [[[0, 1]]])
    with pytest.raises(ScheduleError, match="from 0"):
        unequal_all_to_all(ranks(2), [[[0, -1], [0, 0]]])
    (step,) = unequal_all_to_all(ranks(2), [[[9, 1], [0, 9]]])
    assert step.flows == (Flow("rank0", "rank1", 1),)
