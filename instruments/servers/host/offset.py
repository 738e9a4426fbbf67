"""Mapping of a server's stamps to the bench's clock."""

import warnings
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil, inf, sqrt
from typing import NamedTuple

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.named_tuples import new_tuple
from lightrig.instruments.servers.host.slews import Slews

MAXIMUM_RATE = 1e-3
"""A server's clock gains or loses at most this part of the time that passes on the bench's.

Quartz is within 100 ppm, and the kernel slews by at most 500 ppm; beyond, it was set or it stood.
"""

_WALK = 300.0
_RAMP = 1e3 / 60 / 2
"""Departure, in ns, from a steady rate: `_WALK` times s ** 1.5 plus `_RAMP` times s ** 2.

A rate that wanders by 0.1 ppm per root second departs after t seconds from the line through the
present moment with a standard deviation of 58 ns times t ** 1.5; the factor is five of them. A rate
that changes by 1 ppm a minute departs by half of that times t ** 2.
"""

_HISTORY = 8


_USUAL_RATE = 1e-4
"""A clock that gains or loses more than this part is named in a warning."""


class ClockDriftWarning(UserWarning):
    """Issued for a server whose clock gains or loses more than quartz or NTP explain."""


class _Exchange(NamedTuple):
    """Stamps of a request and of its reply, and how far the clocks had been slewed apart then."""

    sent: int
    received_there: int
    sent_there: int
    received: int
    slewed: int


class _Point(NamedTuple):
    """One bound of an exchange, in ns.

    Attributes:
        at: the server's stamp, from the line's origin.
        least: of a reply, the greatest that bench time less server time may be there; of a request,
            the greatest that server time less bench time may be.
    """

    at: int
    least: int


class _Deciding(NamedTuple):
    """Bounds for an interval of stamps.

    Attributes:
        points: those that bound alone, for the clock's greatest rate.
        pair: stamp and bound of each of the two points that bound together, and the time between
            them; None where none do.
    """

    points: Sequence[_Point]
    pair: tuple[int, float, int, float, float] | None


def _wander(distance: int) -> float:
    """Return by how much a clock departs from a steady rate within `distance` ns, in ns."""
    seconds = abs(distance) * 1e-9
    return seconds * (_WALK * sqrt(seconds) + _RAMP * seconds)


