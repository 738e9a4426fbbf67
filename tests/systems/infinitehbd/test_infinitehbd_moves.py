"""Groups that move: where a job misses some that Algorithm 2 would hold, and nowhere else."""

import itertools
import json
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Outcomes
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import Circuit, load
from tests.campaigns.orchestrations import groups
from tests.campaigns.sequences import most_groups
from tests.campaigns.switchroom import Killed, Switchroom, joined

JOB = {"do": "submit", "job": "a", "shape": {"size": 4, "groups": 5}}
REACH = 2


class Row:
    """24 nodes, K = 2, and a service that can be started again."""

    def __init__(self, folder: Path) -> None:
        (folder / "row.yaml").write_text(render(24, hops=REACH))
        self.testbed = load(folder / "row.yaml")
        self.state = folder / "s.json"
        self.room = Switchroom(self.testbed)
        self.start()

    def start(self) -> None:
        layout = RowLayout(self.testbed)
        self.service = Orchestrator(self.testbed, layout, self.room, self.state)
        self.service.start()

    def ask(self, do: str, *numbers: int) -> Mapping[str, Any]:
        return self.service.request({"do": do, "nodes": nodes(*numbers)})

    def joined_as(self, status: Mapping[str, Any]) -> bool:
        """Whether light joins the neighbours in each group, and no other working nodes."""
        near: dict[str, set[str]] = {node: set() for node in self.testbed.servers}
        for job in status["jobs"].values():
            for group in filter(None, job["groups"]):
                for a, b in itertools.pairwise(group["nodes"]):
                    near[a].add(b)
                    near[b].add(a)
        light = joined(self.testbed, self.room.circuits)
        failed = set(status["faulty"])
        return all(light[n] - failed == near[n] for n in near.keys() - failed)


@pytest.fixture
def row(tmp_path: Path) -> Row:
    return Row(tmp_path)


def nodes(*numbers: int) -> list[str]:
    return [f"node{number}" for number in numbers]


def commanded(room: Switchroom) -> set[str]:
    """The nodes whose modules received a command."""
    return {switch.partition("-")[2] for switch, _ in room.commands}


def test_the_fewest_groups_move_where_all_have_room(row: Row) -> None:
    """Nodes 0, 2, 3 and 8, 10, 11 are left: with the group between them they make two groups."""
    row.service.request(JOB)
    before = groups(row.ask("failed", 1), "a")
    assert before[0] == nodes(20, 21, 22, 23)
    row.room.commands.clear()
    status = row.ask("failed", 9)
    after = groups(status, "a")
    assert [old == new for old, new in zip(before, after, strict=True)] == [1, 0, 0, 1, 1]
    assert sorted(after[1] + after[2]) == sorted(nodes(0, 2, 3, 4, 5, 6, 7, 8))
    job = status["jobs"]["a"]
    assert (job["missing"], job["moved"], job["ready"]) == (0, [1], True)
    assert status["settled"]
    assert row.joined_as(status)
    assert commanded(row.room).isdisjoint(before[0] + before[3] + before[4])


def test_as_many_have_room_as_a_fresh_placement_holds(row: Row) -> None:
    """22 nodes hold five of the six groups, and four stand."""
    row.service.request({**JOB, "shape": {"size": 4, "groups": 6}})
    row.ask("failed", 1)
    status = row.ask("failed", 9)
    job = status["jobs"]["a"]
    assert (job["missing"], len(job["moved"]), status["settled"]) == (1, 1, True)
    assert row.joined_as(status)


def test_nothing_moves_in_a_job_that_keeps_its_groups(row: Row) -> None:
    """22 nodes hold five of the six groups; four stand, so one more would have room."""
    row.service.request({**JOB, "shape": {"size": 4, "groups": 6, "policy": "keep"}})
    before = groups(row.service.status(), "a")
    status = row.ask("failed", 1)
    assert (status["jobs"]["a"]["missing"], status["settled"]) == (1, True)  # 23 nodes hold five
    status = row.ask("failed", 9)
    job = status["jobs"]["a"]
    assert groups(status, "a") == [None, before[1], None, *before[3:]]
    assert (job["missing"], job["moved"], status["settled"]) == (2, [], False)
    row.service.step()
    assert row.service.status()["settled"] is False
    status = row.ask("repaired", 1)
    assert groups(status, "a") == [before[0], before[1], None, *before[3:]]
    assert (status["jobs"]["a"]["moved"], status["settled"]) == ([], True)


def test_groups_of_other_jobs_and_drained_nodes_stay(row: Row) -> None:
    """Three groups on the other side move, where the one beside the failed nodes is drained."""
    row.service.request({**JOB, "nodes": nodes(*range(24))})
    row.ask("failed", 1)
    row.ask("drain", 4)
    before = groups(row.service.status(), "a")
    status = row.ask("failed", 9)
    after = groups(status, "a")
    assert after[1] == before[1] == nodes(4, 5, 6, 7)
    assert (status["jobs"]["a"]["missing"], status["jobs"]["a"]["moved"]) == (0, [0, 3, 4])
    assert status["jobs"]["a"]["within"] == sorted(nodes(*range(24)))
    assert status["settled"]
    row.service.request({"do": "withdraw", "job": "a"})
    row.ask("repaired", 1, 4, 9)
    row.service.request(
        {**JOB, "job": "b", "shape": {"size": 4, "groups": 1}, "nodes": nodes(*range(4, 8))}
    )
    row.ask("failed", 1, 9)
    row.room.commands.clear()
    status = row.service.request({**JOB, "shape": {"size": 4, "groups": 4}})
    assert (groups(status, "b"), status["jobs"]["a"]["missing"]) == ([before[1]], 0)
    assert commanded(row.room).isdisjoint(before[1])


