"""Effects of real labs in the simulated world, each of them only where its option is stated."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy

from lightrig.harness.bench import Bench
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import LightSource
from lightrig.instruments.simulated.world.ambient import Ambient
from lightrig.instruments.simulated.world.bit_receiver import Receiver
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.simulated.world.switching_edges import fall, rise
from lightrig.testbeds import (
    Circuit,
    Delay,
    Ringing,
    SimulatedEdge,
    SimulatedLoss,
    SimulatedMonitor,
    SimulatedSwitch,
)

MS = 1_000_000
SECOND = 1000 * MS
RINGING = SimulatedEdge(2 * MS, MS, Ringing(1.5, MS, 2 * MS))


def matrix(
    clock: Clock,
    truth: GroundTruth,
    *,
    edge: SimulatedEdge = SimulatedEdge(0, 0),  # noqa: B008 -- frozen
    loss: SimulatedLoss = SimulatedLoss(1.0),  # noqa: B008 -- frozen
    ambient: Ambient | None = None,
    on_light: Callable[[int, int | None, int], None] = lambda egress, ingress, at: None,
) -> Matrix:
    truth_of = SimulatedSwitch(
        dark=Delay(3 * MS),
        settle=Delay(10 * MS),
        loss=loss,
        monitor=SimulatedMonitor(MS // 100, 0.0),
        edge=edge,
    )
    return Matrix(
        *("ocs", truth_of, clock, Chance(1), truth, lambda ingress: 0.0, on_light), ambient=ambient
    )


def moment(truth: GroundTruth, stage: str, *, up: bool, since: int = 0) -> int:
    found = truth.first("ocs.9", stage, up=up, since=since)
    assert found is not None
    return found.earliest


def test_light_rises_and_falls_in_the_stated_time(clock: Clock) -> None:
    truth = GroundTruth()
    made = matrix(clock, truth, edge=SimulatedEdge(2 * MS, MS))
    made.connect([Circuit(1, 9)])
    clock.sleep(100 * MS)
    parted = clock.now()
    made.disconnect([1])
    clock.sleep(100 * MS)
    rising = moment(truth, "light90", up=True) - moment(truth, "light10", up=True)
    assert rising == pytest.approx(2 * MS, rel=0.04)
    falling = moment(truth, "light10", up=False) - moment(truth, "light90", up=False)
    assert falling == pytest.approx(MS, rel=0.04)
    assert moment(truth, "light10", up=True) > 10 * MS
    assert parted + 3 * MS <= moment(truth, "light", up=False) < moment(truth, "half", up=False)
    assert made.level(9) == 0.0


def test_the_monitors_see_the_edge(clock: Clock) -> None:
    made = matrix(clock, GroundTruth(), edge=SimulatedEdge(2 * MS, MS))
    made.connect([Circuit(1, 9)])
    clock.sleep(10 * MS)
    seen = []
    for _ in range(30):
        clock.sleep(MS // 10)
        seen.append(10 ** (made.readings([9])[0] / 10))
    assert all(early <= late + 1e-12 for early, late in itertools.pairwise(seen))
    assert len({round(power, 6) for power in seen}) > 15


def test_light_has_settled_when_ringing_stays_within_half_a_decibel(clock: Clock) -> None:
    truth, levels = GroundTruth(), list[tuple[int, float]]()
    made = matrix(
        *(clock, truth),
        edge=RINGING,
        on_light=lambda egress, ingress, at: levels.append((at, made.level(egress))),
    )
    made.connect([Circuit(1, 9)])
    clock.sleep(100 * MS)
    final = levels[-1][1]
    outside = [at for at, level in levels if level < final * 10 ** (-0.05)]
    settled = moment(truth, "light", up=True)
    assert settled == min(at for at, _ in levels if at > outside[-1])
    assert settled > moment(truth, "light90", up=True) + MS
    assert final == pytest.approx(10**-0.1)


def test_light_without_an_edge_is_a_step() -> None:
    for shape in (rise(SimulatedEdge(0, 0)), fall(SimulatedEdge(0, 0))):
        assert len(shape) == 1
        assert shape[0].stages == ("light",)


def test_a_circuit_parted_while_its_light_rises_stays_dark(clock: Clock) -> None:
    truth = GroundTruth()
    made = matrix(clock, truth, edge=RINGING)
    made.connect([Circuit(1, 9)])
    clock.sleep(11 * MS)
    assert 0 < made.level(9) < 10**-0.1
    made.disconnect([1])
    clock.sleep(100 * MS)
    assert made.level(9) == 0.0
    made.connect([Circuit(2, 9)])
    clock.sleep(100 * MS)
    assert made.level(9) == pytest.approx(10**-0.1)


def test_polarization_changes_with_every_move_and_stays_within_its_loss(clock: Clock) -> None:
    made = matrix(clock, GroundTruth(), loss=SimulatedLoss(1.0, polarization_db=0.4))
    found = []
    for _ in range(60):
        made.connect([Circuit(1, 9)])
        clock.sleep(SECOND)
        found.append(made.readings([9])[0])
        made.disconnect([1])
        clock.sleep(SECOND)
    assert max(found) - min(found) <= 0.4 + 1e-9
    assert max(found) - min(found) > 0.3
    assert float(np.std(found)) == pytest.approx(0.4 / math.sqrt(12), rel=0.3)  # evenly


def test_loss_follows_the_temperature_while_light_passes(clock: Clock) -> None:
    ambient, at = Ambient(), [25.0]
    ambient.follow(lambda: at[0])
    loss = SimulatedLoss(1.0, per_kelvin_db=0.005)
    made = matrix(clock, GroundTruth(), loss=loss, ambient=ambient)
    circuits = [Circuit(n, n + 8) for n in range(1, 9)]
    made.connect(circuits)
    clock.sleep(SECOND)
    cool = np.array(made.readings(range(9, 17)))
    assert cool == pytest.approx([-1.0] * 8)
    at[0] = 75.0
    clock.sleep(20 * SECOND)
    warm = np.array(made.readings(range(9, 17)))
    assert 0.05 < float(np.std(warm - cool)) < 0.5
    assert [-made.loss(circuit) for circuit in circuits] == pytest.approx(warm.tolist())


def test_errors_come_in_bursts_of_the_stated_mean() -> None:
    draws = Chance(1).stream("errors")
    found = np.array([draws.bursts(100.0, 0.75) for _ in range(4000)])
    assert float(np.mean(found)) == pytest.approx(100, rel=0.03)
    # A burst of geometric length with mean m has a variance of m (m - 1) about it.
    assert float(np.var(found)) == pytest.approx(100 * (1 + 0.75) / (1 - 0.75), rel=0.15)
    single = np.array([draws.bursts(100.0, 0.0) for _ in range(4000)])
    assert float(np.var(single)) == pytest.approx(100, rel=0.15)


def test_pam4_needs_three_times_the_light() -> None:
    two, four = Receiver(floor=0.0), Receiver(floor=0.0, pam4=True)
    for milliwatt in (0.05, 0.1, 0.2):
        assert four.ratio(3 * milliwatt) == pytest.approx(0.75 * two.ratio(milliwatt))
    assert four.ratio(1e-9) == pytest.approx(0.375)
    assert two.ratio(10**-0.9) == pytest.approx(
        float(scipy.special.ndtr(scipy.special.ndtri(1e-12)))
    )


LAB = """
name: effects
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 2x2}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}}
servers:
  server[0-5]:
    address: ssh://bench@{{name}}.invalid
    nics: {{nic0: {{netdev: ens1, rate: 100G}}}}
