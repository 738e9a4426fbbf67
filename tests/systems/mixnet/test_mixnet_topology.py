"""Number of links of each pair of servers."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.demand import DemandError, Placement, server_demand
from lightrig.harness.systems.mixnet.planning.topology import completion, plan_links
from lightrig.suites.claims.mixnet.gating import Gating
from lightrig.suites.claims.mixnet.link_counts import (
    best_links,
    plan_links_as_printed,
    uniform_links,
)


@st.composite
def demands(draw, most=7):
    """An upper triangle, often with ties and silent pairs, and a degree for each server."""
    servers = draw(st.integers(2, most))
    pairs = servers * (servers - 1) // 2
    sizes = draw(st.lists(st.integers(0, 5) | st.floats(0, 100), min_size=pairs, max_size=pairs))
    demand = np.zeros((servers, servers))
    demand[np.triu_indices(servers, 1)] = sizes
    return demand, draw(st.lists(st.integers(0, 4), min_size=servers, max_size=servers))


@settings(max_examples=40)
@given(demands())
def test_no_server_gets_more_links_than_ports(case):
    demand, degrees = case
    for planner in (plan_links, plan_links_as_printed):
        links = planner(demand, degrees)
        assert (links.sum(axis=1) <= degrees).all()
        assert (links == links.T).all()
        assert not links.diagonal().any()
        assert not links[(demand + demand.T) == 0].any()


@settings(max_examples=40)
@given(demands())
def test_no_two_servers_that_could_have_one_more_link_are_left(case):
    demand, degrees = case
    free = degrees - plan_links(demand, degrees).sum(axis=1)
    assert not any(free[a] and free[b] for a, b in np.argwhere(demand))


@settings(max_examples=40)
@given(demands())
def test_a_pair_without_a_link_met_a_server_full_of_larger_demands_or_first_links(case):
    demand, degrees = case
    links = plan_links(demand, degrees)
    for a, b in np.argwhere(demand):
        if links[a, b]:
            continue
        full = [
            end
            for end in (a, b)
            if all(
                demand[min(end, other), max(end, other)] >= demand[a, b]
                for other in np.flatnonzero(links[end])
            )
            and (links[end] <= 1).all()
            and links[end].sum() == degrees[end]
        ]
        assert full


@settings(max_examples=40)
@given(demands())
def test_the_print_is_followed_until_it_stops(case):
    demand, degrees = case
    assert plan_links_as_printed(demand, degrees).sum() <= plan_links(demand, degrees).sum()


@settings(max_examples=40)
@given(demands())
def test_the_greedy_as_one_reads_it_finds_the_same(case):
    demand, degrees = case
    assert np.array_equal(plan_links(demand, degrees), _slowly(demand, list(degrees)))


@pytest.mark.parametrize(("servers", "ports"), [(8, 8), (4, 8), (6, 12)])
def test_the_greedy_finds_the_same_at_the_sizes_of_the_paper(servers, ports):
    random = np.random.default_rng(servers + ports)
    for _ in range(25):
        demand = np.triu(random.lognormal(0, 1.5, (servers, servers)), 1)
        found = plan_links(demand, ports)
        assert np.array_equal(found, _slowly(demand, [ports] * servers))


def test_the_packet_switch_carries_what_a_server_sends_and_what_it_receives():
    none = np.zeros((3, 3), dtype=int)
    demand = [[0, 4, 2], [0, 0, 5], [0, 0, 0]]
    # Server 1 takes part in 4 and in 5; server 2 in 2 and in 5.
    assert completion(demand, none) == 9
    assert completion(demand, none, packet=2) == 4.5
    assert completion(demand, none, packet=[1, 3, 1]) == 7
    lit = none.copy()
    lit[0, 1] = lit[1, 0] = 2
    # 4 over two links; server 2 has 7 left, server 1 has 5.
    assert completion(demand, lit) == 7


def _slowly(demand, free):
    links = np.zeros(demand.shape, dtype=int)
    while True:
        open_pairs = [(a, b) for a, b in np.argwhere(demand) if free[a] and free[b]]
        if not open_pairs:
            return links
        a, b = min(
            open_pairs,
            key=lambda p: (
                -demand[tuple(p)] / links[tuple(p)] if links[tuple(p)] else -np.inf,
                -demand[tuple(p)],
                *p,
            ),
        )
        links[a, b] += 1
        links[b, a] += 1
        free[a] -= 1
        free[b] -= 1


def test_the_longest_transfer_is_shortened_first():
    demand = [[0, 9, 2, 0], [0, 0, 0, 2], [0, 0, 0, 8], [0, 0, 0, 0]]
    # 0-1 and 2-3 come first, then 0-2 and 1-3; of the third ports 0-1 and 2-3 have more use.
    assert plan_links(demand, 3).tolist() == [
        [0, 2, 1, 0],
        [2, 0, 0, 1],
        [1, 0, 0, 2],
        [0, 1, 2, 0],
    ]


def test_a_second_link_halves_a_transfer_and_lets_the_others_have_theirs():
    links = plan_links([[0, 10, 9], [0, 0, 8], [0, 0, 0]], 4)
    assert links.tolist() == [[0, 2, 2], [2, 0, 2], [2, 2, 0]]
    assert plan_links([[0, 30, 9], [0, 0, 8], [0, 0, 0]], 4)[0].tolist() == [0, 3, 1]


def test_four_servers_with_three_ports_are_a_mesh_whatever_they_say():
    for seed in range(5):
        (tokens,) = Gating(experts=4, layers=1, tokens=10**6).exchanges(4, 1, seed)
        links = plan_links(server_demand(tokens + 1, Placement.even(4, 4)), 3)
        assert np.array_equal(links, 1 - np.eye(4))


def test_the_print_stops_where_the_largest_demand_has_no_port():
    demand = np.triu(np.full((8, 8), 10.0), 1)
    demand[0, 1:] = [90, 80, 70, 60, 50, 40, 30]
    assert plan_links_as_printed(demand, 6).sum() / 2 == 6
    assert plan_links(demand, 6).sum() / 2 == 21


def test_24_links_for_eight_servers_when_every_port_finds_a_partner():
    demand = np.triu(np.full((8, 8), 50.0), 1)
    for a in range(0, 8, 2):
        demand[a, a + 1] = 1.0  # neighbours hardly talk, all others do alike
    assert plan_links(demand, 6).sum() / 2 == 24


def test_uniform_links_spread_evenly():
    assert uniform_links(3, 4).tolist() == (1 - np.eye(4, dtype=int)).tolist()
    assert uniform_links(2, 6).sum(axis=1).tolist() == [2] * 6


@settings(max_examples=25)
@given(demands(most=3), st.sampled_from([0.5, 1.0, 3.0]))
def test_no_other_links_are_better_than_the_best(case, packet):
    demand, degrees = case
    found = completion(demand, best_links(demand, degrees, packet), packet)
    pairs = np.triu_indices(len(demand), 1)
    least = np.inf
    for counts in product(range(5), repeat=len(pairs[0])):
        links = np.zeros(demand.shape, dtype=int)
        links[pairs] = counts
        links += links.T
        if (links.sum(axis=1) <= degrees).all():
            least = min(least, completion(demand, links, packet))
    assert found == pytest.approx(least, rel=1e-6)


def test_completion_knows_both_fabrics():
    demand = np.array([[0.0, 8.0, 3.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    links = np.array([[0, 2, 0], [2, 0, 0], [0, 0, 0]])
    assert completion(demand, links, 1.0) == 4.0  # 8 over two links; 3 + 1 by packets
    assert completion(demand, links, 0.5) == 8.0  # server 2: 4 over half a link
    assert completion(demand, links, [1, 1, 0]) == np.inf


@pytest.mark.parametrize(
    "demand", [[[0, 1]], [[0, -1], [0, 0]], [[0, 1], [1, 0]], [[0, np.inf]] * 2]
)
def test_demands_that_make_no_sense_are_refused(demand):
    with pytest.raises(DemandError):
        plan_links(demand, 2)


def test_degrees_that_make_no_sense_are_refused():
    for degree in (-1, [1, 2, 3]):
        with pytest.raises(DemandError, match="degrees"):
            plan_links([[0, 1], [0, 0]], degree)
