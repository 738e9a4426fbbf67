"""A rack of 72 GPUs under the orchestrator: which node is the spare, by the light alone."""

import contextlib
import itertools
from pathlib import Path

import pytest

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.acos.generator import render, render_rings
from lightrig.harness.systems.acos.runtime.layout import ServerRingLayout
from lightrig.harness.systems.acos.runtime.rack_layout import RackLayout, layout_of
from lightrig.testbeds import Testbed, load
from tests.campaigns.room_agents import Hosts
from tests.campaigns.switchroom import Switchroom, beams

NODES = [f"node{number}" for number in range(9)]
LANES = 8


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Testbed:
    file = tmp_path_factory.mktemp("rack") / "rack.yaml"
    file.write_text(render(72))
    return load(file)


@pytest.fixture(scope="module")
def layout(rack: Testbed) -> RackLayout:
    return RackLayout(rack)


def rings(rack: Testbed, layout: RackLayout, job: Job) -> list[list[str]]:
    """Return the rings of GPUs that all four lanes of each sender make, NODE.GPU each."""
    following: dict[str, set[str]] = {}
    for source, sink in beams(rack, layout.circuits(job)):
        at, lane = f"{source.owner}.{source.name.split('.')[0]}", int(source.name[-1])
        if lane < LANES // 2:  # these face forward
            assert int(sink.name[-1]) == lane + LANES // 2
            following.setdefault(at, set()).add(f"{sink.owner}.{sink.name.split('.')[0]}")
    found, left = [], {at for at in following if at.split(".")[0] in job.groups[0].nodes}
    while left:
        ring = [min(left)]
        while (after := next(iter(following[ring[-1]]))) != ring[0]:
            assert len(following[ring[-1]]) == 1
            ring.append(after)
        found.append(ring)
        left -= {*ring}
    return found


@pytest.mark.long
def test_switches_and_fibers_are_those_of_a_rack_of_nine_nodes(rack) -> None:
    """576 selection switches at each side, of 72 GPUs with eight lanes."""
    assert list(rack.servers) == NODES
    assert len(rack.optical_switches) == 3_136
    assert len(rack.nic_ports) == 72 * LANES
    assert sum(name.startswith("tx-") for name in rack.optical_switches) == 576
    node = rack.cabling.ingress_of(rack.servers["node7"].nics["gpu3"].ports[5].port)
    assert node == ("tx-gpu34-lane5", 1)  # GPU 3 of node 7 is 3 * 9 + 7


@pytest.mark.long
@pytest.mark.parametrize(("tp", "pp"), [(4, 4), (8, 2), (16, 2)])
@pytest.mark.parametrize("spare", range(9))
def test_rings_have_the_nodes_that_work_alone(rack, layout, tp: int, pp: int, spare: int) -> None:
    shape = {"tp": tp, "pp": pp, "ep": 16, "dimension": "TP"}
    free = frozenset(NODES) - {f"node{spare}"}
    job = layout.place(Job("a", shape, 0, False, False, (None,)), free, {}, set())
    (group,) = job.groups
    assert {*group.nodes} == free
    found = rings(rack, layout, job)
    assert [len(ring) for ring in found] == [tp] * (64 // tp)
    assert f"node{spare}" not in {at.split(".")[0] for at in itertools.chain(*found)}
    if tp == 8:  # ranks go along the places
        assert all({at.split(".")[0] for at in ring} == free for ring in found)


@pytest.mark.long
@pytest.mark.parametrize("lost", [3, 8])
def test_a_lost_node_is_found_by_its_light_and_the_spare_takes_over(
    rack, layout, tmp_path: Path, monkeypatch, lost: int
) -> None:
    """Each of nine agents sees its own carriers; switches and light are in memory."""
    monkeypatch.setattr("lightrig.harness.orchestration.carriers.UNNOTICED_NS", 0)
    room = Switchroom(rack)
    hosts = Hosts(room, layout)
    assert {len(names) for names in hosts.names.values()} == {128}
    with contextlib.closing(hosts.switches()) as switches:
        service = Orchestrator(rack, layout, switches, tmp_path / "s.json")
        service.start()
        service.request({"do": "submit", "job": "a", "shape": {"tp": 8, "pp": 2, "ep": 8}})
        for _ in range(2):
            service.step()
        (group,) = service.status()["jobs"]["a"]["groups"]
        assert (group["nodes"], group["details"]) == (NODES[:8], {"spare": 8})
        room.unlit = {f"node{lost}"}
        room.commands.clear()
        for _ in range(4):
            service.step()
        status = service.status()
        (group,) = status["jobs"]["a"]["groups"]
        recoveries = [each for each in service.wanted.history if "seconds" in each]
        if lost == 8:  # no light of the spare is led anywhere
            assert (status["faulty"], room.commands, recoveries) == ({}, [], [])
            return
        assert status["faulty"].keys() == {"node3"}
        # Tasks of nodes 3 to 7 move by one node, up to the spare.
        expected = ["node0", "node1", "node2", "node4", "node5", "node6", "node7", "node8"]
        assert (group["nodes"], group["details"]) == (expected, {"spare": 3})
        assert status["jobs"]["a"]["ready"]
        assert [each["node"] for each in recoveries] == ["node3"]
        job = next(job for job in service.wanted.jobs if job.name == "a")
        assert all(len(ring) == 8 for ring in rings(rack, layout, job))
        # A second one that fails leaves too few.
        service.request({"do": "failed", "nodes": ["node6"]})
        assert service.status()["jobs"]["a"]["missing"] == 1


@pytest.mark.long
def test_a_dead_adaptation_switch_moves_the_spare_where_that_avoids_it(layout) -> None:
    shape = {"tp": 8, "pp": 2, "ep": 8, "dimension": "TP"}
    job = layout.place(Job("a", shape, 0, False, False, (None,)), frozenset(NODES), {}, set())
    assert job.groups[0].details == {"spare": 8}
    dead = {"tp-skip-out-forward-2-0-0-0"}  # of node 2
    moved = layout.place(job, frozenset({"node8"}), {}, dead)
    assert moved.groups[0].details == {"spare": 2}
    assert layout.place(moved, frozenset({"node2"}), {}, set()) is moved
    assert dead.isdisjoint(layout.circuits(moved))


@pytest.mark.long
def test_what_a_rack_cannot_take_is_refused(rack, layout, tmp_path: Path) -> None:
    with pytest.raises(OrchestrationError, match=r"expected one of TP 4, PP 1, DP 16, EP 8; "):
        layout.groups_of({"tp": 5})
    wrong = Group(tuple(NODES[1:]), {"spare": 8})
    job = Job("a", {"tp": 8, "pp": 2, "ep": 8, "dimension": "TP"}, 0, False, False, (wrong,))
    with pytest.raises(OrchestrationError, match="spare 8 does not leave"):
        layout.circuits(job)
    assert isinstance(layout_of(rack), RackLayout)
    (tmp_path / "rings.yaml").write_text(render_rings())
    assert isinstance(layout_of(load(tmp_path / "rings.yaml")), ServerRingLayout)
    with pytest.raises(OrchestrationError, match="has 5 nodes with 10 NIC ports"):
        RackLayout(load(tmp_path / "rings.yaml"))
