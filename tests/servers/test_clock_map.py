"""Whatever a server's clock shows and however slow the way: the true moment is inside."""

import itertools
import math
import sys
import threading
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.servers.linux import PROBE
from lightrig.instruments.servers.offset import ClockDriftWarning, ClockError, ClockMap
from lightrig.instruments.servers.program import ProgramRun
from lightrig.instruments.servers.programs import server_clock
from lightrig.instruments.wire.trace import Trace

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


# ------------------------------------------------------------------------------- slews

MS, SECOND = 10**6, 10**9


@dataclass(frozen=True)
class SlewedClock:
    """A clock that is slewed by `rate` from `begun` on, for `lasting` ns."""

    begun: int
    lasting: int
    rate: Fraction

    def slewed(self, at: int) -> int:
        return math.floor(min(max(at - self.begun, 0), self.lasting) * self.rate)

    def reads(self, at: int) -> int:
        return at + self.slewed(at) + YEAR

    def exchange(
        self, clocks: ClockMap, sent: int, out: int, back: int, *, reports: bool = True
    ) -> None:
        there, received = sent + out, sent + out + back
        slewed = self.slewed(there) if reports else 0
        clocks.exchanged(sent, self.reads(there), self.reads(there), received, slewed)


slews = st.builds(
    SlewedClock,
    st.integers(0, 60 * SECOND),
    st.integers(0, 30 * SECOND),
    st.integers(-100_000, 100_000).map(lambda ppm: ppm * PPM),
)


@given(
    slews,
    st.lists(st.tuples(st.integers(MS, 10 * SECOND), delays, delays), min_size=1, max_size=8),
    st.integers(0, 100),
)
@example(SlewedClock(0, SECOND, 500 * PPM), [(MS, 0, 0), (10 * SECOND, 0, 0)], 10)
@example(SlewedClock(SECOND, 5 * SECOND, -500 * PPM), [(MS, 0, 0), (9 * SECOND, 0, 0)], 50)
def test_the_true_moment_is_inside_however_the_clock_is_slewed(
    clock: SlewedClock, exchanged: list[tuple[int, int, int]], percent: int
) -> None:
    """Chrony slews by up to 100,000 ppm; stamps come with the exchange after them."""
    clocks, sent = ClockMap(), 0
    clock.exchange(clocks, 0, 1000, 1000)
    for wait, out, back in exchanged:
        before, sent = sent, sent + wait
        clock.exchange(clocks, sent, out, back)
        true = before + (sent - before) * percent // 100
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClockDriftWarning)
            here = clocks.here(clock.reads(true))
        assert here.earliest <= true <= here.latest
        sent += out + back


@pytest.mark.parametrize("ppm", [150, 200, 500, 900, -200, -5000])
def test_a_drift_beyond_the_assumed_one_is_noticed_and_names_the_server(ppm: int) -> None:
    clock, clocks = SlewedClock(0, YEAR, ppm * PPM), ClockMap(name="server3")
    for second in range(0, 60, 5):
        clock.exchange(clocks, second * SECOND, 100_000, 100_000, reports=False)
    with pytest.warns(ClockDriftWarning, match="server3: its clock drifts by at least") as warned:
        here = clocks.here(clock.reads(52 * SECOND))
    assert here.earliest <= 52 * SECOND <= here.latest
    found = float(str(warned[0].message).split("least ")[1].split(" ppm")[0])
    assert 0.9 * abs(ppm) - 10 <= found <= 1.01 * abs(ppm)  # of its own time
    for tenth in range(600 - 50):
        true = tenth * SECOND // 10
        here = clocks.here(clock.reads(true))
        assert here.earliest <= true <= here.latest


def test_a_drift_within_the_assumed_one_is_not_noticed() -> None:
    clock, clocks = SlewedClock(0, YEAR, 99 * PPM), ClockMap()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for second in range(0, 60, 5):
            clock.exchange(clocks, second * SECOND, 1000, 1000, reports=False)
            clocks.here(clock.reads(second * SECOND))


def test_a_reported_slew_widens_bounds_only_around_itself() -> None:
    clock, clocks = SlewedClock(12 * SECOND, SECOND, 500 * PPM), ClockMap(exchanges=8)
    for second in range(0, 40, 5):
        clock.exchange(clocks, second * SECOND, 1000, 1000)
    widths = [
        here.latest - here.earliest
        for here in (clocks.here(clock.reads(at * SECOND)) for at in (2, 12, 30))
    ]
    assert widths[1] > 500_000
    assert widths[0] < 600_000
    assert widths[2] < 10_000


def test_exchanges_that_contradict_each_other_are_an_error_that_names_the_server() -> None:
    clocks = ClockMap(name="server3")
    clocks.exchanged(1000, 500_000, 500_000, 2000)
    clocks.exchanged(3000, 502_000, 502_000, 4000)
    clocks.exchanged(4000, 499_000, 499_000, 5000)
    with pytest.raises(ClockError, match="server3 has a clock that jumped by at least"):
        clocks.here(500_500)


def test_programs_report_how_far_their_clock_was_slewed() -> None:
    clock = SystemClock()
    assert server_clock.slewed() == pytest.approx(clock.slewed(), abs=20 * MS)
    clock.close()


class _Shell:
    """A shell whose program answers nothing by itself."""

    python = "python3"

    def start(self, command: Any, listener: Any) -> "_Shell":
        return self

    def send(self, text: str) -> None:
        pass


def test_slews_of_replies_loosen_the_bounds(virtual_clock: VirtualClock) -> None:
    clocks = ClockMap()
    shell: Any = _Shell()
    run = ProgramRun("server3", shell, virtual_clock, Trace(virtual_clock), clocks, PROBE)
    for number, slewed in ((1, 7000), (2, 907_000)):
        run.submit("hello", {})
        virtual_clock.sleep(10**6)
        at = number * 10**6
        run.line(f'{{"id": {number}, "at": [{at}, {at}], "slewed": {slewed}, "ok": {{}}}}')
    here = clocks.here(1_500_000)
    assert here.latest - here.earliest >= 1_800_000


def test_stamps_are_mapped_while_replies_come() -> None:
    """The thread that reads replies adds exchanges while others map stamps."""
    clock, clocks = SlewedClock(0, YEAR, 500 * PPM), ClockMap()
    clock.exchange(clocks, 0, 1000, 1000)
    done, usual = threading.Event(), sys.getswitchinterval()

    def read() -> None:
        for number in itertools.count(1):
            clock.exchange(clocks, number * MS, 1000, 1000)
            if done.is_set():
                return

    reader = threading.Thread(target=read)
    sys.setswitchinterval(1e-6)
    try:
        reader.start()
        for _ in range(3000):
            clocks.here(clock.reads(MS))
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(usual)
