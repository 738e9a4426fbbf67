"""Recovery, climate, edges and signal quality from readings of which each number differs."""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightrig.harness.jobs.measure import rdma
from lightrig.harness.jobs.measure.recovery import Recovery
from lightrig.harness.measure import climate, switching_times
from lightrig.harness.measure.edges import Edge, edges
from lightrig.harness.measure.path_changes import Module, PathChanges, path_change_rows
from lightrig.harness.measure.signal_quality import diagnostic_rows
from lightrig.harness.measure.stages import cross_check_rows, overlaps
from lightrig.harness.measure.switch_optics import polarization, wavelength
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities.servers import Diagnostic
from lightrig.instruments.core.errors import NoReplyError
from lightrig.testbeds import Port, load

MINUTE = 60_000_000_000

# ----------------------------------------------------------------------------- recovery


def recovery(*operations: tuple[int, int, int, int], sent: Span, failures: Any = ()) -> Recovery:
    """Return a recovery: beginning and end of each operation, both as earliest and latest."""
    completed = [(Span(a, b), Span(c, d)) for a, b, c, d in operations]
    traffic: Any = SimpleNamespace(
        completed=lambda: completed, failures=failures, ranks=("a", "b", "c"), size=3000
    )
    return Recovery("one", "two", sent, Span(0, 0), traffic)


SENT = Span(100, 104)
BEFORE = ((10, 12, 20, 23), (30, 31, 47, 48), (50, 51, 62, 66))
"""Operations of 13, 18 and 16 ns at most before the command."""


def test_first_operation_is_the_first_that_begins_after_the_command() -> None:
    found = recovery(*BEFORE, (103, 110, 115, 120), (104, 106, 150, 157), (160, 161, 163, 164),
                     sent=SENT)  # fmt: skip
    # From the latest stamp of the command to the earliest end, and the other way round.
    assert found.first_completed() == Span(150 - 104, 157 - 100)
    assert recovery(*BEFORE, (103, 110, 115, 120), sent=SENT).first_completed() is None


def test_interruption_is_the_excess_of_the_longest_operation() -> None:
    found = recovery(*BEFORE, (90, 94, 140, 149), (150, 151, 170, 172), sent=SENT)
    # It lasted 46 to 59 ns; the median of those before is 16.
    assert found.interruption() == Span(46 - 16, 59 - 16)
    shorter = recovery(*BEFORE, (102, 103, 112, 120), sent=SENT)
    assert shorter.interruption() == Span(0, 18 - 16)
    assert recovery(*BEFORE, sent=SENT).interruption() is None
    assert recovery((90, 94, 140, 149), sent=SENT).interruption() is None
    # An operation that ends when the command is sent is one of those since then.
    edge = recovery(*BEFORE, (70, 71, 99, 100), sent=SENT)
    assert edge.interruption() == Span(28 - 16, 30 - 16)


def test_bandwidth_counts_from_the_end_of_the_operation_before() -> None:
    found = recovery((0, 1, 20, 24), (30, 31, 47, 48), (150, 151, 158, 168), sent=SENT)
    # Of 3 ranks a ring carries 2 * 2 / 3 of 3,000 bytes: 32,000 bits in 24 and in 120 ns.
    assert found.bandwidths() == [
        (Span(47 - 104, 48 - 100), round(32_000 / 24e-9)),
        (Span(158 - 104, 168 - 100), round(32_000 / 120e-9)),
    ]


def test_traffic_survives_without_failures() -> None:
    assert recovery(sent=SENT).survived
    assert not recovery(sent=SENT, failures=["b"]).survived


# ------------------------------------------------------------------------------ climate


class _Clock:
    at = 0

    def now(self) -> int:
        return self.at

    def sleep(self, ns: int) -> None:
        self.at += ns


