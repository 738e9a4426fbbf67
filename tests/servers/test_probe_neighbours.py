"""A datagram from a server with another clock: the probe passes on what it proves."""

import socket
import uuid

import pytest

from instruments.servers import probe

HERE, THERE = uuid.UUID(int=1), uuid.UUID(int=2)


class Heard(list[probe._Event]):
    def add(self, event: probe._Event) -> None:
        self.append(event)


def receive(boot: uuid.UUID, sequence: int, last_number: tuple[int, int] | None) -> probe._Event:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        stream = object.__new__(probe._Stream)
        stream.port, stream.socket, stream._boot = "fabric0", ours, HERE.bytes
        stream._up, stream._down_since, stream._last_number = False, 100, last_number
        stream.received = stream.idle = 0
        sent, previous = 5_000, 4_000
        theirs.send(
            probe._DATAGRAM.pack(probe._MAGIC, 7, boot.bytes, sequence, sent, previous)
            + b"host\0port"
        )
        heard = Heard()
        stream.receive(heard)
    (event,) = heard
    return event


def test_the_sender_s_own_stamp_is_passed_on_where_its_clock_is_another():
    event = receive(THERE, 9, (7, 3))
    assert (event.earliest, event.lost) == (100, (str(THERE), 4_000))
    assert event.fields()[6] == (str(THERE), 4_000)


def test_it_is_the_bound_itself_where_the_clock_is_the_same():
    event = receive(HERE, 9, (7, 3))
    assert (event.earliest, event.lost) == (4_000, None)
    assert len(event.fields()) == 6


@pytest.mark.parametrize("boot", [HERE, THERE])
def test_a_pause_of_the_sender_proves_nothing(boot):
    event = receive(boot, 4, (7, 3))
    assert (event.earliest, event.lost) == (100, None)
