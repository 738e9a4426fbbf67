"""Mapping of a server's stamps to the bench's clock."""

import warnings
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError

DRIFT = 9_999
"""Time on a server's clock, in ns, in which it may drift by 1 ns: at most 100 ppm slow."""

_HISTORY = 8
_MARGIN = 2
"""A clock that was found too fast may at times be faster than on average, by this factor."""

_new_tuple = tuple.__new__
"""Makes a named tuple of a sequence in less than half of the time that its class takes."""


class ClockError(InstrumentError):
    """Raised when the exchanges with a server contradict each other: its clock jumped."""


class ClockDriftWarning(UserWarning):
    """A server's clock drifts by more than is assumed; bounds are wider than usual."""


class _Bound(NamedTuple):
    """A bound on server time minus bench time, and the server's time at which it was exact."""

    offset: int
    at: int


class _Exchange(NamedTuple):
    """Bounds of the offset at one exchange; `slewed` is how far the clocks had been slewed."""

    at: int
    lower: int
    upper: int
    slewed: int


class _Slew(NamedTuple):
    """Clocks were slewed by `moved` ns at most, between two stamps of the server."""

    begun: int
    ended: int
    moved: int


class _Bounds(NamedTuple):
    """Bounds by which stamps are mapped; one value, since replies come while others map stamps.

    rate: time on the server's clock, in ns, in which it may drift by 1 ns.
    """

    upper: tuple[_Bound, ...] = ()
    lower: tuple[_Bound, ...] = ()
    slews: tuple[_Slew, ...] = ()
    rate: int = DRIFT

    def slewed_between(self, one: int, two: int) -> int:
        """Return by how many ns the clocks were slewed, at most, between two stamps.

        In which part of the time between two exchanges they were is not known, so all of it counts.
        """
        first, last = min(one, two), max(one, two)
        return sum(slew.moved for slew in self.slews if slew.begun < last and slew.ended > first)


