"""The clock of a simulated server."""

from collections.abc import Sequence
from typing import NamedTuple

from lightrig.instruments.simulated.world.randomness import Stream

_CELL = 10**9
"""Time, in ns, for which a wandering rate stays as it is."""

_MOST_KNOWN = 1024
"""Readings of a clock that are known, until all are forgotten."""

_BETWEEN_SLEWS = 200 * 10**9
_FARTHEST = 3.0
"""Standard deviations within which slews begin, last and are fast."""


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
        since = at - self.at
        if since <= 0:
            return 0
        return round((since if since < self.lasting else self.lasting) * self.ppm / 1e6)


class Discipline:
    """What a kernel that follows NTP does to its clock, for any moment, past or planned.

    It corrects the error of its quartz, for ever, and slews for 10 to 100 s now and then.

    Args:
        quartz_ppm: by how many ppm the quartz runs too fast.
        slew_ppm: standard deviation of the rates of slews, in ppm.
        draws: chance of the slews.
    """

    def __init__(
        self, quartz_ppm: float = 0.0, slew_ppm: float = 0.0, draws: Stream | None = None
    ) -> None:
        self._quartz_ppm, self._slew_ppm, self._draws = quartz_ppm, slew_ppm, draws
        self._slews: list[ClockSlew] = []
        self._moved = [0]

    def corrected(self, at: int) -> int:
        """Return by how many ns quartz was corrected until a moment."""
        return -round(at * self._quartz_ppm / 1e6) if self._quartz_ppm else 0

    def moved(self, at: int) -> int:
        """Return by how many ns slews have moved the clock until a moment."""
        if not self._slew_ppm:
            return 0
        number = at // _BETWEEN_SLEWS if at > 0 else 0
        if len(self._slews) <= number:
            self._draw_until(number)
        # A clock is read some hundreds of times an event: `ClockSlew.moved`, written out.
        begin, lasting, ppm = self._slews[number]
        since = at - begin
        if since <= 0:
            return self._moved[number]
        return self._moved[number] + round((since if since < lasting else lasting) * ppm / 1e6)

    def _draw_until(self, number: int) -> None:
        while len(self._slews) <= number:
            slew = self._draw(len(self._slews) * _BETWEEN_SLEWS)
            self._slews.append(slew)
            self._moved.append(self._moved[-1] + slew.moved(slew.at + slew.lasting))

    def _draw(self, since: int) -> ClockSlew:
        assert self._draws is not None
        normals = (self._draws.normal() for _ in range(3))
        begin, length, rate = (min(max(each, -_FARTHEST), _FARTHEST) for each in normals)
        return ClockSlew(
            at=since + round((50 + 15 * begin) * 1e9),
            lasting=round((55 + 15 * length) * 1e9),
            ppm=rate * self._slew_ppm,
        )


class SimulatedServerClock:
    """A clock that shows, for any moment of the world, past or planned, the server's time then.

    Args:
        offset: the server's time when the world's is 0, in ns.
        rate_ppm: by how many ppm the clock runs too fast.
        wander_ppm: standard deviation of the change of its rate in a second, in ppm.
        draws: chance of the wander.
        steps: when the clock is set, and by how much.
        slews: when it is slewed.
        discipline: what its kernel does to it.
    """

    def __init__(
        self,
        offset: int = 0,
        rate_ppm: float = 0.0,
        wander_ppm: float = 0.0,
        draws: Stream | None = None,
        steps: Sequence[ClockStep] = (),
        slews: Sequence[ClockSlew] = (),
        discipline: Discipline | None = None,
    ) -> None:
        self._discipline = discipline or Discipline()
        self._offset = offset
        self._rate_ppm = rate_ppm
        self._wander_ppm = wander_ppm
        self._draws = draws
        self._steps = steps
        self._slews = slews
        self._known: dict[int, int] = {}
        self._wandered = [0.0]
        self._rate_of_cell: list[float] = []

    def reads(self, at: int) -> int:
        """Return the server's time at a moment of the world, both in ns."""
        known = self._known
        reading = known.get(at)  # at once: another thread may forget them all
        if reading is not None:  # half of an event's are asked for twice
            return reading
        reading = at + self._offset + self._discipline.moved(at)
        if self._slews:
            reading += sum([slew.moved(at) for slew in self._slews])
        if self._rate_ppm:
            reading += round(at * self._rate_ppm / 1e6)
        if self._wander_ppm:
            reading += round(self._wander(at))
        for step in self._steps:
            if at >= step.at:
                reading += step.by
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[at] = reading
        return reading

    def slewed(self, at: int) -> int:
        """Return by how many ns the server's kernel has slewed the clock until a moment.

        That is CLOCK_MONOTONIC less CLOCK_MONOTONIC_RAW, the correction of quartz among it.
        """
        moved = self._discipline.moved(at) + sum(slew.moved(at) for slew in self._slews)
        return moved + self._discipline.corrected(at)

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
