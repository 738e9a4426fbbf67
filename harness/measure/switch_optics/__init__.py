"""Optics of a switch's circuits by polarization, wavelength and unwanted egress.

One laser, a polarization controller where there is one, the switch, and power meters behind it.
"""

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switch_optics.crosstalk import measure_crosstalk
from lightrig.harness.measure.switch_optics.light_paths import NoMeterPathError
from lightrig.harness.measure.switch_optics.polarization import measure_polarization_dependence
from lightrig.harness.measure.switch_optics.wavelength import measure_wavelength_dependence

__all__ = [
    "NoMeterPathError",
    "measure_crosstalk",
    "measure_polarization_dependence",
    "measure_switch_optics",
    "measure_wavelength_dependence",
]


def measure_switch_optics(fabric: Fabric, recording: Recording, quantity: str) -> None:
    """Measure one quantity of all circuits, by its name; raises what its function does."""
    measurements = {
        "polarization_dependent_loss": measure_polarization_dependence,
        "wavelength_dependent_loss": measure_wavelength_dependence,
        "crosstalk": measure_crosstalk,
    }
    measurements[quantity](fabric, recording)
