"""Clusters with spare nodes as jobs of the orchestrator: by the light, in every topology."""

from collections import defaultdict
from collections.abc import Collection

import pytest

from lightrig.harness.orchestration.jobs import Job, OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.acos.generator import render
from lightrig.harness.systems.acos.runtime.rack_layout import RackLayout
from lightrig.testbeds import Circuit, Testbed, load
from tests.campaigns.switchroom import Switchroom, beams
from tests.orchestration.test_selection_by_ranks import groups_of_144

SHAPE = {"tp": 8, "pp": 4, "ep": None, "dimension": "TP"}


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Testbed:
    """144 GPUs of two lanes, as generated."""
    path = tmp_path_factory.mktemp("acos") / "acos.yaml"
    path.write_text(render(144, 2))
    return load(path)


@pytest.fixture(scope="module")
def layout(testbed: Testbed) -> RackLayout:
    return RackLayout(testbed)


def placed(layout: RackLayout, failed: Collection[str] = (), silent: Collection[str] = ()) -> Job:
    job = Job("a", SHAPE, 0, False, False, (None,))
    return layout.place(job, frozenset(layout.nodes) - {*failed}, {}, silent)


@pytest.mark.parametrize("failed", [(), ("node5",), ("node2", "node12"), ("node0", "node16")])
def test_what_gpus_may_select_joins_the_groups_of_the_job(testbed, layout, failed) -> None:
    job = placed(layout, failed)
    (group,) = job.groups
    assert not {*failed} & {*group.nodes}
    centre, hosts = layout.circuits(job), layout.choices(job)
    assert hosts.keys() == {*group.nodes}
    for topology, groups in groups_of_144(group.nodes).items():
        circuits, ports = dict(centre), set()
        for choice in (of[topology] for host in hosts.values() for of in host.values()):
            ports |= {*choice.ports}
            for switch, pairs in choice.circuits.items():
                circuits[switch] = frozenset(Circuit(*pair) for pair in pairs)
        after, lit = defaultdict(set), set()
        for one, two in beams(testbed, circuits):
            near, far = ((p.owner, p.name.partition(".")[0]) for p in (one, two))
            after[near].add(far)
            lit.add(str(two))
        # A spare at rest sends as well, to ports that expect nothing of it.
        assert ports <= lit
        for members in groups:
            for place, rank in enumerate(members):
                beyond = members[(place + 1) % len(members)]
                if topology == "PP":
                    assert place == len(members) - 1 or beyond in after[rank]
                else:
                    assert after[rank] <= {*members}
                    assert len(after[rank]) == 2


def test_two_failed_nodes_of_a_rack_leave_no_job(layout) -> None:
    assert placed(layout, ["node1", "node3"]).groups == (None,)
    assert placed(layout, ["node10", "node17"]).groups == (None,)


def test_a_dead_resilience_switch_is_passed_by_another_spare(layout) -> None:
    dead = "tp-skip-out-forward-3-0-0-0"
    assert dead in layout.circuits(placed(layout))
    job = placed(layout, silent=[dead])
    (group,) = job.groups
    assert dead not in layout.circuits(job)
    assert group.nodes[8:] == tuple(f"node{n}" for n in range(9, 17))  # the other rack's stay


def test_a_failure_moves_tasks_of_its_rack_alone_and_by_one_node(testbed, layout, tmp_path) -> None:
    service = Orchestrator(testbed, layout, Switchroom(testbed), tmp_path / "s.json")
    service.start()
    service.request({"do": "submit", "job": "a", "shape": {"tp": 8, "pp": 4}})
    before = service.status()["jobs"]["a"]["groups"][0]["nodes"]
    after = service.request({"do": "failed", "nodes": ["node6"]})["jobs"]["a"]
    assert (after["ready"], after["measures"]) == (True, {"shuffled": 0.0})
    number = [int(node.removeprefix("node")) for node in after["groups"][0]["nodes"]]
    steps = [b - int(a.removeprefix("node")) for a, b in zip(before, number, strict=True)]
    assert steps == [0] * 6 + [1, 1] + [0] * 8


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"tp": 8, "pp": 4, "ep": 8}, "expected one of TP 4, PP 2, DP 16;"),
        ({"tp": 8, "dimension": "EP"}, "found dimension EP, expected one of TP, DP, PP"),
        ({"tp": 32}, "expected one of"),
    ],
)
def test_what_two_lanes_cannot_have_is_refused(layout, shape, why: str) -> None:
    with pytest.raises(OrchestrationError, match=why):
        layout.groups_of(shape)
