"""Clusters of 16 to 144 GPUs: topologies traced from switch states, with and without failures."""

import dataclasses
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from lightrig.harness.systems.acos.planning.failures import outcome, recover, suspects
from lightrig.harness.systems.acos.planning.optics import CROSS, FabricError, selected
from lightrig.harness.systems.acos.planning.rack import Degrees
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported, topology_errors
from lightrig.harness.systems.acos.planning.rings import BACKUP, MERGES, NODES, shifted
from lightrig.suites.claims.acos.claims import rack


def pairs_of_gpus(rack, degrees):
    """Number of pairs of failed GPUs by what becomes of the job."""
    found, known = Counter(), {}
    for pair in combinations(range(rack.spec.gpus), 2):
        units = frozenset(rack.node_of(gpu) for gpu in pair)
        if units not in known:
            known[units] = outcome(recover(rack, degrees, pair))
        found[known[units]] += 1
    return dict(found)


@pytest.mark.parametrize("name", ["16", "64"])
def test_every_parallelism_gives_the_topologies_asked_for(name):
    made = rack(name)
    jobs = supported(made.spec)
    assert len(jobs) == {"16": 2, "64": 16}[name]
    for job in jobs:
        assert job.tp * job.pp * job.dp == int(name)
        assert topology_errors(made, configure(made, job)) == []


@pytest.mark.parametrize(
    ("array", "topology"),
    [("TP-split-forward", "TP"), ("DP-stages-reverse", "DP"), ("EP-split-out", "EP")],
)
def test_one_switch_in_the_wrong_state_is_found(array, topology):
    made = rack("64")
    plan = configure(made, Degrees(8, 4, 2, 16))
    states = plan.states.copy()
    made.fabric.of(states, array).reshape(-1)[0] = CROSS
    errors = topology_errors(made, dataclasses.replace(plan, states=states))
    assert [error.partition(":")[0] for error in errors] == [topology]


def test_switches_that_would_darken_more_fibers_are_not_suspected():
    """One dark fiber is explained by switches that no other lit fiber passes."""
    made = rack("16")
    plan = configure(made, Degrees(4, 1, 4))
    crossed = made.fabric.crossed(selected(made.fabric, plan.states, plan.choice["TP"]))
    sizes = Counter(len(fibers) for fibers in crossed.values())
    assert sizes[1] > 0
    assert sizes[2] > 0
    switch, (one, other) = next((s, f) for s, f in crossed.items() if len(f) == 2)
    assert switch in suspects(made, plan, "TP", [other, one])
    for dark in (one, other):
        found = suspects(made, plan, "TP", [dark])
        assert switch not in found
        assert all(crossed[each] == [dark] for each in found)


def test_a_job_that_is_not_supported_is_refused():
    with pytest.raises(FabricError, match="TP 8, PP 1, DP 4: a cluster of 16 GPUs cannot take it"):
        configure(rack("16"), Degrees(8, 1, 4))


def test_halves_of_sixteen_gpus_are_isolated():
    made = rack("16")
    plan = configure(made, Degrees(4, 1, 4))
    states = plan.states.copy()
    for name in made.fabric.arrays:
        if name.startswith("DP-nodes"):
            made.fabric.of(states, name)[...] = 0
    for topology in ("TP", "DP"):
        trace = made.fabric.trace(selected(made.fabric, states, plan.choice[topology]))
        low = made.gpu[:, :, :4].reshape(-1)
        assert set(trace.gpus[low].reshape(-1)) == set(low)


@pytest.mark.parametrize("failed", range(NODES + 1))
@pytest.mark.parametrize("job", [Degrees(4, 2, 8, 16), Degrees(8, 1, 8, 8), Degrees(16, 2, 2, 16)])
def test_any_failed_node_of_a_resilient_rack_is_replaced(failed, job):
    made = rack("72")
    plan = configure(made, job, [failed])
    assert topology_errors(made, plan) == []
    assert (plan.ranks["TP"][made.gpu[:, :, failed]] < 0).all()
    assert (plan.ranks["TP"] >= 0).sum() == 64


def test_the_merge_cycle_pairs_equal_ranks_whichever_node_fails():
    edges = {frozenset(pair) for pair in zip(MERGES, (*MERGES[1:], MERGES[0]), strict=True)}
    for failed in range(NODES + 1):
        places = shifted(4, failed)
        assert {frozenset((places[k], places[k + 4])) for k in range(4)} <= edges


def test_pairs_of_failed_gpus_in_a_rack_are_restored_in_one_node_alone():
    found = pairs_of_gpus(rack("72"), Degrees(8, 4, 2, 16))
    assert found == {"restored": 9 * 28, "degraded": 72 * 71 // 2 - 9 * 28}


@pytest.mark.parametrize(
    ("name", "job", "failed"),
    [
        ("16", Degrees(8, 1, 2), [3]),
        ("64", Degrees(4, 4, 4, 16), [5]),
        ("64", Degrees(8, 2, 4, 8), [1, 2]),
        ("72", Degrees(16, 1, 4, 16), [2, 6]),
        ("144", Degrees(8, 8, 2, 16), [4, 5]),
    ],
)
def test_half_of_a_cluster_works_on_where_no_setting_restores_it(name, job, failed):
    made = rack(name)
    found = recover(made, job, failed)
    assert (outcome(found), found.gpus) == ("degraded", made.spec.stages * 8)
    assert found.degraded is not None
    assert topology_errors(made, found.degraded) == []
    working = found.degraded.ranks["TP"] >= 0
    assert working.sum() == found.gpus
    assert not working[failed].any()


def test_a_failure_in_each_half_leaves_nothing_of_a_cluster_without_backups():
    assert outcome(recover(rack("64"), Degrees(4, 4, 4, 16), [0, 7])) == "lost"


def test_two_racks_shuffle_only_where_directions_are_fixed():
    made = rack("144")
    job = Degrees(8, 4, 4, 16)
    assert topology_errors(made, configure(made, job, [5, 2])) == []
    fixed = topology_errors(made, configure(made, job, [2, 5]))
    assert fixed
    assert all("shuffled" in error for error in fixed)
    assert topology_errors(made, configure(made, job, [2, 5], [False, False])) == []
    assert not recover(made, job, [int(made.gpu[0, 0, 2]), int(made.gpu[2, 0, 5])]).shuffled


def test_128_gpus_shuffle_one_parallelism_alone():
    made = rack("128")
    shuffled = [
        (job.tp, job.pp)
        for job in supported(made.spec)
        if job.ep == 16 and topology_errors(made, configure(made, job))
    ]
    assert shuffled == [(16, 2)]


def test_a_task_moves_by_one_node_or_to_the_backup():
    assert shifted(8, 3) == (0, 1, 2, 4, 5, 6, 7, BACKUP)
    assert shifted(8, 3, left=True) == (BACKUP, 0, 1, 2, 4, 5, 6, 7)
    assert shifted(4, 5) == (0, 1, 2, 3, 4, 6, 7, BACKUP)
    assert np.unique(shifted(4, 2)).size == NODES