class _Line:
    """All lines from server time to bench time that a few exchanges allow.

    A request is not received before it was sent, and neither is a reply: an exchange sets a bound
    from below at one stamp of the server and a bound from above at another. Between clocks of
    steady rates bench time is a line over server time, so the bounds at a stamp are the least and
    the greatest value there of a line that keeps all of them: a linear program in two unknowns,
    whose optimum lies where two points, or one point and the greatest rate, decide (Moon, Skelly,
    Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements", INFOCOM 1999).
    Each point is loosened by what the clock may wander between its stamp and the one in question.

    Attributes:
        earliest, latest: bounds that are known, by stamp.
    """

    def __init__(
        self,
        requests: list[_Point],
        replies: list[_Point],
        origin: tuple[int, int],
        slews: Slews | None,
    ) -> None:
        self._requests, self._replies = requests, replies
        self._origin, self._bench = origin
        self._slews = slews
        self._count = len(requests) + len(replies)
        self._stamps: list[int] = []  # sorted, once one is asked for
        self._deciding: dict[int, Mapping[int, _Deciding]] = {}
        # Near half of an event's stamps are asked for twice, such as those of datagrams.
        self.earliest: dict[int, int] = {}
        self.latest: dict[int, int] = {}
        self._new: tuple[_Exchange, tuple[tuple[int, int], tuple[int, int]]] | None = None
        self._placed: tuple[int | None, int, int, Mapping[int, _Deciding]] = (None, 0, 0, {})

    @classmethod
    def of(cls, exchanges: Sequence[_Exchange], slews: Slews | None) -> "_Line":
        """Return the lines of some exchanges, all placed by `slews`."""
        last = exchanges[-1]
        line = cls([], [], (last.sent_there, last.received), slews)
        for exchange in exchanges:
            line = line.with_exchange(exchange, len(exchanges))
        return line

    def with_slews(self, slews: Slews | None) -> "_Line":
        """Return the lines of the same exchanges, for stamps that are placed by newer slews."""
        return _Line(self._requests, self._replies, (self._origin, self._bench), slews)

    def with_exchange(self, new: _Exchange, count: int) -> "_Line":
        """Return the lines that one more exchange allows, and the last `count` - 1 of those here.

        The places of the others stay as they are.
        """
        (asked, doubt), (answered, doubt_then) = self.places(new)
        request = new_tuple(_Point, (asked, asked - new.sent + self._bench + doubt))
        least = new.received - self._bench - answered + doubt_then
        reply = new_tuple(_Point, (answered, least))
        since = max(len(self._requests) + 1 - count, 0)
        requests, replies = [*self._requests[since:], request], [*self._replies[since:], reply]
        return _Line(requests, replies, (self._origin, self._bench), self._slews)

    @property
    def slewed(self) -> bool:
        """Whether slews of the clock are taken off its stamps."""
        return self._slews is not None

    def bound(self, stamp: int, side: int) -> int:
        """Return when a stamp was at the earliest (`side` -1) or latest (1), on the bench's clock.

        Any point and any pair of points set a true bound, so those that decide in the middle of an
        interval serve for all stamps in it: the intervals between the stamps of exchanges, and
        outside of them ones that double with the distance.
        """
        # Some hundreds an event: all is written out, and what decides in an interval is known.
        placed = self._placed
        if placed[0] != stamp:  # of half of the stamps both bounds are asked for
            at, doubt = stamp - self._origin, 1
            if self._slews is not None:  # `place`, written out
                slew, doubt = self._slews.at(stamp)
                at -= slew
            stamps = self._stamps
            if not stamps:
                of_all = (*self._requests, *self._replies)
                self._stamps = stamps = sorted([there for there, _ in of_all])
            interval = bisect_right(stamps, at)
            if interval == self._count:
                interval += (at - stamps[-1]).bit_length()
            elif interval == 0:
                interval = -(stamps[0] - at).bit_length()
            both = self._deciding.get(interval) or self._decide(interval)
            self._placed = placed = (stamp, at, doubt, both)
        _, at, doubt, both = placed
        points, pair = both[side]
        least = inf
        if pair is not None:
            one, least_of_one, two, least_of_two, apart = pair
            first, second = at - one if at > one else one - at, at - two if at > two else two - at
            near, far = first * 1e-9, second * 1e-9
            near = least_of_one + near * (_WALK * sqrt(near) + _RAMP * near)
            far = least_of_two + far * (_WALK * sqrt(far) + _RAMP * far)
            least = (second * near + first * far) / apart
        for there, least_there in points:
            first = there - at if there > at else at - there
            seconds = first * 1e-9
            alone = least_there + MAXIMUM_RATE * first
            alone += seconds * (_WALK * sqrt(seconds) + _RAMP * seconds)
            if alone < least:  # noqa: PLR1730  # a call each would be some hundreds an event
                least = alone
        found = self._bench + at + side * (ceil(least) + doubt)
        (self.earliest if side < 0 else self.latest)[stamp] = found
        return found

    def _rate(self) -> float:
        """Return the rate between the middles of the first and of the last exchange."""
        (first, least), (last, least_of_last) = self._replies[0], self._replies[-1]
        twice = least_of_last - self._requests[-1].least - least + self._requests[0].least
        return twice / 2 / (last - first) if last != first else 0.0

    def allows(self, new: _Exchange) -> bool:
        """Whether a line of a steady rate, amid all bounds, also keeps those of a new exchange.

        Only a quick answer: where it is no, another line may still do.
        """
        requests, replies, rate = self._requests, self._replies, self._rate()
        most = min([point.least - rate * point.at for point in replies])
        least = max([-point.least - rate * point.at for point in requests])
        if least > most or abs(rate) > MAXIMUM_RATE:
            return False
        ahead = self._bench + (least + most) / 2
        (received_there, _), (sent_there, _) = self.places(new)
        return (
            new.sent <= ahead + (1 + rate) * received_there
            and ahead + (1 + rate) * sent_there <= new.received
        )

    def place(self, stamp: int) -> tuple[int, int]:
        """Return a stamp from the line's origin, slews taken off, and its doubt, in ns.

        A stamp is rounded down to a whole nanosecond.
        """
        if self._slews is None:
            return stamp - self._origin, 1
        slew, doubt = self._slews.at(stamp)
        return stamp - self._origin - slew, doubt

    def places(self, exchange: _Exchange) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the places of both stamps of an exchange, see `place`; the last are known."""
        if self._new is None or self._new[0] is not exchange:
            places = self.place(exchange.received_there), self.place(exchange.sent_there)
            self._new = exchange, places
        return self._new[1]

    def _interval(self, number: int) -> tuple[int, int]:
        """Return an interval of stamps by its number.

        Number n lies before stamp n of the exchanges; from their number on, n doublings after the
        last, and from 0 down, n doublings before the first.
        """
        count = self._count
        if 0 < number < count:
            return self._stamps[number - 1], self._stamps[number]
        doubled = 1 << (number - count if number > 0 else -number)
        if number > 0:
            return self._stamps[-1] + doubled // 2, self._stamps[-1] + doubled
        return self._stamps[0] - doubled, self._stamps[0] - doubled // 2

    def _decide(self, interval: int) -> Mapping[int, _Deciding]:
        """Return what bounds the stamps of an interval, by side, and know it from now on."""
        before, after = self._interval(interval)
        middle = (before + after) // 2
        rate = self._rate()
        requests = _placed(self._requests, middle, -rate)
        replies = _placed(self._replies, middle, rate)
        found: dict[int, _Deciding] = {}
        for side, points, same, opposite in (
            (-1, self._requests, requests, replies),
            (1, self._replies, replies, requests),
        ):
            pair, sign = _deciding_pair(same, opposite)
            # Between two points of one kind both are as near as can be.
            nearest: set[_Point] = set()
            if pair is None or sign < 0:
                nearest = {_nearest(points, before)}
                if 0 < interval < self._count:  # else one is nearest to all stamps there
                    nearest.add(_nearest(points, after))
            both = None
            if pair is not None:
                (one, least_of_one), (two, least_of_two) = pair
                both = one, float(least_of_one), two, float(least_of_two), float(abs(two - one))
            found[side] = new_tuple(_Deciding, (tuple(nearest), both))
        self._deciding[interval] = found
        return found


def _nearest(points: Sequence[_Point], at: int) -> _Point:
    """Return the point that bounds a stamp near it most, for the clock's greatest rate."""
    found, least = points[0], inf
    for point in points:
        there, least_there = point
        bound = least_there + MAXIMUM_RATE * (there - at if there > at else at - there)
        if bound < least:
            found, least = point, bound
    return found


