"""The loop of an orchestrator on switches in memory: hysteresis, doubt, priorities, restarts."""

import json
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.orchestration import orchestrator
from lightrig.harness.orchestration.health import HITS, MISSES, MORE_MISSES, Health
from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.journal import digest_of
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Outcomes
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import Circuit, Testbed, load
from tests.campaigns import sequences
from tests.campaigns.switchroom import Killed, Switchroom

LOOPBACK = frozenset({Circuit(1, 4)})
Groups = list[list[str] | None]


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    (tmp_path / "row.yaml").write_text(render(9, hops=2))
    return load(tmp_path / "row.yaml")


@pytest.fixture
def room(testbed: Testbed) -> Switchroom:
    return Switchroom(testbed)


@pytest.fixture
def start(room: Switchroom, tmp_path: Path) -> Callable[[], Orchestrator]:
    def started() -> Orchestrator:
        service = Orchestrator(room.testbed, RowLayout(room.testbed), room, tmp_path / "s.json")
        service.start()
        return service

    return started


class Opening(Switchroom):
    """Switches of which some have no session yet."""

    opening: frozenset[str] = frozenset()

    def probe(self, names: Collection[str]) -> Outcomes:
        return super().probe([name for name in names if name not in self.opening])


def test_a_switch_without_a_session_is_neither_failed_nor_given_orders(
    testbed: Testbed, tmp_path: Path
) -> None:
    """As when a service begins again: its jobs stay where they are until all has been read."""
    room = Opening(testbed)
    service = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    service.start()
    before = submit(service, "a", 3)
    room.opening, room.circuits["trx0-node1"] = frozenset({"trx0-node1"}), frozenset()
    again = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    again.start()
    for _ in range(MISSES + 1):
        again.step()
    status = again.status()
    assert (groups_of(status, "a"), status["faulty"], status["settled"]) == (before, {}, False)
    assert room.circuits["trx0-node1"] == frozenset()
    room.opening = frozenset()
    again.step()
    assert room.circuits["trx0-node1"]
    assert again.status()["settled"]


def submit(service: Orchestrator, job: str, size: int, groups: int = 1, **more: Any) -> Groups:
    shape = {"size": size, "groups": groups}
    return groups_of(service.request({"do": "submit", "job": job, "shape": shape, **more}), job)


def groups_of(status: Mapping[str, Any], job: str) -> Groups:
    return [group and group["nodes"] for group in status["jobs"][job]["groups"]]


def nodes(*numbers: int) -> list[str]:
    return [f"node{number}" for number in numbers]


def modules(*numbers: int) -> set[str]:
    return {f"trx{bundle}-node{number}" for number in numbers for bundle in (0, 1)}


def test_probes_begin_a_period_after_one_another_however_long_they_take(
    start: Callable[[], Orchestrator], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, now, waits = start(), 100_000_000_000, list[float]()
    lasts = iter([250_000_000, 3_000_000_000, 500_000_000])

    def step() -> None:
        nonlocal now
        now += next(lasts)

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) == 4

    monkeypatch.setattr(service, "step", step)
    monkeypatch.setattr(orchestrator, "boot_time", lambda: now)
    service.run(Over(), 2.0)
    assert waits == [2.0, 1.75, 0.0, 1.5]


def test_a_group_that_did_not_fail_keeps_nodes_order_and_number(start, room) -> None:
    service = start()
    assert submit(service, "a", 3, 2) == [nodes(0, 1, 2), nodes(3, 4, 5)]
    room.silent = modules(1)
    room.commands.clear()
    for _ in range(MISSES):
        service.step()
    status = service.status()
    assert groups_of(status, "a") == [nodes(6, 7, 8), nodes(3, 4, 5)]
    assert list(status["faulty"]) == ["node1"]
    assert "did not answer; within 1 s" in status["faulty"]["node1"]
    assert not {switch for switch, _ in room.commands} & modules(3, 4, 5)


def test_one_missed_probe_moves_nothing(start, room) -> None:
    service = start()
    before = submit(service, "a", 3)
    room.silent = modules(1)
    service.step()
    assert not service.status()["settled"]  # what the modules hold is not known
    room.silent = set()
    service.step()
    status = service.status()
    assert (status["faulty"], groups_of(status, "a"), status["settled"]) == ({}, before, True)


