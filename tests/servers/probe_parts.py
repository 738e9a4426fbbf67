"""Parts of a probe for tests in their own process: a clock that they move, a socket, a stream."""

import errno
import uuid
from typing import Any

import pytest

from lightrig.instruments.servers.programs import (
    probe,
    probe_datagrams,
    probe_events,
    probe_links,
)
from lightrig.instruments.servers.programs.probe_datagrams import DATAGRAM, DatagramStream
from lightrig.instruments.servers.programs.probe_events import EventLog

MS = 1_000_000
OURS, THEIRS = uuid.UUID(int=7), uuid.UUID(int=9)


class Clock:
    """The clock of a probe's modules, which stands until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000 * MS
        for module in (probe_datagrams, probe_events, probe_links, probe):
            monkeypatch.setattr(module, "now", lambda: self.at)


class Air:
    """A socket whose datagrams the test hands over."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.sent: list[tuple[bytes, Any]] = []
        self.down = False

    def recv(self, size: int) -> bytes:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(0)

    def sendto(self, data: bytes, target: Any) -> None:
        if self.down:
            raise OSError(errno.ENETUNREACH, "no link")
        self.sent.append((data, target))


def stream(clock: Clock, silence: int = 5 * MS) -> Any:
    made: Any = object.__new__(DatagramStream)
    made.port, made.token, made._boot = "p0", 77, OURS.bytes
    made.sent = made.received = made.idle = made._last_sent = made._unread = 0
    made._names, made._target = b"host\0p0", ("255.255.255.255", 4000)
    made._silence, made._capacity = silence, 2
    made._departures = probe_datagrams.array.array("q", bytes(8 * (1 << 16)))
    made._up, made._last = False, None
    made._last_stamp = made._down_since = made._empty_at = made._last_after = clock.at
    made.socket, made.stamps = Air(), None
    return made


def datagram(number: int, sent: int, before: int, token: int = 5, boot: uuid.UUID = OURS) -> bytes:
    return DATAGRAM.pack(b"LRP1", token, boot.bytes, number, sent, before) + b"host\0p1"


def events(log: EventLog) -> list[tuple[Any, ...]]:
    _, found, gaps, steps = log.settle(set(), 0)
    return [tuple(each) for each in (*found, *gaps, *steps)]
