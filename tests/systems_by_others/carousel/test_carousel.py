"""Time to join every pair of servers once."""

import pytest

pytestmark = pytest.mark.of_system("carousel")


@pytest.mark.limits("carousel.cycle")
def test_a_turn_through_all_matchings(carousel_rotation, measure, samples):
    """The time that the switch needs for all matchings, one after another (Fig. 4)."""
    for _ in range(samples):
        carousel_rotation()
    measure.judge("carousel")
