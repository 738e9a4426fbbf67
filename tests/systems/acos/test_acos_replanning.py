"""Data centres past failed nodes, racks and switches: re-formed, or refused with the fibers."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.systems.acos.planning.datacentre import DataCentre, Hall, build_hall
from lightrig.harness.systems.acos.planning.datacentre_plans import HallPlan
from lightrig.harness.systems.acos.planning.optics import selected
from lightrig.harness.systems.acos.planning.replanning import Failures, Replanned, replan

JOB = (8, 8, 64)
"""TP, PP and EP."""


@pytest.fixture(scope="module")
def both() -> DataCentre:
    """1,024 active GPUs with backup nodes and racks: rings of two racks and a third."""
    return build_hall(Hall(2, node_backups=True, rack_backups=True))


@pytest.fixture(scope="module")
def nodes_only() -> DataCentre:
    return build_hall(Hall(2, node_backups=True))


def rings(made: DataCentre, plan: HallPlan) -> list[set[int]]:
    """Return the GPUs that the light of TP joins, with what is not in a ring left out."""
    import networkx as nx

    states = selected(made.fabric, plan.states, np.zeros((made.hall.gpus, 8), dtype=np.int8))
    ends = made.fabric.trace(states).gpus
    graph = nx.Graph((g, int(e)) for g in range(made.hall.gpus) for e in set(ends[g]) if e >= 0)
    return [part for part in nx.connected_components(graph) if len(part) > 2]


def gpus_of(made: DataCentre, rack: int, node: int | None = None) -> set[int]:
    part = made.gpu[:, rack] if node is None else made.gpu[:, rack, node]
    return set(part.reshape(-1).tolist())


def through(made: DataCentre, found: Replanned, switch: int) -> bool:
    """Whether light passes a switch in a topology of a plan."""
    fibers = np.arange(made.hall.gpus * 8)
    choices = (np.full((made.hall.gpus, 8), index, dtype=np.int8) for index in range(4))
    states = (selected(made.fabric, found.plan.states, choice) for choice in choices)
    return any(made.fabric.passed(each, fibers)[switch] for each in states)


def test_a_failed_node_is_replaced_and_its_rack_alone_moves(both) -> None:
    found = replan(both, JOB, Failures(nodes=frozenset({(0, 3)})))
    # In each of eight rings, tasks of nodes 3 to 7 move to the next one.
    assert (found.is_whole, found.shuffled, found.moved) == (True, (), 8 * 5)
    whole = [ring for ring in rings(both, found.plan) if gpus_of(both, 0) & ring]
    assert [len(ring) for ring in whole] == [8] * 8
    assert not set().union(*whole) & gpus_of(both, 0, 3)


def test_a_failed_rack_is_replaced(both) -> None:
    found = replan(both, JOB, Failures(racks=frozenset({1})))
    # The second of two racks of stage 0: its 64 tasks move to the third.
    assert (found.is_whole, found.shuffled, found.moved) == (True, (), 64)
    assert found.plan.spare_position.tolist() == [1] + [2] * 7


def test_a_node_and_a_rack_of_its_group_fail_at_once(both) -> None:
    found = replan(both, JOB, Failures(frozenset({3}), frozenset({(4, 6)})))
    assert (found.is_whole, found.shuffled) == (True, ())
    # Stage 1 shifts the other way: the failed rack's 64 tasks move to the third. In the other rack
    # those of nodes 6 and 7 move by a node, in each of eight rings.
    assert found.moved == 64 + 8 * 2


def test_a_second_node_takes_its_rack_with_it(both, nodes_only) -> None:
    failures = Failures(nodes=frozenset({(0, 2), (0, 5)}))
    assert replan(both, JOB, failures).is_whole
    found = replan(nodes_only, JOB, failures)
    assert not found.is_whole
    # Node 2 is spared. Each GPU of node 5 lacks 8 lanes to and 8 from its TP ring. Of DP, those
    # between the eight GPUs of the node are lost once (4 lanes), those to other racks both ways.
    # Of stage 0's pipeline links 4 lanes lead on, and 4 come back.
    count = Counter(each.topology for each in found.unjoined)
    assert count == {"TP": 8 * 16, "DP": 8 * 4 + 8 * 8, "PP": 8 * 8}
    ends = {each.gpu for each in found.unjoined}
    assert gpus_of(nodes_only, 0, 5) < ends


def test_two_racks_of_a_ring_are_refused_and_of_two_rings_are_not(both) -> None:
    assert replan(both, JOB, Failures(racks=frozenset({0, 3}))).is_whole
    found = replan(both, JOB, Failures(racks=frozenset({0, 1})))
    assert gpus_of(both, 1) - gpus_of(both, 1, 8) <= {each.gpu for each in found.unjoined}


def test_a_shorter_pipeline_is_refused_where_its_rings_of_racks_cannot_merge(both) -> None:
    """PP 4 at 1,024 GPUs: rings of stages 0 and 4 merge by 2x2 behind their first racks alone."""
    assert replan(both, (8, 4, 64), Failures()).is_whole
    found = replan(both, (8, 4, 64), Failures(nodes=frozenset({(int(both.column[4, 1]), 3)})))
    assert {each.topology for each in found.unjoined} == {"DP"}
    first = [int(both.column[stage, 0]) for stage in (0, 4)]
    ends = {each.gpu for each in found.unjoined}
    assert ends == set().union(*(gpus_of(both, rack) - gpus_of(both, rack, 8) for rack in first))
    assert len(found.unjoined) == len(ends) * 2  # lanes to the next rack, of eight: DP has half


@pytest.mark.long
def test_a_shorter_pipeline_merges_at_either_of_two_places_of_eight_racks() -> None:
    made = build_hall(Hall(8, node_backups=True, rack_backups=True))
    one, two = (int(made.column[0, place]) for place in (2, 5))
    assert replan(made, (8, 4, 64), Failures(nodes=frozenset({(one, 3)}))).is_whole
    assert replan(made, (8, 4, 64), Failures(nodes=frozenset({(two, 6)}))).is_whole
    found = replan(made, (8, 4, 64), Failures(nodes=frozenset({(one, 3), (two, 6)})))
    assert {each.topology for each in found.unjoined} == {"DP"}


@pytest.mark.parametrize("name", ["TP-skip-out-forward", "TP-split-forward", "PP-out-forward"])
def test_a_failed_switch_is_passed_by_leaving_out_a_node_or_a_rack(both, name: str) -> None:
    array = both.fabric.arrays[name]
    switch = array.first
    base = replan(both, JOB, Failures())
    assert through(both, base, switch)
    found = replan(both, JOB, Failures(switches=frozenset({switch})))
    assert found.is_whole
    assert len(found.passed) == 1
    assert not through(both, found, switch)


def test_a_failed_switch_at_a_port_costs_its_node(both) -> None:
    gpu = int(both.gpu[4, 6, 1])
    switch = both.fabric.arrays["select-transmit"].first + gpu * 8 + 3
    found = replan(both, JOB, Failures(switches=frozenset({switch})))
    node = replan(both, JOB, Failures(nodes=frozenset({(6, 1)})))
    assert (found.is_whole, found.moved) == (True, node.moved)
    assert (found.plan.states == node.plan.states).all()


def test_traffic_goes_round_a_failed_switch_of_an_expander(both) -> None:
    switch = both.fabric.arrays["EP-split-1-out"].first
    found = replan(both, JOB, Failures(switches=frozenset({switch})))
    assert (found.is_whole, found.moved, found.around) == (True, 0, 2)


def test_a_switch_that_no_backup_replaces_is_refused_with_its_fibers() -> None:
    made = build_hall(Hall(2))
    switch = made.fabric.arrays["TP-split-forward"].first
    found = replan(made, JOB, Failures(switches=frozenset({switch})))
    # A 2x2 passes two fibers.
    assert [each.topology for each in found.unjoined] == ["TP", "TP"]


def test_single_offsets_leave_dp_between_unequal_ranks_and_that_is_refused(nodes_only) -> None:
    # Neighbouring racks shift in opposite directions: with nodes 1 and 5 gone, ranks 1 to 4 of the
    # first and of the second rack are two nodes apart, and a diagonal leads one on (§4.3).
    found = replan(nodes_only, JOB, Failures(nodes=frozenset({(0, 1), (1, 5)})))
    assert {each.topology for each in found.unjoined} == {"DP"}
    assert not found.is_whole
    assert replan(nodes_only, JOB, Failures(nodes=frozenset({(0, 5), (1, 1)}))).is_whole


def run(*words: object):
    return CliRunner().invoke(application(str(words[0])), [*map(str, words)])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hall") / "hall.yaml"
    done = run("generate", "acos", "--gpus", 1024, "--output", made)
    assert done.exit_code == 0, done.output
    return made


def test_check_says_what_a_size_cannot_have(file) -> None:
    done = run("check", file)
    assert done.exit_code == 0, done.output
    assert "GPUs         1728  1024 with tasks" in done.stdout
    assert "at 1,024 GPUs the paper makes the pipeline that ring (§5.3)" in done.stderr
    assert "two failed racks of a ring are refused" in done.stderr
    assert "rings of racks merge for PP 4 at one place" in done.stderr
    parts = {
        each["part"]: each["count"] for each in json.loads(run("check", file, "--json").stdout)
    }
    # 41.8 1x4 a GPU (Table 6), and three racks for two.
    assert (parts["racks"], parts["servers"], parts["NIC ports"]) == (24, 216, 216 * 8 * 8)


def test_plan_shows_states_and_what_failures_cost(file) -> None:
    done = run("plan", file, "tp8-pp8-ep64", "--failed", "rack0-node3")
    assert done.exit_code == 0, done.output
    assert "tp8-pp8-ep64: re-formed\n  without rack0-node3: 40 tasks move" in done.stdout
    done = run("plan", file, "tp8-pp8-ep64", "--failed", "rack0", "--failed", "rack1")
    assert done.exit_code == 1
    assert "no setting joins rack1-node0.gpu0.p0 (TP)" in done.stdout
    done = run("plan", file, "tp8-pp4-ep64", "--failed", "rack0-node3")
    assert done.exit_code == 1
    assert "tp8-pp4-ep64: refused, 256 fibers that the job needs cannot be joined" in done.stdout
    document = json.loads(run("plan", file, "tp4-pp4-ep16", "--json").stdout)[0]
    assert document["outcome"] == "as it is"
    assert document["states"]["TP-split-forward"] == {"1": 8 * 24 * 4}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["tp2"], "has no plan 'tp2'; its plans are tp4-pp8-ep64"),
        (["tp8-pp8-ep64", "--failed", "rack24"], "expected racks 0 to 23"),
        (["tp8-pp8-ep64", "--failed", "rack2-node9"], "with nodes 0 to 8"),
        (["tp8-pp8-ep64", "--failed", "ocs1"], "expected rackR, rackR-nodeN or a switch"),
        (["tp8-pp8-ep64", "--failed", "tp-split-forward-8-0-0"], "the last one of its array is"),
    ],
)
def test_names_that_there_are_not_are_refused(file, words, why: str) -> None:
    done = run("plan", file, *words)
    assert done.exit_code == 2
    assert why in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("gpus: 1024", "gpus: 2048", "found 2048, expected gpus of 1024, 4096, 32768"),
        ("node_backups: 1", "nodes: 1", "found the unknown size 'nodes'"),
        ("rack_backups: 1", "rack_backups: 2", "found 2, expected 1, or no rack_backups"),
        ("rack_backups: 1", "rack_backups: 1, double_offsets: 1", "would need a 1x6 switch"),
        ("switches: {}", "switches: {a: {model: polatis, address: 'tl1://a.invalid', size: 4x4}}",
         "expected no switches: they are made of the sizes"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_are_refused(file, tmp_path, old, new, why: str) -> None:
    text = file.read_text()
    assert old in text
    (tmp_path / "other.yaml").write_text(text.replace(old, new))
    done = run("check", tmp_path / "other.yaml")
    assert done.exit_code == 2
    assert why in done.stderr


def test_a_data_centre_is_not_orchestrated(file) -> None:
    done = run("orchestrate", "acos", file)
    assert done.exit_code != 0
    assert "a service drives 18, 72 or 144 GPUs" in done.stderr


def test_failures_are_of_fabrics_of_sizes_alone() -> None:
    done = run("plan", "testbeds/acos.yaml", "--failed", "rack0")
    assert (done.exit_code, done.stderr) == (
        2,
        "--failed is for fabrics of stated sizes; testbeds/acos.yaml has parts\n",
    )
