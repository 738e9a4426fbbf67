"""Breadth-first broadcasts on rings and tori, and expanders without one of their switches."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.acos.planning.expanders import Pair, Splittable, splittable
from lightrig.harness.systems.acos.planning.optics import FabricError
from lightrig.suites.claims.acos.broadcasts import breadth_first_broadcast, torus
from lightrig.suites.claims.acos.expander_hops import after_switch_failures


@pytest.mark.parametrize("size", [3, 4, 7, 8])
def test_on_a_ring_data_comes_from_both_sides(size):
    found = breadth_first_broadcast(torus((size,)))
    assert found.steps == size // 2
    assert found.loads[0] == 1
    # The node opposite in an even ring sends half of its data each way.
    assert found.loads[-1] == (1 if size % 2 else 0.5)
    assert found.relative == pytest.approx(1)


def test_four_by_four_is_optimal_in_as_many_steps_as_it_is_wide():
    found = breadth_first_broadcast(torus((4, 4)))
    # Four, six, four and one nodes at distances 1 to 4, over four links each.
    assert found.loads == pytest.approx((1, 1.5, 1, 0.25))
    assert found.relative == pytest.approx(1)


def test_a_dimension_of_length_two_costs_bandwidth():
    # At distance 1 the two parallel links share one node's data, while the others have one each.
    found = breadth_first_broadcast(torus((4, 2)))
    assert found.loads == pytest.approx((1, 3 / 4, 1 / 4))
    assert found.relative == pytest.approx(2 / (7 / 4))


@settings(deadline=None, max_examples=25)
@given(sizes=st.lists(st.integers(2, 6), min_size=1, max_size=3).filter(lambda n: prod(n) <= 100))
def test_no_schedule_beats_the_bound_and_every_step_brings_its_nodes(sizes):
    found = breadth_first_broadcast(torus(sizes))
    assert found.relative >= 1 - 1e-9
    assert found.steps == sum(size // 2 for size in sizes)
    assert all(load > 0 for load in found.loads)


@pytest.mark.parametrize("half", [8, 9, 16])
@pytest.mark.parametrize("split", [False, True])
def test_traffic_goes_round_a_failed_switch_of_an_expander(half, split):
    found = after_switch_failures(splittable(half, seed=1), split=split)
    assert len(found) == 2 * half
    assert max(diameter for diameter, _ in found) <= 3


def test_a_switch_that_holds_halves_together_is_reported():
    # Two triangles whose only crossing links pass one pair of switches.
    fixed = ((0, 2), (1, 2), (3, 5), (4, 5))
    weak = Splittable(6, fixed, (Pair(a=0, c=1, b=3, d=4),))
    assert after_switch_failures(weak, split=True) == [(2, pytest.approx(4 / 3))]
    with pytest.raises(FabricError, match="not connected"):
        after_switch_failures(weak, split=False)