class ClockMap:
    """Maps a server's stamps to the bench's clock, with bounds.

    Causality bounds the offset, whatever the delays: a request cannot be received before it was
    sent, which gives an upper bound, and a reply cannot be received before it was sent, which gives
    a lower one. No delay is assumed to be symmetric, as NTP does, so the true moment is always
    inside. Clocks drift apart, so a bound is loosened by `DRIFT` with the distance in time from its
    exchange; of the last few exchanges the tightest bound is used.

    NTP slews clocks by up to 500 ppm, chrony by far more. A slew shows as a difference between
    CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW, which each exchange reports: bounds are loosened by
    what the clocks were slewed between their exchange and the stamp. Where exchanges show that a
    clock drifts by more than `DRIFT` all the same, that rate is used, with a `ClockDriftWarning`.

    Args:
        exchanges: number of exchanges whose bounds are used.
        name: the server's name.
    """

    def __init__(self, exchanges: int = 3, name: str = "a server") -> None:
        self.name = name
        self._latest_upper: deque[_Bound] = deque(maxlen=exchanges)
        self._latest_lower: deque[_Bound] = deque(maxlen=exchanges)
        self._bounds = _Bounds()
        self._history: deque[_Exchange] = deque(maxlen=_HISTORY)
        self._excess_ppm = 0.0
        self.same_clock = False
        self.last_exchange = (0, 0, 0, 0)

    def exchanged(
        self, sent: int, received_there: int, sent_there: int, received: int, slewed: int = 0
    ) -> None:
        """Add an exchange: `sent` and `received` on the bench, the other two on the server.

        slewed: by how many ns the server's clock has been slewed forward until then, less the
        bench's; 0 where that is not known.
        """
        self.last_exchange = (sent, received_there, sent_there, received)
        if self.same_clock:
            return
        upper = _Bound(received_there - sent, received_there)
        lower = _Bound(sent_there - received, sent_there)
        self._latest_upper.append(upper)
        self._latest_lower.append(lower)
        # Without slews so far, all exchanges of the history agree.
        slewing = bool(self._bounds.slews) or (
            bool(self._history) and self._history[-1].slewed != slewed
        )
        self._history.append(_Exchange(sent_there, lower.offset, upper.offset, slewed))
        slews: tuple[_Slew, ...] = ()
        if slewing:
            slews = tuple(
                _Slew(before.at, after.at, abs(after.slewed - before.slewed))
                for before, after in pairwise(self._history)
                if after.slewed != before.slewed
            )
        rate = self._rate_of(_Bounds((), (), slews, self._bounds.rate))
        if slews or rate != DRIFT:
            bounds = tuple(self._latest_upper), tuple(self._latest_lower)
        else:
            # A reply brings tens of stamps, so bounds that never decide are dropped here.
            bounds = _deciding(self._latest_upper, 1), _deciding(self._latest_lower, -1)
        self._bounds = _Bounds(*bounds, slews, rate)

    def here(self, stamp: int) -> Span:
        """Return the server's `stamp` on the bench's clock."""
        return self.span(stamp, stamp)

    def span(self, earliest: int, latest: int) -> Span:
        """Return a moment between two stamps of the server on the bench's clock.

        Raises `ClockError` where the exchanges contradict each other.
        """
        if self.same_clock:
            return Span(earliest, latest)
        if self._excess_ppm:
            self._warn()
        # `drift` is minus the drift, rounded up, between a bound's stamp and this one. Stamps are
        # whole nanoseconds, rounded down, so two moments are up to 1 ns further apart than their
        # stamps. In integers: stamps after a hundred days of uptime exceed a float's precision.
        # Written out, since a reconfiguration maps a hundred stamps and more.
        before = after = None
        bounds = self._bounds
        rate = bounds.rate
        for offset, at in bounds.upper:
            drift = (-1 - abs(earliest - at)) // rate
            if bounds.slews:
                drift -= bounds.slewed_between(earliest, at)
            moment = earliest - offset + drift
            if before is None or moment > before:
                before = moment
        for offset, at in bounds.lower:
            drift = (-1 - abs(latest - at)) // rate
            if bounds.slews:
                drift -= bounds.slewed_between(latest, at)
            moment = latest - offset - drift
            if after is None or moment < after:
                after = moment
        if before is None or after is None:
            raise ValueError("no exchange bounds the offset yet")
        if before > after:
            raise ClockError(
                self.name,
                f"has a clock that jumped by at least {(before - after) / 1e3:.0f} us against "
                "the bench's",
                details=[
                    ("try", "`chronyc tracking` there; a clock must not be stepped meanwhile")
                ],
            )
        return _new_tuple(Span, (before, after))

    def _rate_of(self, bounds: _Bounds) -> int:
        """Return the rate of `bounds`, raised where the last exchange contradicts another one."""
        last, rate = self._history[-1], bounds.rate
        for first in self._history:
            passed = last.at - first.at
            if passed <= 0:
                continue
            moved = max(last.lower - first.upper, first.lower - last.upper)
            if moved * DRIFT > passed + DRIFT and bounds.slews:
                moved -= bounds.slewed_between(first.at, last.at)
            if moved * DRIFT <= passed + DRIFT:
                continue
            rate = min(rate, max(passed // (_MARGIN * moved), 1))
            self._excess_ppm = max(self._excess_ppm, 1e6 * moved / passed)
        return rate

    def _warn(self) -> None:
        excess, self._excess_ppm = self._excess_ppm, 0.0
        warnings.warn(
            f"{self.name}: its clock drifts by at least {excess:.0f} ppm against the bench's, "
            f"where {1e6 / DRIFT:.0f} ppm are assumed; bounds are wider than usual. Is it being "
            "slewed, or without NTP?",
            ClockDriftWarning,
            stacklevel=3,
        )


def _deciding(bounds: Iterable[_Bound], sign: int) -> tuple[_Bound, ...]:
    """Return the bounds that are the tightest at some time; `sign` is 1 for upper bounds.

    By the triangle inequality a bound that is tighter at the time of another one, loosening
    included, is at least as tight at all times.
    """
    found: list[_Bound] = []
    for bound in bounds:
        for each in found:
            if _at_least_as_tight(each, bound, sign):
                break
        else:
            found = [each for each in found if not _at_least_as_tight(bound, each, sign)]
            found.append(bound)
    return tuple(found)


def _at_least_as_tight(one: _Bound, two: _Bound, sign: int) -> bool:
    return sign * (two.offset - one.offset) >= -(-abs(one.at - two.at) // DRIFT)
