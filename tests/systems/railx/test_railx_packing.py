"""Jobs of a number of nodes alone fill grids with failed nodes; Dragonflies, by light."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.planning.packing import rectangles, sides_of
from lightrig.harness.systems.railx.planning.scheduling import pack
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom, beams

SIDE, FAULTS, GRIDS, SEED = 8, 4, 60, 5


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    file = tmp_path_factory.mktemp("railx") / "grid.yaml"
    file.write_text(render(SIDE, SIDE, mesh=1, ports=1))
    return load(file)


def started(fabric, state):
    room = Switchroom(fabric, "ingress")
    running = Orchestrator(fabric, GridLayout(fabric), room, state)
    running.start()
    return running, room


def submit(running, job, **shape):
    return running.request({"do": "submit", "job": job, "shape": shape})["jobs"][job]


@pytest.mark.parametrize("order", ["largest first", "smallest first", "shuffled"])
def test_jobs_of_a_number_of_nodes_use_as_many_as_the_packing(order):
    """60 grids of 8 x 8 with four faults: all nodes of the packing's jobs of two or more."""
    dice, full = random.Random(SEED), 0
    for _ in range(GRIDS):
        faults = [divmod(place, SIDE) for place in dice.sample(range(SIDE**2), FAULTS)]
        jobs = [job.size for job in pack(SIDE, SIDE, faults) if job.size > 1]
        jobs.sort(reverse=order == "largest first")
        if order == "shuffled":
            dice.shuffle(jobs)
        usable = np.ones((SIDE, SIDE), dtype=bool)
        usable[tuple(zip(*faults, strict=True))] = False
        for nodes in jobs:
            found = next(rectangles(usable, sides_of(nodes, SIDE, SIDE)), None)
            if found:
                assert usable[np.ix_(*found)].all()
                assert found.size == nodes
                usable[np.ix_(*found)] = False
        full += SIDE**2 - FAULTS - sum(jobs) == int(usable.sum())
    assert full == GRIDS


def test_the_service_fills_the_grid_of_figure_20(fabric, tmp_path):
    """Four failed nodes, three jobs (appendix A.5): no node that works is left."""
    running, room = started(fabric, tmp_path / "s.json")
    faults = {f"node{column}-{row}" for row, column in [(1, 2), (1, 5), (4, 1), (4, 6)]}
    running.request({"do": "failed", "nodes": sorted(faults)})
    jobs = [
        submit(running, f"job{n}", nodes=nodes, topology="torus")
        for n, nodes in enumerate([48, 6, 6])
    ]
    taken = [node for job in jobs for node in job["groups"][0]["nodes"]]
    assert {*taken} == {*fabric.servers} - faults
    assert len(taken) == 60
    for source, sink in beams(room.testbed, room.circuits):
        assert taken.index(source.owner) // 48 == taken.index(sink.owner) // 48


GRID = st.integers(2, 5).flatmap(
    lambda side: st.lists(st.booleans(), min_size=side**2, max_size=side**2).map(
        lambda cells: np.array(cells).reshape(side, side)
    )
)


@settings(max_examples=80, deadline=None)
@given(GRID, st.integers(2, 12))
def test_a_number_of_nodes_is_found_wherever_a_rectangle_is(usable, nodes):
    side = len(usable)
    exists = any(
        usable[np.ix_(r, c)].all()
        for rows in range(1, side + 1)
        if nodes % rows == 0 and nodes // rows <= side
        for r in itertools.combinations(range(side), rows)
        for c in itertools.combinations(range(side), nodes // rows)
    )
    found = [*rectangles(usable, sides_of(nodes, side, side))]
    assert bool(found) == exists
    assert all(usable[np.ix_(*each)].all() and each.size == nodes for each in found)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"nodes": 11}, "no rectangle on 8 x 8; expected a number such as"),
        ({"nodes": 1}, "shape.nodes"),
        ({"nodes": 66}, "no rectangle"),
        ({"nodes": 4, "columns": 2, "rows": 2}, "expected one of"),
        ({"nodes": 7, "topology": "hyperx"}, "7 x 1: .* of 7 nodes needs 6 rails"),
        ({"columns": 1, "rows": 2, "topology": "dragonfly"}, "two groups or more"),
        # Seven groups need six rings, or three cycles; two nodes have one X-rail each.
        ({"columns": 7, "rows": 2, "topology": "dragonfly"}, "no all-to-all of groups"),
    ],
)
def test_what_no_rectangle_or_dragonfly_can_be_is_refused(fabric, tmp_path, shape, message):
    running, room = started(fabric, tmp_path / "s.json")
    with pytest.raises(OrchestrationError, match=message):
        submit(running, "a", **shape)
    assert not any(room.circuits.values())


