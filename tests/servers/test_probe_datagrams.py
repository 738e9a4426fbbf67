"""Datagrams of a probe, in the process of the test: stamps by a clock that it moves."""

import platform
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from probe_parts import MS, OURS, THEIRS, Air, Clock, datagram, events, stream

from lightrig.instruments.servers.programs import (
    probe_datagrams,
)
from lightrig.instruments.servers.programs.probe_datagrams import (
    DATAGRAM,
    DatagramStream,
    open_stream,
)
from lightrig.instruments.servers.programs.probe_events import (
    DatagramGap,
    EventLog,
    LateDatagram,
)


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
    made.socket.down = False
    clock.at += 6
    made.send()
    heads = [DATAGRAM.unpack_from(data) for data, _ in made.socket.sent]
    assert heads == [
        (b"LRP1", made.token, OURS.bytes, 1, begin, begin),
        (b"LRP1", made.token, OURS.bytes, 2, begin + 3, begin),
        (b"LRP1", made.token, OURS.bytes, 4, begin + 13, begin + 7),
    ]
    assert made.socket.sent[0][0][DATAGRAM.size :] == f"{platform.node()}\0p0".encode()
    assert made.socket.sent[0][1] == ("255.255.255.255", 4000)
    assert [made.departure(number) for number in range(6)] == [
        None, begin, begin + 3, begin + 7, begin + 13, None,
    ]  # fmt: skip


def test_a_port_comes_up_with_a_datagram_and_goes_down_after_silence(clock: Clock) -> None:
    made, log = stream(clock), EventLog()
    begin = clock.at
    clock.at += 10
    made.socket.waiting = [datagram(4, begin + 9, begin + 5, boot=OURS)]
    made.receive(log)
    made.receive(log)
    # Of our own clock: the datagram before it, at begin + 5, had not come.
    assert events(log) == [("p0", "datagram", True, begin + 5, begin + 10, "udp", None)]
    assert made.received == 1
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
    _, found, gaps, _, _, _ = log.settle(set(), 0)
    assert [tuple(each) for each in found] == [
        ("p0", "datagram", True, begin, begin + 10, "udp", (str(THEIRS), 800))
    ]
    name = THEIRS.bytes
    slowest = (900, begin + 10)
    assert gaps == [
        DatagramGap("p0", (5, name, 4, 900), (5, name, 7, 1100), begin + 10, False, slowest),
        # Of another stream, and the third that is read since the socket was empty: it holds two.
        DatagramGap("p0", (5, name, 7, 1200), (6, name, 8, 1200), begin + 10, True, slowest),
    ]
    # The buffer has been empty since: one datagram was read.
    made.listen_for_silence(log, begin + 10)
    clock.at += 5
    made.socket.waiting = [datagram(10, 1500, 1400, token=6, boot=THEIRS)]
    made.receive(log)
    gaps = log.settle(set(), 0).gaps
    slowest = (1300, begin + 10)
    assert gaps == [
        DatagramGap("p0", (6, name, 8, 1300), (6, name, 10, 1400), begin + 15, False, slowest)
    ]
    assert made.received == 4


@pytest.mark.parametrize(
    ("period", "silence"), [(MS, 5 * MS), (500_000, 5 * MS), (2 * MS, 10 * MS)]
)
def test_a_stream_is_silent_after_five_periods_and_5_ms_at_least(
    clock: Clock, period: int, silence: int
) -> None:
    made: Any = DatagramStream(Air(), None, "p0", OURS.bytes, 4000, period)  # type: ignore[arg-type]
    log, came = EventLog(), clock.at
    made.socket.waiting = [datagram(4, 900, 800, boot=THEIRS)]
    made.receive(log)
    made.listen_for_silence(log, came + silence)
    assert [event[2] for event in events(log)] == [True]
    made.listen_for_silence(log, came + silence + 1)
    assert [event[2] for event in events(log)] == [False]


def test_datagrams_that_were_overtaken_or_came_twice_are_no_gaps(clock: Clock) -> None:
    """4, 7, 5, 5, 7, 8, 6, 9: three are out of their order, of which two came once."""
    made, log = stream(clock), EventLog()
    order = (4, 7, 5, 5, 7, 8, 6, 9)
    made.socket.waiting = [datagram(n, 100 * n, 100 * n - 100, boot=THEIRS) for n in order]
    for _ in order:
        made.receive(log)
    taken = log.settle(set(), 0)
    assert [(gap.last[2], gap.first[2]) for gap in taken.gaps] == [(4, 7)]
    assert taken.late == [LateDatagram("p0", 5, 5, 2), LateDatagram("p0", 5, 6, 2)]
    assert (made.received, made.late, made.duplicates) == (8, 2, 2)
    assert made.heard() == {"5": 6}
    # Silent since; one that is late then does not end the silence, and its successor does.
    made.listen_for_silence(log, clock.at + 6 * MS)
    made.socket.waiting = [datagram(3, 300, 200, boot=THEIRS), datagram(10, 1000, 900, boot=THEIRS)]
    made.receive(log)
    assert [event[2] for event in log.settle(set(), 0).events] == [False]
    made.receive(log)
    assert [event[2] for event in log.settle(set(), 0).events] == [True]


class Opened:
    """A socket that notes what is set; binding it, or an option, may be refused."""

    refuses: int | str = ""

    def __init__(self, *kind: int) -> None:
        self.options: dict[int, Any] = {}
        self.closed = 0

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        assert level == 1  # SOL_SOCKET
        if option == self.refuses:
            raise OSError("not permitted")
        self.options[option] = value

    def getsockopt(self, *given: Any) -> int:
        return 4352 * 10

    def bind(self, address: Any) -> None:
        assert address == ("", 4000)
        if self.refuses == "bind":
            raise OSError("not permitted")

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is opened: sockets, and stamps of each."""
    made: list[Any] = []

    def stamps(sock: Opened, port: str) -> Any:
        assert (sock, port) == (made[-1], "p7")
        made.append(SimpleNamespace(closed=0))
        made[-1].close = partial(setattr, made[-1], "closed", 1)
        return made[-1]

    def sock(*kind: int) -> Opened:
        made.append(Opened(*kind))
        return made[-1]

    monkeypatch.setattr(probe_datagrams.socket, "socket", sock)
    monkeypatch.setattr(probe_datagrams, "open_stamps", stamps)
    return made


def test_a_stream_is_of_one_device_and_broadcasts(opened: list[Any]) -> None:
    """Numbers of the options by asm-generic/socket.h of Linux."""
    stream = open_stream("p7", OURS.bytes, 4000, MS)
    sock, stamps = opened
    # SO_BROADCAST, SO_BINDTODEVICE; then the buffer, also beyond the limit, and the filter.
    assert (sock.options[6], sock.options[25]) == (1, b"p7\0")
    assert {8, 33, 26} < set(sock.options)
    assert stream.stamps is stamps
    assert (sock.closed, stamps.closed) == (0, 0)
    stream.close()
    assert (sock.closed, stamps.closed) == (1, 1)


@pytest.mark.parametrize("refuses", [25, 26, "bind"])
def test_nothing_stays_open_where_the_system_refuses(
    opened: list[Any], refuses: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Opened, "refuses", refuses)
    with pytest.raises(OSError, match="not permitted"):
        open_stream("p7", OURS.bytes, 4000, MS)
    assert all(each.closed for each in opened)
    assert len(opened) == (1 if refuses == 25 else 2)