def test_what_returns_is_used_again_without_a_request(start, room) -> None:
    service = start()
    submit(service, "a", 3, 3)
    room.silent = modules(1)
    for _ in range(MISSES):
        service.step()
    assert groups_of(service.status(), "a") == [None, nodes(3, 4, 5), nodes(6, 7, 8)]
    room.silent = set()
    for _ in range(HITS - 1):
        service.step()
    assert groups_of(service.status(), "a")[0] is None
    service.step()
    assert groups_of(service.status(), "a")[0] == nodes(0, 1, 2)
    assert service.status()["settled"]


def test_where_all_are_silent_nothing_is_placed_and_the_reason_is_stated(start, room) -> None:
    service = start()
    before = submit(service, "a", 3, 2)
    room.silent = set(room.circuits)
    for _ in range(5):
        service.step()
    assert "all 18 of the switches fell silent at once" in service.status()["doubt"]
    assert service.status()["faulty"] == {}
    assert submit(service, "b", 2) == [None]
    room.silent = modules(7, 8)  # they answer later than the others
    service.step()
    assert service.status()["doubt"] is None
    room.silent = set()
    service.step()
    status = service.status()
    assert (groups_of(status, "a"), status["faulty"]) == (before, {})
    assert groups_of(status, "b") == [nodes(6, 7)]


def test_what_falls_silent_over_two_rounds_by_one_cause_is_no_failure() -> None:
    health = Health({"rack": frozenset("abc")})
    health.note({"a": "silent", "b": "silent"}, {"c"})
    health.note(dict.fromkeys("abc", "silent"), set())
    assert (health.failed, "all 3 of rack" in str(health.doubt)) == ({}, True)
    health.note({"b": "silent"}, {"a", "c"})
    assert (health.failed, health.doubt) == ({}, None)
    # Attempts that began while all were silent may last longer than a probe.
    for _ in range(MISSES + MORE_MISSES):
        assert health.failed == {}
        health.note({"b": "silent"}, {"a", "c"})
    assert health.failed == {"b": "silent"}


def test_half_of_all_silent_fail_and_one_host_of_several_nodes_does_not(tmp_path: Path) -> None:
    text = render(8, hops=2)
    (tmp_path / "row.yaml").write_text(text)
    testbed = load(tmp_path / "row.yaml")
    room = Switchroom(testbed)
    service = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    service.start()
    room.silent = modules(0, 1, 2, 3)
    for _ in range(MISSES):
        service.step()
    assert list(service.status()["faulty"]) == nodes(0, 1, 2, 3)


def test_what_flaps_is_believed_later_each_time() -> None:
    health = Health({})
    rounds = []
    for _ in range(3):
        for _ in range(MISSES):
            health.note({"a": "silent"}, set())
        rounds.append(0)
        while "a" in health.failed:
            health.note({}, {"a"})
            rounds[-1] += 1
    assert rounds == [3, 6, 12]


def test_a_module_that_takes_no_order_fails_its_node(start, room) -> None:
    room.refusing = {"trx0-node1"}
    service = start()
    for _ in range(MISSES):
        service.step()
    status = service.status()
    assert status["faulty"] == {"node1": "trx0-node1: trx0-node1 takes no order"}
    assert submit(service, "a", 3) == [nodes(0, 2, 3)]


def test_a_foreign_change_is_undone(start, room) -> None:
    service = start()
    submit(service, "a", 3)
    before = dict(room.circuits)
    room.circuits["trx0-node1"] = LOOPBACK
    service.step()
    assert room.circuits == before


def test_priority_goes_first_and_nothing_of_a_lower_one_passes_what_waits(start, room) -> None:
    service = start()
    submit(service, "low", 4)
    assert submit(service, "high", 6, priority=5) == [None]
    assert submit(service, "small", 2) == [None]  # there is room, but high waits
    status = service.request({"do": "withdraw", "job": "low"})
    assert groups_of(status, "high") == [nodes(0, 1, 2, 3, 4, 5)]
    assert groups_of(status, "small") == [nodes(6, 7)]


def test_a_gang_gets_all_groups_or_none(start) -> None:
    service = start()
    submit(service, "a", 4)
    assert submit(service, "gang", 2, 3, gang=True) == [None] * 3
    assert submit(service, "loose", 2, 3) == [nodes(4, 5), nodes(6, 7), None]


def test_drained_nodes_keep_their_groups_and_get_none(start) -> None:
    service = start()
    submit(service, "a", 2)
    status = service.request({"do": "drain", "nodes": nodes(0, 2, 3)})
    assert groups_of(status, "a") == [nodes(0, 1)]
    assert submit(service, "b", 2) == [nodes(4, 5)]
    service.request({"do": "repaired", "nodes": nodes(3)})
    assert submit(service, "c", 2) == [nodes(3, 6)] or submit(service, "c", 2) == [nodes(6, 7)]


