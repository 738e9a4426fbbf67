"""Why jobs wait, which are refused as impossible, and what a lost switch tells a launcher."""

import json
from collections.abc import Callable, Mapping
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightrig.harness.orchestration.health import HITS, MISSES
from lightrig.harness.orchestration.jobs import ImpossibleError, Job
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.systems.acos.generator import render_rings
from lightrig.harness.systems.infinitehbd.generator import render as render_row
from lightrig.harness.systems.infinitehbd.planning.placement import most_possible
from lightrig.harness.systems.infinitehbd.planning.wiring import k_hop
from lightrig.harness.systems.railx.generator import render as render_grid
from lightrig.harness.systems.railx.planning.rectangles import is_impossible
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom

Start = Callable[[str, str], tuple[Orchestrator, Switchroom]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def started(system: str, text: str) -> tuple[Orchestrator, Switchroom]:
        (tmp_path / "fabric.yaml").write_text(text)
        room = Switchroom(load(tmp_path / "fabric.yaml"), "none")
        layout = installed_systems()[system].load("orchestrator")(room.testbed)
        service = Orchestrator(room.testbed, layout, room, tmp_path / f"{system}.json")
        service.start()
        return service, room

    return started


def submit(service: Orchestrator, job: str, shape: Mapping[str, Any], **more: object) -> Any:
    request = {"do": "submit", "job": job, "shape": shape, **more}
    return service.request(request)["jobs"][job]


def square(columns: int, rows: int) -> dict[str, object]:
    return {"columns": columns, "rows": rows}


PAIR = square(2, 1)


@pytest.mark.parametrize(
    ("system", "text", "shape", "nodes"),
    [
        ("railx", render_grid(4, 3), PAIR, ["node0-0"]),
        ("railx", render_grid(4, 3), square(2, 2), ["node0-0", "node1-1", "node2-2", "node3-0"]),
        ("railx", render_grid(4, 3), square(3, 1), ["node0-0"]),
        ("railx", render_grid(4, 3), square(0, 0), ["node0-0", "node1-1"]),
        ("railx", render_grid(4, 3), square(5, 1), None),
        # Over two nodes at most: 0 and 3 are three apart, 6 and 0 are on a ring of nine.
        ("infinitehbd", render_row(9, hops=2), {"size": 2}, ["node0", "node3", "node6"]),
        ("infinitehbd", render_row(9, hops=2), {"size": 0}, ["node0", "node1", "node2", "node4"]),
        ("infinitehbd", render_row(9, hops=2), {"size": 10}, None),
        ("acos", render_rings(), {"ring": "inner"}, ["gpu0", "gpu1", "gpu2"]),
        ("acos", render_rings(), {"ring": "auto"}, ["gpu0", "gpu1"]),
    ],
)  # fmt: skip
def test_a_job_that_its_nodes_cannot_hold_is_refused_and_holds_back_none(
    start: Start, system: str, text: str, shape: Mapping[str, Any], nodes: list[str] | None
) -> None:
    service, _ = start(system, text)
    before = service.status()
    with pytest.raises(ImpossibleError):
        submit(service, "never", shape, priority=10, **({"nodes": nodes} if nodes else {}))
    assert service.status() is before


def test_a_job_with_just_room_enough_is_not_refused(start: Start) -> None:
    service, _ = start("railx", render_grid(4, 3))
    nodes = ["node0-0", "node2-0", "node0-2", "node2-2", "node1-1"]
    assert submit(service, "a", square(2, 2), nodes=nodes)["missing"] == 0
    # Nodes 2 and 0 are two apart over the end of the ring of nine.
    row, _ = start("infinitehbd", render_row(9, hops=2))
    assert submit(row, "a", {"size": 2}, nodes=["node0", "node2"])["missing"] == 0
    assert submit(row, "b", {"size": 2}, nodes=["node8", "node1"])["missing"] == 0


def test_a_rectangle_is_proved_impossible_where_there_is_none() -> None:
    """Against all rectangles of grids of 4 x 4, drawn."""
    dice = np.random.default_rng(1)
    proved = 0
    for _ in range(150):
        grid = dice.random((4, 4)) < 0.6
        for rows, columns in product((1, 2, 3), repeat=2):
            there = any(
                grid[np.ix_(chosen, places)].all()
                for chosen in combinations(range(4), rows)
                for places in combinations(range(4), columns)
            )
            assert is_impossible(grid, rows, columns) is not there
            proved += not there
    assert proved > 100


def test_a_large_grid_without_a_proof_is_not_called_impossible() -> None:
    dice = np.random.default_rng(2)
    assert not is_impossible(dice.random((40, 40)) < 0.7, 12, 12)


@pytest.mark.parametrize("closed", [True, False])
def test_no_row_has_more_groups_than_are_possible(closed: bool) -> None:
    """Against all ways to choose groups of two or three on rows of nine nodes."""
    dice = np.random.default_rng(3)
    for _ in range(40):
        usable = dice.random(9) < 0.6
        size, reach = int(dice.integers(2, 4)), 2
        row = k_hop(9, reach, closed=closed)
        best = _most(frozenset(np.flatnonzero(usable).tolist()), size, reach, closed)
        assert most_possible(row, usable, size) >= best


def _most(nodes: frozenset[int], size: int, reach: int, closed: bool) -> int:
    """Return the most groups of nodes, each with links over `reach` between neighbours."""

    def near(one: int, two: int) -> bool:
        apart = (two - one) % 9 if closed else two - one
        return 0 < apart <= reach

    if not nodes:
        return 0
    first = min(nodes)
    best = _most(nodes - {first}, size, reach, closed)
    for others in combinations(sorted(nodes - {first}), size - 1):
        group = sorted((first, *others))
        turns = [group[n:] + group[:n] for n in range(size)] if closed else [group]
        if any(all(near(*pair) for pair in pairwise(turn)) for turn in turns):
            best = max(best, 1 + _most(nodes - set(group), size, reach, closed))
    return best


# ---------------------------------------------------------------------- reasons


def test_a_job_that_waits_for_nodes_names_them_and_who_has_them(start: Start) -> None:
    service, _ = start("railx", render_grid(4, 3))
    submit(service, "a", square(4, 2))
    service.request({"do": "drain", "nodes": ["node0-2"]})
    service.request({"do": "failed", "nodes": ["node1-2"]})
    reason = submit(service, "b", square(4, 1))["reason"]
    assert reason == {
        "code": "nodes-missing",
        "detail": "2 of the 12 nodes that it may have are free and work; failed: node1-2 "
        "(reported); drained: node0-2; in jobs: a",
    }
    assert service.status()["jobs"]["a"]["reason"] is None
    service.request({"do": "repaired", "nodes": ["node0-2", "node1-2"]})
    assert service.status()["jobs"]["b"]["reason"] is None


def test_a_job_behind_one_of_a_greater_priority_names_it(start: Start) -> None:
    service, _ = start("railx", render_grid(4, 3))
    submit(service, "a", square(4, 2))
    submit(service, "high", square(4, 2), priority=7)
    reason = submit(service, "low", PAIR)["reason"]
    assert reason == {"code": "priority", "detail": "job high of priority 7 waits"}


def test_a_job_that_a_silent_switch_keeps_waiting_names_it(start: Start) -> None:
    """The only rail of row 0: hyperx insists on more rails than are left."""
    service, room = start("railx", render_grid(4, 1, mesh=2, ports=1))
    rails = sorted(name for name in room.circuits if name.startswith("xocs0-"))
    room.silent = set(rails[1:])
    for _ in range(MISSES):
        service.step()
    shape = {**square(4, 1), "topology": "single-link"}
    reason = submit(service, "a", shape)["reason"]
    assert reason["code"] == "switch-silent"
    assert f"{rails[1]}: " in reason["detail"]
    room.silent = set()
    for _ in range(HITS):
        service.step()
    assert service.status()["jobs"]["a"]["reason"] is None


def test_a_job_in_a_doubt_says_so(start: Start) -> None:
    service, room = start("infinitehbd", render_row(9, hops=2))
    room.silent = set(room.circuits)
    service.step()
    found = submit(service, "a", {"size": 2})
    assert found["reason"]["code"] == "doubt"
    assert found["reason"]["detail"] == service.status()["doubt"]


def test_groups_that_stay_are_the_reason_where_there_is_room(start: Start) -> None:
    """Of twelve nodes 1, 4 and 10 fail: 0 2 3, 5 6 7 and 8 9 11 would have links, 5 9 11 none."""
    service, room = start("infinitehbd", render_row(12, hops=2))
    submit(service, "a", {"size": 3, "groups": 3, "policy": "keep"})
    for dead in ((1, 4), (1, 4, 10)):
        room.silent = {f"trx{bundle}-node{node}" for node in dead for bundle in (0, 1)}
        for _ in range(MISSES):
            service.step()
    job = service.status()["jobs"]["a"]
    assert [group and group["nodes"] for group in job["groups"]] == [
        None,
        ["node0", "node2", "node3"],
        ["node6", "node7", "node8"],
    ]
    assert job["reason"]["code"] == "groups-stay"


def test_what_is_not_found_and_not_proved_holds_back_no_other(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that misses a place, as one for rectangles may: the job waits alone."""
    service, _ = start("railx", render_grid(4, 3))
    place = service.layout.place

    def misses(job: Job, *given: Any) -> Job:
        return job if job.name == "odd" else place(job, *given)

    monkeypatch.setattr(service.layout, "place", misses)
    found = submit(service, "odd", square(2, 2), priority=10)
    assert found["reason"]["code"] == "not-found"
    assert "on the 12 nodes that it may have" in found["reason"]["detail"]
    for name in ("a", "b"):
        assert submit(service, name, PAIR)["missing"] == 0


def test_an_impossible_job_of_an_older_state_holds_back_no_other(
    start: Start, tmp_path: Path
) -> None:
    service, room = start("railx", render_grid(4, 3))
    submit(service, "a", PAIR, nodes=["node0-0", "node1-0", "node0-1", "node1-1"], priority=9)
    service.request({"do": "failed", "nodes": ["node0-0"]})
    document = json.loads((tmp_path / "railx.json").read_text())
    (job,) = document["jobs"]
    job.update(groups=[None], within=["node0-0"])
    document.update(format=1)  # of files without a digest
    del document["sha256"]
    (tmp_path / "railx.json").write_text(json.dumps(document))
    again = Orchestrator(room.testbed, service.layout, room, tmp_path / "railx.json")
    again.start()
    assert again.status()["jobs"]["a"]["reason"]["code"] == "not-found"
    assert submit(again, "b", PAIR)["missing"] == 0


# ---------------------------------------------------------------------- lost switches


def test_a_lost_rail_raises_the_epoch_of_its_jobs_and_leaves_their_rings(start: Start) -> None:
    service, room = start("railx", render_grid(4, 3))
    submit(service, "big", square(4, 1), nodes=[f"node{i}-0" for i in range(4)])
    submit(service, "apart", square(4, 1), nodes=[f"node{i}-2" for i in range(4)])
    before = service.status()["jobs"]
    lost = before["big"]["groups"][0]["details"]["x"]["rails"][0]
    ports = {
        link["port"]
        for rank in service.links("big")[0]["ranks"]
        for link in rank["links"]
        if link["port"].startswith(f"x{lost}.")
    }
    assert ports
    room.silent = {f"xocs0-{lost}"}
    for _ in range(MISSES):
        service.step()
    after = service.status()
    assert after["jobs"]["big"]["epoch"] > before["big"]["epoch"]
    assert after["jobs"]["apart"]["epoch"] == before["apart"]["epoch"]
    assert after["jobs"]["big"]["ready"]
    assert after["jobs"]["big"]["without"] == [f"xocs0-{lost}"]
    left = {link["port"] for rank in service.links("big")[0]["ranks"] for link in rank["links"]}
    assert left
    assert not left & ports
    room.silent = set()
    for _ in range(HITS):
        service.step()
    back = service.status()["jobs"]["big"]
    assert back["epoch"] > after["jobs"]["big"]["epoch"]
    assert back["without"] == []
    again = {link["port"] for rank in service.links("big")[0]["ranks"] for link in rank["links"]}
    assert ports <= again
    events = [event["event"] for event in service.wanted.history]
    assert f"job big goes on without xocs0-{lost}" in events
    assert f"job big may use again xocs0-{lost}" in events
