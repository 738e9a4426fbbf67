"""References that a person would have measured in a simulated lab, with a calibrated meter.

It stands for manual work that no wire does: moving a patch cord from port to port. Every value
has an error with the standard deviation of `simulation.references`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lightrig.instruments.simulated.world.light import LightField
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Circuit, Port


@dataclass(eq=False)
class ReferenceBook:
    """References of a world's switches; the same for one seed in whatever order.

    Attributes:
        uncertainty_db: standard deviation of each value's error, in dB.

    Args:
        lost_since: excess loss of fibers since then, in dB, by the port that they end at.
    """

    _matrices: Mapping[str, Matrix]
    _light: LightField
    _chance: Chance
    uncertainty_db: float
    _lost_since: Mapping[Port, float]

    def launch(self, switch: str, ingress: int) -> float | None:
        """Return the power in dBm measured at the end of an ingress port's fiber; None if dark.

        It was measured before any lab fault of the fiber.
        """
        port = Port(switch, str(ingress))
        milliwatt = self._light.level(port)
        if not milliwatt:
            return None
        found = 10 * math.log10(milliwatt) + self._lost_since.get(port, 0.0)
        return found + self._error(f"{port}/launch reference")

    def offset(self, switch: str, port: int) -> float:
        """Return the measured error of a port's monitor, in dB."""
        found = self._matrices[switch].offset(port)
        return found + self._error(f"{switch}.{port}/monitor reference")

    def check(self, switch: str, circuit: Circuit, *, observed: bool) -> float:
        """Return the loss of a circuit by these references, in dB, before any fault of its ports.

        observed: whether what enters was read by a monitor, and not taken from its launch.
        """
        draws = self._chance.stream(f"{switch} {circuit}/check")
        found = self._matrices[switch].sound_loss(circuit, draws)
        ingress, egress = (f"{switch}.{port}/monitor reference" for port in circuit)
        if not observed:
            return (
                found + self._error(f"{switch}.{circuit[0]}/launch reference") + self._error(egress)
            )
        return found - self._error(ingress) + self._error(egress)

    def plugged(self, source: Port, sink: Port) -> float:
        """Return the connector loss of the fiber at `source` when plugged into `sink`.

        Relative to the mean of all pluggings, in dB, so it may be negative.
        """
        return self._error(f"{source}>{sink}/plugged")

    def _error(self, name: str) -> float:
        return self.uncertainty_db * self._chance.stream(name).normal()
