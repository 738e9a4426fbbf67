"""Rings of an orchestrator: they close past failed nodes, follow a fat tree, and survive kills."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import FabricSwitches, SwitchSessions
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import load
from tests.campaigns import orchestrations
from tests.campaigns.switchroom import Switchroom, joined

RING = {"do": "submit", "job": "ring", "shape": {"size": 0}}
FAILED = {"do": "failed", "nodes": ["node1"]}
PAST = [["node0", "node2", "node3", "node4"]]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "five.yaml"
    path.write_text(render(5))
    made = bind(load(path), "simulated", 1)
    yield made
    made.close()


def service(bench: Bench, state: Path) -> tuple[Orchestrator, Fabric]:
    fabric = Fabric(bench)
    sessions = FabricSwitches(fabric)
    return Orchestrator(bench.testbed, RowLayout(bench.testbed), sessions, state), fabric


def light(bench: Bench) -> dict[str, set[str]]:
    return joined(bench.testbed, {n: each.circuits() for n, each in bench.switches.items()})


def test_a_ring_closes_past_a_failed_node(bench: Bench, tmp_path: Path) -> None:
    running, fabric = service(bench, tmp_path / "state.json")
    fabric.apply(running.plan(RING))
    running.done()
    assert light(bench)["node0"] == {"node4", "node1"}
    past = running.plan(FAILED)
    assert not any(name.endswith("node1") for name in past.circuits)
    assert '"reported": ["node1"]' in (tmp_path / "state.json").read_text()  # before it is set
    fabric.apply(past)
    running.done()
    status = running.status()
    assert orchestrations.groups(status, "ring") == PAST
    assert (status["faulty"], status["settled"]) == ({"node1": "reported"}, True)
    assert light(bench)["node0"] == {"node4", "node2"}
    running.close()


@pytest.mark.long
def test_a_killed_service_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `python -m tests.campaigns orchestrations` 200 times."""
    for name in ("LIGHTRIG_STATE", "LIGHTRIG_SERVED"):
        monkeypatch.setenv(name, "")  # restored afterwards
    state = tmp_path / "cluster.json"
    with orchestrations.served(tmp_path) as (world, file):
        status, kills = orchestrations.kill_and_continue(
            world, file, state, [RING, FAILED], limits=[3, 4]
        )
        assert kills == 2
        assert orchestrations.groups(status, "ring") == PAST
        assert orchestrations.astray(world, file, status) == []


def test_without_any_answer_nothing_has_failed(bench: Bench, tmp_path: Path) -> None:
    sessions = SwitchSessions(bench.testbed)  # over wires, at addresses that nobody serves
    running = Orchestrator(bench.testbed, RowLayout(bench.testbed), sessions, tmp_path / "s.json")
    running.start()
    running.step()
    status = running.status()
    assert "all 10 of the switches fell silent at once" in status["doubt"]
    assert (status["faulty"], status["settled"]) == ({}, False)
    running.close()


@pytest.fixture
def row(tmp_path: Path) -> Orchestrator:
    (tmp_path / "row.yaml").write_text(render(16, hops=2, fat_tree=(4, 8)))
    testbed = load(tmp_path / "row.yaml")
    running = Orchestrator(testbed, RowLayout(testbed), Switchroom(testbed), tmp_path / "s.json")
    running.start()
    return running


def test_groups_follow_the_fat_tree_behind_the_row(row: Orchestrator) -> None:
    """Of 16 nodes, four a ToR, the row is 1 5 9 13, 2 6 10 14, ... (Fig. 7, counted from one).

    Each group is within a sub-line of its domain, and as many groups as a ToR has nodes lie side
    by side under the same ToRs, so that their context-parallel traffic stays there (Appendix D).
    The ToRs of node 5 fail to hold four of them, so they come last.
    """
    shape = {"size": 2, "groups": 6}
    row.request({"do": "failed", "nodes": ["node5"]})
    status = row.request({"do": "submit", "job": "a", "shape": shape})
    found = orchestrations.groups(status, "a")
    order = [n + 4 * tor for n in range(4) for tor in range(4)]
    network = [[order[int(node.removeprefix("node"))] for node in group] for group in found]
    assert order[5] == 5
    assert network == [[8, 12], [9, 13], [10, 14], [11, 15], [0, 4], [2, 6]]
    status = row.request({"do": "submit", "job": "b", "shape": {**shape, "size": 4, "groups": 4}})
    assert orchestrations.groups(status, "b") == [None] * 4
    assert status["settled"]
    assert status["jobs"]["a"]["measures"] == {"crossing": 0.0}


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_gpus_are_a_unit_of_groups(row: Orchestrator, nodes: int) -> None:
    """The two groups lie under the same ToRs, of which there are four: place modulo 4."""
    status = row.request({"do": "submit", "job": "a", "shape": {"gpus": 4 * nodes, "groups": 2}})
    found = orchestrations.groups(status, "a")
    assert [len(group) for group in found] == [nodes, nodes]
    tors = [[int(node.removeprefix("node")) % 4 for node in group] for group in found]
    assert tors[0] == tors[1]
    if nodes == 1:  # a ring of the node's own GPUs: its modules are in loopback
        name = f"trx0-{found[0][0]}"
        assert row.circuits()[name] == row.layout.idle(name)


def test_a_part_of_a_node_is_refused_with_the_reason(row: Orchestrator) -> None:
    with pytest.raises(OrchestrationError, match=r"groups of 6 GPUs.*loopback closes a ring"):
        row.request({"do": "submit", "job": "a", "shape": {"gpus": 6}})


def test_a_ring_of_all_takes_in_what_has_returned(row: Orchestrator) -> None:
    row.request(RING)
    row.request({"do": "failed", "nodes": ["node3"]})
    assert "node3" not in row.status()["jobs"]["ring"]["groups"][0]["nodes"]
    row.request({"do": "failed", "nodes": ["node4"]})
    assert row.status()["jobs"]["ring"]["groups"] == [None]  # three hops are too far
    row.request({"do": "repaired", "nodes": ["node3", "node4"]})
    assert len(row.status()["jobs"]["ring"]["groups"][0]["nodes"]) == 16


def test_a_ring_of_all_on_a_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "line.yaml").write_text(render(5, line=True))
    layout = RowLayout(load(tmp_path / "line.yaml"))
    with pytest.raises(OrchestrationError, match="is a line"):
        layout.groups_of({"size": 0})
