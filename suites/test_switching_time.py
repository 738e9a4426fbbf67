"""Switching times of circuits, from an oscilloscope behind photodetectors."""

import pytest

from lightrig.harness.measure.path_changes import NotLoggedError


@pytest.mark.limits("switching")
def test_rise_fall_and_settling(measure, measure_switching, transition, oscilloscope, samples):
    """Rise and fall from 10 % to 90 %, time until within 0.5 dB, repeatability over all moves."""
    plans = transition.before, transition.after
    try:
        measure_switching(oscilloscope, plans, samples)
    except NotLoggedError as error:
        pytest.skip(str(error))
    measure.judge("switching")