class _Placed(NamedTuple):
    """Points around a stamp.

    Attributes:
        before, after: those before it, the nearest first, and those at it or after: each with its
            distance, and its bound there for a clock of a given rate.
        alone: the least bound of one point, for the clock's greatest rate.
        least: the least bound for a clock of the given rate.
    """

    before: list[tuple[_Point, float, float]]
    after: list[tuple[_Point, float, float]]
    alone: float
    least: float


def _placed(points: Sequence[_Point], at: int, rate: float) -> _Placed:
    """Return points around a stamp. rate: by which their bounds grow with the stamps."""
    before: list[tuple[_Point, float, float]] = []
    after: list[tuple[_Point, float, float]] = []
    alone = least = inf
    for point in reversed(points):
        there, bound = point
        if there < at:
            distance = float(at - there)
            seconds = distance * 1e-9
            departure = bound + seconds * (_WALK * sqrt(seconds) + _RAMP * seconds)
            near = departure + rate * distance
            before.append((point, distance, near))
        else:
            distance = float(there - at)
            seconds = distance * 1e-9
            departure = bound + seconds * (_WALK * sqrt(seconds) + _RAMP * seconds)
            near = departure - rate * distance
            after.append((point, distance, near))
        if near < least:  # noqa: PLR1730  # as in `_Line.bound`
            least = near
        departure += MAXIMUM_RATE * distance
        if departure < alone:  # noqa: PLR1730
            alone = departure
    return new_tuple(_Placed, (before, after, alone, least))


