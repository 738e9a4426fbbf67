"""Whether an observer looked often enough to see what happened: on a busy machine it may not."""

from collections.abc import Iterable

from lightrig.instruments.clock import Span

LATE_WINDOWS = 2
"""Windows of a monitor between two readings from which on the harness was late to read it."""


def longest_blind(readings: Iterable[Span]) -> int:
    """Return the longest time, in ns, between the end of one reading and the next one's beginning.

    readings: when each began and ended, oldest first. What comes and goes between two may be
    missed.
    """
    longest, last = 0, None
    for reading in readings:
        if last is not None:
            longest = max(longest, reading.earliest - last)
        last = reading.latest
    return longest


def slow_watch(blind: int, allowed: int, observed: str) -> str:
    """Return that a watch was slow, as the reason to decide nothing; empty where it was not.

    blind: time without a reading, in ns. allowed: the longest one in which nothing is missed, in
    ns. observed: what was read.
    """
    if blind <= allowed:
        return ""
    return (
        f"the watch was slow: up to {blind / 1e6:.0f} ms passed between two readings of {observed} "
        f"({allowed / 1e6:.0f} ms at most would show all); measure while the machine is less busy"
    )
