"""Data centres: topologies, failed racks and nodes."""

from itertools import product

import numpy as np
import pytest

from lightrig.harness.systems.acos.planning.datacentre import (
    HALLS,
    Hall,
    build_hall,
    expander_links,
)
from lightrig.harness.systems.acos.planning.datacentre_plans import (
    configure_hall,
    hall_errors,
    shift_links,
)
from lightrig.harness.systems.acos.planning.optics import FabricError
from lightrig.suites.claims.acos.claims import hall
from lightrig.suites.claims.acos.expander_hops import diameter_and_mean


@pytest.mark.parametrize(("tp", "pp"), list(product((4, 8, 16), (4, 8))))
def test_every_parallelism_of_1024_gpus_gives_the_topologies_asked_for(tp, pp):
    made = hall(2)
    for ep in (16, 32, 64):
        assert hall_errors(made, configure_hall(made, tp, pp, ep)) == []


@pytest.mark.parametrize(
    ("array", "topology"),
    [("TP-split-forward", "TP"), ("DP-stages-0-forward", "DP ring"), ("EP-split-1-out", "EP")],
)
def test_one_switch_in_the_wrong_state_is_found(array, topology):
    made = hall(2)
    plan = configure_hall(made, 8, 8, 64)
    made.fabric.of(plan.states, array).reshape(-1)[0] = 1
    errors = hall_errors(made, plan)
    assert errors
    assert {error.partition(":")[0] for error in errors} == {topology}


@pytest.mark.parametrize(("place", "pp"), [(0, 8), (4, 4), (7, 8)])
def test_a_failed_rack_is_replaced(place, pp):
    made = hall(8, racks=True)
    spare = np.full(8, 8)
    spare[place] = place
    assert hall_errors(made, configure_hall(made, 8, pp, 64, None, spare)) == []


PAIRS = list(product(range(9), repeat=2))
"""Spare nodes of two adjacent racks; node 8 is the backup."""


@pytest.mark.long
@pytest.mark.parametrize("tp", [4, 8, 16])
def test_double_offsetting_links_keep_the_ranks_of_every_pair_of_failed_nodes(tp):
    made = build_hall(Hall(2, node_backups=True, double_offsets=True))
    counts = made.fabric.counts()
    between = "Resiliency between racks"
    # Eight DP fibers of a GPU between racks, each with a 1x3 at either end; PP has one diagonal.
    assert counts[between, "DP", "1x3"] == 8 * made.hall.gpus
    assert counts[between, "PP", "1x2"] == 16 * made.hall.gpus
    for first in range(0, len(PAIRS), 8):
        spare = np.array((PAIRS[first : first + 8] * 8)[:8]).reshape(-1)
        errors = hall_errors(made, configure_hall(made, tp, 8, 64, spare))
        assert {error.partition(":")[0] for error in errors} <= {"PP"}


@pytest.mark.parametrize("tp", [4, 8])
def test_double_offsetting_links_keep_the_ranks_with_a_failed_node_in_every_rack(tp):
    made = build_hall(Hall(2, (2,), node_backups=True, double_offsets=True))
    draw = np.random.default_rng(1)
    for _ in range(3):
        spare = draw.integers(0, 9, made.hall.columns)
        errors = hall_errors(made, configure_hall(made, tp, 8, 64, spare))
        assert {error.partition(":")[0] for error in errors} <= {"PP"}


def test_single_offsetting_links_shuffle_some_pairs():
    made = hall(2, node=True)
    spare = np.array([(1, 5)] * 8).reshape(-1)
    errors = hall_errors(made, configure_hall(made, 8, 8, 64, spare))
    assert "DP ring: shuffled, a link joins unequal ranks" in errors


@pytest.mark.parametrize("further", [{}, {"node_backups": True, "rack_backups": True}])
def test_double_offsetting_links_that_no_switch_can_serve_are_refused(further):
    with pytest.raises(FabricError, match=r"need backup nodes, and with backup racks.*1x6"):
        build_hall(Hall(2, double_offsets=True, **further))


def test_a_failed_rack_is_replaced_in_a_torus_of_four_dimensions():
    made = build_hall(Hall(2, (2,), rack_backups=True))
    spare = np.full((8, 2), 2)
    spare[3, 1] = 1
    assert hall_errors(made, configure_hall(made, 8, 8, 64, None, spare)) == []


def test_expanders_of_64_32_and_16_gpus_are_regular_and_connected():
    made = hall(2)
    for ep in (64, 32, 16):
        links = expander_links(made, ep)
        assert (np.bincount(np.ravel(links)) == 8).all()
        part = [(u, v) for u, v in links if max(u, v) < ep]
        assert len(part) == 4 * ep
        assert diameter_and_mean(ep, part)[0] <= 4


def test_sizes_are_those_of_the_paper():
    for active, made in HALLS.items():
        assert made.active == active


@pytest.mark.parametrize("step", [-1, 1])
def test_links_between_two_rows_leave_out_both_spares_alone(step):
    for near, far in product(range(9), repeat=2):
        links = shift_links(9, near, far, step)
        assert sorted(a for a, _, _ in links) == [n for n in range(9) if n != near]
        assert sorted(b for _, b, _ in links) == [n for n in range(9) if n != far]
