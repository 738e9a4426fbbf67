"""Flows share edges max-min fairly, on any network."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from lightrig.instruments.jobs.flows.network import Edge, Network, NetworkError, joined
from lightrig.instruments.jobs.flows.routing import NoRouteError, Router
from lightrig.instruments.jobs.flows.sharing import Crossings, max_min
from lightrig.instruments.jobs.flows.steps import (
    Costs,
    Flow,
    Step,
    duration,
    finish_times,
    loads,
    step_duration,
)

EXAMPLES = settings(max_examples=25)
CLOSE = 1e-6


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """A ring, so that a way leads everywhere, and some edges more."""
    count = draw(st.integers(2, 7))
    rates = st.integers(1, 400).map(lambda gigabits: gigabits * 1e9)
    pairs = [(index, (index + 1) % count) for index in range(count)]
    some = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs += [pair for pair in draw(st.lists(some, max_size=8)) if pair[0] != pair[1]]
    return Network(tuple(Edge(f"v{a}", f"v{b}", draw(rates)) for a, b in pairs))


@st.composite
def loaded(draw: st.DrawFn) -> tuple[Network, list[Flow]]:
    network = draw(networks())
    names = sorted({edge.source for edge in network.edges})
    ends = st.tuples(st.sampled_from(names), st.sampled_from(names), st.integers(1, 1 << 30))
    flows = [Flow(*each) for each in draw(st.lists(ends, min_size=1, max_size=12))]
    return network, [flow for flow in flows if flow.source != flow.sink]


def rates_of(network: Network, flows: list[Flow]) -> tuple[np.ndarray, Crossings]:
    router = Router(network)
    crossings = Crossings.of([router.route(flow.source, flow.sink) for flow in flows])
    return max_min(network.capacities, crossings, np.ones(len(flows), dtype=bool)), crossings


@EXAMPLES
@given(loaded())
def test_no_edge_carries_more_than_it_can_and_each_flow_has_a_bottleneck(
    case: tuple[Network, list[Flow]],
) -> None:
    network, flows = case
    rates, crossings = rates_of(network, flows)
    carried = crossings.loads(rates, len(network.edges))
    assert (carried <= network.capacities * (1 + CLOSE)).all()
    for index, rate in enumerate(rates):
        first = crossings.edges[crossings.flows == index]
        assert any(
            carried[edge] >= network.capacities[edge] * (1 - CLOSE)
            and rate >= rates[crossings.flows[crossings.edges == edge]].max() * (1 - CLOSE)
            for edge in first
        ), f"flow {index} could have more"


@EXAMPLES
@given(loaded(), st.integers(2, 50))
def test_times_scale_with_sizes_and_against_capacities(
    case: tuple[Network, list[Flow]], factor: int
) -> None:
    network, flows = case
    once = finish_times(Router(network), flows)
    larger = [flow._replace(size=flow.size * factor) for flow in flows]
    assert finish_times(Router(network), larger) == pytest.approx(once * factor, rel=CLOSE)
    faster = Router(network.scaled(factor))
    assert finish_times(faster, larger) == pytest.approx(once, rel=CLOSE)


@EXAMPLES
@given(loaded(), st.integers(2, 9))
def test_the_least_rate_never_falls_with_more_capacity(
    case: tuple[Network, list[Flow]], factor: int
) -> None:
    """Max-min fairness raises the least rate as far as it goes; single flows may lose by it."""
    network, flows = case
    assume(flows)
    rates, _ = rates_of(network, flows)
    for index, edge in enumerate(network.edges):
        wider = list(network.edges)
        wider[index] = edge._replace(capacity_bps=edge.capacity_bps * factor)
        more, _ = rates_of(Network(tuple(wider)), flows)
        assert more.min() >= rates.min() * (1 - CLOSE)


@EXAMPLES
@given(loaded())
def test_nothing_is_done_before_its_edges_have_carried_it(
    case: tuple[Network, list[Flow]],
) -> None:
    network, flows = case
    router = Router(network)
    least = 8e9 * loads(router, flows) / network.capacities
    assert step_duration(router, flows) >= least.max(initial=0.0) * (1 - CLOSE)


def test_a_flow_takes_what_another_leaves() -> None:
    """Two on an edge of 8 bit/ns, that is 1 B/ns: half each, until the smaller one is done."""
    network = Network((Edge("a", "b", 8e9), Edge("b", "c", 8e9)))
    flows = [Flow("a", "b", 100), Flow("a", "c", 300)]
    assert finish_times(Router(network), flows) == pytest.approx([200, 400])


def test_a_textbook_case() -> None:
    """Three on a narrow edge, one of them also on a wide one, whose other user takes the rest."""
    network = Network((Edge("a", "b", 3e9), Edge("b", "c", 5e9)))
    flows = [Flow("a", "b", 1), Flow("a", "b", 1), Flow("a", "c", 1), Flow("b", "c", 1)]
    rates, _ = rates_of(network, flows)
    assert rates == pytest.approx([1e9, 1e9, 1e9, 4e9])


def test_the_share_of_slower_flows_stays_taken() -> None:
    """Three levels: two flows are held back elsewhere, and the third has the rest."""
    network = Network((Edge("a", "d", 1e9), Edge("b", "d", 2e9), Edge("d", "e", 10e9)))
    rates, _ = rates_of(network, [Flow("a", "e", 1), Flow("b", "e", 1), Flow("d", "e", 1)])
    assert rates == pytest.approx([1e9, 2e9, 7e9])


def test_parallel_edges_are_shared_evenly() -> None:
    network = Network((Edge("a", "b", 1e9), Edge("a", "b", 1e9)))
    assert step_duration(Router(network), [Flow("a", "b", 1000)]) == pytest.approx(4000)


def test_explicit_route_is_used() -> None:
    network = joined([("a", "b"), ("b", "c"), ("a", "c")], 8e9, 10.0)
    router = Router(network)
    assert step_duration(router, [Flow("a", "c", 100)]) == pytest.approx(110)
    router.state("a", "b", "c")
    assert step_duration(router, [Flow("a", "c", 100)]) == pytest.approx(120)
    with pytest.raises(NoRouteError, match="from c to d"):
        router.state("b", "c", "d")


def test_latency_and_costs_add_up() -> None:
    network = joined([("a", "b")], 8e9, 50.0)
    steps = [Step((Flow("a", "b", 100),), times=3)]
    assert duration(Router(network), steps) == pytest.approx(3 * 150)
    costs = Costs(setup_ns=7, efficiency=0.5)
    assert duration(Router(network), steps, costs) == pytest.approx(3 * (7 + 50 + 200))


@pytest.mark.parametrize("costs", [(-1, 1.0), (0, 0.0), (0, 1.5)])
def test_costs_that_cannot_be(costs: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="efficiency"):
        Costs(*costs)


def test_nothing_to_send_takes_no_time() -> None:
    assert step_duration(Router(joined([("a", "b")], 1e9)), []) == 0.0
    assert step_duration(Router(joined([("a", "b")], 1e9)), [Flow("a", "b", 0)]) == 0.0


def test_ends_pass_nothing_on() -> None:
    edges = joined([("a", "b"), ("b", "c")], 1e9).edges
    assert Router(Network(edges)).route("a", "c").hops == 2
    with pytest.raises(NoRouteError, match="from a to c"):
        Router(Network(edges, frozenset("b"))).route("a", "c")


@pytest.mark.parametrize(
    "edge",
    [Edge("a", "a", 1e9), Edge("a", "b", 0), Edge("a", "b", math.inf), Edge("a", "b", 1e9, -1)],
)
def test_edges_that_cannot_be(edge: Edge) -> None:
    with pytest.raises(NetworkError):
        Network((edge,))
