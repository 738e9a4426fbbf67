"""MixNet on servers with unequal ports, ranks placed unevenly, and demands in one direction."""

from collections import Counter

import numpy as np
import pytest
from uneven import TRAFFIC, TREE

from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.planning.demand import (
    Placement,
    pair_demand,
    server_demand,
    server_traffic,
)
from lightrig.harness.systems.mixnet.planning.exchange import all_to_all
from lightrig.harness.systems.mixnet.planning.lanes import lane_routes, lane_shares
from lightrig.harness.systems.mixnet.planning.region import (
    Failures,
    Gpu,
    OpticalNic,
    Region,
    RegionServer,
)
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.planning.topology import completion, plan_links
from lightrig.testbeds import Link, Port

OPTICAL = (1, 3, 1, 2, 1)
"""Ports on the circuit switch of each of five servers: the degrees of TREE."""
PACKET = (1, 1, 2, 0, 1)
GPUS = (2, 4, 3, 8, 1)


def server(number):
    name = f"s{number}"
    ports = tuple(Port(name, f"nic{n}") for n in range(OPTICAL[number] + PACKET[number]))
    lit = tuple(OpticalNic(port, n % 2) for n, port in enumerate(ports[: OPTICAL[number]]))
    gpus = tuple(range(GPUS[number]))
    return RegionServer(name, lit, ports[OPTICAL[number] :], gpus, ports, len(gpus))


REGION = Region(tuple(map(server, range(5))))


def link(a, nic, b, other):
    return Link(Port(f"s{a}", f"nic{nic}"), Port(f"s{b}", f"nic{other}"))


