"""The order of a ring is found from links, and what is missing is named."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.jobs.planning.rings import BrokenRingError, ring_order
from lightrig.harness.jobs.planning.routes import Routes, crossings, shortest_routes
from lightrig.testbeds import Link, Port, load


def joined(*pairs: tuple[str, str]) -> list[Link]:
    return [Link(Port(a, f"to-{b}"), Port(b, f"to-{a}")) for a, b in pairs]


def neighbours(order: Sequence[str]) -> set[frozenset[str]]:
    return set(map(frozenset, pairwise([*order, order[0]])))


def hop_count(routes: Routes, source: str, sink: str) -> int:
    count = 0
    while source != sink:
        source, count = routes[source][sink].towards, count + 1
    return count


def ring(names: list[str]) -> list[Link]:
    return joined(*pairwise([*names, names[0]])) if len(names) > 2 else joined((names[0], names[1]))


@given(st.integers(2, 12), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_a_ring_is_found_whatever_its_order(count: int, chance: random.Random) -> None:
    servers = [f"s{n}" for n in range(count)]
    around = chance.sample(servers, count)
    order = ring_order(servers, ring(around))
    assert order[0] == "s0"
    assert sorted(order) == sorted(servers)
    assert neighbours(order) == {frozenset((link.a.owner, link.b.owner)) for link in ring(around)}


@given(st.integers(4, 9), st.randoms(use_true_random=False), st.data())
@settings(max_examples=30)
def test_links_that_are_missing_are_named(
    count: int, chance: random.Random, data: st.DataObject
) -> None:
    servers = [f"s{n}" for n in range(count)]
    links = ring(chance.sample(servers, count))
    gone = data.draw(st.lists(st.sampled_from(links), min_size=1, max_size=2, unique=True))
    with pytest.raises(BrokenRingError, match="no link between") as broken:
        ring_order(servers, [link for link in links if link not in gone])
    assert len(broken.value.gaps) == len(gone)
    closed = [link for link in links if link not in gone] + joined(*broken.value.gaps)
    assert len(ring_order(servers, closed)) == count


def test_one_missing_link_is_the_one_that_was_taken() -> None:
    links = joined(("a", "b"), ("b", "c"), ("d", "a"))
    with pytest.raises(BrokenRingError) as broken:
        ring_order(list("abcd"), links)
    assert [set(gap) for gap in broken.value.gaps] == [{"c", "d"}]


@pytest.mark.parametrize(
    ("servers", "links"),
    [("abc", [("a", "b"), ("a", "c")]), ("abcd", [("a", "b"), ("a", "c"), ("a", "d")]), ("a", [])],
)
def test_links_that_form_no_ring_are_refused(servers: str, links: list[tuple[str, str]]) -> None:
    with pytest.raises(BrokenRingError):
        ring_order(list(servers), joined(*links))


def test_of_many_rings_the_one_in_order_is_taken() -> None:
    servers = [f"s{n}" for n in range(7)]
    mesh = joined(*((a, b) for a in servers for b in servers if a < b))
    assert ring_order(servers, mesh) == tuple(servers)


def between(first: int, second: int) -> tuple[list[str], list[Link]]:
    """Two groups of servers, each joined to all of the other group and to none of its own."""
    one, two = [f"a{n}" for n in range(first)], [f"b{n}" for n in range(second)]
    return [*one, *two], joined(*((a, b) for a in one for b in two))


def test_a_search_without_end_is_given_up_and_said() -> None:
    """Between groups of uneven size there is no ring, though every server has many ways on."""
    with pytest.raises(BrokenRingError, match="not looked for further; there may be one"):
        ring_order(*between(20, 18))
    with pytest.raises(BrokenRingError, match="no ring through all servers"):
        ring_order(*between(3, 4))
    assert len(ring_order(*between(18, 18))) == 36


def test_a_server_that_parts_the_others_is_found_without_a_search() -> None:
    groups = [[f"{side}{n}" for n in range(20)] for side in "ab"]
    meshes = joined(*((a, b) for group in groups for a in group for b in group if a < b))
    joint = joined(("a0", "joint"), ("a1", "joint"), ("joint", "b0"), ("joint", "b1"))
    with pytest.raises(BrokenRingError, match="no ring through all servers"):
        ring_order([*groups[0], "joint", *groups[1]], meshes + joint)


def test_a_ring_may_be_longer_than_calls_may_nest() -> None:
    servers = [f"s{n}" for n in range(3_000)]
    assert ring_order(servers, ring(servers)) == tuple(servers)


@given(st.integers(2, 7), st.floats(0.2, 1), st.integers(0, 10_000))
@settings(max_examples=30)
def test_ways_are_shortest_and_arrive(count: int, density: float, seed: int) -> None:
    import networkx as nx

    graph = nx.gnp_random_graph(count, density, seed=seed)
    servers = [f"s{n}" for n in range(count)]
    routes = shortest_routes(servers, joined(*((f"s{a}", f"s{b}") for a, b in graph.edges)))
    for a, distances in nx.all_pairs_shortest_path_length(graph):
        assert routes[f"s{a}"].keys() == {f"s{b}" for b in distances if b != a}
        for b in routes[f"s{a}"]:
            assert hop_count(routes, f"s{a}", b) == distances[int(b[1:])]


@pytest.mark.parametrize(("testbed", "most"), [("rings4", 2), ("rings8", 8)])
@pytest.mark.parametrize("plan", ["ring", "matchings"])
def test_ways_round_a_ring_are_spread_evenly(testbed: str, most: int, plan: str) -> None:
    """n^2 / 8 of the shares of an all-to-all cross each direction of an even ring."""
    lab = load(f"testbeds/{testbed}.yaml")
    counts = crossings(shortest_routes(list(lab.servers), lab.links(plan)))
    assert set(counts.values()) == {most}


def test_links_side_by_side_share_the_ways() -> None:
    pair = [Link(Port("a", f"p{n}"), Port("b", f"p{n}")) for n in range(2)]
    routes = shortest_routes(["c", "a", "b", "d"], [*pair, *joined(("c", "a"), ("b", "d"))])
    assert crossings(routes)[Port("a", "p0")] == crossings(routes)[Port("a", "p1")] == 2


@pytest.mark.parametrize(
    ("testbed", "gap"), [("rings4", ["server2", "server3"]), ("rings8", ["server3", "server4"])]
)
def test_the_plans_of_the_files_are_what_they_are_called(testbed: str, gap: list[str]) -> None:
    lab = load(f"testbeds/{testbed}.yaml")
    servers = list(lab.servers)
    assert ring_order(servers, lab.links("ring")) == tuple(servers)
    assert ring_order(servers, lab.links("matchings")) != tuple(servers)
    assert len(lab.links("mesh")) == len(servers) * (len(servers) - 1) // 2
    with pytest.raises(BrokenRingError) as broken:
        ring_order(servers, lab.links("broken"))
    assert [sorted(gap) for gap in broken.value.gaps] == [gap]
