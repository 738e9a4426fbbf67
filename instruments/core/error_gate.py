"""Shared by bit error testers: test patterns by name, and a gate that is open for a time."""

import re
from collections.abc import Callable, Sequence

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import ErrorCount
from lightrig.instruments.core.errors import CANNOT, DeniedError, NoReplyError

SIGNAL_OPTIONS = ("rate", "pattern", "modulation", "extinction_ratio", "errors_per_burst")
"""Options of every tester, which measurements read.

They are bit rate, pattern, modulation where the pattern does not tell it, extinction ratio in dB,
and the mean number of errors in a burst.
"""

_PATTERN = re.compile(r"PRBS(\d+)(Q?)")
GRACE = 5_000_000_000
"""Longest time that a gate may stay open after its end, in ns."""

_POLL = 20_000_000


def prbs(name: str, pattern: str, known: Sequence[int], *, four_levels: bool = False) -> int:
    """Return the length of a pattern's generator: 31 for PRBS31.

    `known` are the lengths that the tester has; PRBS13Q and the like only with `four_levels`.
    Raises `DeniedError` for any other.
    """
    match = _PATTERN.fullmatch(pattern)
    if match is None or int(match[1]) not in known or (match[2] and not four_levels):
        listed = ", ".join(f"PRBS{length}" for length in known)
        raise DeniedError(
            name,
            code=CANNOT,
            text=f"no pattern {pattern}; it has {listed}" + (" and these with Q" * four_levels),
            command=f"prepare pattern {pattern}",
        )
    return int(match[1])


class Gate:
    """A gate that the tester closes by itself.

    Args:
        name: the tester's name.
        clock: the bench's clock.
        opened: between which stamps it was opened.
        duration: for how many ns.
        is_open: queries the tester whether it is open.
        read: reads the counts, by when the gate was opened and closed.
        close: closes it at once and returns when that was acknowledged.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        opened: Span,
        duration: int,
        *,
        is_open: Callable[[], bool],
        read: Callable[[Span, Span], ErrorCount],
        close: Callable[[], Span],
    ) -> None:
        self._name = name
        self._clock = clock
        self._opened = opened
        self._duration = duration
        self._is_open = is_open
        self._read = read
        self._close = close

    def result(self) -> ErrorCount:
        """Wait until the gate has closed and read the counts; raises `NoReplyError`."""
        due = self._opened.shifted(self._duration)
        self._clock.sleep(due.earliest - self._clock.now())
        before = self._clock.now()
        while self._is_open():
            if self._clock.now() > due.latest + GRACE:
                raise NoReplyError(
                    self._name,
                    f"still counts {GRACE / 1e9:g} s after its gate should have closed",
                    details=[("try", "is it set to count once, by time?")],
                )
            self._clock.sleep(_POLL)
            before = self._clock.now()
        return self._read(self._opened, Span(due.earliest, max(before, due.earliest)))

    def now(self) -> ErrorCount:
        """Return the counts so far."""
        before = self._clock.now()
        count = self._read(self._opened, Span(before, before))
        return ErrorCount(
            count.began,
            Span(before, self._clock.now()),
            count.bits,
            count.errors,
            count.sync_lost,
            count.clock_lost,
        )

    def stop(self) -> ErrorCount:
        """Close the gate at once and read the counts."""
        before = self._clock.now()
        closed = self._close()
        return self._read(self._opened, Span(before, closed.latest))
