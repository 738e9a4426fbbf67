"""What do modules that switch draw, on every path and at every temperature?"""

import pytest

TEMPERATURES_C = (-5, 25, 50, 75)
"""As InfiniteHBD (§5.1) tested its modules."""

READINGS = 6
"""As many as give a median an interval."""


@pytest.mark.parametrize("temperature_c", TEMPERATURES_C, scope="session")
def test_module_power(testbed, fabric, measure, modules, climate_chamber, temperature_c):
    """By their own registers, in every plan of the testbed."""
    measure.hold_temperature(climate_chamber, temperature_c)
    for plan in testbed.plans.values():
        fabric.apply(plan)
        for _ in range(READINGS):
            measure.modules(modules)
    measure.judge("module_power")
