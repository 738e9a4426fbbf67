"""Whatever a server's clock shows and however slow the way: the true moment is inside."""

import itertools
import math
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.servers.host.linux import PROBE
from lightrig.instruments.servers.host.offset import ClockDriftWarning, ClockMap
from lightrig.instruments.servers.host.program import ProgramRun
from lightrig.instruments.servers.programs import server_clock
from lightrig.instruments.wire.trace import Trace

MS, SECOND = 10**6, 10**9
YEAR = 365 * 86_400 * SECOND
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


def test_without_a_known_rate_uncertainty_grows_by_the_greatest_one() -> None:
    """One exchange says nothing of the rate: 1,000 ppm to either side, 1 ms in each second."""
    clock, clocks = ServerClock(0, Fraction(0)), ClockMap()
    clock.exchange(clocks, 0, 100, 0, 100)
    widths = [
        here.latest - here.earliest
        for here in (clocks.here(clock.reads(after)) for after in (0, 10**9, 10**10))
    ]
    assert widths[0] < 210
    assert 2_000_000 <= widths[1] < 2_002_000
    assert 20_000_000 <= widths[2] < 20_050_000


def test_a_known_rate_bounds_stamps_after_the_last_exchange() -> None:
    clock, clocks = ServerClock(3 * SECOND, 80 * PPM), ClockMap()
    for second in range(8):
        clock.exchange(clocks, second * SECOND, 90_000, 0, 110_000)
    here = clocks.here(clock.reads(10 * SECOND))
    assert here.earliest <= 10 * SECOND <= here.latest
    # Known to 0.2 ms in 7 s: three more seconds add 0.2 ms * 3 / 7 to either side.
    assert here.latest - here.earliest < 500_000


def test_a_shared_clock_needs_no_map() -> None:
    clocks = ClockMap()
    clocks.same_clock = True
    assert clocks.here(123) == Span(123, 123)
    assert clocks.span(5, 9) == Span(5, 9)


# ------------------------------------------------------------------------------- slews


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


@pytest.mark.parametrize("ppm", [150, 200, 500, 900, -200, -900])
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


@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize("step_ms", [1, 5, 50, 500, 5_000])
def test_a_jump_between_exchanges_is_an_error_with_its_size(step_ms: int, way: int) -> None:
    clock, clocks = ServerClock(7 * SECOND, 20 * PPM), ClockMap(name="server3")
    jumped = ServerClock(7 * SECOND + way * step_ms * MS, 20 * PPM)
    for tenth in range(8):
        clock.exchange(clocks, tenth * 100 * MS, 60_000, 5_000, 40_000)
    assert clocks.here(clock.reads(690 * MS)).earliest <= 690 * MS
    for tenth in range(8, 12):
        jumped.exchange(clocks, tenth * 100 * MS, 30_000, 5_000, 70_000)
    direction = "ahead" if way > 0 else "back"
    for true in (650 * MS, 750 * MS):
        with pytest.raises(
            ClockError, match=f"server3 has a clock that jumped {direction}"
        ) as says:
            clocks.here(clock.reads(true))
        least, most = map(float, re.findall(r"([0-9.]+) to ([0-9.]+) ms", str(says.value))[0])
        # Round trips of 0.1 ms before and after, and a rate known to one of them in 0.7 s.
        assert step_ms - 0.25 < least <= step_ms <= most < step_ms + 0.25
    if way > 0:
        after = clocks.here(jumped.reads(1050 * MS))
        assert after.earliest <= 1050 * MS <= after.latest
        assert after.latest - after.earliest < 400_000


def test_a_jump_while_a_request_is_answered_is_an_error() -> None:
    clocks = ClockMap(name="server3")
    clocks.exchanged(0, 100_000, 110_000, 200_000)
    clocks.exchanged(1 * MS, 1_100_000, 1_110_000, 1_200_000)
    clocks.exchanged(2 * MS, 2_100_000, 3_508_100_000, 3_502_300_000)  # 3.5 s, and 6 ms more
    with pytest.raises(ClockError, match=r"jumped ahead by [0-9.]+ to [0-9.]+ ms"):
        clocks.here(3_000_000_000)


