"""Bounds of a server's clock: against a linear program, and numbers by hand."""

import itertools
import math
import random
import re
import warnings

import numpy as np
import pytest
import scipy

from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.servers.host.offset import ClockDriftWarning, ClockMap

MS, SECOND = 10**6, 10**9
GREATEST_RATE = 1e-3


Exchange = tuple[int, int, int, int]
"""Sent, received and sent by the server, received."""


def clocks_of(*exchanges: Exchange) -> ClockMap:
    made = ClockMap(name="server3")
    for each in exchanges:
        made.exchanged(*each)
    return made


def wander(distance: float) -> float:
    """Return how far a clock departs from a steady rate, in ns.

    300 ns times s ** 1.5, and half of 1 ppm a minute: 8.33 ns times s ** 2.
    """
    seconds = abs(distance) / 1e9
    return 300 * seconds**1.5 + 25 / 3 * seconds**2


@pytest.mark.parametrize(("seconds", "wanders"), [(1, 308.3), (-4, 2533.3), (0, 0)])
def test_a_clock_wanders_by_its_rate_s_walk_and_ramp(seconds: int, wanders: float) -> None:
    """Beside the greatest rate, 1 ms a second, of one exchange that took no time."""
    clocks = clocks_of((0, 0, 0, 0))
    here = clocks.here(seconds * SECOND)
    loose = abs(seconds) * MS + wanders
    # And a nanosecond for each of two stamps, both rounded down.
    assert here.latest - seconds * SECOND == pytest.approx(loose + 2, abs=1)
    assert seconds * SECOND - here.earliest == pytest.approx(loose + 2, abs=1)


def uneven(seed: int, drift: float) -> list[Exchange]:
    """Return seven exchanges with a server whose clock gains `drift` of the time that passes."""
    chance = random.Random(seed)
    found, at = [], 0
    for _ in range(7):
        at += round(chance.choice([0.3, 40, 900]) * MS * (1 + chance.random()))
        out, busy, back = (round(chance.expovariate(1 / 60_000)) for _ in range(3))
        received, sent = (math.floor(when * (1 + drift)) for when in (at + out, at + out + busy))
        found.append((at, received, sent, at + out + busy + back))
        at += out + busy + back
    return found


def optimum(exchanges: list[Exchange], at: int, side: int) -> float:
    """Return the least or greatest bench time, in ns, at the stamp `at` of the server.

    Of all lines of at most the greatest rate that keep the order of all requests and replies, each
    loosened by what the clock may wander until `at`, and a nanosecond for rounding.
    """
    rows, ends = [], []
    for sent, received_there, sent_there, received in exchanges:
        for stamp, bench, way in ((received_there, sent, -1), (sent_there, received, 1)):
            # Bench time at `stamp` is at + value + (stamp - at) * (1 + rate), in us and s.
            loose = wander(stamp - at) + 1
            rows.append([way, way * (stamp - at) / 1e9])
            ends.append((way * (bench - stamp) + loose) / 1e3)
    bounds = [(None, None), (-GREATEST_RATE * 1e6, GREATEST_RATE * 1e6)]
    found = scipy.optimize.linprog([-side, 0], A_ub=np.array(rows), b_ub=ends, bounds=bounds)
    assert found.success
    return at + float(found.x[0]) * 1e3


@pytest.mark.filterwarnings("ignore::lightrig.instruments.servers.host.offset.ClockDriftWarning")
@pytest.mark.parametrize(("seed", "drift"), [(3, 0.0), (4, 60e-6), (5, -400e-6), (6, 9e-4)])
@pytest.mark.parametrize("side", [-1, 1])
def test_bounds_are_the_optima_of_a_linear_program(seed: int, drift: float, side: int) -> None:
    """At the middle of each interval, for which the deciding exchanges are chosen.

    Elsewhere they are true bounds, and those of the middle: no narrower than the optimum.
    """
    exchanges = uneven(seed, drift)
    clocks = clocks_of(*exchanges)
    stamps = sorted(stamp for each in exchanges for stamp in each[1:3])
    middles = [(one + two) // 2 for one, two in itertools.pairwise(stamps) if two - one > 20]
    # Outside of them intervals double: of 2 ** n ns to 2 ** (n + 1) ns away, at 3 * 2 ** (n - 1).
    middles += [stamps[-1] + 3 * 2**power for power in (15, 24, 30)]
    middles += [stamps[0] - 3 * 2**power for power in (16, 25, 29)]

    def bound(at: int) -> int:
        here = clocks.here(at)
        return here.latest if side > 0 else here.earliest

    for at in middles:
        assert bound(at) - optimum(exchanges, at, side) == pytest.approx(side, abs=3)
    for at in (stamps[3] + 7, stamps[-1] + 5 * 2**20, stamps[0] - 7 * 2**22):
        assert side * (bound(at) - optimum(exchanges, at, side)) >= -1


def jumped(clocks: ClockMap) -> bool:
    """Whether stamps from before the last exchange are refused as those before a jump."""
    try:
        clocks.here(0)
    except ClockError as error:
        return "jumped" in str(error)
    return False


@pytest.mark.filterwarnings("ignore::lightrig.instruments.servers.host.offset.ClockDriftWarning")
@pytest.mark.parametrize("gained", [0, 5, -5])
def test_an_exchange_that_no_line_allows_shows_a_jump(gained: int) -> None:
    """Two exchanges of 20 ns, 10 us apart; the next is 10 us later.

    Until then the greatest rate adds 10 ns to the end of the second, and rounding 3 ns.
    """
    second = 11_000 + gained
    ends = (0, 1000, 1000, 20), (10_000, second, second, 10_020)
    there = second + 10_000
    for sent, received, jumps in (
        (20_009, 20_011, False),
        (20_026, 20_040, False),
        (20_036, 20_050, True),
        (19_980, 19_994, False),
        (19_970, 19_984, True),
    ):
        clocks = clocks_of(*ends, (sent, there, there, received))
        assert jumped(clocks) == jumps, (sent, received)


@pytest.mark.filterwarnings("ignore::lightrig.instruments.servers.host.offset.ClockDriftWarning")
@pytest.mark.parametrize(
    ("ppm", "jumps"), [(900, False), (-900, False), (1200, True), (-1200, True)]
)
def test_a_clock_of_more_than_the_greatest_rate_has_jumped(ppm: int, jumps: bool) -> None:
    """Two exchanges 10 us apart allow either within their 20 ns; a third one a second later not."""
    gained = 10_000 * ppm // 1_000_000
    second, third = 11_000 + gained, 1000 + SECOND + SECOND * ppm // 1_000_000
    clocks = clocks_of(
        (0, 1000, 1000, 20),
        (10_000, second, second, 10_020),
        (SECOND, third, third, SECOND + 20),
    )
    assert jumped(clocks) == jumps


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
