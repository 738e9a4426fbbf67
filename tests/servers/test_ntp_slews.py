"""A server's clock that a time service slews; `tests.campaigns.ntp_slews` with fewer events."""

import pytest

from tests.campaigns.ntp_slews import STAMPS, tried

EVENTS = 25


@pytest.mark.parametrize(("ppm", "lasting_s"), [(10, 100), (100, 30), (500, 10)])
def test_a_slew_widens_bounds_by_no_more_than_it_moves_the_clock(ppm: int, lasting_s: int) -> None:
    cell = tried(ppm, lasting_s, EVENTS)
    assert cell.stamps == EVENTS * STAMPS
    assert (cell.missed, cell.errors, cell.warned, cell.too_wide) == (0, 0, 0, 0)