fibers: [laser -> ocs.1]
simulation: {{{simulation}}}
"""


def entering(bench: Bench) -> float:
    laser = bench.instruments["laser"]
    assert isinstance(laser, LightSource)
    laser.set_emission(1, on=True)
    assert bench.world is not None
    milliwatt = bench.world.matrices["ocs"].entering(1)
    assert milliwatt is not None
    return milliwatt


def test_connectors_lose_light(simulated: Callable[..., Bench]) -> None:
    plain = entering(simulated(LAB.format(simulation="")))
    lossy = entering(simulated(LAB.format(simulation="connectors: {}")))
    assert 0.0 < plain - lossy < 0.7
    stated = "connectors: {mean: 2 dB, sd: 0 dB}"
    assert plain - entering(simulated(LAB.format(simulation=stated))) == pytest.approx(2.0)


def test_loss_depends_on_the_wavelength_of_the_laser(simulated: Callable[..., Bench]) -> None:
    stated = "switches: {ocs: {loss: {mean: 1 dB, per_nm: 0.01 dB}}}"
    for text, differs in (("", False), (stated, True)):
        bench = simulated(LAB.format(simulation=text))
        entering(bench)
        laser, world = bench.instruments["laser"], bench.world
        assert isinstance(laser, LightSource)
        assert world is not None
        before = world.loss("ocs", Circuit(1, 3))
        laser.set_wavelength(1, 1530.0)
        bench.clock.sleep(SECOND)
        assert (abs(world.loss("ocs", Circuit(1, 3)) - before) > 0.01) is differs


def test_server_clocks_drift(simulated: Callable[..., Bench]) -> None:
    def rates(text: str) -> list[float]:
        bench = simulated(LAB.format(simulation=text))
        before = [server.clock_offset() for server in bench.servers.values()]
        bench.clock.sleep(100 * SECOND)
        after = [server.clock_offset() for server in bench.servers.values()]
        return [
            (sum(later[0]) - sum(first[0])) / 2 / (later[1] - first[1]) * 1e6
            for first, later in zip(before, after, strict=True)
        ]

    assert max(map(abs, rates(""))) < 5
    drifting = rates("clocks: {drift_ppm: 15}")
    assert 5 < float(np.std(drifting)) < 40


def test_sent_has_a_width_where_writes_take_time(simulated: Callable[..., Bench]) -> None:
    def width(text: str) -> int:
        operation = (
            simulated(LAB.format(simulation=text)).switches["ocs"].change([], [Circuit(1, 3)])
        )
        operation.done()
        return operation.sent.latest - operation.sent.earliest

    assert width("") == 0
    assert width("network: {write: {mean: 50 us}}") == 100_000
