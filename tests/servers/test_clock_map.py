"""Whatever a server's clock shows and however slow the way: the true moment is inside."""

import math
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from lightrig.instruments.clock import Span
from lightrig.instruments.servers.offset import ClockMap

YEAR = 365 * 86_400 * 10**9
PPM = Fraction(1, 1_000_000)

moments = st.integers(0, YEAR)
offsets = st.integers(-YEAR, YEAR)
drifts = st.integers(-100, 100).map(lambda ppm: ppm * PPM)
delays = st.integers(0, 10**10)
exchanges = st.tuples(moments, delays, st.integers(0, 10**9), delays)


@dataclass(frozen=True)
class ServerClock:
    """A clock that is `offset` ahead at time zero and gains `drift` of the time that passes."""

    offset: int
    drift: Fraction

    def reads(self, at: int) -> int:
        return math.floor(at * (1 + self.drift)) + self.offset + YEAR

    def exchange(self, clocks: ClockMap, sent: int, out: int, busy: int, back: int) -> None:
        received_there, sent_there = sent + out, sent + out + busy
        clocks.exchanged(
            sent, self.reads(received_there), self.reads(sent_there), sent_there + back
        )


@given(st.builds(ServerClock, offsets, drifts), st.lists(exchanges, min_size=1), moments)
@example(ServerClock(0, -100 * PPM), [(0, 0, 0, 0)], YEAR)
@example(ServerClock(0, 100 * PPM), [(0, 0, 0, 0)], YEAR)
def test_the_true_moment_is_inside(
    clock: ServerClock, exchanged: list[tuple[int, int, int, int]], true: int
) -> None:
    clocks = ClockMap()
    for exchange in sorted(exchanged):
        clock.exchange(clocks, *exchange)
    here = clocks.here(clock.reads(true))
    assert here.earliest <= true <= here.latest


@given(st.builds(ServerClock, offsets, drifts), exchanges, moments, st.integers(0, 10**9))
@example(ServerClock(0, -100 * PPM), (0, 0, 0, 0), 1, 0)
@example(ServerClock(0, -100 * PPM), (0, 0, 0, 0), 10_001, 0)
def test_mapped_interval_contains_the_true_moment(
    clock: ServerClock, exchange: tuple[int, int, int, int], earliest: int, width: int
) -> None:
    clocks = ClockMap()
    clock.exchange(clocks, *exchange)
    span = clocks.span(clock.reads(earliest), clock.reads(earliest + width))
    assert span.earliest <= earliest
    assert earliest + width <= span.latest


@given(offsets, st.lists(st.tuples(delays, delays), min_size=1, max_size=3), moments)
def test_a_faster_exchange_narrows_what_slow_ones_left(
    offset: int, ways: list[tuple[int, int]], sent: int
) -> None:
    clock, clocks = ServerClock(offset, Fraction(0)), ClockMap(exchanges=4)
    for out, back in ways:
        clock.exchange(clocks, sent, out, 0, back)
    before = clocks.here(clock.reads(sent))
    clock.exchange(clocks, sent, 1_000, 0, 1_000)
    after = clocks.here(clock.reads(sent))
    assert before.earliest <= after.earliest <= after.latest <= before.latest
    assert after.latest - after.earliest <= 2_000 + 2 * (1_000 + 2)


@given(offsets, delays, delays)
def test_width_is_the_round_trip_time(offset: int, out: int, back: int) -> None:
    clock, clocks = ServerClock(offset, Fraction(0)), ClockMap()
    clock.exchange(clocks, 0, out, 0, back)
    here = clocks.here(clock.reads(out))
    assert out + back <= here.latest - here.earliest <= out + back + 4


def test_uncertainty_grows_with_the_age_of_the_last_exchange() -> None:
    clock, clocks = ServerClock(0, Fraction(0)), ClockMap()
    clock.exchange(clocks, 0, 100, 0, 100)
    widths = [
        here.latest - here.earliest
        for here in (clocks.here(clock.reads(after)) for after in (0, 10**9, 10**10))
    ]
    assert widths[0] < 210
    assert 190_000 < widths[1] < 220_000
    assert 1_900_000 < widths[2] < 2_200_000


def test_a_shared_clock_needs_no_map() -> None:
    clocks = ClockMap()
    clocks.same_clock = True
    assert clocks.here(123) == Span(123, 123)
    assert clocks.span(5, 9) == Span(5, 9)