@pytest.mark.parametrize("jumps", [False, True])
def test_a_slow_request_does_not_tell_the_rate(jumps: bool) -> None:
    clocks = ClockMap(name="server3")
    clocks.exchanged(0, 1 * MS, 1 * MS, 1 * MS + 50_000)  # the request took 1 ms, the reply 50 us
    for tenth in range(10, 22, 2):
        clocks.exchanged(
            *(tenth * 100 * MS + delay for delay in (-50_000, 0, 0, 50_000)),
        )
    # The middles of the first and the last exchange seem to tell a rate of 240 ppm, by which the
    # last is 0.96 ms late; those between allow 100 ppm, by which it is 0.35 ms early or late.
    there = 5_500 * MS - (960_000 if jumps else 0)
    clocks.exchanged(5_500 * MS - 50_000, there, there, 5_500 * MS + 50_000)
    if jumps:
        with pytest.raises(ClockError, match="server3 has a clock that jumped back by 0"):
            clocks.here(2_000 * MS)
    else:
        assert clocks.here(2_000 * MS).earliest <= 2_000 * MS <= clocks.here(2_000 * MS).latest


def test_exchanges_that_contradict_each_other_are_an_error_that_names_the_server() -> None:
    clocks = ClockMap(name="server3")
    clocks.exchanged(1000, 500_000, 500_000, 2000)
    clocks.exchanged(3000, 502_000, 502_000, 4000)
    clocks.exchanged(4000, 499_000, 499_000, 5000)
    # 499,000 was at 0 to 1,000 ns by the first two, and is at 4,000 to 5,000 ns by the last.
    with pytest.raises(ClockError, match=r"server3 has a clock that jumped back by 0.0029.. to"):
        clocks.here(500_500)


# ----------------------------------------------------------- rates that are known and wander


class Waits:
    """A bench that asks a server twice, lets it wait, and asks it again, over and over.

    The server's rate is `ppm`, plus a random walk of `walk` ppm per root second, plus a `ramp` of
    ppm a minute, integrated in steps of 50 ms; one way takes `delay` ns in the mean. The kernels
    correct their quartz by rates that differ by `corrected` ppm: a part of `ppm`, of which replies
    report what it has come to, to `jitter` ns.
    """

    STEP = 50 * MS

    def __init__(
        self,
        ppm: float,
        wait: int,
        delay: int,
        walk: float = 0,
        ramp: float = 0,
        corrected: float = 0,
        jitter: int = 0,
    ) -> None:
        self.chance = numpy.random.default_rng(7)
        self.jitters = numpy.random.default_rng(8)
        self.corrected, self.jitter = corrected, jitter
        self.wait, self.delay, self.at = wait, delay, 100 * MS
        steps = (wait + SECOND) * 9 // self.STEP
        rates = ppm + walk * numpy.cumsum(self.chance.normal(0, math.sqrt(0.05), steps))
        rates += ramp / 60 * numpy.arange(steps) * 0.05
        self.gained = numpy.concatenate([[0.0], numpy.cumsum(rates) * self.STEP / 1e6])
        self.clocks = ClockMap()
        self.round_trips: list[float] = []

    def reads(self, at: float) -> int:
        step, rest = divmod(at, self.STEP)
        before, after = self.gained[int(step) : int(step) + 2]
        return math.floor(at + 5 * MS + before + (after - before) * rest / self.STEP)

    def exchange(self, busy: float) -> tuple[float, float]:
        out, back = self.delay * (0.7 + self.chance.exponential(0.3, 2))
        sent, there = self.at, self.at + out
        self.at = math.ceil(there + busy + back)
        slewed = self.corrected * 1e-6 * (there + busy)
        slewed += self.jitters.integers(-self.jitter, self.jitter + 1)
        stamps = self.reads(there), self.reads(there + busy)
        self.clocks.exchanged(sent, *stamps, self.at, math.floor(slewed))
        self.round_trips.append(out + back)
        return there, there + busy

    def events(self, count: int) -> Iterator[tuple[float, Span]]:
        """Yield true moments within waits, and where the map has them."""
        for _ in range(count):
            for _ in range(2):
                self.exchange(50_000)
                self.at += MS
            begun, ended = self.exchange(self.wait)
            self.at += MS
            self.exchange(50_000)
            for true in self.chance.uniform(begun, ended, 15):
                yield true, self.clocks.here(self.reads(true))