class _Chamber:
    name = "oven"

    def __init__(self, temperatures: Iterator[float]) -> None:
        self._temperatures = temperatures
        self.asked: list[float] = []

    def set_temperature(self, celsius: float) -> None:
        self.asked.append(celsius)

    def temperature(self) -> float:
        return next(self._temperatures)


def test_soak_begins_anew_after_each_reading_outside_of_the_tolerance() -> None:
    band = climate.TOLERANCE_K
    polls = climate.SOAK // climate.POLL
    early = [20.0, 70.0 - band, 70.0 + 2 * band]
    steady = [70.0 + 0.4 * band, 70.0 - 0.9 * band, 70.0 + 0.7 * band]
    steady += [70.0 + 0.1 * band] * (polls - 3) + [70.0 - 0.2 * band]
    clock, chamber = _Clock(), _Chamber(iter(early + steady))
    row = climate.settled_temperature(chamber, 70.0, clock)  # type: ignore[arg-type]
    assert chamber.asked == [70.0]
    assert row.value == pytest.approx(70.0 - 0.2 * band)
    assert (row.lower, row.upper) == pytest.approx((70.0 - 0.9 * band, 70.0 + 0.7 * band))
    assert row.time_ns == 3 * climate.POLL + climate.SOAK


def test_temperature_at_the_tolerance_is_inside() -> None:
    clock = _Clock()
    at_limit = iter(lambda: 70.0 + climate.TOLERANCE_K, None)
    row = climate.settled_temperature(_Chamber(at_limit), 70.0, clock)  # type: ignore[arg-type]
    assert row.time_ns == climate.SOAK


def test_chamber_that_never_gets_there_is_named() -> None:
    with pytest.raises(climate.NotWarmError, match=r"oven is at 20 °C, 4 h after"):
        climate.settled_temperature(
            _Chamber(iter(lambda: 20.0, None)), 70.0, _Clock()  # type: ignore[arg-type]
        )  # fmt: skip


def test_steady_temperature_is_one_that_drifts_less_in_a_soak() -> None:
    polls = climate.SOAK // climate.POLL
    step = climate.TOLERANCE_K / polls
    # It falls twice as fast as is allowed for ten readings, then half as fast.
    fast = [80.0 - 2 * step * n for n in range(10)]
    slow = [fast[-1] - 0.5 * step * n for n in range(1, 4 * polls)]
    clock = _Clock()
    found = climate.steady_temperature(_Chamber(iter(fast + slow)), clock)  # type: ignore[arg-type]
    read = clock.at // climate.POLL
    assert found == pytest.approx((fast + slow)[read])
    window = (fast + slow)[read - polls : read + 1]
    assert max(window) - min(window) <= climate.TOLERANCE_K
    before = (fast + slow)[read - polls - 2 : read]
    assert max(before) - min(before) > climate.TOLERANCE_K or read == polls


# -------------------------------------------------------------------------------- edges


def log(levels: list[float], period: int = 10) -> Any:
    return SimpleNamespace(
        milliwatt=np.array(levels), period=period, start=Span(1000, 1004), samples=len(levels)
    )


def test_edge_is_between_the_samples_of_a_quarter_and_three_quarters() -> None:
    # Dark at 0.01, light at 1; samples 5 to 7 are on the way: 20 %, 50 % and 70 %.
    levels = [0.01] * 5 + [0.2, 0.5, 0.7] + [1.0] * 6
    (found,) = edges(log(levels))
    # The last sample below a quarter is number 5, the first above three quarters number 8.
    assert found == Edge(Span(55, 85), True)
    assert found.on_clock(log(levels)) == Span(1055, 1089)
    (gone,) = edges(log(levels[::-1]))
    # Reversed, of 14 samples: number 5 is the last that is light, number 8 the first dark one.
    assert gone == Edge(Span(55, 85), False)


def test_two_edges_have_levels_of_their_own() -> None:
    levels = [1.0] * 7 + [0.01] * 4 + [0.4] * 9
    went, came = edges(log(levels, period=8))
    assert (went, came) == (Edge(Span(52, 60), False), Edge(Span(84, 92), True))


