"""The clock of a simulated server."""

from collections.abc import Sequence
from typing import NamedTuple

from lightrig.instruments.simulated.world.randomness import Stream

_CELL = 10**9
"""Time, in ns, for which a wandering rate stays as it is."""


class ClockStep(NamedTuple):
    """The clock is set at `at`, in ns of the world's time, ahead by `by` ns."""

    at: int
    by: int


class ClockSlew(NamedTuple):
    """The clock runs `ppm` faster from `at` on for `lasting` ns, and its kernel reports it."""

    at: int
    lasting: int
    ppm: float

    def moved(self, at: int) -> int:
        """Return by how many ns the clock has been moved at a moment."""
        return round(min(max(at - self.at, 0), self.lasting) * self.ppm / 1e6)


class SimulatedServerClock:
    """A clock that shows, for any moment of the world, past or planned, the server's time then.

    Args:
        offset: the server's time when the world's is 0, in ns.
        rate_ppm: by how many ppm the clock runs too fast.
        wander_ppm: standard deviation of the change of its rate in a second, in ppm.
        draws: chance of the wander.
        steps: when the clock is set, and by how much.
        slews: when it is slewed.
    """

    def __init__(
        self,
        offset: int = 0,
        rate_ppm: float = 0.0,
        wander_ppm: float = 0.0,
        draws: Stream | None = None,
        steps: Sequence[ClockStep] = (),
        slews: Sequence[ClockSlew] = (),
    ) -> None:
        self._offset = offset
        self._rate_ppm = rate_ppm
        self._wander_ppm = wander_ppm
        self._draws = draws
        self._steps = steps
        self._slews = slews
        self._wandered = [0.0]
        self._rate_of_cell: list[float] = []

    def reads(self, at: int) -> int:
        """Return the server's time at a moment of the world, both in ns."""
        reading = at + self._offset
        if self._rate_ppm:
            reading += round(at * self._rate_ppm / 1e6)
        if self._wander_ppm:
            reading += round(self._wander(at))
        for step in self._steps:
            if at >= step.at:
                reading += step.by
        return reading + self.slewed(at)

    def slewed(self, at: int) -> int:
        """Return by how many ns the server's kernel has slewed the clock until a moment."""
        return sum(slew.moved(at) for slew in self._slews)

    def _wander(self, at: int) -> float:
        """Return what a random walk of the rate has added until a moment, in ns."""
        assert self._draws is not None
        cell, rest = divmod(max(at, 0), _CELL)
        while len(self._rate_of_cell) <= cell:
            rate = self._rate_of_cell[-1] if self._rate_of_cell else 0.0
            rate += self._wander_ppm * self._draws.normal()
            self._rate_of_cell.append(rate)
            self._wandered.append(self._wandered[-1] + rate * 1e-6 * _CELL)
        return self._wandered[cell] + self._rate_of_cell[cell] * 1e-6 * rest
