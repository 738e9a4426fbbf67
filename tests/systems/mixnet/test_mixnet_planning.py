"""From demands to the cross-connects of the prototype's testbed, and what its file says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig import testbeds
from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import reconfigure
from lightrig.harness.systems.mixnet.planning.cross_connects import (
    cross_connects,
    plan_region,
    plan_testbed,
)
from lightrig.harness.systems.mixnet.planning.demand import DemandError
from lightrig.harness.systems.mixnet.planning.region import Failures, Region, RegionError
from lightrig.testbeds import Circuit, Plan, Port, TestbedError, difference, load

HOME = Path(testbeds.__file__).resolve().parent
MIXNET = load(HOME / "mixnet.yaml")
REGION = Region.of(MIXNET)

sizes = st.lists(st.integers(0, 9), min_size=6, max_size=6)


def between(sizes):
    demand = np.zeros((4, 4))
    demand[np.triu_indices(4, 1)] = sizes
    return demand


def test_the_prototype_is_four_servers_with_three_circuits_and_one_packet_nic_each():
    assert REGION.degrees == [3] * 4
    assert {len(server.packet) for server in REGION.servers} == {1}
    assert {server.gpus for server in REGION.servers} == {tuple(range(8))}
    assert [nic.numa for nic in REGION.servers[0].optical] == [0, 0, 1]


@settings(max_examples=25)
@given(sizes, sizes)
def test_a_plan_closes_the_links_that_were_planned_and_the_way_there_is_short(first, second):
    before = plan_testbed(MIXNET, between(first), "before")
    after = plan_testbed(MIXNET, between(second), "after", before)
    links = set(MIXNET.links(after))
    assert links == set(plan_region(REGION, between(second), MIXNET.links(before)))
    assert len(after) == 2 * len(links)
    change = difference(before.circuits["ocs"], after.circuits["ocs"])
    both = links & set(MIXNET.links(before))
    assert len(change.keep) == 2 * len(both)
    assert plan_testbed(MIXNET, between(second), "after", after) == after


def test_the_mesh_of_the_file_is_what_the_planner_keeps():
    mesh = MIXNET.plans["mesh"]
    assert plan_testbed(MIXNET, between([1] * 6), "mesh", mesh) == mesh


def test_two_parallel_links_end_on_both_nodes():
    links = plan_region(REGION, between([9, 1, 0, 0, 1, 9]))
    numa = {nic.port: nic.numa for server in REGION.servers for nic in server.optical}
    ends = [
        numa[link.a] for link in links if (link.a.owner, link.b.owner) == ("server0", "server1")
    ]
    assert sorted(set(ends)) == [0, 1]


def test_with_nothing_to_say_every_circuit_goes():
    plan = plan_testbed(MIXNET, between([0] * 6), "silence", MIXNET.plans["mesh"])
    assert plan.circuits == {"ocs": frozenset()}


def test_what_failed_is_planned_around():
    gone = Port("server0", "nic1")
    left = REGION.without(Failures(servers=frozenset({"server3"}), nics=frozenset({gone})))
    links = plan_region(left, between([5, 5, 5, 5, 5, 5]), MIXNET.links("mesh"))
    owners = {port.owner for link in links for port in (link.a, link.b)}
    assert owners == {"server0", "server1", "server2"}
    assert gone not in {port for link in links for port in (link.a, link.b)}
    assert set(cross_connects(MIXNET, links, "around").circuits) == {"ocs"}


def test_a_demand_of_other_servers_is_refused():
    with pytest.raises(DemandError, match="the region has 4 servers"):
        plan_testbed(MIXNET, np.zeros((5, 5)), "other")


def test_a_region_is_asked_for_by_its_switch():
    assert Region.of(MIXNET, "ocs") == REGION
    with pytest.raises(RegionError, match="no circuit switch 'eps'"):
        Region.of(MIXNET, "eps")


def test_the_baseline_joins_every_nic_to_the_packet_switch():
    packet = MIXNET.plans["packet"]
    joined = {
        tuple(port.owner for port in MIXNET.cabling.light_path("ocs", circuit))
        for circuit in packet.circuits["ocs"]
    }
    assert all("eps" in ends for ends in joined)
    assert len(packet) == 24
    assert MIXNET.links("packet") == ()


def test_an_optical_fiber_of_a_packet_switch_needs_a_transceiver(tmp_path):
    text = (HOME / "mixnet.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mixnet.yaml"
    path.write_text(text.replace(", rate: 100G, transceiver: qsfp28-lr4}", ", rate: 100G}", 1))
    with pytest.raises(TestbedError, match=r"eps\.5 has no transceiver, expected one on a packet"):
        load(path)
    path.write_text(text.replace("transceiver: qsfp28-lr4}", "transceiver: qsfp28-lr5}", 1))
    with pytest.raises(TestbedError, match=r"unknown transceiver 'qsfp28-lr5'"):
        load(path)


def test_nics_hear_the_packet_switch_over_circuits_and_without():
    bench = bind(MIXNET, "simulated", seed=1)
    try:
        fabric, links = Fabric(bench), LinkObservation(bench)
        event = reconfigure(fabric, MIXNET.plans["packet"], links)
        assert event.missing == ()
        assert {seen.subject for seen in event.seen if seen.stage == "signal_recovered"} == {
            f"ocs.{circuit.egress}" for circuit in MIXNET.plans["packet"].circuits["ocs"]
        }
        ports = [Port("server0", name) for name in ("nic0", "nic3")]
        bench.clock.sleep(10_000_000_000)
        assert all(bench.world.links.timeline(p).is_up("carrier", bench.clock.now()) for p in ports)
    finally:
        bench.close()


def test_sixteen_circuits_take_longer_and_scatter_as_much_more():
    bench = bind(MIXNET, "simulated", seed=1)
    try:
        fabric, took = Fabric(bench), {}
        for count in (1, 16):
            plans = [
                Plan(
                    str(by),
                    {"ocs": frozenset(Circuit(n, 32 + n + by) for n in range(1, 1 + count))},
                )
                for by in (1, 2)
            ]
            fabric.apply(plans[0])
            times = []
            for index in range(120):
                transition = fabric.prepare(plans[(index + 1) % 2])
                sent = transition.begin()
                times.append(transition.acknowledged().latest - sent.latest)
            took[count] = np.array(times) / 1e6
    finally:
        bench.close()
    assert took[1].mean() == pytest.approx(41.44, abs=4 * 6.9 / 120**0.5)
    assert took[16].mean() == pytest.approx(46.75, abs=4 * 7.8 / 120**0.5)
