"""A datagram from a server with another clock: the probe passes on what it proves."""

import uuid

import pytest
from probe_parts import MS, OURS, THEIRS, Clock, datagram, stream

from lightrig.instruments.servers.programs.probe_events import DatagramGap, EventLog, StageChange

BEGIN = 1000 * MS
"""Time of the clock at the beginning of a test."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def hear(
    clock: Clock,
    boot: uuid.UUID,
    number: int,
    last: tuple[int, int] | None,
    unread: int = 0,
    before: int = BEGIN + 10 * MS,
) -> tuple[list[StageChange], list[DatagramGap]]:
    """Receive datagram `number` of sender 7.

    last: token and number of a datagram at the beginning, after which there was silence.
    unread: datagrams that follow it and are read together with this one.
    before: when the predecessor of this one had left.
    """
    made, log = stream(clock), EventLog()
    if last is not None:
        token, first = last
        made.socket.waiting = [datagram(first, 1_000, 900, token=token, boot=boot)]
        made.receive(log)
        made.listen_for_silence(log, BEGIN + 6 * MS)
        for following in range(first + 1, first + 1 + unread):
            made.socket.waiting = [datagram(following, 1_000, 900, token=token, boot=boot)]
            made.receive(log)
    log.settle(set(), 0)
    clock.at = BEGIN + 20 * MS
    made.socket.waiting = [datagram(number, BEGIN + 19 * MS, before, token=7, boot=boot)]
    made.receive(log)
    taken = log.settle(set(), 0)
    return taken.events, taken.gaps


def test_send_stamp_of_another_clock_is_forwarded(clock: Clock) -> None:
    ((event,), _) = hear(clock, THEIRS, 9, (7, 3))
    assert (event.earliest, event.latest) == (BEGIN, BEGIN + 20 * MS)
    assert event.datagram == event.fields()[6] == (str(THEIRS), BEGIN + 10 * MS)


def test_it_is_the_bound_itself_where_the_clock_is_the_same(clock: Clock) -> None:
    ((event,), _) = hear(clock, OURS, 9, (7, 3))
    assert (event.earliest, event.datagram) == (BEGIN + 10 * MS, None)
    assert len(event.fields()) == 6


def test_a_datagram_that_was_lost_before_the_silence_is_no_bound(clock: Clock) -> None:
    ((event,), _) = hear(clock, OURS, 9, (7, 3), before=BEGIN - 1)
    assert event.earliest == BEGIN


@pytest.mark.parametrize("boot", [OURS, THEIRS])
def test_a_pause_of_the_sender_proves_nothing(clock: Clock, boot: uuid.UUID) -> None:
    ((event,), _) = hear(clock, boot, 4, (7, 3))
    assert (event.earliest, event.datagram, event.source) == (BEGIN, None, "idle")


def test_gap_has_the_numbers_on_both_sides(clock: Clock) -> None:
    _, (gap,) = hear(clock, THEIRS, 9, (7, 3))
    last, first = (7, str(THEIRS), 3, 1_000), (7, str(THEIRS), 9, BEGIN + 10 * MS)
    assert gap.fields() == ("p0", last, first, BEGIN + 20 * MS, False, (1_000, BEGIN))


@pytest.mark.parametrize(("unread", "backlog"), [(1, False), (2, True)])
def test_gap_behind_a_full_buffer_is_marked(clock: Clock, unread: int, backlog: bool) -> None:
    """The buffer holds two."""
    _, (gap,) = hear(clock, THEIRS, 9, (7, 3), unread)
    assert gap.backlog is backlog


def test_a_datagram_of_another_sender_ends_a_gap(clock: Clock) -> None:
    _, (gap,) = hear(clock, THEIRS, 4, (8, 3))
    assert (gap.last[0], gap.first[0]) == (8, 7)


@pytest.mark.parametrize("last", [(7, 3), None])
def test_neither_the_next_number_nor_the_first_datagram_is_a_gap(
    clock: Clock, last: tuple[int, int] | None
) -> None:
    assert hear(clock, THEIRS, 4, last)[1] == []


def test_departures_are_bounded(clock: Clock) -> None:
    made = stream(clock, departures=4)
    for at in range(100, 700, 100):
        clock.at = at
        made.send()
    numbers = [0, 2, 3, 4, 5, 6, 7]
    assert [made.departure(n) for n in numbers] == [None, None, 300, 400, 500, 600, None]


def test_silence_ends_where_the_socket_was_empty_not_where_it_was_declared(clock: Clock) -> None:
    """A probe that is stopped between the two may have a datagram waiting.

    It was empty at 1 ms and at 2 ms; a datagram was read at 4 ms, of which 5 ms are not silence.
    """
    made, log = stream(clock), EventLog()
    for empty in (1, 2):
        made.listen_for_silence(log, BEGIN + empty * MS)
    clock.at = BEGIN + 4 * MS
    made.socket.waiting = [datagram(3, 300, 200, token=7)]
    made.receive(log)
    log.settle(set(), 0)
    clock.at = BEGIN + 40 * MS
    made.listen_for_silence(log, BEGIN + 9 * MS)
    assert log.settle(set(), 0)[1] == []
    made.listen_for_silence(log, BEGIN + 9 * MS + 1)
    (event,) = log.settle(set(), 0).events
    assert (event.up, event.earliest, event.latest) == (False, BEGIN + 2 * MS, BEGIN + 9 * MS + 1)
    assert event.datagram == (7, str(OURS), 3, 300)
