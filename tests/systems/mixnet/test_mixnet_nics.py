"""NIC ports at the ends of each link."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.nics import map_links
from lightrig.harness.systems.mixnet.planning.region import (
    OpticalNic,
    Region,
    RegionError,
    RegionServer,
)
from lightrig.testbeds import Link, Port


@st.composite
def regions(draw, numa=(0, 1, None)):
    """A region, and link counts that its ports can hold."""
    servers = []
    for number in range(draw(st.integers(2, 5))):
        nodes = draw(st.lists(st.sampled_from(numa), max_size=6))
        nics = (OpticalNic(Port(f"s{number}", f"nic{n}"), node) for n, node in enumerate(nodes))
        servers.append(RegionServer(f"s{number}", tuple(nics)))
    region = Region(tuple(servers))
    return region, draw(counts(region))


@st.composite
def counts(draw, region):
    links = np.zeros((len(region.servers),) * 2, dtype=np.int64)
    free = region.degrees
    for _ in range(draw(st.integers(0, 10))):
        a, b = sorted(draw(st.permutations(range(len(free))))[:2])
        if free[a] and free[b]:
            links[a, b] += 1
            free[a] -= 1
            free[b] -= 1
    return links + links.T


def joined(region, links):
    """The link counts that links between ports amount to."""
    found = np.zeros((len(region.servers),) * 2, dtype=np.int64)
    for link in links:
        a, b = region.number_of[link.a.owner], region.number_of[link.b.owner]
        found[a, b] += 1
        found[b, a] += 1
    return found


@settings(max_examples=40)
@given(regions(), st.data())
def test_links_are_a_matching_of_the_ports_that_work(case, data):
    region, wanted = case
    for current in ((), map_links(region, data.draw(counts(region)))):
        links = map_links(region, wanted, current)
        ports = [port for link in links for port in (link.a, link.b)]
        assert len(ports) == len(set(ports))
        assert set(ports) <= {nic.port for server in region.servers for nic in server.optical}
        assert np.array_equal(joined(region, links), wanted)


@settings(max_examples=40)
@given(regions(), st.data())
def test_the_same_again_moves_nothing(case, data):
    region, wanted = case
    links = map_links(region, wanted, map_links(region, data.draw(counts(region))))
    assert map_links(region, wanted, links) == links


@settings(max_examples=40)
@given(regions(numa=(None,)), st.data())
def test_the_fewest_links_move_where_nodes_are_interchangeable(case, data):
    region, wanted = case
    before = map_links(region, data.draw(counts(region)))
    kept = set(before) & set(map_links(region, wanted, before))
    assert len(kept) == np.minimum(joined(region, before), wanted).sum() / 2


@settings(max_examples=40)
@given(regions(numa=(0, 1)), st.data())
def test_links_that_stay_crowd_no_node_more_than_new_ones_would(case, data):
    region, wanted = case
    before = map_links(region, data.draw(counts(region)))
    anew, kept = (crowding(region, map_links(region, wanted, held)) for held in ((), before))
    assert all(kept[name] <= anew[name] for name in kept)


def crowding(region, links):
    numa = {nic.port: nic.numa for server in region.servers for nic in server.optical}
    ends = Counter()
    for link in links:
        ends[link.a.owner, link.b.owner, numa[link.a]] += 1
        ends[link.b.owner, link.a.owner, numa[link.b]] += 1
    total = Counter()
    for (name, _, _), count in ends.items():
        total[name] += count**2
    return total


@settings(max_examples=40)
@given(st.integers(1, 3), st.permutations(range(6)))
def test_parallel_links_end_on_different_nodes_where_there_are_ports(pairs, order):
    nics = tuple(OpticalNic(Port("a", f"nic{n}"), n % 2) for n in order)
    peers = tuple(
        RegionServer(
            f"b{p}", (OpticalNic(Port(f"b{p}", "x"), 0), OpticalNic(Port(f"b{p}", "y"), 1))
        )
        for p in range(pairs)
    )
    region = Region((RegionServer("a", nics), *peers))
    wanted = np.zeros((pairs + 1,) * 2, dtype=np.int64)
    wanted[0, 1:] = wanted[1:, 0] = 2
    assert set(crowding(region, map_links(region, wanted)).values()) == {2 * pairs, 2}


def test_a_link_on_a_failed_port_is_removed():
    region = Region.uniform(2, optical=2)
    wanted = np.array([[0, 1], [1, 0]])
    (link,) = map_links(region, wanted)
    dead = Region(
        tuple(
            RegionServer(s.name, tuple(n for n in s.optical if n.port != link.a))
            for s in region.servers
        )
    )
    (other,) = map_links(dead, wanted, [link])
    assert link.a not in (other.a, other.b)


def test_more_links_than_ports_are_refused():
    with pytest.raises(RegionError, match="server0 has 1 working optical ports, 2 links"):
        map_links(Region.uniform(2, optical=1), np.array([[0, 2], [2, 0]]))


def server(name, *nodes):
    return RegionServer(
        name, tuple(OpticalNic(Port(name, f"nic{n}"), node) for n, node in enumerate(nodes))
    )


def test_a_bundle_takes_the_node_that_it_has_fewest_ports_on():
    region = Region((server("a", 0, 0, 0, 1), server("b", 0, 0, 0, 1)))
    links = map_links(region, np.array([[0, 2], [2, 0]]))
    assert {(link.a.name, link.b.name) for link in links} == {("nic0", "nic0"), ("nic3", "nic3")}


def test_a_link_gives_way_where_it_would_crowd_a_bundle():
    region = Region((server("a", 0, 0, 1), server("b", 0, 1), server("c", 0)))
    wanted = np.array([[0, 2, 1], [2, 0, 0], [1, 0, 0]])
    (held,) = map_links(region, np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]]))
    assert held in map_links(region, wanted, [held])  # on node 0, where there is another port
    lone = Link(Port("a", "nic2"), Port("c", "nic0"))
    links = map_links(region, wanted, [lone])
    assert lone not in links
    assert Port("a", "nic2") in {link.a for link in links if link.b.owner == "b"}
