"""Parts of a probe for tests in their own process: a clock that they move, a socket, a stream."""

import errno
import socket
import uuid
from typing import Any, cast

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

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF)
        return 2 * 4352 + 4351  # each takes a page and its descriptor, 4352 bytes

    def recv(self, size: int) -> bytes:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(0)

    def sendto(self, data: bytes, target: Any) -> None:
        if self.down:
            raise OSError(errno.ENETUNREACH, "no link")
        self.sent.append((data, target))


def stream(clock: Clock, **settings: Any) -> Any:
    """A stream of p0, whose buffer holds two datagrams, silent after 5 ms by its period of 1 ms."""
    return DatagramStream(cast("Any", Air()), None, "p0", OURS.bytes, 4000, MS, **settings)


def datagram(number: int, sent: int, before: int, token: int = 5, boot: uuid.UUID = OURS) -> bytes:
    return DATAGRAM.pack(b"LRP1", token, boot.bytes, number, sent, before) + b"host\0p1"


def events(log: EventLog) -> list[tuple[Any, ...]]:
    taken = log.settle(set(), 0)
    return [tuple(each) for each in (*taken.events, *taken.gaps, *taken.steps)]
