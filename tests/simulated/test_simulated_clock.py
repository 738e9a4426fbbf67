"""A simulated server's clock shows each moment by that moment, whenever it is asked."""

from itertools import pairwise

import pytest

from lightrig.instruments.simulated.hosts.simulated_clock import (
    ClockSlew,
    ClockStep,
    Discipline,
    SimulatedServerClock,
)
from lightrig.instruments.simulated.world.randomness import Chance

SECOND = 10**9


def test_a_rate_counts_from_the_beginning_of_the_world() -> None:
    clock = SimulatedServerClock(offset=-7_000_000, rate_ppm=20)
    assert clock.reads(0) == -7_000_000
    assert clock.reads(60 * SECOND) == 60 * SECOND - 7_000_000 + 1_200_000  # 20 us a second
    assert clock.reads(3 * SECOND) == 3 * SECOND - 7_000_000 + 60_000  # past moments as they were


def test_a_step_moves_later_moments_only_and_is_not_reported() -> None:
    clock = SimulatedServerClock(steps=[ClockStep(5 * SECOND, -3_000_000)])
    assert [clock.reads(at) - at for at in (0, 5 * SECOND - 1, 5 * SECOND)] == [0, 0, -3_000_000]
    assert clock.slewed(6 * SECOND) == 0


def test_a_slew_moves_the_clock_while_it_lasts_and_is_reported() -> None:
    clock = SimulatedServerClock(offset=100, slews=[ClockSlew(10 * SECOND, 4 * SECOND, 500)])
    moved = {9: 0, 10: 0, 11: 500_000, 13: 1_500_000, 14: 2_000_000, 90: 2_000_000}
    for second, by in moved.items():
        assert clock.reads(second * SECOND) - second * SECOND == 100 + by
        assert clock.slewed(second * SECOND) == by


def test_a_wandering_rate_is_a_random_walk_that_does_not_depend_on_the_order_of_questions() -> None:
    def clock(seed: int) -> SimulatedServerClock:
        return SimulatedServerClock(wander_ppm=0.1, draws=Chance(seed).stream("clock"))

    one, two = clock(3), clock(3)
    moments = [second * SECOND for second in (1, 400, 7, 33)]
    assert [one.reads(at) for at in moments] == [two.reads(at) for at in moments[::-1]][::-1]
    # The rate's n-th second has a variance of n times 0.01 ppm^2; their sum is the time gained.
    gained = [clock(seed).reads(100 * SECOND) - 100 * SECOND for seed in range(400)]
    spread = (sum(each**2 for each in gained) / len(gained)) ** 0.5
    expected = 0.1e-6 * SECOND * (100 * 101 * 201 / 6) ** 0.5
    assert spread == pytest.approx(expected, rel=0.15)
    assert abs(sum(gained)) / len(gained) < 0.2 * expected


def test_a_corrected_quartz_keeps_time_and_the_correction_is_reported() -> None:
    """CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW of a quartz that is 30 ppm fast, by arithmetic."""
    clock = SimulatedServerClock(offset=7, discipline=Discipline(30.0))
    assert [clock.reads(at * SECOND) - at * SECOND for at in (0, 60, 3_600)] == [7, 7, 7]
    assert [clock.slewed(at * SECOND) for at in (0, 60, 3_600)] == [0, -1_800_000, -108_000_000]


def test_slews_of_a_time_service_last_10_to_100_s_and_move_the_clock() -> None:
    def clock() -> SimulatedServerClock:
        discipline = Discipline(slew_ppm=5.0, draws=Chance(2).stream("slews"))
        return SimulatedServerClock(discipline=discipline)

    one, other = clock(), clock()
    moved = [one.reads(at * SECOND) - at * SECOND for at in range(4_000)]
    assert [other.slewed(at * SECOND) for at in reversed(range(4_000))] == moved[::-1]
    rates = [(after - before) / 1e3 for before, after in pairwise(moved)]
    slewing = [abs(rate) > 0.01 for rate in rates]
    begun = [at for at in range(1, len(slewing)) if slewing[at] and not slewing[at - 1]]
    lengths = [slewing[at:].index(False) for at in begun]
    assert 17 <= len(begun) <= 20  # one each 200 s, but for one too slow to see
    assert all(9 <= length <= 101 for length in lengths)
    assert 1 < max(map(abs, rates)) <= 15
