"""A simulated 8169A between a laser and a detector, and the driver against it."""

import itertools

import numpy as np
import pytest
from instrument_rig import Rig

from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.polarization_controllers.agilent_8169a import Agilent8169a
from lightrig.instruments.simulated.devices.simulated_agilent_8169a import SimulatedAgilent8169a

LINEAR = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0)]
OTHERS = [(0, 0, 1), (0, 0, -1), (0.6, 0.48, 0.64), (-0.36, 0.48, -0.8)]


@pytest.fixture
def plates(in_virtual_time) -> Rig:
    return in_virtual_time(
        SimulatedAgilent8169a, kind="polarization_controller", name="plates", channels=1
    )


def test_identity(plates):
    identity = plates.driver(Agilent8169a).identity()
    assert (identity.model, identity.simulated) == ("8169A", True)


def test_every_state_is_reached_up_to_one_hand_of_circles(plates):
    """Which hand of circular light is positive is a convention, and no loss depends on it."""
    driver = plates.driver(Agilent8169a)
    plates.shine(1, 1.0)
    hands = set()
    for stokes in LINEAR + OTHERS:
        driver.set_polarization(1, stokes)
        found = np.array(plates.polarization(1))
        assert found[:2] == pytest.approx(stokes[:2], abs=1e-3)
        assert abs(found[2]) == pytest.approx(abs(stokes[2]), abs=1e-3)
        if stokes[2]:
            hands.add(np.sign(found[2] * stokes[2]))
    assert len(hands) == 1


def test_opposite_states_are_opposite(plates):
    driver = plates.driver(Agilent8169a)
    plates.shine(1, 1.0)
    for axis, sign in itertools.product(range(3), (1.0, -1.0)):
        stokes = tuple(sign * (n == axis) for n in range(3))
        driver.set_polarization(1, stokes)
        found = np.array(plates.polarization(1))
        driver.set_polarization(1, tuple(-s for s in stokes))
        assert np.array(plates.polarization(1)) == pytest.approx(-found, abs=1e-3)


def test_turning_takes_time_and_is_restored(plates):
    driver = plates.driver(Agilent8169a)
    driver.set_polarization(1, (0, 1, 0))
    put_back, began = driver.snapshot([1]), plates.clock.now()
    driver.set_polarization(1, (0, 0, 1))
    assert plates.clock.now() - began > 100_000_000
    put_back()
    assert driver.half_setting.get(1) == pytest.approx(22.5, abs=0.1)


def test_what_is_no_state_of_polarized_light_is_refused(plates):
    with pytest.raises(DeniedError, match="is no state of polarized light"):
        plates.driver(Agilent8169a).set_polarization(1, (1.0, 1.0, 0.0))
