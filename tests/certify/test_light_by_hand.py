"""Clauses on light with readings and estimates that are known by hand.

The lab's monitors have no noise here; what they show is changed by so many dB, near a limit on
either side.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from certify_labs import FACTORY, lab, timed_lab
from single_clauses import NotedSubject, clause, interval, subject_of
from sonic_defects import state_factory_losses

from lightrig.harness.bench import Bench
from lightrig.harness.certify.light_clauses import judge_light, repeatability_of
from lightrig.harness.certify.subject import Outcome
from lightrig.harness.certify.time_clauses import StageTimes, time_change
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.harness.measure.insertion_loss.observers import Monitors, SeenLight
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Reply, Tl1Request
from lightrig.testbeds import Circuit

Simulated = Callable[..., Bench]
Powers = dict[int, float]
Change = Callable[[SimulatedPolatis, Powers], Mapping[int, float]]
ALL = [Circuit(2 + n, 10 + n) for n in range(5)]
SPREAD = "loss: {mean: 1.2 dB, sd: 0.2 dB}"
"""Losses of the lab; here all are 1.2 dB, so that ports differ by what enters alone."""


def quiet(text: str) -> str:
    return text.replace("noise: 0.03 dB", "noise: 0 dB").replace(SPREAD, "loss: {mean: 1.2 dB}")


def show(patch: pytest.MonkeyPatch, change: Change) -> None:
    """Let the monitors of a Polatis show `change` of the powers that they have."""
    execute = SimulatedPolatis.execute

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        if request.verb != "RTRV-PORT-POWER":
            return reply
        powers = {int(p): float(dbm) for p, dbm in (line.split(":") for line in reply.lines)}
        return Tl1Reply([f"{port}:{dbm:.2f}" for port, dbm in change(device, powers).items()])

    patch.setattr(SimulatedPolatis, "execute", answer)


# ------------------------------------------------------------------------- 3.1, the acknowledgement


def by_hand(first: list[float], final: list[list[float]], risk: float = 0.01) -> Outcome:
    circuits = [Circuit(2 + n, 10 + n) for n in range(len(first))]
    return judge_light(list(zip(circuits, first, strict=True)), np.array(final), risk)


def test_the_interval_of_a_difference_is_that_of_students_t() -> None:
    """Two circuits of three readings each have 4 degrees of freedom.

    Variances are 0.04 and 0.01, pooled 0.025; t at 1 - 0.02 / 4 is 4.604 (any table); the standard
    uncertainty of a difference is sqrt(0.025 * (1 + 1 / 3)) = 0.18257. The differences are -0.3
    from -5 and +0.2 from -8.
    """
    found = by_hand([-5.3, -7.8], [[-5.2, -5.0, -4.8], [-8.1, -8.0, -7.9]], 0.02)
    assert found.value == pytest.approx(0.3)
    low, high = interval(found)
    assert (low, high) == (0.0, pytest.approx(0.3 + 4.604 * 0.18257, abs=2e-4))
    assert (found.verdict, found.n, found.unit) == ("inconclusive", 2, "dB")
    assert found.reason.endswith(", of 2>10")


@pytest.mark.parametrize(
    ("first", "verdict", "low"),
    [
        (-5.45, "pass", 0.45 - 0.0386),
        (-5.48, "inconclusive", 0.48 - 0.0386),
        (-5.52, "inconclusive", 0.52 - 0.0386),
        (-4.45, "fail", 0.55 - 0.0386),
    ],
)
def test_a_difference_is_judged_by_its_interval(first: float, verdict: str, low: float) -> None:
    """One circuit of four readings, standard deviation 0.01155: t at 0.975 and 3 is 3.182.

    The half width is 3.182 * 0.011547 * sqrt(1.25) = 0.0411.
    """
    found = by_hand([first], [[-5.01, -4.99, -5.01, -4.99]], 0.05)
    assert (found.verdict, interval(found)[0]) == (verdict, pytest.approx(low, abs=3e-3))
    assert interval(found)[1] - interval(found)[0] == pytest.approx(2 * 0.0411, abs=2e-4)


def test_dark_circuits_are_left_out_or_fail() -> None:
    """One that was lit with another circuit of its ingress, and is dark now, fails."""
    dark, bright = [-60.0] * 3, [-5.0, -5.1, -4.9]
    found = by_hand([-60.0, -5.1], [dark, bright])
    assert (found.n, found.reason[-4:]) == (1, "3>11")
    circuits = [(Circuit(2, 10), -5.0), (Circuit(3, 11), -5.0), (Circuit(2, 12), -60.0)]
    stays = judge_light(circuits, np.array([bright, bright, dark]), 0.01)
    assert (stays.verdict, stays.reason) == ("fail", "2>12 was acknowledged and stays dark")
    assert by_hand([-60.0], [dark]).verdict == "not tested"
    assert judge_light([], np.array([]), 0.01).verdict == "not tested"


# ------------------------------------------------------------------------- 5.2, the repeatability


def test_repeatability_of_readings_by_hand() -> None:
    """Two circuits, three makings, two readings each, of uneven spread.

    Means of makings: 0, 3 and 6 for the first, 1, 2 and 6 for the second; their variances with
    n - 1 are 9 and 7, on average 8. Readings lie 0.5 to either side of their mean: variance 0.5,
    of a mean 0.25. So the variance between makings is 7.75. With 4 degrees of freedom the
    chi-squared quantiles at 0.975 and 0.025 are 11.143 and 0.4844.
    """
    means = np.array([[0.0, 3.0, 6.0], [1.0, 2.0, 6.0]])
    readings = np.stack([means - 0.5, means + 0.5], axis=2)
    value, low, high = repeatability_of(readings, 0.05)
    assert value == pytest.approx(7.75**0.5)
    assert low == pytest.approx((4 * 8 / 11.143 - 0.25) ** 0.5, rel=1e-4)
    assert high == pytest.approx((4 * 8 / 0.4844 - 0.25) ** 0.5, rel=1e-4)
    steady = np.stack([means[:, :1] - 0.5, means[:, :1] + 0.5], axis=2).repeat(2, axis=1)
    assert repeatability_of(steady, 0.05) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(0.12, "pass"), (0.07, "inconclusive"), (0.04, "fail"), (None, "not applicable")],
)
def test_repeatability_is_judged_by_its_interval(
    simulated: Simulated, limit: float | None, verdict: str
) -> None:
    """Over 60 makings the interval of 0.07 dB reaches from about 0.05 dB to 0.1 dB."""
    text = lab().replace("sd: 0.2 dB}", "sd: 0.2 dB, repeatability: 0.07 dB}")
    found = clause(subject_of(simulated(text), repeatability_db=limit), "repeatability")
    low, high = interval(found)
    assert found.value is not None
    assert 0.045 < low < found.value < high < 0.11
    assert (found.verdict, found.unit) == (verdict, "dB")
    word = "no limit in this profile" if limit is None else f"limit {limit:g} dB"
    assert found.reason == f"standard deviation over 6 makings of 10 circuits; {word}"


# ---------------------------------------------------------------------- 3.2, reports against light


@pytest.mark.parametrize(("apart", "verdict"), [(29.5, "fail"), (36.0, "pass"), (45.0, "pass")])
def test_the_least_distance_of_dark_ports_is_the_value(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, apart: float, verdict: str
) -> None:
    """Ports in no circuit show light so far below the weakest of the circuits; -40 dBm is dark."""
    seen: list[float] = []

    def change(device: SimulatedPolatis, powers: Powers) -> Mapping[int, float]:
        made = device.box.matrix.ingress_of
        weakest = min((dbm for port, dbm in powers.items() if port in made), default=None)
        if weakest is None:
            return powers
        seen.append(weakest)
        return {port: dbm if port in made else weakest - apart for port, dbm in powers.items()}

    show(monkeypatch, change)
    found = clause(subject_of(simulated(quiet(lab()))), "reported_light")
    assert found.verdict == verdict
    # Five settings have circuits, each of nine readings; then inputs are told apart. Of the first
    # setting, of all ports, none is dark; the weakest of all settings counts.
    compared = seen[: 5 * 9]
    weakest = min(compared)
    brightest = max(max(compared[9:]) - apart, -40.0)
    assert found.value == pytest.approx(weakest - brightest, abs=0.02)
    assert ("the dark ones show no light" in found.reason) is (brightest == -40.0)


# --------------------------------------------------------------------------- 3.3, blocks of ports


def test_what_was_blocked_before_stays_so_and_is_not_tried(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10 to 14, 11 is blocked: the three that are tried are 10, 12 and 13."""
    bench = simulated(lab())
    switch: Any = bench.switches["ocs"]
    switch.set_shutters([11], is_open=False)
    moved: list[tuple[str, str]] = []
    execute = SimulatedPolatis.execute

    def note(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        if request.verb in {"OPR-PORT-SHUTTER", "RLS-PORT-SHUTTER"}:
            moved.append((request.verb[:3], request.aid))
        return execute(device, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", note)
    found = clause(subject_of(bench), "forced_block")
    assert (found.verdict, found.n) == ("pass", 3), found
    assert found.reason == "blocked and freed, states and light"
    one_by_one = [(verb, port) for port in ("10", "12", "13") for verb in ("OPR", "RLS")]
    assert moved == [*one_by_one, ("RLS", "10&12&13")]
    assert not switch.shutters([11])[11]


def shut_changes(by: Mapping[str, float], port: int) -> Change:
    """Change powers while 12 is shut (`shut`) and afterwards (`freed`), at `port`, in dB.

    `apart`: by how much what 12 shows while it is shut is below what it showed before.
    """
    states, levels = list[bool](), list[float]()

    def change(device: SimulatedPolatis, powers: Powers) -> Mapping[int, float]:
        is_shut = device.box.is_shut(12)
        states.append(is_shut)
        levels.append(powers[12])
        if is_shut and "apart" in by:
            return {**powers, 12: levels[0] - by["apart"]}
        key = "shut" if is_shut else "freed" if any(states) else "before"
        return {p: dbm + by.get(key, 0.0) * (p == port) for p, dbm in powers.items()}

    return change


@pytest.mark.parametrize(
    ("by", "port", "reason"),
    [
        ({"shut": -0.4, "freed": 0.4}, 10, None),
        ({"shut": -0.6}, 10, "egress 10 goes from "),
        ({"shut": 0.6}, 14, "egress 14 goes from "),
        ({"freed": -0.6}, 14, "egress 14 goes from "),
        ({"freed": 0.6}, 12, "egress 12 goes from "),
        ({"freed": -0.4}, 12, None),
        ({"apart": 30.5}, 12, None),
        ({"apart": 29.5}, 12, "blocked egress 12 passes -"),
    ],
)
def test_light_beside_a_block_stays_within_half_a_decibel(
    simulated: Simulated,
    monkeypatch: pytest.MonkeyPatch,
    by: Mapping[str, float],
    port: int,
    reason: str | None,
) -> None:
    show(monkeypatch, shut_changes(by, port))
    found = clause(subject_of(simulated(quiet(lab()))), "forced_block")
    assert found.verdict == ("pass" if reason is None else "fail"), found
    assert found.reason.startswith(reason or "blocked and freed")
    if reason is not None and "goes" in reason:
        assert found.reason.endswith("with 12's block")


# -------------------------------------------------------------------- 5.3, losses of the factory


def test_as_many_circuits_as_there_are_share_the_risk(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four circuits at 1 %: half of the normal quantile at 1 - 0.01 / 8, which is 3.023."""
    state_factory_losses(monkeypatch)
    found = clause(subject_of(simulated(FACTORY)), "factory_losses")
    assert found.reason.endswith("with 4 circuits up to 1.51 is chance")
    assert (found.verdict, found.unit) == ("pass", "1")
    assert found.value is not None
    assert 0 <= found.value < 1.51


# ------------------------------------------------------------- readers with windows of their own


class Slow:
    """A reader whose samples are averaged over a longer time than the others'."""

    def __init__(self, monitors: Monitors, window: int) -> None:
        self._monitors, self._window = monitors, window

    def prepare(self) -> Callable[[], None]:
        """Ready as it is."""
        return self._monitors.prepare()

    def read(self) -> SeenLight:
        """Return what it shows now."""
        return SeenLight(self._monitors.read().dbm, self._window)


class TwoReaders(NotedSubject):
    """A switch whose ports 10 to 12 are read over 10 ms, and 13 and 14 over 50 ms."""

    def chain(self) -> Chain:
        """Split the switch's monitors."""
        switch = self.switch
        assert isinstance(switch, PowerMonitor)
        slow = Slow(Monitors(switch, [13, 14]), 50_000_000)
        observers = (Monitors(switch, [10, 11, 12]), slow)
        return replace(super().chain(), observers=observers)


def two_readers(bench: Bench) -> TwoReaders:
    assert bench.world is not None
    for port in (13, 14):
        bench.world.matrices["ocs"].average(port, 50_000_000)
    known = subject_of(bench)
    return TwoReaders(known.fabric, known.name, known.profile, known.trial)


def test_the_longest_window_of_all_readers_counts(simulated: Simulated) -> None:
    """Light comes 37 ms after the command; a window of 50 ms shows it up to 50 ms later."""
    subject = two_readers(simulated(timed_lab(3, 37)))
    chain, times = subject.chain(), StageTimes()
    with lit(chain):
        subject.apply(ALL)
        subject.sleep(500_000_000)
        turned = [Circuit(5, 14), Circuit(6, 13), *ALL[:3]]
        time_change(subject, chain, turned, times)
    assert len(times.settled) == 2
    for low, high in times.settled:
        assert low <= 37 <= high


def test_light_after_an_acknowledgement_waits_for_the_longest_window(simulated: Simulated) -> None:
    """Light is there after 24 ms and acknowledged after 40 ms: a window of 50 ms must be over."""
    found = clause(two_readers(simulated(timed_lab(3, 24))), "acknowledged_light")
    assert (found.verdict, interval(found)[0]) == ("pass", 0.0), found