# ----------------------------------------------------------------- quality, stages, optics


@pytest.mark.parametrize(("name", "side"), [("prefec_ber", "line"), ("temperature", "media")])
def test_diagnostic_of_an_unknown_name_or_side_is_left_out(name: str, side: str) -> None:
    one = Diagnostic(name, side, current=1.0)
    assert list(diagnostic_rows(Port("server0", "nic0"), one, Span(5, 6), 0)) == []


def test_lane_of_the_host_has_its_four_values_and_their_last_digits() -> None:
    one = Diagnostic("esnr", "host", 3, 20.0, 18.0, None, 22.0, 0.5)
    rows = list(diagnostic_rows(Port("server0", "nic0"), one, Span(5, 9), 4))
    assert [(row.quantity.rpartition(".")[2], row.value, row.lower, row.upper) for row in rows] == [
        ("host_esnr", 20.0, 19.75, 20.25),
        ("host_esnr_minimum", 18.0, 17.75, 18.25),
        ("host_esnr_maximum", 22.0, 21.75, 22.25),
    ]
    assert {(row.subject, row.unit, row.time_ns, row.conditions["event"]) for row in rows} == {
        ("server0.nic0.lane3", "dB", 5, 4)
    }
    (ratio,) = diagnostic_rows(Port("s", "n"), Diagnostic("prefec_ber", "media", current=1e-9,
                                                resolution=1e-8), Span(1, 2), 0)  # fmt: skip
    assert ratio.lower == 0.0
    assert ratio.upper == pytest.approx(6e-9)


@pytest.mark.parametrize(
    ("true", "expected"),
    [((1, 4), False), ((1, 5), True), ((9, 12), True), ((10, 12), False), ((6, 7), True)],
)
def test_moments_overlap_at_their_ends(true: tuple[int, int], expected: bool) -> None:
    assert overlaps([Span(90, 91), Span(*true)], Span(5, 9)) is expected


def test_delay_of_netlink_is_taken_from_the_same_stage_of_the_same_port() -> None:
    event: Any = SimpleNamespace(
        seen=[
            SimpleNamespace(subject="s.a", stage="carrier_up", at=Span(40, 43)),
            SimpleNamespace(subject="s.a", stage="carrier_down", at=Span(10, 12)),
            SimpleNamespace(subject="s.b", stage="carrier_up", at=Span(60, 61)),
        ],
        sent=Span(0, 1),
    )

    def announced(up: bool, early: int, late: int) -> Any:
        return SimpleNamespace(up=up, at=Span(early, late))

    checks = [
        (Port("s", "a"), announced(True, 47, 55)),
        (Port("s", "a"), announced(False, 14, 15)),
        (Port("s", "b"), announced(True, 50, 59)),  # before it was seen: of an earlier event
        (Port("s", "c"), announced(True, 70, 71)),
    ]
    found = [(row.subject, row.lower, row.upper) for row in cross_check_rows(checks, event, 0)]
    # From what was seen to the latest moment at which the message can have come.
    assert found == [("s.a", 55 - 43, 55 - 40), ("s.a", 15 - 12, 15 - 10)]


def test_noise_of_polarization_counts_the_fewest_readings_of_a_state() -> None:
    readings = {
        (axis, sign): [-10.0, -10.2, -10.1, -9.9] + [-10.05] * (5 * axis)
        for axis in range(3)
        for sign in (1, -1)
    }
    readings[1, -1] = [-10.0, -10.3, -9.9]
    _, components, _ = polarization.dependence(readings)
    values = [np.array(each) for each in readings.values()]
    pooled = sum(((each - each.mean()) ** 2).sum() for each in values) / sum(
        each.size - 1 for each in values
    )
    (noise,) = (part for part in components if part.name == "noise")
    assert noise.standard == pytest.approx(math.sqrt(pooled * 2 / 3))