@pytest.mark.parametrize(
    ("wait", "delay"), [(3.5, 120_000), (3.5, 20_000), (10, 50_000), (60, 50_000)]
)
@pytest.mark.parametrize(("walk", "ramp"), [(0, 0), (0.1, 0), (0.1, 1), (0.1, -1)])
@pytest.mark.filterwarnings("ignore::lightrig.instruments.servers.host.offset.ClockDriftWarning")
def test_the_width_does_not_depend_on_the_rate(
    wait: float, delay: int, walk: float, ramp: float
) -> None:
    widths = {}
    for ppm in (0, 20, -500):
        waits = Waits(ppm, round(wait * SECOND), delay, walk, ramp)
        mapped = list(waits.events(8))
        assert all(here.earliest <= true <= here.latest for true, here in mapped)
        of_last = [here.latest - here.earliest for _, here in mapped[-60:]]
        widths[ppm] = numpy.median(of_last)
        # An exchange alone, of the usual round trip, maps no better than its round-trip time.
        assert widths[ppm] <= 2 * numpy.median(waits.round_trips)
    assert max(widths.values()) <= 1.3 * widths[0]


@pytest.mark.parametrize(
    ("wait", "delay"),
    [(0.5, 120_000), (3.5, 20_000), (3.5, 120_000), (10, 120_000), (30, 120_000)],
)
@pytest.mark.parametrize("corrected", [1, 5, 20, 50, 90, -50])
@pytest.mark.filterwarnings("error::lightrig.instruments.servers.host.offset.ClockDriftWarning")
def test_a_steady_correction_of_the_rate_costs_no_width(
    wait: float, delay: int, corrected: float
) -> None:
    """Two machines that follow one time service: equal rates, of quartz that differs."""
    widths = {}
    for ppm in (0, corrected):
        waits = Waits(0, round(wait * SECOND), delay, corrected=ppm)
        mapped = list(waits.events(8))  # raises after a jump
        assert all(here.earliest - 1 <= true <= here.latest + 1 for true, here in mapped)
        widths[ppm] = numpy.median([here.latest - here.earliest for _, here in mapped])
    assert widths[corrected] <= 1.3 * widths[0]


@pytest.mark.parametrize("wait", [0.2, 3.5, 60])
def test_an_error_of_reported_slews_is_not_extrapolated(wait: float) -> None:
    """Two clocks are not read at one moment: 200 ns of a millisecond look like 200 ppm."""
    waits = Waits(0, round(wait * SECOND), 20_000, corrected=20, jitter=200)
    mapped = list(waits.events(8))
    assert all(here.earliest - 1 <= true <= here.latest + 1 for true, here in mapped)
    exact = list(Waits(0, round(wait * SECOND), 20_000, corrected=20).events(8))
    for (_, here), (_, wanted) in zip(mapped, exact, strict=True):
        # Of two points and the stamp, each with the errors of four reports, some twice as large.
        extra = here.latest - here.earliest - (wanted.latest - wanted.earliest)
        assert extra <= 2 * 3 * 2 * 4 * 200


