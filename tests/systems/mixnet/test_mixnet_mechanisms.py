"""Mechanisms of MixNet's paper on generated exchanges: each test shows the claims that mark it."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from lightrig.harness.systems.mixnet.planning.control import CircuitControl
from lightrig.harness.systems.mixnet.planning.course import Course
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.planning.demand import Placement, server_demand
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.suites.claims.mixnet.gating import Gating

pytestmark = pytest.mark.long  # each has a shorter test beside it

REGION = Region.uniform(8, optical=6, packet=2)


def claim(name):
    return pytest.mark.claim(f"mixnet:{name}")


@pytest.fixture(scope="module")
def tokens():
    """A hundred exchanges of eight ranks by generated gates."""
    return list(Gating(experts=8, layers=1).exchanges(ranks=8, count=100, seed=1))


@pytest.fixture(scope="module")
def demands(tokens):
    placement = Placement.even(ranks=8, servers=8)
    return [server_demand(each, placement) for each in tokens]


@claim("numa")
def test_two_links_of_a_pair_end_on_different_numa_nodes_at_both_ends(demands):
    numa = {nic.port: nic.numa for server in REGION.servers for nic in server.optical}
    doubled = 0
    for demand in demands:
        pairs = defaultdict(list)
        for link in plan_region(REGION, demand):
            pairs[link.a.owner, link.b.owner].append((numa[link.a], numa[link.b]))
        for ends in pairs.values():
            if len(ends) == 2:
                doubled += 1
                assert all(first != second for first, second in zip(*ends, strict=True))
    assert doubled > 20


@claim("without-packet-nics")
def test_a_server_without_packet_nics_still_reaches_all_others(demands):
    for demand in demands[:20]:
        for number, server in enumerate(REGION.servers):
            region = REGION.without(Failures(nics=frozenset(server.packet)))
            routing = Routing(region, plan_region(region, demand))
            for peer in set(range(8)) - {number}:
                assert routing.route(number, peer)
                assert routing.route(peer, number)


@claim("transposes")
def test_the_all_to_alls_of_a_layer_carry_one_matrix_or_its_transpose(tokens):
    """Tokens dispatched to experts come back, and gradients go the other way."""
    for each in tokens:
        control = CircuitControl(Placement.even(8, 8), 1, None)
        for rank, given in enumerate(each.astype(int).tolist()):
            control.wants(rank, given)
        found = [control.traffic(Course(1)[number]) for number in range(4)]
        assert len(found) == 4
        for first, second in pairwise(found):
            assert np.array_equal(first, second) or np.array_equal(first, second.T)
        assert {np.array_equal(one, each) for one in found} == {True, False}
