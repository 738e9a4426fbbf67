"""Optics of a switch's circuits by polarization, wavelength and unwanted egress.

One laser, a polarization controller where there is one, the switch, and power meters behind it.
"""

from lightrig.harness.measure.switch_optics.crosstalk import measure_crosstalk
from lightrig.harness.measure.switch_optics.light_paths import NoMeterPathError
from lightrig.harness.measure.switch_optics.polarization import measure_polarization_dependence
from lightrig.harness.measure.switch_optics.wavelength import measure_wavelength_dependence

__all__ = [
    "NoMeterPathError",
    "measure_crosstalk",
    "measure_polarization_dependence",
    "measure_wavelength_dependence",
]