@pytest.mark.parametrize(
    ("groups", "size", "links"), [(5, 2, 2), (7, 3, 2), (4, 3, 3), (6, 3, 2), (3, 2, 4)]
)
def test_all_groups_of_a_dragonfly_are_joined(tmp_path, groups, size, links):
    """Section 3.3.3: a group is a column, and each of its X-rails is a ring of its own."""
    import networkx as nx

    (tmp_path / "grid.yaml").write_text(render(8, 4, mesh=2, ports=1))
    fabric = load(tmp_path / "grid.yaml")
    running, room = started(fabric, tmp_path / "s.json")
    running.request({"do": "failed", "nodes": ["node1-1", "node3-0"]})
    job = submit(running, "fly", columns=groups, rows=size, topology="dragonfly")
    nodes = job["groups"][0]["nodes"]
    assert not {"node1-1", "node3-0"} & {*nodes}
    at = {node: divmod(rank, groups) for rank, node in enumerate(nodes)}  # row, group
    local, between = Counter(), Counter()
    for source, sink in beams(room.testbed, room.circuits):
        (row, group), (far_row, far_group) = at[source.owner], at[sink.owner]
        if group == far_group:
            local[group, row, far_row] += 1
        else:
            assert row == far_row
            between[group, far_group] += 1
    pairs = {*itertools.permutations(range(groups), 2)}
    assert between == dict.fromkeys(pairs, links)
    assert {(row, far) for _, row, far in local} == {*itertools.permutations(range(size), 2)}
    graph = nx.Graph((s.owner, t.owner) for s, t in beams(room.testbed, room.circuits))
    assert nx.diameter(graph) <= 3


def test_a_job_goes_where_its_rails_answer(tmp_path):
    """Three nodes joined twice need two rails: one of three answers in row 0, and all in row 1."""
    (tmp_path / "grid.yaml").write_text(render(3, 2, mesh=3, ports=1))
    fabric = load(tmp_path / "grid.yaml")
    running, room = started(fabric, tmp_path / "s.json")
    room.silent = {"xocs0-0", "xocs0-1"}
    for _ in range(2):
        running.step()
    job = submit(running, "a", columns=3, rows=1, topology="hyperx")
    assert job["groups"][0]["nodes"] == ["node0-1", "node1-1", "node2-1"]
    every = submit(running, "b", nodes=3, topology="hyperx")
    assert every["groups"] == [None]


def test_a_job_of_all_nodes_is_as_large_as_its_rails_allow(tmp_path):
    """All six nodes need a rail that answers in both rows: without one, a row of three is left."""
    (tmp_path / "grid.yaml").write_text(render(3, 2, mesh=2, ports=1))
    fabric = load(tmp_path / "grid.yaml")
    running, room = started(fabric, tmp_path / "s.json")
    room.silent = {"xocs0-0", "xocs1-1"}
    for _ in range(2):
        running.step()
    job = submit(running, "all", columns=0, rows=0)
    assert len(job["groups"][0]["nodes"]) == 3
    room.silent = set()
    for _ in range(4):
        running.step()
    assert len(running.status()["jobs"]["all"]["groups"][0]["nodes"]) == 6