def _deciding_pair(same: _Placed, opposite: _Placed) -> tuple[tuple[_Point, _Point] | None, int]:
    """Return the pair of points that decides the bound at a stamp, with its sign.

    A point alone bounds only for a given rate of the clock. On two sides of the stamp, one of two
    points of one kind allows a fast clock what the other denies it; on one side, a far point of
    the other kind bounds the rate at which a near one is extrapolated.

    The bound of a pair is the same whatever the rate at which its points are placed. At about the
    clock's they differ by delays alone, so that most pairs are known not to decide by one of them.
    """
    before, after, least, _ = same
    lowest = opposite.least
    pair, pair_sign = None, 1
    for two, second, far in after:
        for one, first, near in before:
            if near < least or far < least:  # else no mean of them is less
                bound = (second * near + first * far) / (second + first)
                if bound < least:
                    least, pair, pair_sign = bound, (one, two), 1
    for bounds, across in ((before, opposite.before), (after, opposite.after)):
        farthest = max(across[0][1], across[-1][1]) if across else 0.0
        for one, first, near in bounds:
            if first >= farthest:
                continue
            # Where the two kinds leave room for a line, no far bound makes a near one less, and the
            # farthest that is also the lowest would add the least to it.
            room = near + lowest
            if room >= 0 and near + first * room / (farthest - first) >= least:
                continue
            for two, second, far in across:
                if first < second:
                    bound = (second * near + first * far) / (second - first)
                    if bound < least:
                        least, pair, pair_sign = bound, (one, two), -1
    return pair, pair_sign


def _jump(line: _Line, stamp: int, earliest: int, latest: int) -> tuple[int, int]:
    """Return the least and the greatest size of a jump of a clock, positive ahead.

    stamp: one after the jump, taken between `earliest` and `latest` on the bench's clock.
    """
    guess = (line.bound(stamp, -1) + line.bound(stamp, 1) - earliest - latest) // 2
    before = stamp - guess  # the line is narrow only near the exchanges that it is made of
    return guess + line.bound(before, -1) - latest, guess + line.bound(before, 1) - earliest


def jump_text(least: int, most: int) -> str:
    """Return which way a clock jumped, and by how much; ends in ns, positive ahead."""
    small, large = sorted(map(abs, (least, most)))
    return f"jumped {'ahead' if most > 0 else 'back'} by {small / 1e6:g} to {large / 1e6:g} ms"


def clock_error(server: str, problem: str) -> ClockError:
    """Return the error of a server whose clock cannot be used."""
    advice = "`chronyc tracking` there, or was it suspended? No clock may be set meanwhile"
    return ClockError(server, problem, details=[("try", advice)])


