"""How far the kernel has slewed a server's clock, at stamps between its replies."""

import math
from bisect import bisect_left, bisect_right, insort

_HISTORY = 64
"""Replies whose slews are used: of some reconfigurations, each of which has a long wait."""

_RATES = 2
"""Waits that must agree on a rate. One is not enough: it may hold a part of a slew."""


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
        self._rates_of: dict[int, list[float]] = {}

    def __bool__(self) -> bool:
        """Whether the slew differs between replies."""
        return any(slew != self._replies[0][1] for _, slew in self._replies)

    def with_reply(self, stamp: int, slew: int) -> "Slews":
        """Return these and the `slew` reported at `stamp`, both in ns, without the oldest."""
        found = Slews()
        found._replies = self._replies[1 - _HISTORY :]
        insort(found._replies, (stamp, slew))
        found._stamps = [each for each, _ in found._replies]
        return found

    def at(self, stamp: int) -> tuple[int, int]:
        """Return the slew at a stamp and its doubt to either side, in ns."""
        after = bisect_left(self._stamps, stamp)
        known = after < len(self._stamps)
        if known and self._stamps[after] == stamp:
            return self._replies[after][1], 2
        found = []
        for rate in self._rates(after, stamp):
            for reply in range(max(after - 1, 0), min(after + 1, len(self._stamps))):
                at, slew = self._replies[reply]
                found.append(slew + rate * (stamp - at))
        least, most = math.floor(min(found)), math.ceil(max(found))
        return (least + most) // 2, (most - least + 1) // 2 + 2

    def _rates(self, after: int, stamp: int) -> list[float]:
        """Return the rates of correction that waits near reply number `after` allow before it."""
        stamps, count = self._stamps, len(self._stamps)
        if 0 < after < count:
            rates = self._rates_of.get(after)
            if rates is None:
                length = stamps[after] - stamps[after - 1]
                rates = self._rates_of[after] = self._rates_near(after, length)
                if len(rates) < _RATES:
                    rates.append(0.0)
            return rates
        length = stamp - stamps[-1] if after else stamps[0] - stamp
        return [*self._rates_near(after, length), 0.0]

    def _rates_near(self, after: int, length: int) -> list[float]:
        """Return the rates of up to two waits of half of `length`, rather before than after."""
        stamps, half = self._stamps, (length + 1) // 2
        rates: list[float] = []
        end = after - 1
        while end >= 0 and len(rates) < _RATES:
            begin = bisect_right(stamps, stamps[end] - half) - 1
            if begin >= 0:
                rates.append(self._rate(begin, end))
            end = begin
        begin = after
        while begin < len(stamps) and len(rates) < _RATES:
            end = bisect_left(stamps, stamps[begin] + half)
            if end < len(stamps):
                rates.append(self._rate(begin, end))
            begin = end
        return rates

    def _rate(self, begin: int, end: int) -> float:
        (first, before), (last, after) = self._replies[begin], self._replies[end]
        return (after - before) / (last - first)
