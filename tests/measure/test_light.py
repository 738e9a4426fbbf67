"""The true moments of light lie inside the spans that averaged readings give."""

import math
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.measure.light import LightWatch, dither
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerReading

FLOOR_DBM = -60.0
MS = 1_000_000


@dataclass
class Step:
    """Light at one egress: `before`, dark from `gone` to `back`, then `after` (dBm or None)."""

    gone: int
    back: int
    before: float | None
    after: float | None

    def mean(self, start: int, end: int) -> float:
        """Mean power in mW from `start` to `end`."""
        parts = (
            (self.before, start, min(end, self.gone)),
            (self.after, max(start, self.back), end),
        )
        energy = sum(
            max(until - since, 0) * 10 ** (dbm / 10)
            for dbm, since, until in parts
            if dbm is not None
        )
        return energy / (end - start)


@dataclass
class Monitor:
    """Readings of `steps`: averaged, delayed and noisy."""

    steps: Mapping[int, Step]
    window: int
    draw: st.DataObject
    noise_db: float = 0.2
    slowest: int = 3 * MS
    now: int = 0
    _delays: st.SearchStrategy[int] = field(init=False)

    def __post_init__(self) -> None:
        self._delays = st.integers(0, self.slowest)

    def power(self, ports: list[int]) -> PowerReading:
        asked = self.now
        sample = asked + self.draw.draw(self._delays, "until the sample")
        answered = sample + self.draw.draw(self._delays, "until the answer")
        self.now = answered
        dbm = {}
        for port in ports:
            power = self.steps[port].mean(sample - self.window, sample)
            shown = FLOOR_DBM if power <= 0 else max(10 * math.log10(power), FLOOR_DBM)
            noise = self.draw.draw(st.floats(-self.noise_db, self.noise_db), "noise")
            dbm[port] = shown + (noise if shown > FLOOR_DBM else 0)
        return PowerReading(asked, answered, self.window, dbm)

    def watch(self, leaving: set[int], coming: set[int], sent: int, until: int) -> LightWatch:
        """Read as a measurement does: once before the command, then with a window between."""
        watch = LightWatch(self, leaving, coming)
        watch.take()
        self.now = max(self.now, sent)
        while not watch.complete and self.now < until:
            self.now += self.window + self.draw.draw(st.integers(0, self.window), "late")
            watch.take()
        return watch


levels = st.floats(-20, 5)
"""In dBm, such as monitors behind a switch show."""


def inside(span: Span, true: int) -> bool:
    return span.earliest <= true <= span.latest


@given(
    data=st.data(),
    window=st.integers(MS, 50 * MS),
    sent=st.integers(60 * MS, 100 * MS),
    level=levels,
    step=st.floats(-8, 8),
    wait=st.integers(0, 30 * MS),
    extra=st.integers(0, 60 * MS),
)
def test_light_that_moves_is_seen_to_go_and_to_come(
    data: st.DataObject, window: int, sent: int, level: float, step: float, wait: int, extra: int
) -> None:
    # Dark for so long that one reading at least is of darkness alone.
    gone = sent + 6 * MS + wait
    back = gone + 3 * window + 12 * MS + extra
    monitor = Monitor({7: Step(gone, back, level, level + step)}, window, data)
    watch = monitor.watch({7}, {7}, sent, back + 10 * window + 60 * MS)
    assert watch.complete
    command = Span(sent, sent + 1)
    assert inside(watch.losses_of_signal(command)[7], gone)
    assert inside(watch.recoveries(command)[7], back)


@given(
    data=st.data(),
    window=st.integers(MS, 50 * MS),
    sent=st.integers(60 * MS, 100 * MS),
    level=levels,
    wait=st.integers(0, 80 * MS),
)
def test_light_that_only_comes_and_light_that_only_goes(
    data: st.DataObject, window: int, sent: int, level: float, wait: int
) -> None:
    at = sent + 6 * MS + wait
    never = 10**12
    steps = {1: Step(0, at, None, level), 2: Step(at, never, level, None)}
    monitor = Monitor(steps, window, data)
    watch = monitor.watch({2}, {1}, sent, at + 10 * window + 60 * MS)
    assert watch.complete
    command = Span(sent, sent + 1)
    assert set(watch.losses_of_signal(command)) == {2}
    assert set(watch.recoveries(command)) == {1}
    assert inside(watch.losses_of_signal(command)[2], at)
    assert inside(watch.recoveries(command)[1], at)


