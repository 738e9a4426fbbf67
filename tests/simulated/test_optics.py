"""Light in a simulated switch: circuits are a matching, and power follows them."""

import itertools
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import LightTrace
from lightrig.instruments.simulated.world.optics import DARK_DBM, Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Circuit, Delay, SimulatedLoss, SimulatedMonitor, SimulatedSwitch

MS = 1_000_000
PORTS = 6
SETTLED = SimulatedSwitch(
    acknowledge=Delay(5 * MS, MS),
    dark=Delay(3 * MS, MS),
    settle=Delay(8 * MS, 4 * MS, MS),
    loss=SimulatedLoss(1.2, 0.5),
    monitor=SimulatedMonitor(10 * MS, 0.0),
)


def launch(ingress):
    """Port 6 is not cabled."""
    return None if ingress == PORTS else -1.0 + ingress / 10


class Bench:
    """A matrix, and what it said of its light."""

    def __init__(self, truth_of=SETTLED, seed=1):
        self.clock = VirtualClock(stall_timeout=20)
        self.truth = GroundTruth()
        self.lit = {}
        self.heard = []
        self.matrix = Matrix(
            "ocs", truth_of, self.clock, Chance(seed), self.truth, launch, self.on_light
        )

    def on_light(self, egress, ingress, at):
        assert at == self.clock.now()
        self.heard.append((egress, ingress, at))
        self.lit[egress] = ingress

    def power(self, *egresses):
        return self.matrix.readings(egresses)


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.clock.close()


_INGRESS = st.integers(1, PORTS)
_EGRESS = st.integers(PORTS + 1, 2 * PORTS)
_CIRCUITS = st.builds(
    lambda ingress, egress: [Circuit(*pair) for pair in zip(ingress, egress, strict=False)],
    st.lists(_INGRESS, min_size=1, max_size=3, unique=True),
    st.lists(_EGRESS, min_size=1, max_size=3, unique=True),
)
_STEPS = st.lists(
    st.tuples(
        st.one_of(_CIRCUITS, st.lists(_INGRESS | _EGRESS, max_size=3)),
        st.integers(0, 12).map(lambda ms: ms * MS),
    ),
    max_size=15,
)


@settings(max_examples=70)
@given(_STEPS)
def test_circuits_are_a_matching_and_light_follows_them(steps):
    bench = Bench()
    model: dict[int, int] = {}
    for what, pause in steps:
        if what and isinstance(what[0], Circuit):
            bench.matrix.connect(what)
            for ingress, egress in what:
                for other in [other for other, to in model.items() if to == egress]:
                    del model[other]
                model[ingress] = egress
        else:
            bench.matrix.disconnect(what)
            model = {i: e for i, e in model.items() if not {i, e} & set(what)}
        assert bench.matrix.egress_of == model
        assert bench.matrix.ingress_of == {egress: ingress for ingress, egress in model.items()}
        bench.clock.sleep(pause)
    bench.clock.sleep(1000 * MS)
    sources = bench.matrix.ingress_of
    for egress in range(PORTS + 1, 2 * PORTS + 1):
        ingress = sources.get(egress)
        power = bench.power(egress)[0]
        if ingress is None or launch(ingress) is None:
            assert power == DARK_DBM
            assert bench.lit.get(egress) is None
        else:
            lost = bench.matrix.loss(Circuit(ingress, egress))
            assert power == pytest.approx(launch(ingress) - lost, abs=1e-6)
            assert bench.lit[egress] == ingress
    bench.clock.close()


@settings(max_examples=40)
@given(_STEPS)
def test_light_events_alternate_and_match_ground_truth(steps):
    bench = Bench()
    for what, pause in steps:
        if what and isinstance(what[0], Circuit):
            bench.matrix.connect(what)
        else:
            bench.matrix.disconnect(what)
        bench.clock.sleep(pause)
    bench.clock.sleep(1000 * MS)
    for egress in range(PORTS + 1, 2 * PORTS + 1):
        heard = [(ingress, at) for port, ingress, at in bench.heard if port == egress]
        assert [at for _, at in heard] == sorted(at for _, at in heard)
        for index, (ingress, at) in enumerate(heard):
            assert (ingress is None) is (index % 2 == 1)
            span = bench.truth.first(f"ocs.{egress}", "light", up=ingress is not None, since=at)
            assert span == (at, at)
    bench.clock.close()


