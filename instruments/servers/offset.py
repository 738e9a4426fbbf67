"""What a stamp of a server's clock means on the bench's clock."""

from collections import deque
from typing import NamedTuple

from instruments.clock import Span

DRIFT = 9_999
"""After how many ns on a server's clock it may be another ns off: 100 ppm slow at the worst."""


class _Bound(NamedTuple):
    """A bound on server time minus bench time, and the server's time when it was exact."""

    offset: int
    at: int


class ClockMap:
    """Maps a server's stamps to the bench's clock, with the uncertainty that remains.

    Each request and answer bounds the offset: a request cannot be received before it was
    sent, nor an answer be sent after it was received. The bounds of the last exchanges
    are kept, and loosened by `DRIFT` with distance in time.
    """

    def __init__(self, keep: int = 3) -> None:
        self._upper: deque[_Bound] = deque(maxlen=keep)
        self._lower: deque[_Bound] = deque(maxlen=keep)
        self.same_clock = False
        self.last_exchange = (0, 0, 0, 0)

    def exchanged(self, sent: int, received_there: int, sent_there: int, received: int) -> None:
        """Learn from one exchange: `sent` and `received` here, the other two on the server."""
        self.last_exchange = (sent, received_there, sent_there, received)
        self._upper.append(_Bound(received_there - sent, received_there))
        self._lower.append(_Bound(sent_there - received, sent_there))

    def here(self, stamp: int) -> Span:
        """When the server's `stamp` was taken, on the bench's clock."""
        return self.span(stamp, stamp)

    def span(self, earliest: int, latest: int) -> Span:
        """The same for a moment that lies between two stamps of the server."""
        if self.same_clock:
            return Span(earliest, latest)
        # In integers: stamps after a hundred days of uptime are more than a float can hold.
        (offset, at), *others = self._upper
        most = offset - -abs(earliest - at) // DRIFT
        for offset, at in others:
            bound = offset - -abs(earliest - at) // DRIFT
            most = min(most, bound)
        (offset, at), *others = self._lower
        least = offset + -abs(latest - at) // DRIFT
        for offset, at in others:
            bound = offset + -abs(latest - at) // DRIFT
            least = max(least, bound)
        return Span(earliest - most, latest - least)