# --------------------------------------------------------------------------- RDMA, wavelengths


_NO_INDEX: Any = {"gid_index": None}


class _Ends:
    """Two ends of a link: 8 of 1,000 messages, 3 of 500, and nothing that is alike."""

    retry_ns = 1

    def latency(self, size: int, iterations: int, **_: object) -> Any:
        assert (size, iterations) == (rdma.SMALL, 1000)
        return SimpleNamespace(
            size=size,
            iterations=iterations,
            typical_ns=2_100,
            p99_ns=3_700,
            at=Span(5, 11),
            gid_index=None,
        )

    def bandwidth(self, size: int, iterations: int, **_: object) -> Any:
        assert (size, iterations) == (rdma.LARGE, rdma.FILLING)
        return SimpleNamespace(
            size=size, iterations=iterations, average_bps=80e9, at=Span(20, 29), **_NO_INDEX
        )


def test_rows_of_rdma_state_messages_and_the_share_of_the_rate() -> None:
    testbed = load("testbeds/opus.yaml")
    plan = testbed.plans["giant-ring"]
    link = min(testbed.links(plan))
    rows = list(rdma.rdma_rows(_Ends(), link, plan, testbed))
    rate = rows[0].conditions["line_rate_bps"]
    assert [(row.quantity, row.value, row.unit, row.time_ns) for row in rows] == [
        ("rdma.latency", 2_100, "ns", 11),
        ("rdma.latency_p99", 3_700, "ns", 11),
        ("rdma.bandwidth", 80e9, "bit/s", 29),
        ("rdma.utilization", 80e9 / rate, "share", 29),
    ]
    assert {row.subject for row in rows} == {str(link)}
    assert {row.conditions["plan"] for row in rows} == {"giant-ring"}


class _SlowEnds:
    """Two ends of an emulated link: 100 messages of 1 MiB a minute, 900 small ones.

    Their tools may take three minutes where nothing else is stated.
    """

    retry_ns = 1

    def __init__(self) -> None:
        self.spent_s = 0.0

    def _take(self, seconds: float, timeout: int | None) -> None:
        limit = 180 if timeout is None else timeout / 1e9
        self.spent_s += min(seconds, limit)
        if seconds > limit:
            raise NoReplyError("server0", f"did not end a program within {limit:g} s")

    def latency(self, size: int, iterations: int, *, timeout: int | None = None) -> Any:
        self._take(iterations / 15, timeout)
        return SimpleNamespace(
            size=size,
            iterations=iterations,
            typical_ns=7_806_420,
            p99_ns=None,
            at=Span(5, 11),
            gid_index=None,
        )

    def bandwidth(self, size: int, iterations: int, *, timeout: int | None = None) -> Any:
        self._take(iterations * 0.6, timeout)
        return SimpleNamespace(
            size=size, iterations=iterations, average_bps=21e6, at=Span(20, 29), **_NO_INDEX
        )


def test_rdma_that_does_not_end_in_time_is_measured_with_fewer_messages() -> None:
    testbed = load("testbeds/opus.yaml")
    plan = testbed.plans["giant-ring"]
    ends = _SlowEnds()
    rows = list(rdma.rdma_rows(ends, min(testbed.links(plan)), plan, testbed))
    assert [(row.quantity, row.conditions["iterations"]) for row in rows] == [
        ("rdma.latency", 50),
        ("rdma.bandwidth", 50),
        ("rdma.utilization", 50),
    ]
    assert ends.spent_s == pytest.approx(2 * 60 + 50 / 15 + 50 * 0.6)


