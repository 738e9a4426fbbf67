"""A datagram from a server with another clock: the probe passes on what it proves."""

import socket
import uuid

import pytest

from lightrig.instruments.servers.programs import probe_datagrams, probe_events

HERE, THERE = uuid.UUID(int=1), uuid.UUID(int=2)


class Heard(list[probe_events.Event]):
    def __init__(self) -> None:
        self.gaps: list[probe_events.Gap] = []

    def add(self, event: probe_events.Event) -> None:
        self.append(event)

    def add_gap(self, gap: probe_events.Gap) -> None:
        self.gaps.append(gap)


def hear(boot: uuid.UUID, sequence: int, last: tuple[int, int] | None, unread: int = 0) -> Heard:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        stream = object.__new__(probe_datagrams.DatagramStream)
        stream.port, stream.socket, stream._boot = "fabric0", ours, HERE.bytes
        stream._up, stream._down_since = False, 100
        stream._last = last and (last[0], boot.bytes, last[1], 1_000)
        stream.received = stream.idle = 0
        stream._empty_at, stream._unread, stream._capacity = 100, unread, 500
        sent, previous = 5_000, 4_000
        theirs.send(
            probe_datagrams.DATAGRAM.pack(
                probe_datagrams.MAGIC, 7, boot.bytes, sequence, sent, previous
            )
            + b"host\0port"
        )
        heard = Heard()
        stream.receive(heard)
    return heard


def receive(boot: uuid.UUID, sequence: int, last: tuple[int, int]) -> probe_events.Event:
    (event,) = hear(boot, sequence, last)
    return event


def test_send_stamp_of_another_clock_is_forwarded():
    event = receive(THERE, 9, (7, 3))
    assert (event.earliest, event.datagram) == (100, (str(THERE), 4_000))
    assert event.fields()[6] == (str(THERE), 4_000)


def test_it_is_the_bound_itself_where_the_clock_is_the_same():
    event = receive(HERE, 9, (7, 3))
    assert (event.earliest, event.datagram) == (4_000, None)
    assert len(event.fields()) == 6


@pytest.mark.parametrize("boot", [HERE, THERE])
def test_a_pause_of_the_sender_proves_nothing(boot):
    event = receive(boot, 4, (7, 3))
    assert (event.earliest, event.datagram, event.source) == (100, None, "idle")


def test_gap_has_the_numbers_on_both_sides() -> None:
    (gap,) = hear(THERE, 9, (7, 3)).gaps
    port, last, first, received, backlog = gap.fields()
    assert (port, last, first) == ("fabric0", (7, str(THERE), 3, 1_000), (7, str(THERE), 9, 4_000))
    assert received > 4_000
    assert backlog is False


def test_gap_behind_a_full_buffer_is_marked() -> None:
    (gap,) = hear(THERE, 9, (7, 3), unread=500).gaps
    assert gap.backlog is True


def test_a_datagram_of_another_sender_ends_a_gap() -> None:
    (gap,) = hear(THERE, 4, (8, 3)).gaps
    assert (gap.last[0], gap.first[0]) == (8, 7)


@pytest.mark.parametrize("last", [(7, 3), None])
def test_neither_the_next_number_nor_the_first_datagram_is_a_gap(last) -> None:
    assert hear(THERE, 4, last).gaps == []


def test_departures_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(probe_datagrams, "_DEPARTURES_STORED", 4)
    stream = object.__new__(probe_datagrams.DatagramStream)
    stream.sent, stream._departures = 6, [400, 500, 600, 300]
    numbers = [0, 2, 3, 4, 5, 6, 7]
    assert [stream.departure(n) for n in numbers] == [None, None, 300, 400, 500, 600, None]


def test_silence_ends_where_the_socket_was_empty_not_where_it_was_declared() -> None:
    """A probe that is stopped between the two may have a datagram waiting."""
    stream = object.__new__(probe_datagrams.DatagramStream)
    stream.port, stream._up, stream._silence = "fabric0", True, 5_000
    stream._last, stream._last_stamp, stream._last_after = (7, HERE.bytes, 3, 300), 1_000, 400
    heard = Heard()
    stream.listen_for_silence(heard, 5_500)
    assert heard == []
    stream.listen_for_silence(heard, 6_001)
    (event,) = heard
    assert (event.up, event.earliest, event.latest) == (False, 400, 6_001)
