"""ACOS as a job: the controller sets adaptation and resilience, ranks select (§4.4)."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SimulatedSwitches
from lightrig.harness.systems.acos.generator import render
from lightrig.harness.systems.acos.runtime.rack_layout import RackLayout
from lightrig.testbeds import load
from tests.orchestration.selecting_hosts import Cluster, Rank

SUBMIT = {"do": "submit", "job": "llm", "shape": {"tp": 8}}


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """18 GPUs: the rings of §5.1 over nine nodes of two, one of them the spare."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    with contextlib.closing(Cluster(tmp_path, render(18))) as made:
        yield made


def rings_of_18(nodes: Sequence[str], tp: int) -> dict[str, list[list[Rank]]]:
    """TP joins the GPUs of one replica, TP 4 those of a half; DP what has the same place in it."""
    ranks = [[(node, f"gpu{d}") for node in nodes] for d in (0, 1)]
    tensor = [row[at : at + tp] for row in ranks for at in range(0, 8, tp)]
    return {"TP": tensor, "DP": [list(each) for each in zip(*tensor, strict=True)]}


def test_ranks_select_at_each_collective_and_past_a_failed_node(cluster: Cluster) -> None:
    cluster.service.start()
    cluster.service.request(SUBMIT)
    status = cluster.until(lambda status: status["jobs"]["llm"]["ready"])
    (group,) = status["jobs"]["llm"]["groups"]
    assert group["nodes"] == [f"node{n}" for n in range(8)]
    assert cluster.train(["TP", "DP", "DP", "TP"], rings_of_18(group["nodes"], 8)) == []

    # What ranks have selected is theirs: the controller sets nothing back.
    assert cluster.train(["DP"], rings_of_18(group["nodes"], 8)) == []
    before = {n: each.egress_of.copy() for n, each in cluster.world.matrices.items()}
    for _ in range(2):
        cluster.service.step()
    assert {n: each.egress_of for n, each in cluster.world.matrices.items()} == before

    cluster.service.request({"do": "failed", "nodes": ["node3"]})
    status = cluster.until(lambda status: status["jobs"]["llm"]["ready"])
    (group,) = status["jobs"]["llm"]["groups"]
    assert group["nodes"] == [f"node{n}" for n in (0, 1, 2, 4, 5, 6, 7, 8)]
    # The controller is not needed any more: it does not step while this runs.
    assert cluster.train(["DP", "TP"], rings_of_18(group["nodes"], 8)) == []
    refused = cluster.select(("node3", "gpu0"), "TP")
    assert refused.status_code == 400
    assert "found TP for gpu0 of node3, which may select none" in refused.text


def test_a_rank_waits_for_no_link_to_another_pipeline(tmp_path: Path) -> None:
    """Eight stages are a ring of two pipelines, whose ranks communicate at different times."""
    (tmp_path / "acos.yaml").write_text(render(144, 2))
    testbed = load(tmp_path / "acos.yaml")
    layout, switches = RackLayout(testbed), SimulatedSwitches(testbed)
    service = Orchestrator(testbed, layout, switches, tmp_path / "state.json")
    service.start()
    service.request({"do": "submit", "job": "llm", "shape": {"tp": 8, "pp": 4}})
    (job,) = service.wanted.jobs
    (group,) = job.groups
    choices, nodes = layout.choices(job), group.nodes
    for pipeline in groups_of_144(nodes)["PP"]:
        counts = [len(choices[node][nic]["PP"].ports) for node, nic in pipeline]
        assert counts == [1, 2, 2, 1], pipeline
    for ring in groups_of_144(nodes)["TP"]:
        assert [len(choices[node][nic]["TP"].ports) for node, nic in ring] == [2] * 8


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_144_gpus_over_two_racks_with_a_process_for_each_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes a GPU, without experts (§5.4): 1,816 switches, of which 18 agents have 576."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    with contextlib.closing(Cluster(tmp_path, render(144, 2), processes=True)) as cluster:
        service = cluster.service
        service.start()
        cluster.until(lambda status: status["settled"])
        service.request({"do": "submit", "job": "llm", "shape": {"tp": 8, "pp": 4}})
        status = cluster.until(lambda status: status["jobs"]["llm"]["ready"])
        (group,) = status["jobs"]["llm"]["groups"]
        assert group["nodes"] == [f"node{n}" for n in (*range(8), *range(9, 17))]
        assert cluster.train(["TP", "PP", "DP", "TP"], groups_of_144(group["nodes"])) == []

        # A node of each rack: tasks of rack 0 move right, those of rack 1 left, up to the spares.
        service.request({"do": "failed", "nodes": ["node2", "node12"]})
        status = cluster.until(lambda status: status["jobs"]["llm"]["ready"])
        job = status["jobs"]["llm"]
        (group,) = job["groups"]
        assert not {"node2", "node12"} & {*group["nodes"]}
        assert job["measures"] == {"shuffled": 0.0}
        assert cluster.train(["DP", "PP", "TP"], groups_of_144(group["nodes"])) == []

        service.request({"do": "failed", "nodes": ["node4"]})
        cluster.until(lambda status: status["settled"])
        assert service.status()["jobs"]["llm"]["groups"] == [None]


def groups_of_144(nodes: Sequence[str]) -> dict[str, list[list[Rank]]]:
    """TP 8, PP 4, DP 4: stages 0, 1, 4, 5 are in the first rack, in this order at a node's NICs."""
    stages, places, replicas = range(8), range(8), (0, 1)
    where = {stage: (rack, at) for rack in (0, 1) for at, stage in enumerate(STAGES[rack])}

    def rank(stage: int, place: int, d: int) -> Rank:
        rack, at = where[stage]
        return nodes[8 * rack + place], f"gpu{2 * at + d}"

    return {
        "TP": [[rank(s, p, d) for p in places] for s in stages for d in replicas],
        "DP": [
            [rank(s + more, p, d) for more in (0, 4) for d in replicas]
            for s in range(4)
            for p in places
        ],
        "PP": [
            [rank(s + first, p, d) for s in range(4)]
            for first in (0, 4)
            for p in places
            for d in replicas
        ],
    }


STAGES = ((0, 1, 4, 5), (2, 3, 6, 7))
"""Stages of each rack: the chain changes racks at every second link."""
