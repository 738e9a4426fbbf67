"""The temperature around what stands in a simulated lab."""

from collections.abc import Callable

ROOM_C = 22.0
"""The lab's own temperature, in degrees Celsius."""


class Ambient:
    """How warm it is around the modules: the room, or a climate chamber that they are in."""

    def __init__(self) -> None:
        self._chamber: Callable[[], float] = lambda: ROOM_C

    @property
    def celsius(self) -> float:
        """The temperature now."""
        return self._chamber()

    def follow(self, chamber: Callable[[], float]) -> None:
        """From now on it is what `chamber` says."""
        self._chamber = chamber
