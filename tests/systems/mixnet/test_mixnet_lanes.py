"""Lanes side by side: what they carry, where they lead, and how long that should take."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig import testbeds
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.demand import DemandError, pair_demand
from lightrig.harness.systems.mixnet.planning.diagnosis import diagnose
from lightrig.harness.systems.mixnet.planning.lanes import (
    exchange_time,
    lane_routes,
    lane_shares,
    routing_in,
)
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.harness.systems.mixnet.planning.routing import Routing, UnreachableError
from lightrig.instruments.jobs.flows.of_testbed import fabric_links
from lightrig.suites.claims.mixnet.link_counts import uniform_links
from lightrig.testbeds import Link, Port, load

MIXNET8 = load(Path(testbeds.__file__).parent / "mixnet8.yaml")
REGION = Region.of(MIXNET8)
NAMES = list(MIXNET8.servers)
LANES = 4
RATE = 50e6
NIC3 = {server: Port(server, "nic3") for server in NAMES}


def random_traffic(seed, silent=0.6):
    random = np.random.default_rng(seed)
    traffic = random.integers(1, 10**6, (8, 8)) * (random.random((8, 8)) > silent)
    np.fill_diagonal(traffic, 0)
    return traffic


def chosen(traffic, failures=None):
    return plan_testbed(MIXNET8, pair_demand(traffic), "chosen", MIXNET8.plans["uniform"], failures)


def test_the_uniform_plan_of_the_file_knows_no_demand():
    links = np.zeros((8, 8), dtype=int)
    for link in MIXNET8.links("uniform"):
        a, b = (REGION.number_of[port.owner] for port in (link.a, link.b))
        links[a, b] += 1
        links[b, a] += 1
    assert (links == uniform_links(3, 8)).all()


seeds = st.integers(0, 10**6)


@settings(max_examples=8)
@given(seeds)
def test_every_byte_is_on_one_lane_and_parallel_links_carry_as_much(seed):
    traffic = random_traffic(seed)
    routing = routing_in(MIXNET8, chosen(traffic), REGION)
    shares = np.array(lane_shares(routing, NAMES, traffic, LANES))
    assert (shares.sum(axis=0) == traffic).all()
    for a, b in np.argwhere(traffic):
        (hop,) = routing.route(a, b)
        used = len(hop.ports)
        assert shares[:used, a, b].max() - shares[:used, a, b].min() <= 1
        assert not shares[used:, a, b].any()


@settings(max_examples=8)
@given(seeds, st.sampled_from([port.port for port in MIXNET8.nic_ports]))
def test_every_lane_reaches_every_server_after_any_nic_failed(seed, port):
    """Before circuits are planned anew, and after: hop by hop, over links that there are."""
    traffic, failures = random_traffic(seed), Failures(nics=frozenset({port}))
    before = chosen(traffic)
    region = REGION.without(failures)
    for plan in (before, chosen(traffic, failures)):
        routes = lane_routes(routing_in(MIXNET8, plan, region), LANES)
        circuits = {frozenset((link.a, link.b)) for link in MIXNET8.links(plan)}
        assert len(routes) == LANES
        for hops in routes:
            for (source, sink), hop in hops.items():
                assert port not in hop
                assert hop.port.owner == source
                assert frozenset(hop) in circuits or {end.name for end in hop} == {"nic3"}
                here, passed = source, 0
                while here != sink:
                    here, passed = hops[here, sink].towards.owner, passed + 1
                    assert passed <= 3
    # Planned anew, also who lost its packet NIC reaches all.
    assert all(len(hops) == 8 * 7 for hops in routes)


def test_a_plan_may_put_all_nics_on_the_packet_switch():
    routing = routing_in(MIXNET8, MIXNET8.plans["packet"], REGION)
    (hop,) = routing.route(0, 5)
    assert hop.medium == "packet"
    assert [a.name for a, _ in hop.ports] == ["nic0", "nic1", "nic2", "nic3"]
    failed = Failures(nics=frozenset({Port("server5", "nic1")}))
    (hop,) = routing_in(MIXNET8, MIXNET8.plans["packet"], REGION.without(failed)).route(0, 5)
    assert {b.name for _, b in hop.ports} == {"nic0", "nic2", "nic3"}


@settings(max_examples=8)
@given(seeds)
def test_the_time_is_that_of_the_busiest_port_at_least(seed):
    """A circuit has its pair to itself; what a server says by packets shares one NIC each way."""
    traffic = random_traffic(seed)
    plan = chosen(traffic)
    routing = routing_in(MIXNET8, plan, REGION)
    sent, received = np.zeros(8), np.zeros(8)
    alone = 0.0
    for a, b in np.argwhere(traffic):
        (hop,) = routing.route(a, b)
        if hop.medium == "optical":
            alone = max(alone, traffic[a, b] / len(hop.ports))
        else:
            sent[a] += traffic[a, b]
            received[b] += traffic[a, b]
    shares = lane_shares(routing, NAMES, traffic, LANES)
    found = exchange_time(MIXNET8, plan, routing, NAMES, shares)
    crowded = max(sent.max(), received.max())
    assert found >= 8e9 * max(alone, crowded) / RATE
    if alone >= 2 * crowded:
        assert found == pytest.approx(8e9 * alone / RATE, rel=1e-3)


def test_through_a_peer_a_byte_is_sent_twice():
    traffic = np.zeros((8, 8), dtype=int)
    traffic[0, 1] = traffic[0, 2] = traffic[0, 3] = 10**6
    failures = Failures(nics=frozenset({NIC3["server0"]}))
    plan = chosen(traffic, failures)
    routing = routing_in(MIXNET8, plan, REGION.without(failures))
    far = np.zeros((8, 8), dtype=int)
    far[0, 6] = 10**6
    first, second = routing.route(0, 6)
    assert (first.medium, second.medium) == ("optical", "packet")
    found = exchange_time(MIXNET8, plan, routing, NAMES, lane_shares(routing, NAMES, far, LANES))
    assert found == pytest.approx(8e9 * 10**6 / RATE, rel=1e-3)


def test_ranks_may_be_some_of_the_servers_in_any_order():
    routing = routing_in(MIXNET8, MIXNET8.plans["uniform"], REGION)
    ranks = ["server3", "server1"]
    shares = lane_shares(routing, ranks, [[0, 40], [8, 0]], LANES)
    assert shares[0] == ((0, 40), (8, 0))
    with pytest.raises(DemandError, match="expected 2 x 2"):
        lane_shares(routing, ranks, [[0]], LANES)


def test_rows_of_several_ranks_are_dealt_to_the_lanes_of_their_servers():
    """Two links from server 0 to 1, one from 1 to 2; ranks 0 and 1 are on server 0, and so on.

    Of the 11 rows from server 0 to 1 the two lanes have 5 and 6. Server 0 reaches 2 by packets.
    """
    ends = [("server0.nic0", "server1.nic0"), ("server0.nic1", "server1.nic1")]
    ends.append(("server1.nic2", "server2.nic0"))
    links = tuple(Link(*(Port(*name.split(".")) for name in pair)) for pair in ends)
    routing = Routing(Region.uniform(3, optical=3), links)
    ranks = ["server0", "server0", "server1", "server1", "server2"]
    traffic = [
        [4, 7, 5, 1, 3],
        [2, 0, 1, 4, 0],
        [0, 0, 0, 9, 6],
        [0, 3, 0, 0, 5],
        [0, 0, 2, 0, 8],
    ]
    first, second, third = lane_shares(routing, ranks, traffic, 3)
    assert first == (
        (0, 7, 2, 1, 3), (2, 0, 0, 2, 0), (0, 0, 0, 9, 6), (0, 1, 0, 0, 5), (0, 0, 2, 0, 0),
    )  # fmt: skip
    assert second == (
        (0, 0, 3, 0, 0), (0, 0, 1, 2, 0), (0, 0, 0, 0, 0), (0, 2, 0, 0, 0), (0, 0, 0, 0, 0),
    )  # fmt: skip
    assert not np.any(third)


@settings(max_examples=20)
@given(seeds, st.lists(st.sampled_from(NAMES), min_size=2, max_size=16))
def test_lanes_of_two_servers_carry_as_much_for_any_ranks(seed, ranks):
    random = np.random.default_rng(seed)
    traffic = random.integers(0, 10, (len(ranks), len(ranks)))
    np.fill_diagonal(traffic, 0)
    routing = routing_in(MIXNET8, chosen(random_traffic(seed)), REGION)
    shares = np.array(lane_shares(routing, ranks, traffic, LANES))
    assert (shares >= 0).all()
    assert (shares.sum(axis=0) == traffic).all()
    on = np.array([[name == rank for name in NAMES] for rank in ranks])
    for a, b in np.argwhere(on.T @ traffic @ on):
        lanes = np.array([(on.T @ lane @ on)[a, b] for lane in shares])
        pairs = shares[:, on[:, a]][:, :, on[:, b]]
        used = len(routing.route(a, b)[0].ports) if a != b else 1
        assert np.ptp(lanes[:used]) <= 1
        assert np.ptp(pairs[:used], axis=0).max() <= 1
        assert not lanes[used:].any()


def test_a_failed_server_is_unreachable():
    left = REGION.without(Failures(servers=frozenset({"server2"})))
    routing = routing_in(MIXNET8, MIXNET8.plans["uniform"], left)
    for hops in lane_routes(routing, LANES):
        assert len(hops) == 7 * 6
        assert all("server2" not in pair for pair in hops)
    with pytest.raises(UnreachableError, match="server0 to server2"):
        lane_shares(routing, ["server0", "server2"], [[0, 1], [0, 0]], LANES)


# ------------------------------------------------------------------------------ diagnosis

UNIFORM = fabric_links(MIXNET8, MIXNET8.plans["uniform"])
NICS = [spec.port for spec in MIXNET8.nic_ports]


def found(**dark):
    """Diagnose ports that are dark or, None, missing; "server0_nic1" for server0.nic1."""
    said = {Port(*name.split("_")): up for name, up in dark.items()}
    gone = {port for port, up in said.items() if up is None}
    return diagnose(REGION, UNIFORM, said.keys(), gone)


def link_of(port):
    return next(link for link in UNIFORM if port in (link.a, link.b))


def test_all_that_is_lit_works():
    assert found() == Failures()


def test_a_missing_port_failed_and_not_its_far_end():
    link = link_of(Port("server0", "nic1"))
    assert link == Link(Port("server0", "nic1"), Port("server1", "nic0"))
    failures = found(server0_nic1=None, server1_nic0=False)
    assert failures == Failures(nics=frozenset({Port("server0", "nic1")}))


def test_a_link_that_is_dark_failed_whichever_end_is():
    link = link_of(Port("server0", "nic1"))
    for dark in ({"server0_nic1": False}, {"server0_nic1": False, "server1_nic0": False}):
        assert found(**dark) == Failures(links=frozenset({link}))


def test_a_packet_nic_without_light_is_not_used():
    assert found(server4_nic3=False) == Failures(nics=frozenset({NIC3["server4"]}))


def test_a_server_without_ports_failed_as_a_whole():
    gone = {f"server2_nic{n}": None for n in range(4)}
    others = {str(p).replace(".", "_"): False for p in map(_partner, _ports("server2")) if p}
    assert found(**gone, **others) == Failures(servers=frozenset({"server2"}))


def test_unused_ports_may_be_dark():
    plan = chosen(np.zeros((8, 8), dtype=int))
    up = fabric_links(MIXNET8, plan)
    assert diagnose(REGION, up, {port for port in NICS if port.name != "nic3"}) == Failures()


def _ports(server):
    return [port for port in NICS if port.owner == server]


def _partner(port):
    link = link_of(port)
    other = link.b if link.a == port else link.a
    return other if other in NICS else None
