"""Every byte of an all-to-all and every value of an all-reduce is accounted for."""

from collections import Counter, defaultdict
from typing import Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.planning.exchange import Transfer, all_to_all
from lightrig.harness.systems.mixnet.planning.region import Failures, Gpu, Region, RegionError
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.testbeds import Link, Port


@st.composite
def networks(draw):
    """A small region, part of which may have failed, with links for some demand."""
    servers = draw(st.integers(2, 4))
    region = Region.uniform(servers, draw(st.integers(1, 3)), draw(st.integers(1, 2)), gpus=4)
    gone = draw(st.sets(st.sampled_from([p for s in region.servers for p in s.ports]), max_size=2))
    left = region.without(Failures(nics=frozenset(gone)))
    demand = np.zeros((servers, servers))
    count = servers * (servers - 1) // 2
    sizes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    demand[np.triu_indices(servers, 1)] = sizes
    return Routing(left, plan_region(left, demand))


def reachable(routing, a, b):
    try:
        routing.route(a, b)
    except RegionError:
        return False
    return True


@settings(max_examples=40)
@given(networks(), st.data())
def test_every_byte_arrives_and_none_is_made_up(routing, data):
    gpus = [Gpu(n, g) for n, s in enumerate(routing.region.servers) for g in s.gpus]
    flows = st.tuples(st.sampled_from(gpus), st.sampled_from(gpus))
    drawn = data.draw(st.dictionaries(flows, st.integers(0, 50), max_size=12))
    demand = {f: n for f, n in drawn.items() if reachable(routing, f[0].server, f[1].server)}
    held = {flow: Counter({flow[0]: size}) for flow, size in demand.items()}
    stages = defaultdict(list)
    for transfer in all_to_all(demand, routing):
        stages[transfer.stage].append(transfer)
    for _, transfers in sorted(stages.items()):
        for one in transfers:  # everything leaves before anything of the stage arrives
            held[one.flow][one.source] -= one.size
            assert held[one.flow][one.source] >= 0
        for one in transfers:
            held[one.flow][one.sink] += one.size
    for flow, size in demand.items():
        assert +held[flow] == Counter({flow[1]: size} if size else {})


@settings(max_examples=40)
@given(networks())
def test_transfers_use_what_their_medium_joins(routing):
    gpus = [Gpu(n, g) for n, s in enumerate(routing.region.servers) for g in s.gpus]
    demand = {
        (a, b): 7 for a in gpus for b in gpus if a != b and reachable(routing, a.server, b.server)
    }
    packet = {port for server in routing.region.servers for port in server.packet}
    for one in all_to_all(demand, routing):
        if one.ports is None:
            assert one.source.server == one.sink.server
            assert one.medium == "nvlink"
            continue
        assert [routing.delegate(port) for port in one.ports] == [one.source, one.sink]
        if one.medium == "optical":
            assert Link(*one.ports) in routing.links
        else:
            assert set(one.ports) <= packet


def test_parallel_links_share_to_within_a_byte():
    region = Region.uniform(2, optical=3)
    links = tuple(Link(Port("server0", f"nic{n}"), Port("server1", f"nic{n}")) for n in range(3))
    demand = {(Gpu(0, a), Gpu(1, b)): 10 + a * b for a in range(8) for b in range(8)}
    loads = nic_loads(all_to_all(demand, Routing(region, links)))
    sent = [loads[Port("server0", f"nic{n}"), "sent"] for n in range(3)]
    assert sum(sent) == sum(demand.values())
    assert max(sent) - min(sent) <= 1
    assert (Port("server0", "nic3"), "sent") not in loads


def test_traffic_within_a_server_never_waits_for_a_gather():
    demand = {(Gpu(0, 0), Gpu(0, 5)): 3, (Gpu(0, 1), Gpu(0, 1)): 9}
    (only,) = all_to_all(demand, Routing(Region.uniform(2, optical=1), ()))
    assert (only.step, only.size) == ("local", 3)


def nic_loads(transfers: list[Transfer]) -> dict[tuple[Port, Literal["sent", "received"]], int]:
    """Bytes that each NIC port sends and receives."""
    loads: defaultdict[tuple[Port, Literal["sent", "received"]], int] = defaultdict(int)
    for transfer in transfers:
        if transfer.ports is not None:
            loads[transfer.ports[0], "sent"] += transfer.size
            loads[transfer.ports[1], "received"] += transfer.size
    return dict(loads)