def test_light_arrives_after_settling_and_is_lost_after_the_dark_delay():
    bench = Bench(
        SimulatedSwitch(
            acknowledge=Delay(40 * MS, 0, 2 * MS),
            dark=Delay(3 * MS),
            settle=Delay(20 * MS, 0, MS),
            monitor=SimulatedMonitor(10 * MS, 0.0),
        )
    )
    assert bench.matrix.connect([Circuit(1, 7), Circuit(2, 8)]) == 42 * MS
    bench.clock.sleep(100 * MS)
    assert bench.matrix.connect([Circuit(1, 8)]) == 40 * MS
    bench.clock.sleep(100 * MS)
    assert bench.matrix.disconnect([1, 8]) == 40 * MS
    bench.clock.sleep(100 * MS)
    assert bench.heard == [
        (7, 1, 21 * MS),
        (8, 2, 21 * MS),
        (7, None, 103 * MS),
        (8, None, 103 * MS),
        (8, 1, 120 * MS),
        (8, None, 203 * MS),
    ]
    bench.clock.close()


def test_connecting_an_existing_circuit_changes_nothing(bench):
    bench.matrix.connect([Circuit(1, 7)])
    bench.clock.sleep(100 * MS)
    heard = list(bench.heard)
    bench.matrix.connect([Circuit(1, 7)])
    bench.clock.sleep(100 * MS)
    assert bench.heard == heard


def test_light_of_a_removed_circuit_never_arrives(bench):
    bench.matrix.connect([Circuit(1, 7)])
    bench.clock.sleep(MS)
    bench.matrix.disconnect([7])
    bench.clock.sleep(100 * MS)
    assert bench.heard == []
    assert bench.power(7) == [DARK_DBM]


def test_signal_is_never_recovered_before_it_is_lost():
    bench = Bench(
        SimulatedSwitch(
            dark=Delay(30 * MS),
            settle=Delay(2 * MS),
            monitor=SimulatedMonitor(10 * MS, 0.0),
        )
    )
    bench.matrix.connect([Circuit(1, 7)])
    bench.clock.sleep(100 * MS)
    bench.matrix.connect([Circuit(2, 7)])
    bench.clock.sleep(100 * MS)
    assert [(egress, ingress) for egress, ingress, _ in bench.heard] == [(7, 1), (7, None), (7, 2)]
    assert bench.power(7)[0] == pytest.approx(launch(2) - bench.matrix.loss(Circuit(2, 7)))
    bench.clock.close()


@pytest.mark.parametrize("window", [10 * MS, 160 * MS, 1280 * MS])
def test_a_monitor_averages_from_the_first_moment(window):
    bench = Bench(SimulatedSwitch(settle=Delay(2 * MS), monitor=SimulatedMonitor(window, 0.0)))
    bench.matrix.connect([Circuit(1, 7)])
    full = 10 ** ((launch(1) - bench.matrix.loss(Circuit(1, 7))) / 10)
    bench.clock.sleep(2 * MS)
    assert bench.power(7) == [DARK_DBM]
    bench.clock.sleep(5 * MS)
    assert 10 ** (bench.power(7)[0] / 10) == pytest.approx(full * 5 * MS / window)
    bench.clock.sleep(window)
    assert 10 ** (bench.power(7)[0] / 10) == pytest.approx(full)
    bench.clock.close()


def test_noise_is_in_decibels_and_spares_the_dark():
    bench = Bench(SimulatedSwitch(monitor=SimulatedMonitor(10 * MS, 0.1)))
    bench.matrix.connect([Circuit(1, 7)])
    bench.clock.sleep(1000 * MS)
    shown = [bench.power(7, 8) for _ in range(2000)]
    assert {dark for _, dark in shown} == {DARK_DBM}
    mean = math.fsum(lit for lit, _ in shown) / len(shown)
    sd = math.sqrt(math.fsum((lit - mean) ** 2 for lit, _ in shown) / len(shown))
    assert mean == pytest.approx(launch(1) - bench.matrix.loss(Circuit(1, 7)), abs=0.01)
    assert sd == pytest.approx(0.1, rel=0.1)
    bench.clock.close()


def test_losses_follow_from_the_seed_alone():
    circuits = [Circuit(i, e) for i in range(1, 7) for e in range(7, 13)]
    forward, backward, other = Bench(seed=3), Bench(seed=3), Bench(seed=4)
    losses = {circuit: forward.matrix.loss(circuit) for circuit in circuits}
    backward.matrix.connect([Circuit(2, 8)])
    assert {c: backward.matrix.loss(c) for c in reversed(circuits)} == losses
    assert all(other.matrix.loss(circuit) != losses[circuit] for circuit in circuits)
    assert len(set(losses.values())) == len(circuits)
    assert Bench(seed=3).matrix.losses(circuits) == list(losses.values())
    assert all(loss >= 0.3 for loss in losses.values())
    assert math.fsum(losses.values()) / 36 == pytest.approx(1.2, abs=0.4)
    for bench in (forward, backward, other):
        bench.clock.close()


