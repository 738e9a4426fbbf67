"""Byte streams over TCP and serial lines, on every clock."""

import contextlib
import os
import tty

import pytest
from real_time import LONG, slack, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.wire.stream import StreamClosedError, serial_stream, tcp_stream

MS = 1_000_000


class Echo:
    """Sends everything back twice, the second time a little later."""

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


@pytest.fixture
def echo(clock):
    """Open a stream to an echo, over TCP or a serial line."""
    server = DeviceServer(clock)
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
def test_bytes_are_received_as_they_come(echo, clock, wire):
    stream = echo(wire)
    assert stream.pending() == b""
    stream.send(b"hello")
    received = stream.receive(LONG)
    if clock.virtual:
        assert received == b"hello"
        assert stream.pending() == b""
        before = clock.now()
        assert stream.receive(LONG) == b"HELLO"
        assert clock.now() - before == 5 * MS
        return
    # On a busy machine the second reply may come with the first one.
    while len(received) < len(b"helloHELLO"):
        received += stream.receive(LONG)
    assert received == b"helloHELLO"


@BOTH
def test_receive_times_out(echo, clock, wire):
    stream = echo(wire)
    for timeout in (20 * MS, 0, -5):
        before = clock.now()
        with pytest.raises(TimeoutError):
            stream.receive(timeout)
        assert max(timeout, 0) <= clock.now() - before <= max(timeout, 0) + slack(clock)


@BOTH
def test_pending_returns_unrequested_bytes(echo, clock, wire):
    stream = echo(wire)
    stream.send(b"hello")
    came = b""

    def everything():
        nonlocal came
        came += stream.pending()
        return came == b"helloHELLO"

    until(everything, clock)


def test_end_of_stream_comes_after_its_data(echo, clock):
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


def test_write_after_the_end_raises(echo, clock):
    stream = echo("tcp")
    stream.send(b"bye")
    clock.sleep(20 * MS)
    with pytest.raises(StreamClosedError):  # noqa: PT012 - the first write only learns of it
        for _ in range(10_000):
            stream.send(b"hello" * 1000)
            clock.sleep(MS)


@pytest.mark.parametrize("pulled", ["master", "both"])
def test_cut_serial_line_raises(pulled):
    master, slave = os.openpty()
    tty.setraw(slave)
    stream = serial_stream("m", os.ttyname(slave), SystemClock(), baud=9600)
    os.write(master, b"hel")
    assert stream.receive(LONG) == b"hel"
    os.close(master)
    if pulled == "both":
        os.close(slave)
    with pytest.raises(StreamClosedError):
        stream.receive(LONG)
    stream.close()
    if pulled != "both":
        os.close(slave)


def test_serial_line_is_exclusive(echo, clock):
    echo("serial")
    with pytest.raises(UnreachableError, match="is it open elsewhere"):
        serial_stream("m", echo.devices[0], clock, baud=9600)


@pytest.mark.parametrize("device", ["/dev/lightrig-none", "/dev/null", "/etc/hostname"])
def test_invalid_serial_device_is_unreachable(clock, device):
    with pytest.raises(UnreachableError, match=f"m did not answer at {device} after [0-9]"):
        serial_stream("m", device, clock, baud=9600)


def test_invalid_host_is_unreachable(clock):
    with pytest.raises(UnreachableError, match="placeholders"):
        tcp_stream("m", "ocs.invalid", 5025, clock)
    with pytest.raises(UnreachableError, match="that is no host name"):
        tcp_stream("m", "x" * 70 + ".test", 5025, clock)


@pytest.mark.parametrize("when", ["under way", "late"])
def test_closing_a_line_does_not_stall_virtual_time(when):
    """Bytes to a closed line are not in flight, so virtual time goes on."""
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)
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
