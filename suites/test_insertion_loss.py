"""Insertion loss of every circuit, and faults that it shows."""

import pytest

from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError

TEMPERATURES_C = (-5, 25, 50, 75)
"""Temperatures of InfiniteHBD's bit error test (§5.1); those of its losses are only in a figure."""


@pytest.fixture
def measured(measure_insertion_loss):
    """Return a function that measures every circuit; skip where no monitor sees any."""

    def measured():
        try:
            return measure_insertion_loss()
        except NothingToMeasureError as error:
            pytest.skip(str(error))

    return measured


def test_every_circuit(measure, measured):
    """Insertion loss from every ingress to every egress, and faults of ports."""
    if faults := measured():
        pytest.fail("\n".join(map(str, faults)), pytrace=False)
    measure.judge("insertion_loss")


@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, ids="T={}C".format, scope="session")
def test_by_temperature(measure, hold_temperature, measured, climate_chamber, temperature_c):
    """Insertion loss by temperature."""
    hold_temperature(climate_chamber, temperature_c)
    measured()
    measure.judge("insertion_loss")
