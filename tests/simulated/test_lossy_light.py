"""Faults of a simulated switch's losses, monitors and fibers."""

import numpy as np
import pytest

from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import LightField
from lightrig.instruments.simulated.world.optics import DARK_DBM, Matrix, PortFaults
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import (
    Circuit,
    Fiber,
    Port,
    SimulatedLoss,
    SimulatedMonitor,
    SimulatedSwitch,
)

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def matrix(clock, *, monitor=None, faults=PortFaults(), seed=1, sd=0.2, **loss):  # noqa: B008
    truth_of = SimulatedSwitch(
        loss=SimulatedLoss(1.2, sd, **loss),
        monitor=monitor or SimulatedMonitor(10_000_000, 0.0),
    )
    return Matrix(
        *("ocs", truth_of, clock, Chance(seed), GroundTruth(), lambda ingress: 0.0),
        lambda egress, ingress, at: None,
        lambda ingress, start, end: 1.0,
        faults,
    )


def losses(made, size=8):
    ingress, egress = range(1, size + 1), range(size + 1, 2 * size + 1)
    return np.array([[made.loss(Circuit(a, b)) for b in egress] for a in ingress])


def test_port_losses_add_to_every_circuit(clock):
    plain = losses(matrix(clock))
    more = losses(matrix(clock, ingress_db=0.3, egress_db=0.2)) - plain
    assert np.ptp(more - more[:1] - more[:, :1] + more[0, 0]) == pytest.approx(0, abs=1e-12)
    assert np.ptp(more, axis=0).min() > 0.1
    assert np.ptp(more, axis=1).min() > 0.1


def test_a_dirty_port_affects_exactly_its_circuits(clock):
    faults = PortFaults({3: 1.5, 12: 1.0})
    more = losses(matrix(clock, faults=faults)) - losses(matrix(clock))
    expected = np.zeros((8, 8))
    expected[2] += 1.5
    expected[:, 3] += 1.0
    assert more == pytest.approx(expected)


def made_again(made, clock, times=40):
    shown = []
    for _ in range(times):
        made.disconnect([1])
        clock.sleep(SECOND)
        made.connect([Circuit(1, 9)])
        clock.sleep(SECOND)
        shown.append(made.readings([9])[0])
    return np.array(shown)


def test_repeatability_varies_around_the_loss(clock):
    made = matrix(clock, repeatability_db=0.05)
    shown = made_again(made, clock)
    assert shown.std() == pytest.approx(0.05, rel=0.4)
    assert shown.mean() == pytest.approx(-made.loss(Circuit(1, 9)), abs=0.04)
    assert made_again(matrix(clock), clock, 3).std() == 0


def test_monitors_have_offsets_and_drift(clock):
    made = matrix(clock, monitor=SimulatedMonitor(10_000_000, 0.0, 0.2, 0.1), sd=0.0)
    made.connect([Circuit(n, n + 8) for n in range(1, 9)])
    clock.sleep(SECOND)
    first = np.array(made.readings(range(9, 17), range(1, 9)))
    expected = [-1.2 + made.offset(port) for port in range(9, 17)]
    expected += [made.offset(port) for port in range(1, 9)]
    assert first == pytest.approx(expected, abs=1e-6)
    assert first[8:].std() == pytest.approx(0.2, rel=0.6)
    clock.sleep(HOUR)
    moved = np.array(made.readings(range(9, 17), range(1, 9))) - first
    assert np.abs(moved).max() < 0.5
    assert moved.std() == pytest.approx(0.1, rel=0.6)


def test_a_stuck_monitor_keeps_its_first_reading(clock):
    made = matrix(clock, faults=PortFaults(stuck=frozenset({9})))
    assert made.readings([9, 10]) == [DARK_DBM, DARK_DBM]
    made.connect([Circuit(1, 9), Circuit(2, 10)])
    clock.sleep(SECOND)
    first = made.readings([9, 10])
    made.disconnect([1, 2])
    clock.sleep(SECOND)
    assert made.readings([9, 10]) == [first[0], DARK_DBM]


def field():
    return LightField(
        [Fiber(Port("laser", "1"), Port("ocs", "1"), 1.0), Fiber(Port("ocs", "5"), Port("m", "1"))]
    )


def test_a_replugged_fiber_delivers_its_light_elsewhere(clock):
    light, laser, meter = field(), Port("laser", "1"), Port("m", "1")
    light.emit(laser, 2.0, laser, 0)
    light.emit(Port("ocs", "5"), 0.5, laser, 0)
    undo = light.replug(laser, meter, 0.0, clock)
    assert light.level(Port("ocs", "1")) == 0
    assert light.level(meter) == pytest.approx(2.0)
    light.emit(Port("ocs", "5"), 0.25, laser, 0)  # its fiber is out of the meter
    assert light.level(meter) == pytest.approx(2.0)
    undo()
    assert light.level(Port("ocs", "1")) == pytest.approx(2.0 * 10**-0.1)
    assert light.level(meter) == pytest.approx(0.25)
    assert light.origin(Port("ocs", "1")) == laser


def test_fading_dims_all_emitted_light():
    light, laser, ingress = field(), Port("laser", "1"), Port("ocs", "1")
    light.fade(laser, 1.0, 0)
    light.emit(laser, 2.0, laser, 0)
    light.fade(laser, 0.5, 0)
    assert light.level(ingress) == pytest.approx(10**-0.1)
    light.emit(laser, 4.0, laser, 0)
    assert light.level(ingress) == pytest.approx(2 * 10**-0.1)
    light.fade(laser, 0.25, 0)
    assert light.level(ingress) == pytest.approx(10**-0.1)
    light.emit(laser, 0.0, laser, 0)
    assert light.origin(ingress) is None
