"""Lines of a server's kernel log on the bench's clock.

A record has a stamp of the kernel's local clock (`local_clock` of kernel/sched/clock.c), which runs
with CLOCK_MONOTONIC_RAW but began at another moment. Each record bounds the offset of the two: it
was written before it was read, and, unless the kernel withheld it, after the last read that found
nothing. The tightest of these bounds narrow all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lightrig.instruments.core.capabilities import KernelLine, KernelReading
from lightrig.instruments.servers.host.offset import ClockMap

_STAMP_RESOLUTION = 1_000
"""The kernel cuts its stamp to a whole microsecond, in ns."""

_RATE = 1e-6
"""Greatest difference of the rates of the local clock and CLOCK_MONOTONIC_RAW.

Both are scaled from one counter, by factors that are rounded apart (`clocks_calc_mult_shift`).
"""

_LEVEL = 7
"""Bits of a priority that are its level; the rest are its facility (syslog(2))."""


class _Bound(NamedTuple):
    """A bound for the offset that is true at a stamp of the local clock, in ns."""

    at: int
    offset: int


class LocalClock:
    """What the records of a session tell of the kernel's local clock: its offset, with bounds.

    The offset is CLOCK_MONOTONIC_RAW, from an arbitrary but fixed beginning, less the local clock.
    """

    def __init__(self) -> None:
        self._least: _Bound | None = None
        self._most: _Bound | None = None

    def narrowed(
        self, records: Sequence[tuple[int, int | None, int]]
    ) -> list[tuple[int | None, int]]:
        """Return earliest and latest moment of each record by what all of the session tell.

        records: stamp of the local clock, earliest (None where unknown) and latest moment, in ns,
        in the order of the log. An earliest moment that nothing bounds is None. What these records
        tell serves later calls.
        """
        stamps = [stamp for stamp, _, _ in records]
        most, self._most = _tightened(
            stamps, [latest - stamp for stamp, _, latest in records], self._most, 1
        )
        # The latest moments are certain. An earliest one that contradicts them belongs to a line
        # that the kernel withheld until the next one came.
        least: list[int | None] = []
        for (stamp, earliest, _), upper in zip(records, most, strict=True):
            lower = None if earliest is None else earliest - stamp - _STAMP_RESOLUTION
            least.append(None if lower is None or upper is None or lower > upper else lower)
        least, self._least = _tightened(stamps, least, self._least, -1)
        found = []
        for (stamp, _, latest), lower, upper in zip(records, least, most, strict=True):
            end = latest if upper is None else min(stamp + _STAMP_RESOLUTION + upper, latest)
            begin = None if lower is None or stamp + lower > end else stamp + lower
            found.append((begin, end))
        return found


def _tightened(
    stamps: Sequence[int], bounds: Sequence[int | None], earlier: _Bound | None, side: int
) -> tuple[list[int | None], _Bound | None]:
    """Return the tightest bound at each stamp by those of all, and the one to go on with.

    side: 1 for upper bounds, -1 for lower ones. A bound loosens with the distance from its stamp.
    """
    found = list(bounds)
    onward, best = range(len(found)), earlier
    for order in (onward, reversed(onward)):
        for at in order:
            stamp, here = stamps[at], found[at]
            if best is not None:
                loosened = best.offset + side * math.ceil(_RATE * abs(stamp - best.at))
                if here is None or side * (loosened - here) < 0:
                    here = found[at] = loosened
            if here is not None:
                best = _Bound(stamp, here)
        best = None  # all that is known came to the last record, and goes back from there
    last = found[-1] if found else None
    return found, earlier if last is None else _Bound(stamps[-1], last)


def kernel_lines(answer: Mapping[str, Any], local: LocalClock, clocks: ClockMap) -> KernelReading:
    """Return the lines of a probe's reply on the bench's clock.

    Raises `KeyError`, `TypeError` or `ValueError` for a reply that is none, and `ClockError`.
    """
    fields = [tuple(each) for each in answer["records"]]
    raw = [
        (1000 * int(us), None if early is None else int(early) - slewed, int(late) - slewed)
        for _, _, us, early, late, slewed, _ in fields
    ]
    lines = []
    since = int(answer["since"])
    for (_, priority, _, _, _, slewed, text), (begin, end) in zip(
        fields, local.narrowed(raw), strict=True
    ):
        latest = end + slewed
        earliest = min(since, latest) if begin is None else begin + slewed
        lines.append(KernelLine(str(text), int(priority) & _LEVEL, clocks.span(earliest, latest)))
    return KernelReading(tuple(lines), int(answer["lost"]), int(answer["left_out"]))
