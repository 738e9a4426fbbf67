"""The network that a testbed's plan makes."""

from pathlib import Path

import pytest

from lightrig.instruments.jobs.flows.bandwidth import bus_bandwidth
from lightrig.instruments.jobs.flows.collectives import schedule_of
from lightrig.instruments.jobs.flows.of_testbed import (
    Inside,
    RanksError,
    fabric_links,
    joined_servers,
    network_of,
    rank_vertices,
    slowest_rate_bps,
    unjoined,
)
from lightrig.instruments.jobs.flows.routing import NoRouteError, Router
from lightrig.instruments.jobs.flows.steps import Flow, duration, step_duration
from lightrig.testbeds import Plan, Testbed, UnknownNameError, load

INSIDE = Inside(memory_bps=1e15, nic_latency_ns=0, switch_latency_ns=0, fiber_latency_ns=0)


@pytest.fixture(scope="module")
def opus() -> Testbed:
    return load(Path("testbeds/opus.yaml"))


def test_a_ring_all_reduce_has_the_bus_bandwidth_of_its_links(opus: Testbed) -> None:
    ring = ("server0", "server1", "server3", "server2")
    router = Router(network_of(opus, opus.links("giant-ring"), inside=INSIDE))
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "send_receive"):
        time = duration(router, schedule_of(collective, rank_vertices(opus, ring), 1 << 20))
        found = bus_bandwidth(collective, 4, 1 << 20, time)
        assert found == pytest.approx(200e9)  # both rails, one port each
    assert slowest_rate_bps(opus, ring, opus.links("giant-ring")) == 200 * 10**9


def test_two_ranks_a_server_share_its_links(opus: Testbed) -> None:
    ranks = [name for name in ("server0", "server2") for _ in range(2)]
    vertices = rank_vertices(opus, ranks)
    assert vertices == ("server0.gpu0", "server0.gpu1", "server2.gpu0", "server2.gpu1")
    router = Router(network_of(opus, opus.links("east-west"), inside=INSIDE))
    time = duration(router, schedule_of("all_reduce", vertices, 1 << 20))
    assert bus_bandwidth("all_reduce", 4, 1 << 20, time) == pytest.approx(400e9)
    assert slowest_rate_bps(opus, ranks, opus.links("east-west")) == 400 * 10**9


def test_a_gpu_cannot_send_more_than_its_memory_gives(opus: Testbed) -> None:
    inside = Inside(memory_bps=50e9, nic_latency_ns=0.0, fiber_latency_ns=0.0)
    router = Router(network_of(opus, opus.links("east-west"), inside=inside))
    found = step_duration(router, [Flow("server0.gpu0", "server2.gpu0", 1 << 20)])
    assert found == pytest.approx(8e9 * (1 << 20) / 50e9)


def test_servers_forward_only_if_enabled(opus: Testbed) -> None:
    links = opus.links("giant-ring")
    with pytest.raises(NoRouteError, match="from server0 to server3"):
        Router(network_of(opus, links)).route("server0", "server3")
    assert Router(network_of(opus, links, forwarding=True)).route("server0", "server3").hops == 9
    with pytest.raises(NoRouteError):
        Router(network_of(opus, opus.links("east-west"), forwarding=True)).route(
            "server0", "server1"
        )


def test_latency_is_that_of_two_nics_and_a_fiber(opus: Testbed) -> None:
    inside = Inside(1e15, nic_latency_ns=700, fiber_latency_ns=100)
    router = Router(network_of(opus, opus.links("east-west"), inside=inside))
    assert router.route("server0", "server2").latency_ns == 1500


def test_joined_servers_are_those_of_the_plan(opus: Testbed) -> None:
    assert joined_servers(opus, opus.links("east-west")) == (
        ("server0", "server2"),
        ("server1", "server3"),
    )
    assert joined_servers(opus, opus.links("giant-ring")) == (tuple(opus.servers),)
    assert joined_servers(opus, ()) == ()


def test_ring_without_a_link_names_it(opus: Testbed) -> None:
    links = opus.links("giant-ring")
    in_file_order = tuple(opus.servers)
    assert unjoined(in_file_order, links) == (("server1", "server2"), ("server3", "server0"))
    # Others forward by two ways at once, so the direct pairs are the slowest.
    assert slowest_rate_bps(opus, in_file_order, links) == 200 * 10**9
    with pytest.raises(RanksError, match="no link from server0 to server1, server1 to server2"):
        slowest_rate_bps(opus, in_file_order, opus.links("east-west"))
    with pytest.raises(RanksError, match="one server alone"):
        slowest_rate_bps(opus, ("server0", "server0"), links)


def test_ranks_without_a_place(opus: Testbed) -> None:
    with pytest.raises(RanksError, match="room for 2 ranks, not for 3"):
        rank_vertices(opus, ("server0",) * 3)
    with pytest.raises(UnknownNameError, match="no server 'server9'"):
        rank_vertices(opus, ("server9",))


def test_a_packet_switch_joins_what_no_circuit_does() -> None:
    mixnet = load(Path("testbeds/mixnet.yaml"))
    pairs = fabric_links(mixnet, mixnet.plans["pairs"])
    standing = set(pairs) - set(mixnet.links("pairs"))
    assert len(standing) == 4
    assert all("eps" in (link.a.owner, link.b.owner) for link in standing)
    router = Router(network_of(mixnet, pairs, inside=INSIDE))
    by_circuits = step_duration(router, [Flow("server0", "server1", 1 << 20)])
    by_packets = step_duration(router, [Flow("server0", "server2", 1 << 20)])
    assert by_packets == pytest.approx(3 * by_circuits)  # one NIC instead of three
    with pytest.raises(NoRouteError):
        Router(network_of(mixnet, mixnet.links("pairs"))).route("server0", "server2")
    assert joined_servers(mixnet, pairs) == (("server0", "server1"), ("server2", "server3"))


def test_the_baseline_on_packets_has_all_nics() -> None:
    mixnet = load(Path("testbeds/mixnet.yaml"))
    links = fabric_links(mixnet, mixnet.plans["packet"])
    router = Router(network_of(mixnet, links, inside=INSIDE))
    found = step_duration(router, [Flow("server0", "server2", 1 << 20)])
    assert found == pytest.approx(8e9 * (1 << 20) / 400e9)


def test_one_direction_is_no_link(opus: Testbed) -> None:
    whole = opus.plans["giant-ring"]
    assert fabric_links(opus, whole) == opus.links(whole)
    lost = min(whole.circuits["ocs"])
    unidirectional = Plan("one way", {"ocs": whole.circuits["ocs"] - {lost}})
    assert fabric_links(opus, unidirectional) == opus.links(unidirectional)
    assert len(fabric_links(opus, unidirectional)) == len(fabric_links(opus, whole)) - 1