def test_a_reservation_has_nodes_and_no_circuits_until_it_is_submitted(start, room) -> None:
    service = start()
    assert submit(service, "later", 3, reserve=True) == [nodes(0, 1, 2)]
    assert set(room.circuits.values()) == {LOOPBACK}
    assert not service.status()["jobs"]["later"]["ready"]
    assert submit(service, "other", 2) == [nodes(3, 4)]
    submit(service, "later", 3)
    assert room.circuits["trx0-node0"] != LOOPBACK
    assert service.status()["jobs"]["later"]["ready"]


def test_a_job_has_none_but_the_nodes_that_it_may_have(start, room) -> None:
    """Also after a failure and a restart; while it waits, a job of any nodes is placed."""
    service = start()
    assert submit(service, "a", 2, nodes=nodes(3, 4, 5)) == [nodes(3, 4)]
    assert submit(service, "b", 2, nodes=nodes(4, 5)) == [None]
    with pytest.raises(OrchestrationError, match=r"nodes \['node4', 'node5'\]: withdraw it first"):
        submit(service, "b", 2)
    service = start()
    room.silent = modules(3)
    for _ in range(MISSES):
        service.step()
    assert groups_of(service.status(), "a") == [nodes(4, 5)]
    assert submit(service, "c", 2) == [nodes(6, 7)]
    status = service.request({"do": "failed", "nodes": nodes(5)})
    assert groups_of(status, "a") == [None]
    assert status["jobs"]["a"]["within"] == nodes(3, 4, 5)
    assert status["jobs"]["c"]["within"] is None


@pytest.mark.parametrize("kill_after", [0, 1, 2, 5])
def test_a_killed_service_continues_from_its_journal(start, room, kill_after: int) -> None:
    service = start()
    submit(service, "a", 3)
    room.kill_after = kill_after
    with pytest.raises(Killed):
        submit(service, "b", 4)
    room.kill_after = None
    again = start()
    status = again.status()
    assert groups_of(status, "b") == [nodes(3, 4, 5, 6)]
    assert status["settled"]
    assert status["epoch"] > service.status()["epoch"]
    room.commands.clear()
    assert submit(again, "b", 4) == [nodes(3, 4, 5, 6)]
    assert room.commands == []


