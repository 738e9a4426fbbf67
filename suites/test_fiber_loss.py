"""Light in the fibers between switches and NICs, by monitors and transceivers."""

import pytest

from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError


def test_every_fiber(measure, measure_fiber_losses):
    """Loss of every fiber with a monitor at one end and a transceiver at the other."""
    try:
        measure_fiber_losses()
    except NothingToMeasureError as error:
        pytest.skip(str(error))
    measure.judge("fiber_loss")
