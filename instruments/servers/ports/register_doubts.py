"""Doubts about counters that may be registers which a driver hands on as they are.

The registers of IEEE 802.3, clause 45, have 16 or 32 bits, are cleared by each reading and are held
at all ones. A driver that adds them up has none of these properties; one that does not shows
differences that look like any other's.
"""

from collections.abc import Callable, Hashable, Mapping

from lightrig.instruments.clock import Clock, Span

Counted = tuple[Mapping[Hashable, int], Span]
"""Counters by name, and the stamps around their reading."""

_WIDTHS = (16, 32)


class RegisterDoubts:
    """What successive readings of some counters say against their differences.

    The second reading follows the first at once: a counter that falls then is cleared by being
    read, and one that grows has a pace, by which it would have gone around since, or not. A driver
    may hand on what its device told some time ago, so a pace that says so is measured once more
    over a longer time. Where both readings show the same there is no pace, and only a fall tells.

    Args:
        read: reads the counters, with the stamps around.
        age: the age that a reading may have, in ns.
        clock: the bench's clock.
    """

    def __init__(self, read: Callable[[], Counted], age: int, clock: Clock) -> None:
        self._read = read
        self._age = age
        self._clock = clock
        self._began: Counted | None = None
        self._last: Mapping[Hashable, int] = {}
        self._paces: Mapping[Hashable, float] = {}
        self._fell = False

    def begin(self, first: Counted, second: Counted) -> None:
        """Begin with two readings, one right after the other."""
        self._began, (self._last, _) = second, first
        self._falls(second)
        self._paces = _paces(first, second, 0)

    def found(self, now: Counted) -> str | None:
        """Return why the counters' differences up to this reading bound nothing, if they do not."""
        assert self._began is not None
        self._falls(now)
        if not self._fell and _goes_around(self._began, now, self._paces):
            self._clock.sleep(2 * self._age)
            later = self._read()
            self._falls(later)
            if _goes_around(self._began, now, _paces(now, later, self._age)):
                return (
                    "a counter grew by less than its pace would have made it: its driver hands on "
                    "a register that goes around at 16 or 32 bits"
                )
        if self._fell:
            return (
                "its counters fell between two readings: they were reset or went around, or its "
                "driver hands on registers that each reading clears"
            )
        return None

    def _falls(self, now: Counted) -> None:
        values, _ = now
        self._fell |= any(values[name] < self._last.get(name, 0) for name in values)
        self._last = values


def _goes_around(began: Counted, now: Counted, paces: Mapping[Hashable, float]) -> bool:
    """Whether a counter of few bits lacks more than half a turn of what it would have by now."""
    apart = _middle(now[1]) - _middle(began[1])
    for name, value in now[0].items():
        missing = paces.get(name, 0.0) * apart - (value - began[0].get(name, 0))
        if any(value < 1 << bits and missing > 1 << (bits - 1) for bits in _WIDTHS):
            return True
    return False


def _paces(first: Counted, second: Counted, age: int) -> Mapping[Hashable, float]:
    """Return the pace of each counter per ns; the least one for readings of some age."""
    apart = max(_middle(second[1]) - _middle(first[1]), 1) + age
    return {name: (value - first[0].get(name, 0)) / apart for name, value in second[0].items()}


def _middle(at: Span) -> float:
    return (at.earliest + at.latest) / 2