# The averaging monitor against a sum over small steps ----------------------------------------

_LEVELS = st.lists(
    st.tuples(st.integers(1, 60), st.sampled_from([0.0, 0.001, 0.5, 1.0, 2.0])),
    min_size=1,
    max_size=80,
)


def level_at(changes, moment):
    """The level that holds from `moment` to the next whole one."""
    return next((level for at, level in reversed(changes) if at <= moment), 0.0)


@settings(max_examples=50)
@given(_LEVELS, st.integers(-100, 3000), st.integers(0, 400))
def test_the_mean_is_that_of_a_sum(steps, start, length):
    trace, changes, now = LightTrace(), [], 0
    for after, level in steps:
        now += after
        trace.plan(now, level)
        changes.append((now, level))
    end = start + length
    found = trace.mean(start, end)
    if length == 0:
        assert found == level_at(changes, end)
        return
    during = [level_at(changes, moment) for moment in range(start, end)]
    assert found == pytest.approx(math.fsum(during) / length, abs=1e-12)
    assert found <= max(during) + 1e-12
    assert found >= min(during) - 1e-12


@given(_LEVELS, st.integers(0, 3000))
def test_plans_that_are_dropped_leave_the_past_alone(steps, now):
    trace, kept, at = LightTrace(), LightTrace(), 0
    for after, level in steps:
        at += after
        trace.plan(at, level)
        if at <= now:
            kept.plan(at, level)
    trace.forget_plans(now)
    for start, end in [(0, now), (now, now), (now // 2, now), (now, now + 100)]:
        assert trace.mean(start, end) == kept.mean(start, end)


@given(st.lists(st.integers(1, 50 * MS), min_size=50, max_size=120))
def test_a_long_history_keeps_what_the_longest_window_needs(pauses):
    trace, changes, now = LightTrace(), [], 0
    for index, pause in enumerate(pauses):
        now += pause
        trace.plan(now, float(index % 3))
        changes.append((now, float(index % 3)))
    start = now - 1280 * MS
    energy = 0.0
    for (at, level), (until, _) in itertools.pairwise([(-(10**12), 0.0), *changes, (now, 0.0)]):
        energy += level * max(until - max(at, start), 0)
    assert trace.mean(start, now) == pytest.approx(energy / (1280 * MS), abs=1e-9)


def test_a_ceiling_limits_the_power_at_an_egress(bench):
    """An attenuator holds a level or a ratio; what is below it anyway is left alone."""
    bench.matrix.connect([Circuit(1, 7), Circuit(2, 8)])
    bench.clock.sleep(100 * MS)
    plain = bench.power(7, 8)
    bench.matrix.limit(7, lambda entering: entering - 10.0)
    bench.matrix.limit(8, lambda entering: 0.0)
    bench.clock.sleep(100 * MS)
    assert bench.power(7, 8) == pytest.approx([launch(1) - 10.0, plain[1]])
    bench.matrix.disconnect([1, 2])
    bench.matrix.connect([Circuit(2, 7)])
    bench.clock.sleep(100 * MS)
    assert bench.power(7) == pytest.approx([launch(2) - 10.0])
    bench.matrix.limit(7, None)
    bench.clock.sleep(100 * MS)
    assert bench.power(7)[0] > launch(2) - 5


def test_the_averaging_window_of_one_monitor(bench):
    bench.matrix.connect([Circuit(1, 7), Circuit(2, 8)])
    bench.clock.sleep(200 * MS)
    bench.matrix.average(8, 40 * MS)
    assert (bench.matrix.window(7), bench.matrix.window(8)) == (10 * MS, 40 * MS)
    lit = bench.power(7, 8)
    for egress in (7, 8):
        bench.matrix.shutter(egress, shut=True)
    bench.clock.sleep(20 * MS)
    dark, half = bench.power(7, 8)
    assert dark == DARK_DBM
    assert half == pytest.approx(lit[1] - 3.01, abs=0.02)


def test_the_switching_time_can_be_set(bench):
    bench.matrix.set_switching_time(500 * MS)
    assert bench.matrix.connect([Circuit(1, 7)]) == 500 * MS
    bench.clock.sleep(499 * MS)
    assert 7 not in bench.lit
    bench.clock.sleep(2 * MS)
    assert bench.lit[7] == 1
