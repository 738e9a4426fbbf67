"""Mechanisms of ACOS's paper against failures, and in data centres; see test_acos_mechanisms."""

from itertools import product

import numpy as np
import pytest
from systems.acos.acos_mechanisms import JOB, SPARES, claim, errors, exception, hall, job_with, rack

from lightrig.harness.systems.acos.planning.datacentre import STAGES, Hall, build_hall
from lightrig.harness.systems.acos.planning.datacentre_plans import configure_hall, hall_errors
from lightrig.harness.systems.acos.planning.failures import recover, suspects
from lightrig.harness.systems.acos.planning.optics import selected
from lightrig.harness.systems.acos.planning.rack_plans import configure, topology_errors
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES, shifted
from lightrig.suites.claims.acos import availability

pytestmark = pytest.mark.long  # most have a shorter test beside them


# --------------------------------------------------------------------------- resilient racks


@claim("m18")
@pytest.mark.parametrize("spare", SPARES)
def test_a_resilient_ring_skips_any_node(spare):
    assert not errors("72", job_with("72", 8), [spare])


@claim("m23")
@pytest.mark.parametrize("spare", SPARES)
def test_two_rings_share_a_backup(spare):
    assert not errors("72", job_with("72", 4), [spare])


@claim("m39")
@pytest.mark.parametrize(("tp", "spare"), list(product((4, 16), SPARES)))
def test_rings_of_8_plus_1_and_two_sets_for_tp_16(tp, spare):
    assert not errors("72", job_with("72", tp), [spare])


@claim("m19")
@pytest.mark.parametrize(("tp", "left"), list(product((4, 8), (False, True))))
def test_tasks_move_by_one_node_in_one_direction(tp, left):
    """Nodes in a ring of nine; the task at the end of a ring moves to the backup."""
    for failed in SPARES:
        places = shifted(tp, failed, left=left)
        assert failed not in places
        assert len(set(places)) == 8
        for ring in {range(tp), range(8 - tp, 8)}:
            moved = {places[rank] - rank for rank in ring if places[rank] != BACKUP}
            assert moved <= {0, 1} or moved <= {0, -1}


def steps(double):
    """Return by pair of spare nodes of adjacent rings how ranks must step between them.

    With single diagonals tasks of one ring move right and of the other left; with double ones
    both move right.
    """
    return {
        (a, b): {
            (q - p) % (NODES + 1)
            for p, q in zip(shifted(8, a), shifted(8, b, left=not double), strict=True)
        }
        for a, b in product(SPARES, repeat=2)
    }


@claim("m20")
def test_single_offsetting_links_leave_some_pairs_shuffled():
    matched = [found <= {0, NODES} for found in steps(double=False).values()]
    assert 0 < sum(matched) < len(matched) == 81


@claim("m21")
def test_double_offsetting_links_never_shuffle_in_adjacent_rings():
    assert all(found <= {0, 1, NODES} for found in steps(double=True).values())


@pytest.fixture(scope="module")
def double_offset_errors():
    """Errors of a hall of 1,024 GPUs in which every pair of spare nodes is in adjacent racks."""
    made = build_hall(Hall(2, node_backups=True, double_offsets=True))
    pairs = list(product(SPARES, repeat=2))
    found = []
    for first in range(0, len(pairs), STAGES):
        spare = (pairs[first : first + STAGES] * STAGES)[:STAGES]
        plan = configure_hall(made, 8, 8, 64, np.array(spare).reshape(-1))
        found.append(hall_errors(made, plan))
    return found


@claim("m21")
@pytest.mark.parametrize(
    "dimension",
    ["DP", exception("PP", reason="PP has single offsetting links alone, which shuffle")],
)
def test_double_offsetting_links_keep_ranks_of_a_data_centre(double_offset_errors, dimension):
    assert not [e for found in double_offset_errors for e in found if e.startswith(dimension)]


@claim("m26")
def test_merging_resilient_rings_takes_three_sets_of_2x2():
    """Eight rings of eight fibers; a ring with two backups is not built."""
    assert rack("72").fabric.counts()["TP 4-8", "TP", "2x2"] == 8 * 8 * 3


@claim("m29")
@pytest.mark.parametrize("node", range(NODES))
def test_failure_units_fail_and_are_replaced_as_one(node):
    made = rack("72")
    found = recover(made, JOB, list(made.gpu[:, :, node].reshape(-1)))
    assert found.plan is not None
    assert not topology_errors(made, found.plan)


@claim("m62")
def test_a_failed_switch_is_found_from_the_links_it_breaks():
    """Of 2x2 that two lit fibers pass; a 1xN needs a second topology."""
    made = rack("72")
    plan = configure(made, JOB)
    crossed = made.fabric.crossed(selected(made.fabric, plan.states, plan.choice["TP"]))
    exchanges = {
        switch
        for array in made.fabric.arrays.values()
        if array.kind == "2x2"
        for switch in range(array.first, array.first + array.count)
    }
    several = [s for s in sorted(crossed) if s in exchanges and len(crossed[s]) == 2]
    assert several
    for switch in several[:6]:
        assert suspects(made, plan, "TP", crossed[switch]) == [switch]


