"""What does the light lose on its way, and where does it lose too much?"""

import pytest

from harness.measure.insertion_loss import NothingToMeasureError

TEMPERATURES_C = (-5, 25, 50, 75)
"""Where InfiniteHBD counted bit errors (§5.1); those of its losses are in a picture alone."""


@pytest.fixture
def measured(measure):
    """Measures every circuit; what is wrong is told, and a testbed without eyes skipped."""

    def measured():
        try:
            return measure.insertion_loss()
        except NothingToMeasureError as error:
            pytest.skip(str(error))

    return measured


def test_every_circuit(measure, measured):
    """From every ingress to every egress: is it within the limits, and is every port clean?"""
    faults = measured()
    assert not faults, "\n".join(map(str, faults))
    measure.judge("insertion_loss")


@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, scope="session")
def test_by_temperature(measure, measured, climate_chamber, temperature_c):
    """Does it lose more where it is colder, or warmer?"""
    measure.hold_temperature(climate_chamber, temperature_c)
    measured()
    measure.judge("insertion_loss")
