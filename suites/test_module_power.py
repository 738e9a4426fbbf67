"""Power of switching transceivers on every path and at every temperature."""

import pytest

TEMPERATURES_C = (-5, 25, 50, 75)
"""Temperatures of InfiniteHBD's test of its transceivers (§5.1)."""

READINGS = 6
"""Number of readings that gives a median an interval."""


@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, ids="T={}C".format, scope="session")
def test_module_power(
    testbed,
    fabric,
    measure,
    hold_temperature,
    measure_telemetry,
    modules,
    climate_chamber,
    temperature_c,
):
    """Power by the transceivers' registers, in every plan of the testbed."""
    hold_temperature(climate_chamber, temperature_c)
    for plan in testbed.plans.values():
        fabric.apply(plan)
        for _ in range(READINGS):
            measure_telemetry(modules)
    measure.judge("module_power")
