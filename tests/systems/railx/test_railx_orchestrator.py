"""Jobs of RailX on its grid: which nodes they get, how lines are joined, and what failures cost."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.planning.packing import rectangles
from lightrig.harness.systems.railx.planning.scheduling import (
    Allocation,
    brute_force,
    largest_allocation,
)
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom, joined

ROOT = Path(__file__).parents[3]


def started(
    file: Path, tmp_path: Path, monitors: str = "ingress"
) -> tuple[Orchestrator, Switchroom]:
    testbed = load(file)
    room = Switchroom(testbed, monitors)
    running = Orchestrator(testbed, GridLayout(testbed), room, tmp_path / "s.json")
    running.start()
    return running, room


@pytest.fixture
def five(tmp_path: Path) -> tuple[Orchestrator, Switchroom]:
    return started(ROOT / "testbeds" / "railx5.yaml", tmp_path)


@pytest.fixture
def grid(tmp_path: Path) -> tuple[Orchestrator, Switchroom]:
    (tmp_path / "grid.yaml").write_text(render(5, 4))
    return started(tmp_path / "grid.yaml", tmp_path)


def submit(running: Orchestrator, job: str, columns: int, rows: int, topology: str = "auto") -> Any:
    shape = {"columns": columns, "rows": rows, "topology": topology}
    return running.request({"do": "submit", "job": job, "shape": shape})["jobs"][job]


def test_all_nodes_are_joined_by_the_first_kind_that_is_possible(five) -> None:
    running, room = five
    (group,) = submit(running, "all", 0, 0)["groups"]
    assert group["nodes"] == [f"node{i}-0" for i in range(5)]
    assert group["details"]["x"] == {"kind": "all-to-all", "rails": [0, 1, 2, 3], "reason": None}
    assert joined(room.testbed, room.circuits)["node0-0"] == {f"node{i}-0" for i in range(1, 5)}


def test_a_node_without_light_is_left_out_and_taken_in_again(five) -> None:
    running, room = five
    submit(running, "all", 0, 0)
    room.unlit = {"node2-0"}
    for _ in range(2):
        running.step()
    status = running.status()
    assert status["faulty"] == {"node2-0": "no light at 8 ports, such as xocs0-0 port 5"}
    (group,) = status["jobs"]["all"]["groups"]
    assert group["nodes"] == ["node0-0", "node1-0", "node3-0", "node4-0"]
    # Of 4 nodes no all-to-all with two links a pair exists (Lemma 3.1).
    assert group["details"]["x"]["kind"] == "single-link"
    assert "no Hamiltonian decomposition" in group["details"]["x"]["reason"]
    assert joined(room.testbed, room.circuits)["node0-0"] == {"node1-0", "node3-0", "node4-0"}
    room.unlit = set()
    for _ in range(3):
        running.step()
    assert len(running.status()["jobs"]["all"]["groups"][0]["nodes"]) == 5


def test_light_is_seen_at_egress_ports_too_and_a_loop_shows_that_it_is_back(tmp_path: Path) -> None:
    running, room = started(ROOT / "testbeds" / "railx5.yaml", tmp_path, "egress")
    submit(running, "all", 0, 0)
    room.unlit = {"node2-0"}
    for _ in range(5):
        running.step()
    assert len(running.status()["jobs"]["all"]["groups"][0]["nodes"]) == 4
    assert joined(room.testbed, room.circuits)["node2-0"] == set()
    room.unlit = set()
    for _ in range(4):
        running.step()
    status = running.status()
    assert len(status["jobs"]["all"]["groups"][0]["nodes"]) == 5
    assert (status["faulty"], status["settled"]) == ({}, True)


def test_a_dead_switch_costs_one_rail_and_no_other_circuit(five) -> None:
    running, room = five
    submit(running, "all", 5, 1, "torus")
    room.silent, before = {"xocs0-1"}, dict(room.circuits)
    room.commands.clear()
    for _ in range(3):
        running.step()
    status = running.status()
    assert (status["jobs"]["all"]["without"], status["settled"]) == (["xocs0-1"], True)
    assert status["jobs"]["all"]["ready"]
    assert (room.commands, room.circuits) == ([], before)
    # A job that comes now is joined by the rails that answer, and by all when it is back.
    running.request({"do": "withdraw", "job": "all"})
    assert submit(running, "new", 5, 1)["groups"][0]["details"]["x"]["kind"] == "single-link"
    room.silent = set()
    for _ in range(4):
        running.step()
    assert running.status()["jobs"]["new"]["without"] == []
    assert len(room.circuits["xocs0-1"]) == 10


def test_a_failed_node_costs_one_column_and_the_others_keep_their_places(grid) -> None:
    running, room = grid
    first = submit(running, "first", 3, 2)["groups"][0]["nodes"]
    submit(running, "second", 3, 2)
    assert first == ["node0-0", "node1-0", "node2-0", "node0-1", "node1-1", "node2-1"]
    room.unlit = {"node1-0"}
    for _ in range(2):
        running.step()
    jobs = running.status()["jobs"]
    moved = jobs["first"]["groups"][0]["nodes"]
    assert [moved[n] for n in (0, 2, 3, 5)] == [first[n] for n in (0, 2, 3, 5)]
    assert moved[1] == "node3-0"
    assert moved[4] == "node3-1"
    assert jobs["second"]["groups"][0]["nodes"][0] == "node0-2"


@pytest.mark.parametrize(
    ("columns", "rows", "topology", "message"),
    [
        (6, 1, "auto", "6 x 1 nodes, of 5 x 4"),
        (1, 1, "auto", "expected two or more"),
        (0, 2, "auto", "0 x 2 nodes"),
        (4, 1, "hyperx", "no Hamiltonian decomposition"),
        (2, 2, "mesh", "shape.topology"),
        (2.5, 2, "auto", "shape.columns"),
    ],
)
def test_a_job_that_the_grid_cannot_hold_is_refused(grid, columns, rows, topology, message) -> None:
    with pytest.raises(OrchestrationError, match=message):
        submit(grid[0], "a", columns, rows, topology)


GRIDS = st.integers(2, 5).flatmap(
    lambda side: st.lists(st.booleans(), min_size=side * side, max_size=side * side).map(
        lambda cells: np.array(cells).reshape(side, side)
    )
)


@settings(max_examples=80, deadline=None)
@given(GRIDS, st.integers(1, 4), st.integers(1, 4))
def test_a_rectangle_is_found_on_usable_nodes_alone(usable, rows, columns) -> None:
    found = next(rectangles(usable, [(rows, columns)]), None)
    side = len(usable)
    exists = any(
        usable[np.ix_(r, c)].all()
        for r in itertools.combinations(range(side), min(rows, side + 1))
        for c in itertools.combinations(range(side), min(columns, side + 1))
    )
    if found is not None:
        assert usable[np.ix_(*found)].all()
        assert (len(found.rows), len(found.columns)) == (rows, columns)
    assert (found is not None) == exists


@settings(max_examples=60, deadline=None)
@given(GRIDS)
def test_the_largest_allocation_is_a_largest(usable) -> None:
    found = largest_allocation(usable)
    most = brute_force(len(usable), map(tuple, np.argwhere(~usable).tolist()))
    assert (found.size if found else 0) == most
    assert found is None or usable[np.ix_(*found)].all()


def test_what_fails_is_replaced_by_the_fewest_nodes() -> None:
    usable = np.ones((4, 6), dtype=bool)
    usable[1, 2] = usable[2, 2] = False
    before = Allocation((0, 1, 2), (1, 2, 3))
    # One column of three nodes instead of two rows of six.
    assert next(rectangles(usable, [(3, 3)], before)) == Allocation((0, 1, 2), (1, 0, 3))
