"""Ambient temperature of a simulated lab."""

from collections.abc import Callable

ROOM_C = 22.0
"""Room temperature, in degrees Celsius."""


class Ambient:
    """Temperature around the transceivers: of the room, or of a climate chamber."""

    def __init__(self) -> None:
        self._chamber: Callable[[], float] = lambda: ROOM_C

    @property
    def celsius(self) -> float:
        """The temperature now."""
        return self._chamber()

    def follow(self, chamber: Callable[[], float]) -> None:
        """Take the temperature from `chamber` from now on."""
        self._chamber = chamber