@given(
    slews,
    st.integers(-100, 100),
    st.lists(st.tuples(st.integers(MS, 10 * SECOND), delays, delays), min_size=1, max_size=8),
    st.integers(0, 100),
)
@example(SlewedClock(2 * SECOND, 6 * SECOND, 500 * PPM), 20, [(5 * SECOND, 0, 0)] * 2, 70)
@example(SlewedClock(3 * SECOND, 9 * SECOND, -500 * PPM), 20, [(5 * SECOND, 0, 0)] * 3, 40)
def test_the_true_moment_is_inside_where_a_corrected_clock_is_slewed(
    slew: SlewedClock, corrected: int, exchanged: list[tuple[int, int, int]], percent: int
) -> None:
    """A time service corrects the rate for a minute, and then slews the clock once as well."""
    clocks, begun = ClockMap(), 60 * SECOND

    def exchange(sent: int, out: int, back: int) -> None:
        there = sent + out
        slewed = math.floor(there * corrected * PPM) + slew.slewed(there - begun)
        stamp = there + slew.slewed(there - begun)
        clocks.exchanged(sent, stamp, stamp, there + back, slewed)

    for second in range(0, 70, 10):
        exchange(second * SECOND, 1000, 1000)
    sent = begun
    for wait, out, back in exchanged:
        before, sent = sent, sent + wait
        exchange(sent, out, back)
        true = before + (sent - before) * percent // 100
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClockDriftWarning)
            here = clocks.here(true + slew.slewed(true - begun))
        assert here.earliest <= true <= here.latest
        sent += out + back


@pytest.mark.filterwarnings("ignore::lightrig.instruments.servers.host.offset.ClockDriftWarning")
def test_no_exchange_of_a_wandering_clock_looks_like_a_jump() -> None:
    for seed, gap in enumerate((MS, 100 * MS, 3500 * MS)):
        waits = Waits(200 * (seed - 1), 200 * gap, 50_000, 0.1, 1)
        for _ in range(400):
            before = waits.at
            waits.exchange(50_000)
            waits.clocks.here(waits.reads(before + 60_000))  # raises after a jump
            waits.at = before + gap


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


def test_slews_of_replies_are_taken_off(virtual_clock: VirtualClock) -> None:
    clocks = ClockMap()
    shell: Any = _Shell()
    run = ProgramRun("server3", shell, virtual_clock, Trace(virtual_clock), clocks, PROBE)
    for number, slewed in ((1, 7000), (2, 907_000)):
        run.submit("hello", {})
        virtual_clock.sleep(10**6)
        at = number * 10**6
        run.line(f'{{"id": {number}, "at": [{at}, {at}], "slewed": {slewed}, "ok": {{}}}}')
    # Of the millisecond between the two stamps the kernel added 0.9 ms, so 0.1 ms passed. The first
    # reply came at 1 ms, when the second request was sent: the first stamp is of 0.9 to 1 ms.
    here = clocks.here(1_000_000)
    assert here == pytest.approx((900_000, 1_000_000), abs=200)
    # The clock showed 1.5 ms at once where it was slewed at once, and else 0.1 ms later.
    here = clocks.here(1_500_000)
    assert here.earliest <= 900_000
    assert here.latest >= 1_100_000


@pytest.mark.parametrize("value", ["true", '"7"', "1.5", "[]", "{}", "1e999", "9" * 40])
@pytest.mark.parametrize("place", ["[{}, 5]", "[5, {}]", "slewed"])
def test_an_answer_with_no_stamps_is_none(
    virtual_clock: VirtualClock, place: str, value: str
) -> None:
    """It is read on a thread of the connection, which an exception would end."""
    trace, shell = Trace(virtual_clock), cast("Any", _Shell())
    run = ProgramRun("server3", shell, virtual_clock, trace, ClockMap(), PROBE)
    run.submit("hello", {})
    at, slewed = ("[5, 5]", value) if place == "slewed" else (place.format(value), "0")
    run.line(f'{{"id": 1, "at": {at}, "slewed": {slewed}, "ok": {{}}}}')
    assert "not an answer of the probe" in trace.tail()[-1]


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