@pytest.mark.long
@hypothesis.settings(max_examples=300)
@given(
    data=st.data(),
    window=st.integers(5 * MS, 20 * MS),
    level=levels,
    step=st.floats(-8, 8),
    wait=st.integers(0, 20 * MS),
    dark=st.integers(0, 30 * MS),
)
def test_a_darkness_shorter_than_the_window_is_never_reported_wrongly(
    data: st.DataObject, window: int, level: float, step: float, wait: int, dark: int
) -> None:
    sent = 60 * MS
    gone = sent + 6 * MS + wait
    back = gone + dark
    monitor = Monitor({7: Step(gone, back, level, level + step)}, window, data)
    watch = monitor.watch({7}, {7}, sent, back + 10 * window)
    command = Span(sent, sent + 1)
    for spans, true in ((watch.losses_of_signal(command), gone), (watch.recoveries(command), back)):
        assert all(inside(span, true) for span in spans.values())


class Punctual:
    """A monitor without noise or delay, read once a window."""

    def __init__(self, step: Step, window: int) -> None:
        self.step, self.window, self.now = step, window, 0

    def power(self, ports: list[int]) -> PowerReading:
        power = max(self.step.mean(self.now - self.window, self.now), 1e-6)
        return PowerReading(
            self.now, self.now, self.window, dict.fromkeys(ports, 10 * math.log10(power))
        )


