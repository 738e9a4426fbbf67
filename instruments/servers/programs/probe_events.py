"""Events that a probe has observed, until the harness takes them."""

from __future__ import annotations

import collections
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from lightrig.instruments.servers.programs.server_clock import now

__all__ = [
    "ClockStep",
    "DatagramGap",
    "EventLog",
    "LateDatagram",
    "Refused",
    "StageChange",
    "Taken",
    "stamped_datagram",
]


_MOST_LATE = 1 << 16


class Refused(Exception):  # noqa: N818 - a reply to a request, not an internal error
    """A request that gets an error reply."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class StageChange(NamedTuple):
    """A change of a port's stage between `earliest` and `latest`; sent as a JSON list.

    `datagram` is evidence by its sender's clock. Before an up event: boot id and send time of a
    datagram that did not arrive. Before a down event: token, boot id, number and send time of the
    last one that did.
    """

    port: str
    stage: str
    up: bool
    earliest: int | None
    latest: int
    source: str
    datagram: tuple[Any, ...] | None = None

    def fields(self) -> tuple[Any, ...]:
        """Return the JSON list of docs/appendix/probe.md."""
        return self[:6] if self.datagram is None else tuple(self)


class DatagramGap(NamedTuple):
    """A loss of datagrams between two that a port received; sent as a JSON list.

    `last` is the last one before the gap: its sender's token and boot id, its number and its send
    time on its sender's clock. `first` is the first one after it, with the send time of its
    predecessor instead. `received` is the time of reception of `first`, on this server's clock.
    `backlog` says that the port's receive buffer may have been full: what is missing may have
    arrived. `slowest` are the send time, on its sender's clock, and the time of reception of the
    slowest of the datagrams from the sender of `last` that came lately.
    """

    port: str
    last: tuple[int, bytes, int, int]
    first: tuple[int, bytes, int, int]
    received: int
    backlog: bool = False
    slowest: tuple[int, int] = (0, 0)

    def fields(self) -> tuple[Any, ...]:
        """Return the JSON list of docs/appendix/probe.md."""
        return (
            self.port,
            stamped_datagram(*self.last),
            stamped_datagram(*self.first),
            self.received,
            self.backlog,
            self.slowest,
        )


class LateDatagram(NamedTuple):
    """A datagram that came after `depth` or more of later numbers; sent as a JSON list."""

    port: str
    token: int
    number: int
    depth: int


class Taken(NamedTuple):
    """What a log hands over, and forgets.

    Attributes:
        missing: port and stage of each that was wanted and has not come up.
        events, gaps, steps, late: what was seen.
        read: until when all polled files had been read.
    """

    missing: set[tuple[str, str]]
    events: list[StageChange]
    gaps: list[DatagramGap]
    steps: list[ClockStep]
    late: list[LateDatagram]
    read: int


class ClockStep(NamedTuple):
    """A step of the clock by which datagrams to a port are stamped; sent as a JSON list.

    It was set between `earliest` and `latest`, ahead by `least` to `most` ns.
    """

    port: str
    clock: str
    earliest: int
    latest: int
    least: int
    most: int


def stamped_datagram(token: int, boot: bytes, *numbers: int) -> tuple[Any, ...]:
    """Return a datagram's token, boot id and numbers as the protocol writes them."""
    return token, str(uuid.UUID(bytes=boot)), *numbers


class EventLog:
    """Events since the last reply to `settle`.

    Args:
        read: tells until when all files that are polled have been read; what changed before is
            in the log.
    """

    def __init__(self, read: Callable[[], int] = now) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._events: list[StageChange] = []
        self._gaps: list[DatagramGap] = []
        self._steps: list[ClockStep] = []
        self._late: collections.deque[LateDatagram] = collections.deque(maxlen=_MOST_LATE)
        self._failure: Refused | None = None

    def add(self, event: StageChange) -> None:
        """Add an event, and wake requests that wait for it."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def add_gap(self, gap: DatagramGap) -> None:
        """Add a gap of datagrams; no request waits for one."""
        with self._changed:
            self._gaps.append(gap)

    def add_step(self, step: ClockStep) -> None:
        """Add a step of a clock; no request waits for one."""
        with self._changed:
            self._steps.append(step)

    def add_late(self, late: LateDatagram) -> None:
        """Add a datagram that came late; no request waits for one."""
        with self._changed:
            self._late.append(late)

    def fail(self, failure: Refused) -> None:
        """Fail all present and later requests with the reason why watching ended."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def settle(self, wanted: set[tuple[str, str]], timeout_ns: int) -> Taken:
        """Wait for "up" of each wanted port and stage; return those missing, and what was seen."""
        deadline = now() + timeout_ns
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                seen = {(e.port, e.stage) for e in self._events if e.up and e.source != "netlink"}
                left = deadline - now()
                if wanted <= seen or left <= 0:
                    events = sorted(self._events, key=lambda event: event.latest)
                    gaps, self._gaps = self._gaps, []
                    steps, self._steps = self._steps, []
                    late = list(self._late)
                    self._late.clear()
                    self._events.clear()
                    return Taken(wanted - seen, events, gaps, steps, late, self._read())
                self._changed.wait(left / 1e9)