def test_dependence_on_the_wavelength_is_bounded_by_the_studentized_range() -> None:
    """Three wavelengths, three readings each: 6 degrees of freedom, and 4.34 in any table."""
    readings = [[-1.0, -1.2, -1.4], [-0.5, -0.5, -0.8], [-0.9, -0.9, -0.9]]
    value, (noise, source, meter), factor = wavelength.dependence(readings)
    assert value == pytest.approx(0.6)
    # Squares about the means: 0.08, 0.06 and 0.
    assert noise.standard == pytest.approx(math.sqrt(0.14 / 6) / math.sqrt(3))
    assert (noise.degrees, source.degrees, meter.degrees) == (6, math.inf, math.inf)
    assert source.standard == pytest.approx(wavelength.SOURCE_DB / math.sqrt(3))
    assert meter.standard == pytest.approx(wavelength.METER_DB / math.sqrt(3))
    assert factor == pytest.approx(4.34, abs=0.005)


# ------------------------------------------------------------------ changes seen by a meter


class _Truth:
    """Moments of the ground truth, by subject, stage and direction; the first since a moment."""

    def __init__(self, *moments: tuple[str, str, bool, Span]) -> None:
        self._moments = moments

    def knows(self, subject: str, stage: str) -> bool:
        return any(one[:2] == (subject, stage) for one in self._moments)

    def first(self, subject: str, stage: str, *, up: bool, since: int) -> Span | None:
        found = [at for *what, at in self._moments if what == [subject, stage, up]]
        return min((at for at in found if at.latest >= since), default=None)


def fabric_with(truth: _Truth | None) -> Any:
    bench = SimpleNamespace(truth=truth)
    return SimpleNamespace(bench=bench, testbed=SimpleNamespace(name="lab"))


MODULE = Module("ocs", 3, (5, 8), (1, 2))
OTHER = Module("ocs", 4, (6, 9), (3, 4))
SWITCHED = switching_times.Switching(
    ("near", "far"),
    Span(100, 104),
    Span(90, 93),
    {MODULE: switching_times.Transient(Span(40, 44), Span(20, 23), None, 0.7)},
    {MODULE: switching_times.Transient(Span(60, 62), Span(75, 79), Span(90, 97), 0.6)},
)


def test_durations_of_a_switch_are_between_their_ends() -> None:
    rows = list(switching_times.switching_rows(SWITCHED, 4))
    assert [(row.quantity, row.lower, row.value, row.upper) for row in rows] == [
        ("switching.fall", 17, 20, 24),
        ("switching.rise", 13, 16, 19),
        ("switching.bounce", 11, 16, 22),
        # The record began at 90 to 93, the command was written at 100 to 104.
        ("switching.time", 76, 83, 90),
    ]
    assert {(row.subject, row.unit, row.time_ns) for row in rows} == {("ocs.3", "ns", 100)}
    assert rows[0].conditions == {"event": 4, "paths": "near → far"}
    assert (
        list(switching_times.switching_rows(replace(SWITCHED, start=Span(10, 80)), 4))[-1].lower
        == 0
    )


@pytest.mark.parametrize(
    ("fall", "rise", "bounce", "time", "closed"),
    [
        (17, 19, 22, 76, 1.0),
        (24, 13, 11, 90, 1.0),
        (16, 19, 22, 76, 0.75),
        (17, 12, 22, 76, 0.75),
        (17, 19, 23, 76, 0.75),
        (17, 19, 22, 70, 0.75),
        (17, 19, 22, 95, 0.75),
        (25, 20, 22, 76, 0.5),
    ],
)
def test_durations_are_compared_with_the_true_ones(
    fall: int, rise: int, bounce: int, time: int, closed: float
) -> None:
    """True moments are exact; the time is from the command, whose stamps are 4 ns apart."""

    def at(ns: int) -> Span:
        return Span(ns, ns)

    truth = _Truth(
        ("ocs.5", "light90", False, at(120)),
        ("ocs.5", "light10", False, at(120 + fall)),
        ("ocs.8", "light10", True, at(20)),  # before the command
        ("ocs.8", "light10", True, at(150)),
        ("ocs.8", "light90", True, at(150 + rise)),
        ("ocs.8", "light", True, at(150 + rise + bounce)),
    )
    (row,) = switching_times.closure_of_switching(
        replace(SWITCHED, rises={MODULE: SWITCHED.rises[MODULE]}), fabric_with(truth), 4
    )
    # The bounce ends where the time does: only one of both is at its stated duration.
    moved = 150 + rise + bounce - 100
    inside = moved - 4 <= 90 and moved >= 76
    held = [17 <= fall <= 24, 13 <= rise <= 19, 11 <= bounce <= 22, inside]
    assert row.value == sum(held) / 4
    assert (row.quantity, row.subject, row.time_ns) == ("closure.switching", "lab", 100)
    assert list(switching_times.closure_of_switching(SWITCHED, fabric_with(None), 4)) == []


