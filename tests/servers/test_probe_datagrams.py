"""Datagrams of a probe, in the process of the test: stamps by a clock that it moves."""

import socket
from typing import Any

import pytest
from probe_parts import MS, OURS, THEIRS, Clock, datagram, events, stream

from lightrig.instruments.servers.programs import (
    probe_datagrams,
)
from lightrig.instruments.servers.programs.probe_datagrams import DATAGRAM, DatagramStream
from lightrig.instruments.servers.programs.probe_events import EventLog, Gap


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_datagrams_are_numbered_and_tell_when_the_one_before_left(clock: Clock) -> None:
    made = stream(clock)
    begin = clock.at
    made.send()
    clock.at += 3
    made.send()
    made.socket.down = True
    clock.at += 4
    made.send()
    heads = [DATAGRAM.unpack_from(data) for data, _ in made.socket.sent]
    assert heads == [
        (b"LRP1", 77, OURS.bytes, 1, begin, begin), (b"LRP1", 77, OURS.bytes, 2, begin + 3, begin),
    ]  # fmt: skip
    assert made.socket.sent[0][0][DATAGRAM.size :] == b"host\0p0"
    assert made.socket.sent[0][1] == ("255.255.255.255", 4000)
    assert [made.departure(number) for number in range(5)] == [
        None, begin, begin + 3, begin + 7, None,
    ]  # fmt: skip
    made.sent = 1 + (1 << 16)
    assert [made.departure(number) for number in (0, 1, 2)] == [None, None, begin + 3]


def test_a_port_comes_up_with_a_datagram_and_goes_down_after_silence(clock: Clock) -> None:
    made, log = stream(clock), EventLog()
    begin = clock.at
    clock.at += 10
    made.socket.waiting = [datagram(4, begin + 9, begin + 5, boot=OURS)]
    made.receive(log)
    made.receive(log)
    # Of our own clock: the datagram before it, at begin + 5, had not come.
    assert events(log) == [("p0", "datagram", True, begin + 5, begin + 10, "udp", None)]
    assert (made.received, made._unread) == (1, 1)
    made.listen_for_silence(log, begin + 20)
    clock.at = begin + 30
    made.socket.waiting = [datagram(5, begin + 28, begin + 9)]
    made.receive(log)
    made.listen_for_silence(log, begin + 30 + 5 * MS)
    assert events(log) == []
    made.listen_for_silence(log, begin + 31 + 5 * MS)
    last = (5, str(OURS), 5, begin + 28)
    assert events(log) == [("p0", "datagram", False, begin + 20, begin + 31 + 5 * MS, "udp", last)]
    # The next number follows: the sender had paused.
    clock.at = begin + 9 * MS
    made.socket.waiting = [datagram(6, begin + 8 * MS, begin + 28)]
    made.receive(log)
    assert events(log) == [("p0", "datagram", True, begin + 20, begin + 9 * MS, "idle", None)]
    assert (made.received, made.idle) == (3, 1)


def test_losses_are_gaps_and_a_full_buffer_is_reported(clock: Clock) -> None:
    """Another server's: its clock is not ours, so the lost one goes to the harness."""
    made, log = stream(clock), EventLog()
    begin = clock.at
    clock.at += 10
    made.socket.waiting = [
        datagram(4, 900, 800, boot=THEIRS), datagram(7, 1200, 1100, boot=THEIRS),
        datagram(8, 1300, 1200, token=6, boot=THEIRS), b"short",
    ]  # fmt: skip
    for _ in range(4):
        made.receive(log)
    _, found, gaps, _ = log.settle(set(), 0)
    assert [tuple(each) for each in found] == [
        ("p0", "datagram", True, begin, begin + 10, "udp", (str(THEIRS), 800))
    ]
    name = THEIRS.bytes
    assert gaps == [
        Gap("p0", (5, name, 4, 900), (5, name, 7, 1100), begin + 10, False),
        # Of another stream, and the third that is read since the socket was empty: it holds two.
        Gap("p0", (5, name, 7, 1200), (6, name, 8, 1200), begin + 10, True),
    ]
    assert (made.received, made._unread) == (3, 3)


def test_a_stream_is_silent_after_five_periods_and_5_ms_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: list[Any] = []
    closed: list[bool] = []

    class Made:
        refuse = False

        def setsockopt(self, *given: Any) -> None:
            options.append(given)

        def getsockopt(self, *given: Any) -> int:
            return 4352 * 10

        def bind(self, address: Any) -> None:
            options.append(address)
            if self.refuse:
                raise OSError("in use")

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(probe_datagrams.socket, "socket", lambda *_: Made())
    monkeypatch.setattr(probe_datagrams, "KernelStamps", lambda sock, port: (sock, port)[1])
    monkeypatch.setattr(probe_datagrams, "_attach_filter", lambda sock, token: None)
    for period, silence in ((MS, 5 * MS), (500_000, 5 * MS), (2 * MS, 10 * MS)):
        made = DatagramStream("p0", OURS.bytes, 4000, period)
        assert (made._silence, made._capacity, made.stamps) == (silence, 10, "p0")
    assert ("", 4000) in options
    assert (socket.SOL_SOCKET, 25, b"p0\0") in options
    assert made._names.endswith(b"\0p0")
    assert closed == []
    monkeypatch.setattr(Made, "refuse", True)
    with pytest.raises(OSError, match="in use"):
        DatagramStream("p0", OURS.bytes, 4000, MS)
    assert closed == [True]
