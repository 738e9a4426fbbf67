"""How far the kernel has slewed a server's clock, at stamps between its replies."""

from bisect import bisect_left, bisect_right, insort
from math import ceil, floor
from typing import NamedTuple

_HISTORY = 64
"""Replies whose slews are used: of some reconfigurations, each of which has a long wait."""

_RATES = 2
"""Waits that must agree on a rate. One is not enough: it may hold a part of a slew."""


class _Wait(NamedTuple):
    """The time between two replies: their stamps, their slews, and the rates that it allows."""

    begin: int
    end: int
    slew_before: int
    slew_after: int
    slowest: float
    fastest: float


class Slews:
    """Slews of one clock as replies reported them, and their bounds in between.

    A kernel that follows a time service corrects its quartz by a rate that stays as it is for long.
    What a correction of the same rate as in the waits before adds is therefore known at each stamp;
    what departs from that rate may have happened in any part of the time between two replies.

    Rates come from waits of at least half the length of the one in question, so that an error of
    the reported slews is not extrapolated. Where fewer than two such waits are known, and before
    the first reply and after the last, the kernel may also have corrected nothing.
    """

    def __init__(self) -> None:
        self._replies: list[tuple[int, int]] = []
        self._stamps: list[int] = []
        self._settled: dict[int, _Wait] = {}
        self._open: dict[int, _Wait] = {}
        self._last: _Wait | None = None  # that was asked for

    def __bool__(self) -> bool:
        """Whether the slew differs between replies."""
        return any(slew != self._replies[0][1] for _, slew in self._replies)

    def settled(self, count: int) -> bool:
        """Whether no later reply changes the slews between the last `count` replies."""
        return all(map(self._settled.__contains__, self._stamps[-count:]))

    def with_reply(self, stamp: int, slew: int) -> "Slews":
        """Return these and the `slew` reported at `stamp`, both in ns, without the oldest."""
        found = Slews()
        found._replies = self._replies[1 - _HISTORY :]
        found._stamps = self._stamps[1 - _HISTORY :]
        if found._stamps and stamp <= found._stamps[-1]:
            insort(found._replies, (stamp, slew))
            found._stamps = [each for each, _ in found._replies]
            return found
        found._replies.append((stamp, slew))
        found._stamps.append(stamp)
        found._settled = self._settled.copy()  # at once: another thread may be adding to them
        found._settled.pop(found._stamps[0], None)
        return found

    def at(self, stamp: int) -> tuple[int, int]:
        """Return the slew at a stamp and its doubt to either side, in ns."""
        # Some hundreds an event, nearly all between the last two replies: no search, no call there.
        wait, after = self._last, 0
        if wait is None or not wait[0] < stamp <= wait[1]:
            wait, after = None, bisect_left(self._stamps, stamp)
            if 0 < after < len(self._stamps):
                end = self._stamps[after]
                wait = self._settled.get(end) or self._open.get(end) or self._wait(after)
                self._last = wait
        if wait is None:
            least, most = self._outside(after, stamp)
        else:
            begin, end, slew_before, slew_after, slowest, fastest = wait
            if stamp == end:
                return slew_after, 2
            since, until = float(stamp - begin), float(stamp - end)
            low, low_after = slew_before + slowest * since, slew_after + fastest * until
            high, high_after = slew_before + fastest * since, slew_after + slowest * until
            least = floor(low if low < low_after else low_after)
            most = ceil(high if high > high_after else high_after)
        return (least + most) // 2, (most - least + 1) // 2 + 2

    def _outside(self, after: int, stamp: int) -> tuple[int, int]:
        """Return the least and the greatest slew before the first reply or after the last."""
        at, slew = self._replies[-1 if after else 0]
        if stamp == at:
            return slew, slew
        rates = [*self._rates_near(after, abs(stamp - at)), 0.0]
        found = [slew + rate * (stamp - at) for rate in rates]
        return floor(min(found)), ceil(max(found))

    def _wait(self, after: int) -> _Wait:
        """Return the wait that ends with reply number `after`, and know it from now on."""
        (begin, slew_before), (end, slew_after) = self._replies[after - 1 : after + 1]
        rates = self._rates_before(after, end - begin)
        settled = len(rates) == _RATES  # they are of waits before it: no later reply changes them
        if not settled:
            rates = self._rates_near(after, end - begin)
        if len(rates) < _RATES:
            rates.append(0.0)
        found = _Wait(begin, end, slew_before, slew_after, min(rates), max(rates))
        (self._settled if settled else self._open)[end] = found
        return found

    def _rates_near(self, after: int, length: int) -> list[float]:
        """Return the rates of up to two waits of half of `length`, rather before than after."""
        stamps, half = self._stamps, (length + 1) // 2
        rates = self._rates_before(after, length)
        begin = after
        while begin < len(stamps) and len(rates) < _RATES:
            end = bisect_left(stamps, stamps[begin] + half)
            if end < len(stamps):
                rates.append(self._rate(begin, end))
            begin = end
        return rates

    def _rates_before(self, after: int, length: int) -> list[float]:
        """Return the rates of up to two waits of half of `length` before reply number `after`."""
        stamps, half = self._stamps, (length + 1) // 2
        rates: list[float] = []
        end = after - 1
        while end >= 0 and len(rates) < _RATES:
            begin = bisect_right(stamps, stamps[end] - half) - 1
            if begin >= 0:
                rates.append(self._rate(begin, end))
            end = begin
        return rates

    def _rate(self, begin: int, end: int) -> float:
        (first, before), (last, after) = self._replies[begin], self._replies[end]
        return (after - before) / (last - first)
