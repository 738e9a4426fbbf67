"""How warm it is around what is measured."""

from typing import Protocol

from instruments.capabilities.instruments import Identified


class ClimateChamber(Identified, Protocol):
    """A chamber at a set temperature."""

    def set_temperature(self, celsius: float) -> None:
        """Go to `celsius`; returns at once. Raises `DeniedError` out of range."""

    def temperature(self) -> float:
        """What it is now, in degrees Celsius."""