def test_what_moved_is_known_after_a_kill_and_a_restart(row: Row) -> None:
    row.service.request(JOB)
    row.ask("failed", 1)
    row.room.kill_after = 5
    with pytest.raises(Killed):
        row.ask("failed", 9)
    row.room.kill_after = None
    row.start()
    status = row.service.status()
    assert (status["jobs"]["a"]["missing"], status["jobs"]["a"]["moved"]) == (0, [1])
    assert status["settled"]
    assert row.joined_as(status)
    status = row.ask("failed", 12)  # another change, by which no group moves that works
    assert status["jobs"]["a"]["moved"] == []


def test_a_state_of_an_older_release_is_read_and_its_missing_group_placed(row: Row) -> None:
    """In it no group had moved, and a job with room for all could miss one for ever."""
    row.service.request(JOB)
    row.ask("failed", 1)
    document = json.loads(row.state.read_text())
    document["reported"].append("node9")
    document["jobs"][0]["groups"][2] = None
    del document["jobs"][0]["moved"], document["sha256"]
    document["format"] = 1  # without a digest
    row.state.write_text(json.dumps(document))
    row.start()
    status = row.service.status()
    assert (status["jobs"]["a"]["missing"], status["settled"]) == (0, True)


def test_it_is_not_settled_while_groups_move(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    row.service.request(JOB)
    row.ask("failed", 1)
    seen = []
    order = row.room.order

    def ordered(wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        seen.append(row.service.status()["settled"])
        return order(wanted)

    monkeypatch.setattr(row.room, "order", ordered)
    assert row.ask("failed", 9)["settled"]
    assert seen == [False]


def test_it_is_not_settled_where_a_doubt_keeps_a_group_from_its_nodes(row: Row) -> None:
    """All light is gone: the switches answer, and none of their circuits is to change."""
    row.room.monitors, row.room.unlit = "ingress", set(row.testbed.servers)
    row.service.step()
    status = row.service.request(JOB)
    assert "all 24 of the nodes, by their light" in status["doubt"]
    assert (status["jobs"]["a"]["missing"], status["settled"]) == (5, False)
    row.room.unlit = set()
    row.service.step()
    status = row.service.status()
    assert (status["jobs"]["a"]["missing"], status["settled"]) == (0, True)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> RowLayout:
    path = tmp_path_factory.mktemp("row") / "row.yaml"
    path.write_text(render(23, hops=REACH))
    return RowLayout(load(path))


def fewest(survivors: Collection[frozenset[int]], free: set[int], job: Job, size: int) -> int:
    """The fewest of the groups that must move so that there is room for all, by trying all sets."""
    for count in range(len(survivors) + 1):
        for moved in itertools.combinations(survivors, count):
            room = free.union(*moved)
            if len(survivors) - count + most_groups(room, 23, REACH, size) >= len(job.groups):
                return count
    raise AssertionError("all of them moved do not make room")


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_as_few_groups_move_as_can(layout: RowLayout, size: int) -> None:
    """Nodes fail and return at random; each state is compared with all that could move."""
    dice = random.Random(size)
    place = {name: number for number, name in enumerate(layout.nodes)}
    moves = 0
    for _ in range(12):
        most = 23 // size
        count = dice.randint(most - 2, most)
        job = Job("a", {"size": size, "groups": count}, 0, False, False, (None,) * count)
        failed: set[str] = set()
        for _ in range(20):
            failed ^= {dice.choice(layout.nodes)}
            failed ^= {dice.choice(sorted(failed))} if len(failed) > 3 else set()
            job, lost = job.without(frozenset(failed))
            free = frozenset(layout.nodes) - failed - job.nodes
            after = layout.place(job, free, lost, ())
            survivors = [frozenset(place[n] for n in g.nodes) for g in job.groups if g]
            room = {place[node] for node in free}
            moved = sum(g != new for g, new in zip(job.groups, after.groups, strict=True) if g)
            possible = most_groups(room.union(*survivors), 23, REACH, size)
            assert after.missing == max(count - possible, 0)
            if possible >= count:
                assert moved == fewest(survivors, room, job, size)
            found = [node for group in after.groups if group for node in group.nodes]
            assert len(set(found)) == len(found)
            assert failed.isdisjoint(found)
            layout.circuits(after)  # raises where links do not join a group
            moves += moved
            job = after
    assert moves > (0 if size == 2 else 5)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((3, 5, 9), "no link between them"),
        ((2, 5, 8), r"\('node2', 'node5', 'node8'\) cannot be joined"),
    ],
)
def test_nodes_that_cannot_be_joined_get_no_circuits(
    tmp_path: Path, members: tuple[int, ...], reason: str
) -> None:
    """Links lead up to three nodes away, and one module has the farthest of both sides."""
    (tmp_path / "row.yaml").write_text(render(23, hops=3))
    layout = RowLayout(load(tmp_path / "row.yaml"))
    job = Job("a", {"size": 3, "groups": 1}, 0, False, False, (Group(tuple(nodes(2, 5, 7)), {}),))
    assert layout.circuits(job)
    with pytest.raises(OrchestrationError, match=f"job a: .*{reason}"):
        layout.circuits(replace(job, groups=(Group(tuple(nodes(*members)), {}),)))
