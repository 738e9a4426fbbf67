"""The largest job on a grid with failed nodes, several jobs, and availability."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from lightrig.harness.systems.railx.planning.cross_connects import dark
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.planning.scheduling import (
    Allocation,
    PlacedJob,
    algorithm_2,
    availability,
    brute_force,
    largest_job,
    pack,
    place_jobs,
)
from lightrig.harness.systems.railx.planning.topologies import Axis
from lightrig.suites.claims.railx.setting_changes import Difference

FIXTURES = json.loads(
    Path(__file__).with_name("data").joinpath("max_allocation_fixtures.json").read_text()
)


def test_all_algorithms_find_the_largest_job_of_the_fixtures():
    for case in FIXTURES:
        side, faults = case["n"], [tuple(node) for node in case["faults"]]
        found = {f(side, faults) for f in (algorithm_2, brute_force)}
        assert found | {largest_job(side, faults).size} == {case["max_nodes"]}


def test_algorithm_2_equals_brute_force_on_random_grids():
    draw = random.Random(1)
    for _ in range(300):
        side = draw.randint(1, 10)
        nodes = [(draw.randrange(side), draw.randrange(side)) for _ in range(draw.randint(0, 8))]
        assert algorithm_2(side, nodes) == brute_force(side, nodes) == largest_job(side, nodes).size


def test_the_largest_job_has_no_failed_node():
    draw = random.Random(2)
    for _ in range(50):
        faults = {(draw.randrange(12), draw.randrange(12)) for _ in range(6)}
        job = largest_job(12, faults)
        assert not any(row in job.rows and column in job.columns for row, column in faults)


@pytest.mark.parametrize("pairs", [1, 2, 5])
def test_the_worst_case_loses_a_rows_and_a_columns(pairs):
    diagonal = [(i, i) for i in range(2 * pairs)]
    assert algorithm_2(64, diagonal) == (64 - pairs) ** 2


def test_the_best_case_loses_one_row():
    assert algorithm_2(8, [(3, column) for column in range(8)]) == 7 * 8


def test_repeated_faults_count_once_and_nothing_is_below_zero():
    assert algorithm_2(4, [(1, 1), (1, 1)]) == 12
    assert algorithm_2(1, [(0, 0)]) == 0
    assert largest_job(2, [(0, 0), (1, 1), (0, 1), (1, 0)]).size == 0


def test_a_fault_outside_the_grid_is_refused():
    with pytest.raises(RailxError, match="outside"):
        algorithm_2(4, [(4, 0)])


def test_a_larger_system_is_less_available_and_single_draws_fall_below_90_percent():
    small, large = (availability(side, 0.001, draws=120, seed=1) for side in (8, 64))
    assert small.mean() > large.mean() > 0.9
    assert large.min() < 0.9
    assert np.array_equal(large, availability(64, 0.001, draws=120, seed=1))


@pytest.mark.parametrize(
    ("faults", "jobs"),
    [
        # Two rows or two columns hold all four faults, in either case lost to a single job.
        ([(1, 2), (1, 5), (4, 2), (4, 5)], 2),
        # Two rows; three sub-networks use every node that works.
        ([(1, 2), (1, 5), (4, 1), (4, 6)], 3),
        ([], 1),
    ],
)
def test_several_jobs_use_all_nodes_that_work(faults, jobs):
    packed = pack(8, 8, faults)
    nodes = [(row, column) for job in packed for row in job.rows for column in job.columns]
    assert len(set(nodes)) == len(nodes) == 64 - len(faults)
    assert not set(nodes) & set(faults)
    assert len(packed) == jobs


def test_packing_leaves_nothing_on_random_grids():
    draw = random.Random(3)
    for _ in range(30):
        faults = {(draw.randrange(7), draw.randrange(9)) for _ in range(draw.randint(0, 12))}
        packed = pack(7, 9, faults)
        assert sum(job.size for job in packed) == 63 - len(faults)


RAILS = (0, 1, 2, 3)
FABRIC = RailFabric(mesh=2, ports=2, columns=8, rows=8, radix=16)
FIRST = PlacedJob(
    Allocation((0, 2, 3, 5, 7), (1, 2, 4, 6, 7)),
    (Axis(5, "all-to-all", RAILS),),
    (Axis(5, "all-to-all", RAILS),),
)
SECOND = PlacedJob(
    Allocation((0, 2, 3), (0, 3, 5)), (Axis(3, "ring", RAILS),), (Axis(3, "ring", RAILS),)
)


def test_jobs_in_one_row_share_switches_and_no_port():
    both = place_jobs(FABRIC, [FIRST, SECOND])
    alone = place_jobs(FABRIC, [FIRST])
    change = Difference(both, alone)
    assert change.additions == 0
    assert change.removals == len(place_jobs(FABRIC, [SECOND]))
    assert change.unchanged == len(alone)
    shared = {(c.dimension, c.line, c.rail) for c in change.removed()}
    assert ("x", 0, 0) in shared
    assert alone.cross_connects("x", 0, 0)


def test_a_job_joins_only_its_nodes():
    graph = place_jobs(FABRIC, [FIRST]).node_graph()
    joined = {node for edge in graph.edges() for node in edge}
    rows, columns = FIRST.allocation
    assert joined == {(column, row) for row in rows for column in columns}
    assert Difference(dark(FABRIC), place_jobs(FABRIC, [])).additions == 0


def test_two_jobs_cannot_use_one_node():
    with pytest.raises(RailxError, match="one node"):
        place_jobs(FABRIC, [FIRST, FIRST])
