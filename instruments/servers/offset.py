"""Mapping of a server's stamps to the bench's clock."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from lightrig.instruments.clock import Span

DRIFT = 9_999
"""Time on a server's clock, in ns, in which it may drift by 1 ns: at most 100 ppm slow."""


class _Bound(NamedTuple):
    """A bound on server time minus bench time, and the server's time at which it was exact."""

    offset: int
    at: int


class ClockMap:
    """Maps a server's stamps to the bench's clock, with bounds.

    Causality bounds the offset, whatever the delays: a request cannot be received before it was
    sent, which gives an upper bound, and a reply cannot be received before it was sent, which gives
    a lower one. No delay is assumed to be symmetric, as NTP does, so the true moment is always
    inside. Clocks drift apart, so a bound is loosened by `DRIFT` with the distance in time from its
    exchange; of the last few exchanges the tightest bound is used.
    """

    def __init__(self, exchanges: int = 3) -> None:
        self._latest_upper: deque[_Bound] = deque(maxlen=exchanges)
        self._latest_lower: deque[_Bound] = deque(maxlen=exchanges)
        self._upper: list[_Bound] = []
        self._lower: list[_Bound] = []
        self.same_clock = False
        self.last_exchange = (0, 0, 0, 0)

    def exchanged(self, sent: int, received_there: int, sent_there: int, received: int) -> None:
        """Add an exchange: `sent` and `received` on the bench, the other two on the server."""
        self.last_exchange = (sent, received_there, sent_there, received)
        self._latest_upper.append(_Bound(received_there - sent, received_there))
        self._latest_lower.append(_Bound(sent_there - received, sent_there))
        # A reply brings tens of stamps, so bounds that never decide are dropped here.
        self._upper = _deciding(self._latest_upper, 1)
        self._lower = _deciding(self._latest_lower, -1)

    def here(self, stamp: int) -> Span:
        """Return the server's `stamp` on the bench's clock."""
        return self.span(stamp, stamp)

    def span(self, earliest: int, latest: int) -> Span:
        """Return a moment between two stamps of the server on the bench's clock."""
        if self.same_clock:
            return Span(earliest, latest)
        # `drift` is minus the drift, rounded up, between a bound's stamp and this one. Stamps are
        # whole nanoseconds, rounded down, so two moments are up to 1 ns further apart than their
        # stamps. In integers: stamps after a hundred days of uptime exceed a float's precision.
        # Written out, since a reconfiguration maps a hundred stamps and more.
        before = after = None
        for offset, at in self._upper:
            drift = (-1 - abs(earliest - at)) // DRIFT
            moment = earliest - offset + drift
            if before is None or moment > before:
                before = moment
        for offset, at in self._lower:
            drift = (-1 - abs(latest - at)) // DRIFT
            moment = latest - offset - drift
            if after is None or moment < after:
                after = moment
        if before is None or after is None:
            raise ValueError("no exchange bounds the offset yet")
        return Span(before, after)


def _deciding(bounds: Iterable[_Bound], sign: int) -> list[_Bound]:
    """Return the bounds that are the tightest at some time; `sign` is 1 for upper bounds.

    By the triangle inequality a bound that is tighter at the time of another one, loosening
    included, is at least as tight at all times.
    """
    found: list[_Bound] = []
    for bound in bounds:
        if any(_at_least_as_tight(each, bound, sign) for each in found):
            continue
        found = [each for each in found if not _at_least_as_tight(bound, each, sign)]
        found.append(bound)
    return found


def _at_least_as_tight(one: _Bound, two: _Bound, sign: int) -> bool:
    return sign * (two.offset - one.offset) >= -(-abs(one.at - two.at) // DRIFT)