@claim("m65")
@pytest.mark.parametrize("pair", [(0, 1), (2, 6), (8, 3)], ids=str)
def test_what_remains_after_two_failures_runs_on(pair):
    made = rack("72")
    found = recover(made, JOB, pair)
    assert found.gpus == 32
    assert found.degraded is not None
    assert not topology_errors(made, found.degraded)


@claim("m63")
def test_gpu_faults_make_nodes_racks_and_groups_fail():
    """Closed forms against 20,000 draws at 1 % of GPUs faulty, within 4 sigma."""
    drawn = availability.simulated_failures(0.01, 20_000, seed=1)
    chances = [
        availability.node_fails(0.01), availability.rack_fails(0.01), availability.group_fails(0.01)
    ]  # fmt: skip
    for count, chance in zip(drawn, chances, strict=True):
        assert abs(count - 20_000 * chance) <= 4 * (20_000 * chance * (1 - chance)) ** 0.5


# ------------------------------------------------------------------------------ data centres


@claim("m10")
@pytest.mark.parametrize("ring", [2, 8])
def test_a_torus_is_split_by_a_2x2_for_each_ring_cut_and_fiber(ring):
    """Four fibers a ring: 16 for four rings."""
    made = hall(ring)
    cuts = [
        n
        for (why, where, _), n in made.fabric.counts().items()
        if (why, where) == ("TP 8-16", "DP")
    ]
    assert cuts == [16 * made.hall.columns * made.hall.nodes // 4]


@claim("m17")
@pytest.mark.parametrize(("tp", "pp"), list(product((4, 8, 16), (4, 8))))
def test_tp_and_pp_merge_a_torus_along_different_dimensions(tp, pp):
    assert not hall_errors(hall(2), configure_hall(hall(2), tp, pp, 16))


@claim("m42")
@pytest.mark.parametrize(("tp", "pp", "ep"), [(8, 8, 64), (4, 4, 16), (16, 8, 32)])
def test_a_data_centre_has_a_rack_a_stage_and_dp_as_a_torus(tp, pp, ep):
    assert not hall_errors(hall(8), configure_hall(hall(8), tp, pp, ep))


@claim("m43")
@pytest.mark.parametrize(("tp", "pp", "ep"), [(8, 8, 64), (16, 4, 16)])
def test_a_very_large_data_centre_has_dp_as_a_4d_torus(tp, pp, ep):
    """Eight racks a stage; 512 racks in the benchmark."""
    made = build_hall(Hall(2, (2, 2)))
    assert not hall_errors(made, configure_hall(made, tp, pp, ep))


@claim("m24")
@pytest.mark.parametrize(("place", "pp"), [(place, (8, 4)[place % 2]) for place in range(8)])
def test_a_data_centre_survives_any_failed_rack_of_a_row(place, pp):
    """Rows of nine racks, TP 8, each place once."""
    made = hall(8, racks=True)
    spare = np.full(8, 8)
    spare[place] = place
    assert not hall_errors(made, configure_hall(made, 8, pp, 64, None, spare))


_HALL_TP_4 = "of single diagonals, half of the nodes have the one that their half shifts along"
_HALL_ALL = "neighbouring racks that both shift need two diagonals, where one is built"


@claim("m44")
@pytest.mark.parametrize(
    ("tp", "racks"),
    [(tp, "one") for tp in (8, 16)]
    + [exception(4, "one", reason=_HALL_TP_4)]
    + [exception(tp, "every", reason=_HALL_ALL) for tp in (8, 16)]
    + [(4, "every")],
)
def test_a_data_centre_survives_a_failed_node_in_a_rack_and_in_every_rack(tp, racks):
    made = hall(8, node=True)
    for rack_number, node in ((0, 3), (9, 7), (30, 5)):
        spare = np.full(made.hall.columns, BACKUP)
        spare[rack_number if racks == "one" else slice(None)] = node
        assert not hall_errors(made, configure_hall(made, tp, 8, 64, spare))


_MEET = "in a ring of nine racks two racks of equal direction meet beside the failed rack"


@claim("m46")
@pytest.mark.parametrize("place", [exception(1, reason=_MEET), exception(3, reason=_MEET), 5])
def test_node_and_rack_resilience_shift_at_once(place):
    """A failed rack and a failed node in the same row of nine racks, at 4,096 GPUs."""
    made = hall(8, node=True, racks=True)
    spare, nodes = np.full(8, 8), np.full(made.hall.columns, BACKUP)
    spare[3] = 2
    nodes[made.column[3, place]] = 4
    assert not hall_errors(made, configure_hall(made, 8, 8, 64, nodes, spare))
