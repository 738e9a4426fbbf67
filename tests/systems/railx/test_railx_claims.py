"""Values of RailX's paper that flit simulations answer."""

from lightrig.suites.claims.railx.claims import COMPUTED
from lightrig.suites.claims.railx.flits import stored_points


def test_simulated_points_are_marked_and_have_an_interval():
    found = COMPUTED["C90"]()
    assert found.note.startswith("simulated, 10,000 cycles")
    assert found.lower < found.value < found.upper
    assert {point.multiple for point in stored_points()} == {1, 2, 4}


def test_stored_throughput_stays_below_the_bound_of_the_link_loads():
    assert all(point.outcome.throughput <= point.bound * 1.01 for point in stored_points())
