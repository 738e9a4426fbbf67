"""Bounds of stamps while a time service slews a server's clock, beside the same without slews.

`NTP_SLEWS_EVENTS` (default 1000) events in each cell: the clock is slewed by a rate for a time,
ahead and back in turn, with pauses of a random length. An event is a wait of 3.5 s between two
exchanges, with stamps in it. Broken promises: a true moment outside of its bounds, an error, a
warning of drift, or an interval wider than 1.3 times that of the same exchanges without slews plus
the rate times the time between the two reports that enclose the stamp. `beyond` counts those wider
than 1.0 times it plus that: a request whose slew is in doubt bounds less than its twin.
"""

import math
import os
import sys
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.servers.host.offset import ClockDriftWarning, ClockMap

SECOND, MS = 1_000_000_000, 1_000_000
RATES_PPM, LASTING_S = (10, 50, 100, 500), (10, 30, 100)
CORRECTED_PPM = 20.0
"""By which the kernels correct their quartz, apart from slews; reported with them."""

WAIT, STAMPS, DELAY = 7 * SECOND // 2, 4, 120_000
WIDER = 1.3
ROUNDING = 40
"""ns by which two intervals of the same exchanges may differ: each bound is a whole number."""


@dataclass(frozen=True)
class SlewedServer:
    """A clock that is slewed from each even of `moments` to the next odd one, in ns.

    The rate is `ppm`, once ahead and once back.
    """

    ppm: float
    moments: Sequence[int]

    def slewed(self, at: float) -> float:
        """Return how far it has been slewed until a moment, in ns."""
        count = bisect_right(self.moments, at)
        # Those that have ended cancel each other, two by two.
        whole = self._length(0) if count // 2 % 2 else 0.0
        if count % 2 == 0:
            return whole
        sign = -1 if count // 2 % 2 else 1
        return whole + sign * self.ppm * 1e-6 * (at - self.moments[count - 1])

    def _length(self, number: int) -> float:
        return self.ppm * 1e-6 * (self.moments[2 * number + 1] - self.moments[2 * number])


@dataclass
class Cell:
    """What was seen: widths in ns, and what broke a promise."""

    events: int = 0
    stamps: int = 0
    missed: int = 0
    errors: int = 0
    warned: int = 0
    too_wide: int = 0
    beyond: int = 0
    widest: int = 0
    steady: int = 0

    @property
    def broken(self) -> bool:
        """Whether a promise was broken."""
        return bool(self.missed or self.errors or self.warned or self.too_wide)


def moments(chance: numpy.random.Generator, until: int, lasting_s: float) -> list[int]:
    """Return beginnings and ends of slews up to a moment."""
    found: list[int] = []
    at = 0
    while at < until:
        begun = at + round(chance.uniform(20, 60) * SECOND)
        at = begun + round(lasting_s * SECOND)
        found += [begun, at]
    return found


def mapped(
    server: SlewedServer, events: int, seed: int
) -> Iterator[tuple[int, list[tuple[float, int, Span | None]]]]:
    """Yield for each event its number, and moments with the time between the enclosing reports.

    The third is where the map has the moment; None where it raised `ClockError`.
    """
    chance = numpy.random.default_rng(seed)
    clocks, at, reports = ClockMap(), 0, [0.0]

    def reads(moment: float) -> int:
        # The steady correction makes up for the quartz: it is reported, and changes no rate.
        return math.floor(moment + 5 * MS + server.slewed(moment))

    def exchange(busy: float) -> tuple[float, float]:
        nonlocal at
        out, back = DELAY * (0.7 + chance.exponential(0.3, 2))
        sent, there = at, at + out
        ends = there + busy
        at = math.ceil(ends + back)
        slewed = math.floor(server.slewed(ends) + CORRECTED_PPM * 1e-6 * ends)
        clocks.exchanged(sent, reads(there), reads(ends), at, slewed)
        reports.append(ends)
        return there, ends

    for number in range(events):
        for _ in range(2):
            exchange(50_000)
            at += MS
        began, ended = exchange(WAIT)
        at += MS
        exchange(50_000)
        found: list[tuple[float, int, Span | None]] = []
        for true in chance.uniform(began, ended, STAMPS):
            enclosing = next(
                round(after - before) for before, after in pairwise(reports) if true <= after
            )
            try:
                found.append((true, enclosing, clocks.here(reads(true))))
            except ClockError:
                found.append((true, enclosing, None))
        yield number, found
        del reports[:-8]
        at += round(chance.uniform(0.1, 2) * SECOND)


def tried(ppm: float, lasting_s: float, events: int, seed: int = 7) -> Cell:
    """Return what was seen of a rate that lasts for that time."""
    until = events * (WAIT + 3 * SECOND)
    slews = moments(numpy.random.default_rng(seed + 1), until, lasting_s)
    cell, widths = Cell(events), list[int]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClockDriftWarning)
        slewed = mapped(SlewedServer(ppm, slews), events, seed)
        steady = mapped(SlewedServer(0, slews), events, seed)
        for (_, here), (_, wanted) in zip(slewed, steady, strict=True):
            for (true, enclosing, span), (_, _, plain) in zip(here, wanted, strict=True):
                cell.stamps += 1
                if span is None or plain is None:
                    cell.errors += 1
                    continue
                cell.missed += not span.earliest <= true <= span.latest + 1
                width, plain_width = span.latest - span.earliest, plain.latest - plain.earliest
                widths.append(plain_width)
                cell.widest = max(cell.widest, width)
                slew = ppm * 1e-6 * enclosing + ROUNDING
                cell.beyond += width > plain_width + slew
                cell.too_wide += width > WIDER * plain_width + slew
    cell.warned = sum(issubclass(each.category, ClockDriftWarning) for each in caught)
    cell.steady = round(numpy.median(widths))
    return cell


def main() -> int:
    """Try all cells; returns 1 if a promise was broken."""
    events = int(os.environ.get("NTP_SLEWS_EVENTS", "1000"))
    broken = 0
    print("| ppm | s | stamps | missed | errors | warned | too wide | beyond | widest | steady |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for ppm in RATES_PPM:
        for lasting in LASTING_S:
            cell = tried(ppm, lasting, events)
            broken += cell.broken
            print(
                f"| {ppm} | {lasting} | {cell.stamps:,} | {cell.missed} | {cell.errors} "
                f"| {cell.warned} | {cell.too_wide} | {cell.beyond} "
                f"| {cell.widest / MS:.3f} ms | {cell.steady / MS:.3f} ms |",
                flush=True,
            )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
