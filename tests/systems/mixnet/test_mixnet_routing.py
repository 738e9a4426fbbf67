"""The way of traffic, with everything in place and with one thing failed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.planning.region import Failures, Gpu, Region, RegionError
from lightrig.harness.systems.mixnet.planning.routing import Routing, UnreachableError
from lightrig.testbeds import Link, Port


def mesh(region, seed=0):
    """A demand between all servers, and the region's links for it."""
    count = len(region.servers)
    demand = np.triu(np.random.default_rng(seed).pareto(1.5, (count, count)) + 0.01, 1)
    return plan_region(region, demand)


def media(route):
    return [hop.medium for hop in route]


def test_a_circuit_comes_before_the_packet_switch():
    region = Region.uniform(6, optical=2)
    links = mesh(region)
    routing = Routing(region, links)
    lit = {frozenset((link.a.owner, link.b.owner)) for link in links}
    for a, here in enumerate(region.servers):
        for b, there in enumerate(region.servers):
            if a != b:
                circuit = frozenset((here.name, there.name)) in lit
                assert media(routing.route(a, b)) == ["optical" if circuit else "packet"]
    assert routing.route(2, 2) == ()


def single_failures(region):
    for server in region.servers:
        yield Failures(servers=frozenset({server.name}))
        for port in server.ports:
            yield Failures(nics=frozenset({port}))
        for gpu in server.gpus:
            yield Failures(gpus=frozenset({(server.name, gpu)}))
    for link in mesh(region):
        yield Failures(links=frozenset({link}))


@settings(max_examples=12)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 99))
def test_every_demand_finds_a_way_after_any_single_failure(servers, optical, seed):
    region = Region.uniform(servers, optical, packet=1, gpus=4)
    before = mesh(region, seed)
    for failures in single_failures(region):
        left = region.without(failures)
        gone = failures.ports
        standing = tuple(link for link in before if not {link.a, link.b} & gone)
        alive = [n for n, server in enumerate(left.servers) if server.name not in failures.servers]
        standing = tuple(link for link in standing if not _dead(link, failures))
        # At once, on the circuits that still stand, and after the controller has planned anew. A
        # server that had no circuit and lost its packet NIC has to wait for that.
        for links in (standing, mesh(left, seed)):
            routing = Routing(left, links)
            lit = {port.owner for link in links for port in (link.a, link.b)}
            cut = {
                n for n in alive if not left.servers[n].packet and region.servers[n].name not in lit
            }
            assert not cut or links is standing
            for a in alive if not cut else ():
                for b in alive:
                    hops = routing.route(a, b)
                    assert [hop.source for hop in hops] == [a, *(h.sink for h in hops)][: len(hops)]
                    assert not hops or hops[-1].sink == b
                    assert not {p for hop in hops for pair in hop.ports for p in pair} & gone


def _dead(link, failures):
    return {link.a.owner, link.b.owner} & failures.servers


def test_a_server_that_lost_its_packet_nic_is_lit_even_if_it_has_least_to_say():
    region = Region.uniform(3, optical=1, packet=1)
    demand = [[0, 9, 1], [0, 0, 1], [0, 0, 0]]
    gone = Failures(nics=frozenset({Port("server2", "nic1")}))
    assert {link.b.owner for link in plan_region(region, demand)} == {"server1"}
    (link,) = plan_region(region.without(gone), demand)
    assert (link.a.owner, link.b.owner) == ("server0", "server2")


def test_without_packet_nics_traffic_goes_through_a_lit_peer():
    region = Region.uniform(4, optical=1, packet=2)
    link = Link(Port("server0", "nic0"), Port("server2", "nic0"))
    gone = frozenset(Port("server0", name) for name in ("nic1", "nic2"))
    routing = Routing(region.without(Failures(nics=gone)), (link,))
    out, back = routing.route(0, 3), routing.route(3, 0)
    assert media(out) == ["optical", "packet"]
    assert out[0].sink == 2
    assert media(back) == ["packet", "optical"]
    assert back[0].sink == 2


def test_a_failed_circuit_falls_back_to_packets():
    region = Region.uniform(2, optical=1)
    (link,) = mesh(region)
    left = region.without(Failures(links=frozenset({link})))
    assert left.degrees == [0, 0]
    assert media(Routing(left, ()).route(0, 1)) == ["packet"]


def test_a_server_that_replaces_another_is_reached_by_packets():
    """A spare has no optical NIC; it serves in the place of a failed server (§5.4)."""
    region = Region.uniform(3, optical=2).without(Failures(servers=frozenset({"server1"})))
    spare = Region.uniform(1, optical=0).servers[0]
    joined = Region((*region.servers, spare))
    assert media(Routing(joined, mesh(joined)).route(0, 3)) == ["packet"]


def test_a_spare_that_only_light_reaches_is_reached_through_a_lit_peer():
    """A backup without packet NICs, which the paper forwards to through a peer (§5.4)."""
    region = Region.uniform(4, optical=1, packet=1)
    spare = Failures(nics=frozenset({Port("server3", "nic1")}))
    left = region.without(spare)
    demand = np.zeros((4, 4))
    demand[0, 1] = demand[0, 3] = 5
    routing = Routing(left, plan_region(left, demand))
    assert [media(routing.route(n, 3)) for n in range(3)] == [
        ["optical"],
        ["packet", "optical"],
        ["packet", "optical"],
    ]


def test_no_way_is_an_error():
    region = Region.uniform(2, optical=1)
    left = region.without(Failures(nics=frozenset({Port("server1", "nic1")})))
    with pytest.raises(UnreachableError, match="from server0 to server1"):
        Routing(left, ()).route(0, 1)


def test_delegates_stand_near_their_port():
    routing = Routing(Region.uniform(1, optical=3, packet=1), ())
    ports = routing.region.servers[0].ports
    assert [routing.delegate(port).place for port in ports] == [0, 2, 4, 6]
    failed = Failures(gpus=frozenset({("server0", 2), ("server0", 4), ("server0", 5)}))
    left = Routing(routing.region.without(failed), ())
    assert [left.delegate(port).place for port in ports] == [0, 3, 0, 6]
    none = Failures(gpus=frozenset(("server0", gpu) for gpu in range(8)))
    with pytest.raises(RegionError, match="no working GPU"):
        Routing(routing.region.without(none), ()).delegate(ports[0])


def test_failures_add_up_and_unknown_names_are_refused():
    region = Region.uniform(2, optical=2)
    one = region.without(Failures(nics=frozenset({Port("server0", "nic0")})))
    both = one.without(Failures(gpus=frozenset({("server1", 7)})))
    assert both.degrees == [1, 2]
    assert both.servers[1].gpus == tuple(range(7))
    assert both.failures.ports == {Port("server0", "nic0")}
    for strange in (
        Failures(servers=frozenset({"server9"})),
        Failures(nics=frozenset({Port("server0", "nic9")})),
        Failures(gpus=frozenset({("nobody", 0)})),
    ):
        with pytest.raises(RegionError, match="the region has no"):
            region.without(strange)


def test_gpus_are_ordered_by_server():
    assert Gpu(0, 7) < Gpu(1, 0)