def test_traffic_of_ranks_that_are_placed_unevenly():
    """Ranks 0, 2 and 3 on server 1, rank 1 on server 2, rank 4 on server 0; two experts a rank."""
    placement = Placement((1, 2, 1, 1, 0), servers=4, experts_per_rank=2)
    tokens = [[TRAFFIC[a][e // 2] * (3 if e % 2 else 1) for e in range(10)] for a in range(5)]
    traffic = server_traffic(tokens, placement)
    # Four times TRAFFIC, by rows and columns {4}, {0, 2, 3} and {1}; a server may be empty.
    assert traffic.tolist() == [
        [0, 4 * (12 + 15 + 18), 4 * 16, 0],
        [4 * (1 + 13 + 10), 0, 4 * (11 + 6 + 23), 0],
        [4 * 8, 4 * (4 + 17 + 3), 0, 0],
        [0, 0, 0, 0],
    ]
    demand = server_demand(tokens, placement)
    assert demand[0].tolist() == [0, 180 + 96, 64 + 32, 0]
    assert demand[1].tolist() == [0, 0, 160 + 96, 0]
    assert placement.moved(2, 3).server_of == (1, 2, 3, 1, 0)
    assert placement.moved(2, 3).experts_per_rank == 2


def test_links_of_servers_with_unequal_ports():
    demand = pair_demand(TRAFFIC)
    assert demand[np.triu_indices(5, 1)].tolist() == [15, 21, 14, 13, 23, 26, 24, 21, 28, 28]
    # 2-4 and 3-4 have 28, the first has the lower numbers; then 1-3 has 26, and 0-1 has 15.
    links = plan_links(demand, OPTICAL)
    wanted = np.zeros((5, 5), dtype=int)
    # Server 1 has a port left for a second link of 1-3, which server 3 has a port for.
    for a, b, count in ((2, 4, 1), (1, 3, 2), (0, 1, 1)):
        wanted[a, b] = wanted[b, a] = count
    assert links.tolist() == wanted.tolist()
    # Left to packets: 21, 14, 13 of server 0; 23, 24 of 1; 21, 23, 21 of 2; 14, 21, 28 of 3.
    assert completion(demand, links, [2, 1, 1, 3, 1]) == max(48 / 2, 47, 65, 63 / 3, 65)
    assert completion(demand, links, [9, 9, 9, 9, 0]) == float("inf")
    assert completion(demand, links, 99) == 28


def test_a_server_without_packet_nics_is_lit_to_whom_it_sends_and_receives_most():
    """Server 3 has none: its demand with server 4 is the greatest, in one direction alone."""
    demand = np.zeros((5, 5))
    demand[0, 1], demand[3, 4], demand[1, 3] = 90, 7, 5
    links = plan_region(REGION, demand)
    pairs = Counter((each.a.owner, each.b.owner) for each in links)
    assert pairs == {("s0", "s1"): 1, ("s3", "s4"): 1, ("s1", "s3"): 1}
    failed = Failures(nics=frozenset({Port("s4", "nic0")}))
    pairs = Counter((x.a.owner, x.b.owner) for x in plan_region(REGION.without(failed), demand))
    assert pairs == {("s0", "s1"): 1, ("s1", "s3"): 2}


TREE_LINKS = (link(0, 0, 1, 0), link(1, 1, 2, 0), link(3, 0, 1, 2), link(3, 1, 4, 0))


def test_routes_of_a_tree_go_by_circuits_then_packets_then_a_peer():
    assert {frozenset((a, b)) for a, b in TREE} == {
        frozenset((int(x.a.owner[1]), int(x.b.owner[1]))) for x in TREE_LINKS
    }
    routing = Routing(REGION, TREE_LINKS)
    route = routing.route(0, 2)
    assert [(hop.medium, hop.source, hop.sink) for hop in route] == [("packet", 0, 2)]
    # Of servers 0 and 2 the second has two NICs, which share what comes through the first's one.
    assert route[0].ports == (
        (Port("s0", "nic1"), Port("s2", "nic1")),
        (Port("s0", "nic1"), Port("s2", "nic2")),
    )
    assert routing.route(2, 0)[0].ports == tuple((b, a) for a, b in route[0].ports)
    assert [hop.sink for hop in routing.route(3, 2)] == [1, 2]
    assert [(hop.medium, hop.sink) for hop in routing.route(0, 3)] == [
        ("optical", 1),
        ("optical", 3),
    ]
    assert routing.route(1, 3)[0].ports == ((Port("s1", "nic2"), Port("s3", "nic0")),)


def test_parallel_ports_of_a_hop_are_shared_by_lanes_and_gpus():
    routing = Routing(REGION, TREE_LINKS)
    names = [server.name for server in REGION.servers]
    shares = np.array(lane_shares(routing, names, TRAFFIC, 3))
    assert (shares.sum(axis=0) == TRAFFIC).all()
    assert shares[:, 4, 2].tolist() == [7, 8, 0]  # 15 bytes, two NICs of server 2
    assert shares[:, 2, 4].tolist() == [6, 7, 0]
    assert shares[:, 4, 1].tolist() == [16, 0, 0]
    # By one circuit to server 1, and from there by packets to both NICs of server 2.
    parted = Routing(REGION, (TREE_LINKS[0], *TREE_LINKS[2:]))
    assert [lane[3][2] for lane in lane_shares(parted, names, TRAFFIC, 3)] == [7, 7, 0]
    first, second, third = (hops["s0", "s2"] for hops in lane_routes(routing, 3))
    assert (first.towards.name, second.towards.name) == ("nic1", "nic2")
    assert third == first
    transfers = all_to_all({(Gpu(4, 0), Gpu(2, 2)): 15, (Gpu(4, 0), Gpu(2, 0)): 4}, routing)
    received = Counter()
    for each in transfers:
        if each.step == "exchange":
            received[each.ports[1].name, each.flow[1].place] += each.size
    # Flows by their GPUs: 4 bytes first; NIC 2 takes over after 19 // 2 = 9.
    assert received == {("nic1", 0): 4, ("nic1", 2): 5, ("nic2", 2): 10}


def test_gpus_are_shared_out_among_unlike_numbers_of_ports():
    """8 GPUs and 2 ports: 0 to 3 and 4 to 7. 3 GPUs and 3 ports: one each. 1 GPU: always that."""
    routing = Routing(REGION, ())
    delegates = [
        [routing.delegate(port).place for port in server.ports] for server in REGION.servers
    ]
    assert delegates == [[0, 1], [0, 1, 2, 3], [0, 1, 2], [0, 4], [0, 0]]
    failed = Failures(gpus=frozenset({("s3", 4), ("s3", 5), ("s2", 1)}))
    left = Routing(REGION.without(failed), ())
    assert left.delegate(Port("s3", "nic1")).place == 6
    assert left.delegate(Port("s2", "nic1")).place == 0


def test_a_demand_of_another_region_is_refused():
    with pytest.raises(ValueError, match="the region has 5 servers"):
        plan_region(REGION, np.zeros((4, 4)))
