"""Bounds of a server's clock: against a linear program, and numbers by hand."""

import itertools
import math
import random
import re
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog

from lightrig.instruments.servers.host import offset
from lightrig.instruments.servers.host.offset import ClockDriftWarning, ClockError, ClockMap

MS, SECOND = 10**6, 10**9
GREATEST_RATE = 1e-3


def exchange(*stamps: int, slewed: int = 0) -> offset._Exchange:
    return offset._Exchange(*stamps, slewed)


def test_a_clock_wanders_by_its_rate_s_walk_and_ramp() -> None:
    """300 ns times s ** 1.5, and half of 1 ppm a minute: 8.33 ns times s ** 2."""
    assert offset._wander(SECOND) == pytest.approx(300 + 25 / 3)
    assert offset._wander(-4 * SECOND) == pytest.approx(2400 + 400 / 3)
    assert offset._wander(0) == 0


def uneven(seed: int, drift: float) -> list[offset._Exchange]:
    """Return seven exchanges with a server whose clock gains `drift` of the time that passes."""
    chance = random.Random(seed)
    found, at = [], 0
    for _ in range(7):
        at += round(chance.choice([0.3, 40, 900]) * MS * (1 + chance.random()))
        out, busy, back = (round(chance.expovariate(1 / 60_000)) for _ in range(3))
        there = [math.floor(when * (1 + drift)) for when in (at + out, at + out + busy)]
        found.append(exchange(at, *there, at + out + busy + back))
        at += out + busy + back
    return found


def optimum(exchanges: list[offset._Exchange], at: int, side: int) -> float:
    """Return the least or greatest bench time, in ns, at the stamp `at` of the server.

    Of all lines of at most the greatest rate that keep the order of all requests and replies, each
    loosened by what the clock may wander until `at`, and a nanosecond for rounding.
    """
    rows, ends = [], []
    for each in exchanges:
        for stamp, bench, way in (
            (each.received_there, each.sent, -1), (each.sent_there, each.received, 1),
        ):  # fmt: skip
            # Bench time at `stamp` is at + value + (stamp - at) * (1 + rate), in us and s.
            loose = offset._wander(stamp - at) + 1
            rows.append([way, way * (stamp - at) / 1e9])
            ends.append((way * (bench - stamp) + loose) / 1e3)
    bounds = [(None, None), (-GREATEST_RATE * 1e6, GREATEST_RATE * 1e6)]
    found = linprog([-side, 0], A_ub=np.array(rows), b_ub=ends, bounds=bounds)
    assert found.success
    return at + float(found.x[0]) * 1e3


