"""Bytes over TCP and serial lines, read when they are asked for, on every clock."""

import contextlib
import os
import tty

import pytest
from real_time import LONG, slack, until

from instruments.clock import SystemClock
from instruments.errors import UnreachableError
from instruments.simulated.peer_server import PeerServer
from instruments.virtual_clock import VirtualClock
from instruments.wire.stream import StreamClosedError, serial_stream, tcp_stream

MS = 1_000_000


class Echo:
    """Says everything twice, the second time a little later."""

    def __init__(self, connection, clock):
        self.connection = connection
        self.clock = clock
        self.open = True

    def received(self, data):
        if data == b"bye":
            self.clock.schedule(self.clock.now() + MS, "echo", self.connection.close)
            return
        self.connection.send(data)
        self.clock.schedule(
            self.clock.now() + 5 * MS, "echo", lambda: self.connection.send(data.upper())
        )

    def closed(self):
        self.open = False


@pytest.fixture(params=["virtual", "real"])
def clock(request):
    made = VirtualClock(patience=20) if request.param == "virtual" else SystemClock()
    yield made
    made.close()


@pytest.fixture
def echo(clock):
    """Opens a stream to an echo, over TCP or a serial line."""
    server = PeerServer(clock)
    with contextlib.ExitStack() as stack:
        devices = []

        def make(wire):
            if wire == "tcp":
                address = server.listen(lambda connection, _: Echo(connection, clock))
                stream = tcp_stream("m", *address, clock)
            else:
                devices.append(server.serial_line(lambda connection, _: Echo(connection, clock)))
                stream = serial_stream("m", devices[-1], clock, baud=9600)
            stack.callback(stream.close)
            return stream

        make.devices = devices
        yield make
    server.close()


BOTH = pytest.mark.parametrize("wire", ["tcp", "serial"])


@BOTH
def test_what_comes(echo, clock, wire):
    stream = echo(wire)
    assert stream.pending() == b""
    stream.send(b"hello")
    assert stream.receive(LONG) == b"hello"
    assert stream.pending() == b""
    before = clock.now()
    assert stream.receive(LONG) == b"HELLO"
    if clock.virtual:
        assert clock.now() - before == 5 * MS


@BOTH
def test_time_that_runs_out(echo, clock, wire):
    stream = echo(wire)
    for timeout in (20 * MS, 0, -5):
        before = clock.now()
        with pytest.raises(TimeoutError):
            stream.receive(timeout)
        assert max(timeout, 0) <= clock.now() - before <= max(timeout, 0) + slack(clock)


@BOTH
def test_what_nobody_asked_for(echo, clock, wire):
    stream = echo(wire)
    stream.send(b"hello")
    came = b""

    def everything():
        nonlocal came
        came += stream.pending()
        return came == b"helloHELLO"

    until(everything, clock)


def test_the_end_comes_after_what_was_said(echo, clock):
    stream = echo("tcp")
    stream.send(b"hello")
    assert stream.receive(LONG) == b"hello"
    clock.sleep(20 * MS)
    stream.send(b"bye")
    clock.sleep(20 * MS)
    assert stream.receive(LONG) == b"HELLO"
    for _ in range(2):
        with pytest.raises(StreamClosedError, match="closed the connection"):
            stream.receive(LONG)
    with pytest.raises(StreamClosedError):
        stream.pending()


def test_writing_to_one_that_is_gone(echo, clock):
    stream = echo("tcp")
    stream.send(b"bye")
    clock.sleep(20 * MS)
    with pytest.raises(StreamClosedError):  # noqa: PT012 - the first write only learns of it
        for _ in range(10_000):
            stream.send(b"hello" * 1000)
            clock.sleep(MS)


@pytest.mark.parametrize("pulled", ["own", "both"])
def test_a_serial_line_that_is_cut(pulled):
    own, other = os.openpty()
    tty.setraw(other)
    stream = serial_stream("m", os.ttyname(other), SystemClock(), baud=9600)
    os.write(own, b"hel")
    assert stream.receive(LONG) == b"hel"
    os.close(own)
    if pulled == "both":
        os.close(other)
    with pytest.raises(StreamClosedError):
        stream.receive(LONG)
    stream.close()
    if pulled != "both":
        os.close(other)


def test_a_serial_line_is_nobody_elses(echo, clock):
    echo("serial")
    with pytest.raises(UnreachableError, match="has another it open"):
        serial_stream("m", echo.devices[0], clock, baud=9600)


@pytest.mark.parametrize("device", ["/dev/lightrig-none", "/dev/null", "/etc/hostname"])
def test_what_is_no_serial_line(clock, device):
    with pytest.raises(UnreachableError, match=f"m did not answer at {device} after [0-9]"):
        serial_stream("m", device, clock, baud=9600)


def test_what_is_no_address(clock):
    with pytest.raises(UnreachableError, match="placeholders"):
        tcp_stream("m", "ocs.invalid", 5025, clock)
    with pytest.raises(UnreachableError, match="that is no host name"):
        tcp_stream("m", "x" * 70 + ".test", 5025, clock)


@pytest.mark.parametrize("when", ["under way", "late"])
def test_a_line_that_is_closed_keeps_nobody_waiting(when):
    """What an instrument says to nobody is not in flight, so virtual time goes on."""
    clock = VirtualClock(patience=20)
    server = PeerServer(clock)
    device = server.serial_line(lambda connection, _: Echo(connection, clock))
    for _ in range(20):
        stream = serial_stream("m", device, clock, baud=9600)
        stream.send(b"hello")
        if when == "late":
            assert stream.receive(LONG) == b"hello"
        stream.close()
        before = clock.now()
        clock.sleep(100 * MS)
        assert clock.now() == before + 100 * MS
    server.close()
    clock.close()