def test_repeatability_is_the_range_of_levels() -> None:
    levels = {"ocs.3>5": [1.0, 3.5, 2.0], "ocs.3>8": [1.0]}
    (row,) = switching_times.repeatability_rows(levels, 77)
    assert (row.subject, row.value, row.unit, row.time_ns) == ("ocs.3>5", 2.5, "dB", 77)
    assert row.conditions == {"n": 3}


CHANGED = PathChanges(
    *(("loopback", "external"), "written", 1_000, Span(1_010, 1_013), Span(1_150, 1_157)),
    lost={MODULE: Edge(Span(20, 22), False), OTHER: Edge(Span(10, 19), False)},
    back={MODULE: Edge(Span(50, 55), True), OTHER: Edge(Span(80, 84), True)},
    start=Span(1_001, 1_006),
)


def test_path_changes_last_between_their_edges_and_end_with_the_last() -> None:
    assert CHANGED.dark() == {MODULE: Span(28, 35), OTHER: Span(61, 74)}
    rows = list(path_change_rows(CHANGED, fabric_with(None), 6))
    assert [(row.subject, row.quantity, row.lower, row.value, row.upper) for row in rows] == [
        ("ocs.3", "path_change.dark", 28, 31, 35),
        ("ocs.4", "path_change.dark", 61, 67, 74),
        # From the record's beginning to 80 and 84 ns, from 1 and 6 ns after the call.
        ("ocs", "path_change.end_to_end", 81, 85, 90),
        ("ocs", "path_change.done", 157, 157, 157),
    ]
    assert {row.time_ns for row in rows} == {1_000}
    assert rows[0].conditions == {
        "event": 6, "paths": "loopback → external", "session": "written",
    }  # fmt: skip


def test_the_end_of_path_changes_is_bounded_by_command_and_word() -> None:
    """Light was away for 61 ns at least, from 10 ns on; the modules had reported by 88 ns."""
    assert replace(CHANGED, start=Span(900, 1_006)).end_to_end() == Span(71, 90)
    assert replace(CHANGED, word=Span(1_080, 1_088)).end_to_end() == Span(81, 88)
    assert replace(CHANGED, word=Span(1_010, 1_060)).end_to_end() == Span(81, 71)


@pytest.mark.parametrize(
    ("went", "came", "inside"), [(30, 58, 2), (30, 65, 2), (30, 57, 1), (30, 66, 1)]
)
@pytest.mark.parametrize("stage", ["half", "light"])
def test_dark_times_are_compared_with_the_true_ones(
    went: int, came: int, inside: int, stage: str
) -> None:
    truth = _Truth(
        ("ocs.5", stage, False, Span(900, 900)),  # before the call
        ("ocs.5", stage, False, Span(1_000 + went, 1_900)),
        ("ocs.8", stage, True, Span(1_000 + came, 1_950)),
        ("ocs.6", stage, False, Span(1_020, 1_020)),
        ("ocs.9", stage, True, Span(1_020 + 70, 1_950)),
    )
    row = list(path_change_rows(CHANGED, fabric_with(truth), 6))[-1]
    assert (row.quantity, row.value) == ("closure.path_change", inside / 2)
    assert row.conditions["n"] == 2