@pytest.mark.parametrize(("seed", "drift"), [(3, 0.0), (4, 60e-6), (5, -400e-6), (6, 9e-4)])
@pytest.mark.parametrize("side", [-1, 1])
def test_bounds_are_the_optima_of_a_linear_program(seed: int, drift: float, side: int) -> None:
    """At the middle of each interval, for which the deciding exchanges are chosen.

    Elsewhere they are true bounds, and those of the middle: no narrower than the optimum.
    """
    exchanges = uneven(seed, drift)
    line = offset._Line(exchanges)
    stamps = sorted(stamp for each in exchanges for stamp in (each.received_there, each.sent_there))
    middles = [(one + two) // 2 for one, two in itertools.pairwise(stamps) if two - one > 20]
    # Outside of them intervals double: of 2 ** n ns to 2 ** (n + 1) ns away, at 3 * 2 ** (n - 1).
    middles += [stamps[-1] + 3 * 2**power for power in (15, 24, 30)]
    middles += [stamps[0] - 3 * 2**power for power in (16, 25, 29)]
    for at in middles:
        wanted = optimum(exchanges, at, side)
        assert line.bound(at, side) - wanted == pytest.approx(side, abs=3)
    for at in (stamps[3] + 7, stamps[-1] + 5 * 2**20, stamps[0] - 7 * 2**22):
        assert side * (line.bound(at, side) - optimum(exchanges, at, side)) >= -1


def test_intervals_of_stamps_double_with_the_distance() -> None:
    line = offset._Line([exchange(0, 100, 130, 40), exchange(200, 350, 360, 300)])
    # From the last stamp, 360: 100, 130, 350, 360 are -260, -230, -10 and 0.
    assert [line._interval(number) for number in (1, 2, 3)] == [
        (-260, -230), (-230, -10), (-10, 0),
    ]  # fmt: skip
    assert [line._interval(number) for number in (5, 6, 9)] == [(1, 2), (2, 4), (16, 32)]
    assert [line._interval(number) for number in (-1, -3)] == [(-262, -261), (-268, -264)]


@pytest.mark.parametrize("gained", [0, 5, -5])
def test_an_exchange_on_the_middle_line_is_allowed_at_once(gained: int) -> None:
    """Two exchanges of 20 ns, 10 us apart; the next on the line through their middles."""
    line = offset._Line(
        [exchange(0, 1000, 1000, 20), exchange(10_000, 11_000 + gained, 11_000 + gained, 10_020)]
    )
    there = 21_000 + 2 * gained
    assert line.allows(exchange(20_009, there, there, 20_011))
    assert not line.allows(exchange(20_012, there, there, 20_030))
    assert not line.allows(exchange(19_980, there, there, 20_008))


def test_lines_of_more_than_the_greatest_rate_are_not_allowed() -> None:
    for gained, allowed in ((9, True), (-9, True), (12, False), (-12, False)):
        ends = [exchange(0, 1000, 1000, 20), exchange(*(
            10_000, 11_000 + gained, 11_000 + gained, 10_020))]  # fmt: skip
        at = 11_000 + gained
        line = offset._Line(ends)
        assert line.allows(exchange(10_005, at, at, 10_015)) == allowed


# ----------------------------------------------------------------------- jumps and rates


def sizes(clocks: ClockMap, stamp: int) -> list[float]:
    """Return the ends of a jump, in ms, of the error that a stamp raises."""
    with pytest.raises(ClockError) as says:
        clocks.here(stamp)
    return [float(each) for each in re.findall(r"([0-9.]+) to ([0-9.]+) ms", str(says.value))[0]]


def test_a_jump_during_a_request_has_a_size_of_at_most_its_duration() -> None:
    clocks = ClockMap(name="server3")
    clocks.exchanged(0, 100_000, 110_000, 200_000)
    clocks.exchanged(1 * MS, 1_100_000, 1_110_000, 1_200_000)
    clocks.exchanged(2 * MS, 2_100_000, 3_508_100_000, 3_502_300_000)
    # Replied to between 2 and 3,502.3 ms, at 3,508.1 ms: 5.8 to 3,506.1 ms, and what the rate may
    # do in 3.5 s: two exchanges 1 ms apart do not tell it, so 1000 ppm, 3.5 ms.
    least, most = sizes(clocks, 3_000_000_000)
    assert 2.0 <= least <= 5.8
    assert 3506.0 <= most <= 3510.0


def test_a_jump_between_exchanges_is_as_large_as_the_round_trips_leave_it() -> None:
    clocks = ClockMap(name="server3")
    for second in range(8):
        at = second * 100 * MS
        clocks.exchanged(at, at + 60_000, at + 65_000, at + 105_000)
    at = 800 * MS
    clocks.exchanged(at, at + 30_000 + 7 * MS, at + 35_000 + 7 * MS, at + 75_000)
    # The server was ahead by -40 to 60 us; then by 7 ms and -40 to 30 us.
    least, most = sizes(clocks, at + 7 * MS)
    assert 6.9 - 0.02 <= least <= 6.91
    assert 7.07 <= most <= 7.09
    after = clocks.here(at + 8 * MS)
    assert at + MS - 32_000 <= after.earliest <= at + MS <= after.latest <= at + MS + 44_000


def test_stamps_that_a_clock_shows_twice_are_refused_and_later_ones_are_not() -> None:
    """Back by 5 ms at 790 ms: until the clock is again where it was, a stamp has two moments."""
    clocks = ClockMap(name="server3")
    for tenth in range(8):
        at = tenth * 100 * MS
        clocks.exchanged(at, at + 60_000, at + 65_000, at + 105_000)
    for at in (800 * MS, 801 * MS, 820 * MS):
        clocks.exchanged(at, at + 60_000 - 5 * MS, at + 65_000 - 5 * MS, at + 105_000)
    assert sizes(clocks, 799 * MS)[0] == pytest.approx(4.9, abs=0.03)
    with pytest.raises(ClockError, match="jumped back"):
        clocks.here(800 * MS + 5 * MS - 5 * MS)
    here = clocks.here(801 * MS)
    assert here.earliest <= 806 * MS <= here.latest


@pytest.mark.parametrize(
    ("gained", "slewed", "ppm"),
    [
        (300_000, 0, "300"),
        (-300_000, 0, "300"),
        (300_000, 100_000, "200"),
        (-300_000, -50_000, "250"),
        (99_000, 0, None),
        (-99_000, 0, None),
        (300_000, 250_000, None),
    ],
)
def test_a_drift_is_what_the_round_trips_leave_of_it(
    gained: int, slewed: int, ppm: str | None
) -> None:
    """Two exchanges of 200 ns, one second apart."""
    clocks = ClockMap(name="server3")
    clocks.exchanged(0, 100, 100, 200)
    there = SECOND + 100 + gained
    clocks.exchanged(SECOND, there, there, SECOND + 200, slewed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clocks.here(there)
        clocks.here(there)
    found = [str(each.message) for each in caught if each.category is ClockDriftWarning]
    assert [re.findall("at least ([0-9]+) ppm", each) for each in found] == ([[ppm]] if ppm else [])


def test_the_largest_drift_is_named() -> None:
    clocks = ClockMap(name="server3")
    at, there = 0, 0
    for gained in (0, 400_000, 200_000, -350_000):
        at, there = at + SECOND, there + SECOND + gained
        clocks.exchanged(at, there + 100, there + 100, at + 200)
    # Against the first exchange: 400 ppm in one second, 300 ppm in two, 83 ppm in three.
    with pytest.warns(ClockDriftWarning, match="at least 400 ppm"):
        clocks.here(there + 100)