@pytest.mark.parametrize("step", [-5.0, 0.0, 5.0])
def test_a_spell_shorter_than_the_window_is_seen_wherever_it_falls(step: float) -> None:
    sent, window, dark = 100 * MS, 10 * MS, 8 * MS
    missed = []
    for phase in range(0, 10 * MS, MS // 2):
        gone, back = sent + 2 * MS + phase, sent + 2 * MS + phase + dark
        monitor = Punctual(Step(gone, back, 0.0, step), window)
        watch = LightWatch(monitor, {7}, {7})
        for monitor.now in range(sent, sent + 20 * window, window):
            watch.take()
        command = Span(sent, sent)
        spans = watch.complete and (
            watch.losses_of_signal(command)[7],
            watch.recoveries(command)[7],
        )
        if not spans or not (inside(spans[0], gone) and inside(spans[1], back)):
            missed.append(phase / MS)
    assert missed == []


@given(data=st.data(), level=levels)
def test_light_that_never_comes_is_absent(data: st.DataObject, level: float) -> None:
    never, sent = 10**12, 60 * MS
    steps = {1: Step(0, never, None, level), 2: Step(sent + 6 * MS, never, level, level)}
    watch = Monitor(steps, 10 * MS, data).watch({2}, {1, 2}, sent, sent + 200 * MS)
    command = Span(sent, sent + 1)
    assert not watch.complete
    assert watch.recoveries(command) == {}
    assert set(watch.losses_of_signal(command)) == {2}


@given(data=st.data(), level=levels)
def test_steady_light_is_no_loss_of_signal(data: st.DataObject, level: float) -> None:
    never, sent = 10**12, 60 * MS
    watch = Monitor({2: Step(never, never, level, None)}, 10 * MS, data).watch(
        {2}, set(), sent, sent + 200 * MS
    )
    assert not watch.complete
    assert watch.losses_of_signal(Span(sent, sent + 1)) == {}


@given(data=st.data())
def test_nothing_happens_before_the_command(data: st.DataObject) -> None:
    sent = 60 * MS
    monitor = Monitor({1: Step(0, sent + 7 * MS, None, -3.0)}, 50 * MS, data)
    watch = monitor.watch(set(), {1}, sent, sent + 500 * MS)
    assert watch.recoveries(Span(sent, sent + 1))[1].earliest >= sent


def test_samples_that_share_light_are_not_taken_for_steady_light() -> None:
    # The light goes while a reading is taken, and the next ones follow on its heels.
    sent, window, gone, back = 60 * MS, MS, 66 * MS, 81 * MS
    monitor = Punctual(Step(gone, back, 0.0, 0.0), window)
    watch = LightWatch(monitor, {7}, {7})
    for monitor.now in (sent, gone + window // 2, gone + window // 2, gone + window // 2):
        watch.take()
    assert not watch.complete


def test_equal_shares_of_old_and_of_new_light_are_not_taken_for_steady_light() -> None:
    # Darkness over the end of one window and the begin of the next: both show four tenths.
    sent, window = 100 * MS, 10 * MS
    gone, back = sent + 4 * MS, sent + 16 * MS
    monitor = Punctual(Step(gone, back, 0.0, 0.0), window)
    watch = LightWatch(monitor, {7}, {7})
    for monitor.now in range(sent, sent + 3 * window, window):
        watch.take()
    assert not watch.complete
    for monitor.now in range(sent + 3 * window, sent + 6 * window, window):
        watch.take()
    assert watch.complete
    assert inside(watch.recoveries(Span(sent, sent))[7], back)


def test_noise_above_the_steady_limit_does_not_end_the_time_without_light() -> None:
    """Light is back at 134 ms; later, one reading shows 0.6 dB less by noise."""
    sent, window = 100 * MS, 10 * MS
    gone, back = sent + 4 * MS, sent + 34 * MS

    class Noisy(Punctual):
        def power(self, ports: list[int]) -> PowerReading:
            reading = super().power(ports)
            dbm = {
                port: level - 0.6 * (self.now == sent + 50 * MS)
                for port, level in reading.dbm.items()
            }
            return PowerReading(self.now, self.now, window, dbm)

    monitor = Noisy(Step(gone, back, 0.0, 0.0), window)
    watch = LightWatch(monitor, {7}, {7})
    for monitor.now in range(sent, sent + 8 * window, window):
        watch.take()
    assert watch.complete
    assert watch.recoveries(Span(sent, sent))[7] == Span(sent + 30 * MS, sent + 60 * MS)


def test_light_may_go_between_the_query_and_the_sample() -> None:
    sent, window, delay = 100 * MS, 5 * MS, 3 * MS
    gone = sent + 18 * MS

    class Slow(Punctual):
        def power(self, ports: list[int]) -> PowerReading:
            reading = super().power(ports)
            return PowerReading(self.now - delay, self.now, window, reading.dbm)

    monitor = Slow(Step(gone, gone, 0.0, -20.0), window)
    watch = LightWatch(monitor, {7}, set())
    for monitor.now in range(sent, sent + 30 * MS, 10 * MS):
        watch.take()
    assert watch.losses_of_signal(Span(sent, sent))[7] == Span(sent + 2 * MS, sent + 20 * MS)


def test_points_within_the_bounds_are_not_biased() -> None:
    # A light that goes 2.6 ms after the command and comes 54 ms after it, read every 10 ms.
    window, draws = 10 * MS, random.Random(20)
    off: dict[str, list[float]] = {"gone": [], "back": [], "middle": []}
    for event in range(400):
        sent = 100 * MS
        gone = sent + round((2.6 + draws.gauss(0, 0.3)) * MS)
        back = sent + round((54 + draws.gauss(0, 3)) * MS)
        monitor = Noisy(Step(gone, back, -3.0, -5.0), window, draws)
        watch = LightWatch(monitor, {7}, {7})
        monitor.now = sent
        watch.take()
        monitor.now += round((1 - dither(event)) * window)
        while not watch.complete:
            watch.take()
            monitor.now += window + draws.randrange(MS)
        command = Span(sent, sent)
        lost, back_in = watch.losses_of_signal(command)[7], watch.recoveries(command)[7]
        points = (
            watch.loss_points(watch.losses_of_signal(command))[7],
            watch.recovery_points(watch.recoveries(command))[7],
        )
        assert inside(lost, points[0])
        assert inside(back_in, points[1])
        off["gone"].append((points[0] - gone) / MS)
        off["back"].append((points[1] - back) / MS)
        off["middle"].append((sum(lost) / 2 - gone) / MS)
    assert abs(statistics.mean(off["gone"])) < 0.05
    assert abs(statistics.mean(off["back"])) < 0.05
    assert statistics.mean(map(abs, off["gone"])) < 0.2
    assert statistics.mean(map(abs, off["back"])) < 0.2
    assert statistics.mean(off["middle"]) > 2  # of the bounds by themselves


class Noisy(Punctual):
    """A monitor whose readings scatter by 0.05 dB and are answered within 0.2 ms."""

    def __init__(self, step: Step, window: int, draws: random.Random) -> None:
        super().__init__(step, window)
        self._draws = draws

    def power(self, ports: list[int]) -> PowerReading:
        sample = self.now + self._draws.randrange(MS // 10)
        power = self.step.mean(sample - self.window, sample)
        shown = 10 * math.log10(power) + self._draws.gauss(0, 0.05) if power > 0 else FLOOR_DBM
        asked, self.now = self.now, sample + self._draws.randrange(MS // 10)
        return PowerReading(asked, self.now, self.window, dict.fromkeys(ports, shown))


def test_a_window_with_old_and_new_light_has_no_point() -> None:
    sent, window = 100 * MS, 10 * MS
    monitor = Punctual(Step(sent + 13 * MS, sent + 17 * MS, 0.0, 0.0), window)
    watch = LightWatch(monitor, {7}, {7})
    for monitor.now in range(sent, sent + 6 * window, window):
        watch.take()
    assert set(watch.losses_of_signal(Span(sent, sent))) == {7}
    assert watch.loss_points(watch.losses_of_signal(Span(sent, sent))) == {}
    assert watch.recovery_points(watch.recoveries(Span(sent, sent))) == {}


def test_the_latency_of_a_monitor_is_in_its_bounds_and_points() -> None:
    # Readings show the light of 8 ms before.
    sent, window, latency = 100 * MS, 10 * MS, 8 * MS
    gone = sent + 3 * MS
    late = Step(gone + latency, 10**12, 0.0, None)
    spans, points = {}, {}
    for stated in (0, latency, 2 * latency):
        monitor = Punctual(late, window)
        monitor.power = lambda ports, m=monitor: floored(m, ports)  # type: ignore[method-assign]
        watch = LightWatch(monitor, {7}, set(), stated)
        for monitor.now in range(sent, sent + 6 * window, window):
            watch.take()
        spans[stated] = watch.losses_of_signal(Span(sent, sent))[7]
        points[stated] = watch.loss_points(watch.losses_of_signal(Span(sent, sent)))[7]
    assert not inside(Span(sent + 11 * MS, sent + 20 * MS), gone)
    assert points == {0: gone + latency, latency: gone + latency // 2, 2 * latency: gone}
    assert inside(spans[latency], gone)
    assert spans[0] == Span(sent, sent + 20 * MS)


def floored(monitor: Punctual, ports: list[int]) -> PowerReading:
    power = monitor.step.mean(monitor.now - monitor.window, monitor.now)
    shown = 10 * math.log10(power) if power > 0 else FLOOR_DBM
    return PowerReading(monitor.now, monitor.now, monitor.window, dict.fromkeys(ports, shown))


def test_a_slow_reply_adds_to_the_error_of_points() -> None:
    """8 ms of window, replies within 1 and 9 ms, a latency of 4 ms: 6 + 4.5 + 2 ms."""
    monitor = Punctual(Step(10**12, 10**12, 0.0, 0.0), 8 * MS)
    watch = LightWatch(monitor, {7}, {7}, 4 * MS)
    answers = iter([1 * MS, 9 * MS, 2 * MS])
    power = monitor.power

    def slow(ports: list[int]) -> PowerReading:
        reading = power(ports)
        return PowerReading(reading.asked, reading.answered + next(answers), 8 * MS, reading.dbm)

    monitor.power = slow  # type: ignore[method-assign]
    for monitor.now in (100 * MS, 120 * MS, 140 * MS):
        watch.take()
    assert watch.point_error == 12_500_000


class Listed:
    """Shows `levels` one after the other, at 100, 120, 140 ms ...; replies within 2 ms."""

    def __init__(self, levels: list[float], window: int) -> None:
        self._levels = list(enumerate(levels))
        self._window = window

    def power(self, ports: list[int]) -> PowerReading:
        (index, level), *self._levels = self._levels
        asked = (100 + 20 * index) * MS
        return PowerReading(asked, asked + 2 * MS, self._window, dict.fromkeys(ports, level))


def listed(levels: list[float], ends: str, window: int = 10 * MS, latency: int = 0) -> LightWatch:
    """Take `levels` of a port whose light leaves, comes, or both: "l", "c", "lc"."""
    leaving, coming = ({7} if end in ends else set() for end in "lc")
    watch = LightWatch(Listed(levels, window), leaving, coming, latency)
    for _ in levels:
        watch.take()
    return watch


QUARTER = 10 * math.log10(0.25)
"""Light for a quarter of a window, in dB."""


@pytest.mark.parametrize(
    ("levels", "ends", "loss", "at_loss", "recovery", "at_recovery"),
    [
        # Windows of 10 ms before samples at 101, 121, 141 ms...; the command left at 103 ms.
        ([0, -60, -60, -3, -3], "lc", (103, 122), 106, (130, 162), 146),
        # Light for the first quarter of a window that ends at 121 ms; for the last, at 181 ms.
        (
            [0, QUARTER, -60, -60, QUARTER - 3, -3, -3],
            *("lc", (103, 122), 113.5, (170, 202), 178.5),
        ),
        ([-60, -60, QUARTER - 3, -3, -3], "c", None, None, (130, 162), 138.5),
        ([0, 0.2, QUARTER, -60], "l", (110, 142), 133.5, None, None),
        ([0, 0.2, -60], "l", (110, 142), 126, None, None),
        # 0.4 dB less may be noise, or dark for a small share of a window.
        ([0, -0.4, -60], "l", (110, 142), 121 - 10 * (1 - 10**-0.04), None, None),
        # 1.5 dB less may be; more is not.
        ([0, -1.5, -1.5, -60], "l", (103, 162), 121 - 10 * (1 - 10**-0.15), None, None),
        ([0, -1.51, -1.51, -60], "l", (103, 122), 121 - 10 * (1 - 10**-0.151), None, None),
        # No light is -40 dBm or less: there is none that could be lost.
        ([-40, -60, -3, -3], "lc", None, None, (110, 142), 126),
        # Dark and new light together may look like old light before, and like new light after.
        ([-6, -6, -6, -1, -1, -1], "lc", (110, 162), None, (130, 162), None),
        ([-1, -1, -6, -6, -6], "lc", (110, 142), None, (110, 162), None),
        # New light in the window that ends at 121 ms too, as the next reading may show.
        (
            [0, QUARTER, -3.4, -3, -3],
            *("lc", (103, 122), None, (110, 142), 141 - 10 * 10**-0.04),
        ),
        (
            [0, QUARTER, -3.6, -3, -3, -3],
            *("lc", (103, 122), 113.5, (110, 162), 141 - 10 * 10**-0.06),
        ),
    ],
)
def test_bounds_and_points_by_hand(
    levels: list[float],
    ends: str,
    loss: tuple[int, int] | None,
    at_loss: float | None,
    recovery: tuple[int, int] | None,
    at_recovery: float | None,
) -> None:
    watch, sent = listed(levels, ends), Span(103 * MS, 104 * MS)

    def expected(bounds: tuple[int, int] | None) -> dict[int, Span]:
        return {} if bounds is None else {7: Span(bounds[0] * MS, bounds[1] * MS)}

    assert watch.losses_of_signal(sent) == expected(loss)
    assert watch.recoveries(sent) == expected(recovery)
    points_of = (
        watch.loss_points(watch.losses_of_signal(sent)),
        watch.recovery_points(watch.recoveries(sent)),
    )
    for points, at in zip(points_of, (at_loss, at_recovery), strict=True):
        assert points == ({} if at is None else {7: pytest.approx(at * MS, abs=1)})


@pytest.mark.parametrize(
    ("levels", "ends", "window", "complete"),
    [
        ([0, -60], "l", 10, True),
        ([0, -60], "lc", 10, False),
        ([0, -40, -3, -3], "lc", 10, True),
        ([0, -40, -3, -3.5], "lc", 10, True),
        ([0, -40, -3, -3.6], "lc", 10, False),
        # Never dark alone: a third reading of new light.
        ([0, -39.9, -3, -3], "lc", 10, False),
        ([0, -39.9, -3, -3, -3], "lc", 10, True),
        # A window as long as from an answer to the next question, and a longer one.
        ([0, -40, -3, -3], "lc", 18, True),
        ([0, -40, -3, -3], "lc", 19, False),
        ([-40, -3, -3], "c", 10, True),
        ([-39, -3, -3], "c", 10, False),
        # Steady, then dark again.
        ([-60, -3, -3, -60], "c", 10, False),
    ],
)
def test_light_is_steady_by_hand(
    levels: list[float], ends: str, window: int, complete: bool
) -> None:
    watch = listed(levels, ends, window * MS)
    assert watch.complete is complete
    assert watch.longest_gap == 18 * MS


def test_changes_show_until_the_reading_before_the_last() -> None:
    assert listed([0, -60, -60], "l", latency=5 * MS).watched == Span(117 * MS, 142 * MS)
    assert listed([0], "l", latency=5 * MS).watched == Span(97 * MS, 102 * MS)
    assert [dither(number) for number in (0, 1, 2)] == pytest.approx([0, 0.618034, 0.236068])