SHAPE = {"size": 2}
TREE = {"per_tor": 2, "per_domain": 4}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"do": "nothing"}, "do"),
        ([], "request"),
        ({"do": "submit", "job": "a"}, "shape: Field required"),
        ({"do": "submit", "job": "", "shape": SHAPE}, "job: "),
        ({"do": "submit", "job": None, "shape": SHAPE}, "job: "),
        ({"do": "submit", "job": "a/b", "shape": SHAPE}, "job: "),
        ({"do": "submit", "job": "a", "shape": {"size": 2.9}}, "shape.size: "),
        ({"do": "submit", "job": "a", "shape": {"size": float("inf")}}, "shape.size: "),
        ({"do": "submit", "job": "a", "shape": {"size": 10**30}}, "shape.size: "),
        ({"do": "submit", "job": "a", "shape": {"size": True}}, "shape.size: "),
        ({"do": "submit", "job": "a", "shape": {"size": "2"}}, "shape.size: "),
        ({"do": "submit", "job": "a", "shape": {"size": 10}}, "10 nodes, of 9"),
        ({"do": "submit", "job": "a", "shape": {"size": 2, "groups": 0}}, "shape.groups: "),
        ({"do": "submit", "job": "a", "shape": {}}, "one of size, in nodes, and gpus"),
        ({"do": "submit", "job": "a", "shape": {"gpus": 6}}, "a multiple of the 4"),
        ({"do": "submit", "job": "a", "shape": SHAPE, "when": "now"}, "when: Extra"),
        ({"do": "submit", "job": "a", "shape": {"size": 2, "x": 1}}, "shape.x: Extra"),
        (
            {"do": "submit", "job": "a", "shape": {**SHAPE, "fat_tree": TREE}},
            "fat_tree, which belongs to the fabric's file",
        ),
        ({"do": "submit", "job": "a", "shape": SHAPE, "nodes": []}, "nodes: "),
        ({"do": "submit", "job": "a", "shape": SHAPE, "nodes": ["node9"]}, "found node 'node9'"),
        ({"do": "failed", "nodes": "node3"}, "nodes: "),
        ({"do": "failed", "nodes": ["node9"]}, "found node 'node9'"),
        ({"do": "failed", "nodes": []}, "nodes: "),
        ({"do": "withdraw", "job": "a"}, "found no job a"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_and_changes_nothing(start, tmp_path, request_, message) -> None:
    service = start()
    before = service.status()
    with pytest.raises(OrchestrationError, match=message):
        service.request(request_)
    assert service.status() is before
    assert not (tmp_path / "s.json").exists()


def test_another_job_of_a_name_is_refused(start) -> None:
    service = start()
    submit(service, "a", 2)
    with pytest.raises(OrchestrationError, match="withdraw it first"):
        submit(service, "a", 3)


def damaged(document: dict[str, Any], how: str) -> None:
    a, b = document["jobs"]
    match how:
        case "two jobs on one node":
            b["groups"][0]["nodes"] = ["node2", "node3"]
        case "node twice":
            a["groups"][0]["nodes"] = ["node0", "node1", "node1"]
        case "node 50":
            b["groups"][0]["nodes"] = ["node50", "node51"]
        case "faulty 99":
            document["reported"] = ["node99"]
        case "switch 99":
            document["silent"] = {"trx0-node99": "silent"}
        case "far apart":
            b["groups"][0]["nodes"] = ["node4", "node8"]
        case "within 99":
            b["within"] = ["node99"]
        case "moved":
            b["moved"] = [None]
        case "size":
            b["shape"]["size"] = 1e999
        case "groups":
            b["groups"] = []
        case "names":
            b["job"] = "a"
        case "format":
            document["format"] = 99
        case "null":
            document["jobs"] = None
        case "epoch":
            document["epoch"] = float("inf")


@pytest.mark.parametrize(
    "how",
    ["two jobs on one node", "node twice", "node 50", "faulty 99", "switch 99", "far apart",
     "within 99", "moved", "size", "groups", "names", "format", "null", "epoch"],
)  # fmt: skip
def test_a_damaged_state_is_refused_and_drives_nothing(start, room, tmp_path, how: str) -> None:
    service = start()
    submit(service, "a", 3)
    submit(service, "b", 2)
    document = json.loads((tmp_path / "s.json").read_text())
    damaged(document, how)
    document["sha256"] = digest_of({k: v for k, v in document.items() if k != "sha256"})
    (tmp_path / "s.json").write_text(json.dumps(document))
    room.commands.clear()
    with pytest.raises(OrchestrationError, match="is no state of this fabric"):
        start()
    assert room.commands == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"jobs": []}', "[" * 100_000])
def test_a_file_that_is_no_state_is_refused(start, tmp_path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(OrchestrationError, match="is no state of this fabric"):
        start()


@pytest.mark.parametrize("case", sequences.CASES, ids=lambda case: case.name)
def test_random_sequences_converge_and_touch_nothing_else(case, tmp_path: Path) -> None:
    """With `python -m tests.campaigns sequences` 500 times for each system."""
    testbed = case.testbed(tmp_path)
    for seed in range(4):
        problems, _ = sequences.run(case, seed, tmp_path, testbed)
        assert problems == []


def test_a_command_for_a_circuit_of_a_job_that_did_not_change_is_found(tmp_path: Path) -> None:
    """The switch is behind the one at a server's port: only the light tells whose circuit it is."""
    case = sequences.CASES[2]
    room = Switchroom(case.testbed(tmp_path))
    sequence = sequences.Sequence(case, 0, room, tmp_path / "s.json")
    sequence.asked({"do": "submit", "job": "a", "shape": {"ring": "inner"}})
    sequence.service.step()
    sequence.touched(sequence.service.status())
    room.commands[:] = [("outer-skip-out-0-0", Circuit(1, 3))]  # leads no light of the ring
    assert sequence.touched(sequence.service.status()) == []
    room.commands[:] = [("inner-skip-out-0-0", Circuit(1, 2))]
    (found,) = sequence.touched(sequence.service.status())
    assert found == (f"inner-skip-out-0-0 {Circuit(1, 2)} of ['gpu0', 'gpu1'] was changed")


def test_light_that_returns_is_seen_where_no_circuit_was_left_on_its_line(tmp_path: Path) -> None:
    """A row whose monitors are at the egress ports, and whose nodes were all in the lost job."""
    case = sequences.CASES[1]
    assert sequences.run(case, 379, tmp_path, case.testbed(tmp_path))[0] == []
