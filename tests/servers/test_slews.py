"""Slews between replies: numbers by hand."""

import pytest

from lightrig.instruments.servers.host.slews import Slews

SECOND = 10**9
ROUNDING = 2


def slews(*replies: tuple[float, int]) -> Slews:
    """Return slews in ns that were reported at stamps in s."""
    found = Slews()
    for at, slew in replies:
        found = found.with_reply(round(at * SECOND), slew)
    return found


def ends(found: Slews, at: float) -> tuple[int, int]:
    """Return the least and the greatest slew at a stamp, without the doubt of rounding."""
    slew, doubt = found.at(round(at * SECOND))
    return slew - doubt + ROUNDING, slew + doubt - ROUNDING


def test_slews_that_do_not_differ_are_none() -> None:
    assert not slews()
    assert not slews((0, 5), (1, 5))
    assert slews((0, 5), (1, 6))


def test_a_reported_slew_has_no_doubt() -> None:
    found = slews((0, 0), (1, 0), (2, 40), (3, 900))
    assert [found.at(at * SECOND) for at in range(4)] == [(0, 2), (0, 2), (40, 2), (900, 2)]


def test_a_slew_may_have_happened_anywhere_between_two_replies() -> None:
    found = slews((0, 0), (1, 0), (2, 0), (3, 0), (4, 1000), (5, 1000))
    for at in (3.001, 3.5, 3.999):
        assert ends(found, at) == pytest.approx((0, 1000), abs=1)
    assert ends(found, 2.5) == (0, 0)
    # The waits before know a rate of 1000 ns/s, which may have gone on for a while, and of none.
    assert ends(found, 4.5) == pytest.approx((500, 1500), abs=1)
    # It is not known of a first wait that no other confirms.
    assert ends(slews((0, 0), (1, 1000)), 0.3) == (0, 1000)


@pytest.mark.parametrize("rate", [20_000, -50_000])
def test_a_rate_of_the_waits_before_is_no_doubt(rate: int) -> None:
    """`rate` in ns/s, with 7 us more or less somewhere in the third of the waits."""
    for more in (0, 7000, -7000):
        found = slews((0, 0), (2, 2 * rate), (4, 4 * rate), (7, 7 * rate + more))
        for at in (4.1, 5, 6.9):
            lesser, greater = sorted((0, more))
            wanted = rate * at + lesser, rate * at + greater
            assert ends(found, at) == pytest.approx(wanted, abs=1)


def test_rates_come_from_waits_of_at_least_half_the_length() -> None:
    """Short ones are joined, so that 5 ns in a millisecond are not 15 us in three seconds."""
    short = [(6 + each / 1000, 6 * 20 + 5 * (each % 2)) for each in range(5)]
    found = slews((0, 0), (3, 60), *short, (9, 180))
    assert ends(found, 7.5) == pytest.approx((150, 150), abs=5)
    # Two waits of a second are not long enough for one of five, so nothing confirms its rate.
    assert ends(slews((0, 0), (1, 20), (2, 40), (7, 140)), 4) == (40, 140)


def test_waits_after_tell_a_rate_where_those_before_do_not() -> None:
    found = slews((0, 0), (3, 60), (6, 120), (9, 180))
    assert ends(found, 1.5) == (30, 30)


def test_outside_of_the_replies_the_rate_may_have_been_any_known_one_or_none() -> None:
    found = slews((10, 0), (12, 40), (14, 100))
    # 20 and 30 ns/s in the first and in the second wait.
    assert ends(found, 9) == (-30, 0)
    assert ends(found, 15) == (100, 130)


def test_the_oldest_replies_are_forgotten() -> None:
    found = slews(*((each, 100 * each * each) for each in range(100)))
    assert ends(found, 40) == (160_000, 160_000)
    assert ends(found, 35) != (122_500, 122_500)
