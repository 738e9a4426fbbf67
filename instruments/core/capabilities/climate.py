"""Temperature as a condition of a measurement."""

from typing import Protocol

from lightrig.instruments.core.capabilities.instruments import Identified


class ClimateChamber(Identified, Protocol):
    """A chamber at a set temperature."""

    def set_temperature(self, celsius: float) -> None:
        """Go to `celsius`; return at once. Raises `DeniedError` out of range."""

    def temperature(self) -> float:
        """Return the temperature in degrees Celsius."""
