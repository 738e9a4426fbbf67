"""What a person would have written down in a simulated lab, with a calibrated meter in hand.

It stands for work that no wire does: a patch cord moved from port to port. The person is as
exact as `simulation.references` says, and every value has an error of its own.
"""

import math
from collections.abc import Mapping

from instruments.simulated.light import LightField
from instruments.simulated.optics import Matrix
from instruments.simulated.randomness import Chance
from testbeds import Port


class ReferenceBook:
    """References of a world's switches; the same for one seed whenever they are asked for.

    Attributes:
        uncertainty_db: standard deviation of each value's error, in dB.

    Args:
        lost_since: what fibers have come to lose since, in dB, by the port that they end at.
    """

    def __init__(
        self,
        matrices: Mapping[str, Matrix],
        light: LightField,
        chance: Chance,
        uncertainty_db: float,
        lost_since: Mapping[Port, float],
    ) -> None:
        self.uncertainty_db = uncertainty_db
        self._matrices = matrices
        self._light = light
        self._chance = chance
        self._lost_since = lost_since

    def launch(self, switch: str, ingress: int) -> float | None:
        """The power found at the end of an ingress port's fiber, in dBm; None for no light.

        That was before anything happened to the fiber.
        """
        port = Port(switch, str(ingress))
        milliwatt = self._light.level(port)
        if not milliwatt:
            return None
        found = 10 * math.log10(milliwatt) + self._lost_since.get(port, 0.0)
        return found + self._error(f"{port}/launch reference")

    def offset(self, switch: str, port: int) -> float:
        """What the monitor of a port was found to show too much, in dB."""
        found = self._matrices[switch].offset(port)
        return found + self._error(f"{switch}.{port}/monitor reference")

    def plugged(self, source: Port, sink: Port) -> float:
        """What is lost in the connector when the fiber at `source` is plugged into `sink`.

        Against the mean of all times, in dB, so it may be less than nothing.
        """
        return self._error(f"{source}>{sink}/plugged")

    def _error(self, name: str) -> float:
        return self.uncertainty_db * self._chance.stream(name).normal()