class ClockMap:
    """Maps a server's stamps to the bench's clock, with bounds.

    Causality bounds the offset, whatever the delays: no delay is assumed to be symmetric, as NTP
    does, so the true moment is always inside. The rate of the server's clock is bounded by the same
    exchanges, and need not be assumed: see `_Line`. What is assumed is `MAXIMUM_RATE`, and that the
    rate wanders by at most 0.1 ppm per root second and 1 ppm a minute.

    NTP slews clocks by up to 500 ppm, chrony by far more. A slew shows as a difference between
    CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW, which each exchange reports; it is taken off, as is the
    steady correction by which a disciplined clock's quartz differs from the bench's: see `Slews`.

    An exchange that no line of those before it allows shows that the clock jumped meanwhile. Stamps
    until then raise `ClockError`, and later ones are mapped by later exchanges alone. A jump is
    visible where it exceeds the width of the map by more than the rate still allows: with a known
    rate a round trip, else `MAXIMUM_RATE` of the time between the exchanges. A jump back while a
    request is being answered looks like a slow reply until the next exchange.

    Args:
        exchanges: number of exchanges whose bounds are used.
        name: the server's name.
    """

    def __init__(self, exchanges: int = _HISTORY, name: str = "a server") -> None:
        self.name = name
        self._exchanges = exchanges
        self._history: deque[_Exchange] = deque(maxlen=exchanges)
        self._slews = Slews()
        # One value, since replies come on another thread while stamps are mapped.
        self._line: _Line | None = None
        self._jump: tuple[int, str] | None = None
        self._excess_ppm = 0.0
        self._warned = False
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
        exchange = _Exchange(sent, received_there, sent_there, received, slewed)
        settled = self._slews.settled(len(self._history))
        self._slews = self._slews.with_reply(sent_there, slewed)
        slews, line = self._slews or None, self._line
        if line is not None:
            if line.slewed == (slews is not None) and (settled or slews is None):
                line = line.with_slews(slews)
            else:  # the new slew places the exchanges before anew
                line = _Line.of(self._history, slews)
            exchange = self._without_jump(line, exchange)
        self._history.append(exchange)
        if line is None or len(self._history) == 1:  # the first of all, or after a jump
            self._line = _Line.of(self._history, self._slews or None)
        else:
            self._line = line.with_exchange(exchange, self._exchanges)

    def _without_jump(self, line: _Line, new: _Exchange) -> _Exchange:
        """Return `new`; after a jump that it shows, note the jump and forget the exchanges before.

        Of an exchange during which the clock jumped ahead only the reply is returned.
        """
        busy, passed = new.sent_there - new.received_there, new.received - new.sent
        slack = MAXIMUM_RATE * busy + _wander(busy)
        meanwhile = busy - slack > passed
        last = new.received - busy
        if not meanwhile and line.allows(new):
            self._note_rate(line, new)
            return new
        if not meanwhile and (
            line.bound(new.received_there, 1) < new.sent
            or line.bound(new.received_there, -1) > last + slack
        ):
            jump = _jump(line, new.received_there, new.sent, last)
        elif meanwhile or line.bound(new.sent_there, -1) > new.received:
            jump = _jump(line, new.sent_there, new.sent, new.received)
            new = new._replace(received_there=new.sent_there)
        else:
            self._note_rate(line, new)
            return new
        # A clock that jumped back shows the same stamps twice.
        ahead, large = jump[1] > 0, -jump[0]
        self._jump = new.received_there + (0 if ahead else large), jump_text(*jump)
        self._history.clear()
        self._slews = Slews().with_reply(new.sent_there, new.slewed)
        return new

    def here(self, stamp: int) -> Span:
        """Return the server's `stamp` on the bench's clock."""
        return self.span(stamp, stamp)

    def span(self, earliest: int, latest: int) -> Span:
        """Return a moment between two stamps of the server on the bench's clock.

        Raises `ClockError` for stamps from before a jump of the clock.
        """
        # Namespaces share this machine's clock: an offset of zero is known, not measured.
        if self.same_clock:
            return Span(earliest, latest)
        if self._excess_ppm and not self._warned:
            self._warn()
        jump, line = self._jump, self._line
        if line is None:
            raise ValueError("no exchange bounds the offset yet")
        if jump is not None and earliest <= jump[0]:
            raise self._error(jump[1])
        before, after = line.earliest.get(earliest), line.latest.get(latest)
        if before is None:
            before = line.bound(earliest, -1)
        if after is None:
            after = line.bound(latest, 1)
        if before > after:
            raise self._error("changes its rate by more than 0.1 ppm per root second")
        return new_tuple(Span, (before, after))

    def _error(self, problem: str) -> ClockError:
        return clock_error(self.name, f"has a clock that {problem} against the bench's")

    def _note_rate(self, line: _Line, new: _Exchange) -> None:
        """Note by how much the clock gains or loses at least, if that is more than usual."""
        old = self._history[0]
        (asked, doubt), (answered, doubt_then) = line.places(new)
        first, first_doubt = line.place(old.received_there)
        there = answered - first - first_doubt - doubt_then
        here = new.received - old.sent
        first, first_doubt = line.place(old.sent_there)
        slow_there = asked - first + first_doubt + doubt
        slow_here = new.sent - old.received
        if there > here * (1 + _USUAL_RATE) and here > 0:
            self._excess_ppm = max(self._excess_ppm, 1e6 * (there / here - 1))
        elif 0 < slow_there < slow_here * (1 - _USUAL_RATE):
            self._excess_ppm = max(self._excess_ppm, 1e6 * (1 - slow_there / slow_here))

    def _warn(self) -> None:
        self._warned = True
        warnings.warn(
            f"{self.name}: its clock drifts by at least {self._excess_ppm:.0f} ppm against the "
            f"bench's, more than the {1e6 * _USUAL_RATE:.0f} ppm of quartz. Is it being slewed, or "
            "without NTP?",
            ClockDriftWarning,
            stacklevel=3,
        )
