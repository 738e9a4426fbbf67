"""Optics of a switch by polarization and wavelength, and its crosstalk."""

import pytest

from lightrig.harness.measure.switch_optics.light_paths import NoMeterPathError

QUANTITIES = ("polarization_dependent_loss", "wavelength_dependent_loss", "crosstalk")


def lacks_limits(testbed):
    """Return why these are not measured; empty where a limit asks for one.

    Each circuit is made alone, with all other ports dark, which transceivers that switch refuse.
    """
    return "" if set(QUANTITIES) & set(testbed.limits) else f"no limit on {', '.join(QUANTITIES)}"


@pytest.fixture
def measured(measure, measure_switch_optics):
    """Return a function that measures and judges a quantity; skip where no meter sees any."""

    def measured(quantity):
        try:
            measure_switch_optics(quantity)
        except NoMeterPathError as error:
            pytest.skip(str(error))
        measure.judge(quantity)

    return measured


@pytest.mark.needs(lacks=lacks_limits)
@pytest.mark.limits("polarization_dependent_loss")
def test_polarization_dependent_loss(measured, polarization_controller, power_meter):
    """Difference of the greatest and the least loss over all polarizations."""
    measured("polarization_dependent_loss")


@pytest.mark.needs(lacks=lacks_limits)
@pytest.mark.limits("wavelength_dependent_loss")
def test_wavelength_dependent_loss(measured, light_source, power_meter):
    """Difference of the greatest and the least loss over wavelengths around 1550 nm."""
    measured("wavelength_dependent_loss")


@pytest.mark.needs(lacks=lacks_limits)
@pytest.mark.limits("crosstalk")
def test_crosstalk(measured, light_source, power_meter):
    """Power at each dark egress over that of the only lit one."""
    measured("crosstalk")
