"""Stamps of replies that are read late: the process was paused, or its thread not scheduled."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lightrig.instruments.clock import Clock, Span, SystemClock
from lightrig.instruments.wire.tcp import Arrivals, BurstSocket, StampedReceiver, TcpConnection

MS = 1_000_000
LATE = 60 * MS
FLIGHT = 30 * MS
"""Longest time between a write and the kernel's reception of it on a busy machine."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    with near, far:
        yield near, far


def sent(far: socket.socket, data: bytes = b"x") -> Span:
    before = time.monotonic_ns()
    far.sendall(data)
    return Span(before, time.monotonic_ns())


def test_bytes_that_are_read_late_came_when_they_were_sent(
    pair: tuple[socket.socket, socket.socket], system_clock: SystemClock
) -> None:
    near, far = pair
    receiver = StampedReceiver(near, system_clock)
    for _ in range(3):
        true = sent(far)
        system_clock.sleep(LATE)
        data, not_before = receiver.receive(100)
        assert data == b"x"
        assert true.earliest - MS <= not_before <= true.latest + FLIGHT


class Stepped:
    """A clock of a machine whose calendar is set while data is on its way."""

    virtual = False

    def __init__(self) -> None:
        self.step = 0

    def now(self) -> int:
        return time.monotonic_ns()

    def realtime_offset(self) -> Span:
        real = SystemClock().realtime_offset()
        return real.shifted(self.step)


@pytest.mark.parametrize("step", [-3_600_000_000_000, 3_600_000_000_000])
def test_setting_the_calendar_leaves_a_bound_true(
    pair: tuple[socket.socket, socket.socket], step: int
) -> None:
    near, far = pair
    clock: Any = Stepped()
    asked = clock.now()
    receiver = StampedReceiver(near, clock)
    true = sent(far)
    clock.step = step
    assert asked <= receiver.receive(100)[1] <= true.latest


class Unstamped(socket.socket):
    """A socket of a kernel that has no stamps."""

    def __init__(self, other: socket.socket) -> None:
        super().__init__(fileno=os.dup(other.fileno()))

    def setsockopt(self, *given: Any) -> None:
        assert given == (socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS of asm-generic/socket.h
        raise OSError("Protocol not available")


def test_without_stamps_of_the_kernel_a_bound_is_true(
    pair: tuple[socket.socket, socket.socket],
    system_clock: SystemClock,
) -> None:
    """The bound is the time at which the read before was begun."""
    near, far = pair
    with Unstamped(near) as unstamped:
        receiver = StampedReceiver(unstamped, system_clock)
        asked = 0
        for _ in range(3):
            true = sent(far)
            system_clock.sleep(LATE)
            before, (_, bound) = system_clock.now(), receiver.receive(100)
            assert asked <= bound <= true.latest
            asked = before


def test_only_the_last_message_of_a_read_has_its_stamp() -> None:
    arrivals = Arrivals()
    arrivals.read(100)
    assert arrivals.of_message(last=True) == 100
    assert arrivals.of_message(last=False) == 0
    arrivals.read(300)
    assert arrivals.of_message(last=True) == 300
    assert arrivals.of_message(last=False) == 100


class Slow:
    """A listener that is not scheduled while it has the first bytes in hand."""

    def __init__(self, clock: Clock) -> None:
        self.taken: list[tuple[bytes, Span]] = []
        self.busy, self.ended = threading.Event(), threading.Event()
        self._clock = clock

    def received(self, data: bytes, not_before: int) -> None:
        if not self.taken:
            self.busy.set()
            self._clock.sleep(LATE)
        self.taken.append((data, Span(not_before, self._clock.now())))

    def disconnected(self, reason: str) -> None:
        self.ended.set()


def test_reader_that_was_busy_bounds_what_came_meanwhile(
    pair: tuple[socket.socket, socket.socket], system_clock: SystemClock
) -> None:
    near, far = pair
    listener = Slow(system_clock)
    connection = TcpConnection(near, listener, system_clock)
    true = [sent(far, b"a")]
    assert listener.busy.wait(30)
    true.append(sent(far, b"b"))
    far.shutdown(socket.SHUT_WR)
    assert listener.ended.wait(30)
    connection.close()
    assert [data for data, _ in listener.taken] == [b"a", b"b"]
    for (_, at), moment in zip(listener.taken, true, strict=True):
        assert at.earliest <= moment.latest + FLIGHT
        assert moment.earliest <= at.latest
    assert listener.taken[1][1].latest - listener.taken[1][1].earliest >= LATE - FLIGHT


def test_a_burst_bounds_what_another_library_hands_out_late(
    pair: tuple[socket.socket, socket.socket], system_clock: SystemClock
) -> None:
    near, far = pair
    near.settimeout(0.05)
    bursts = BurstSocket(near, system_clock)
    with pytest.raises(TimeoutError):
        bursts.recv(100)
    first = sent(far)
    system_clock.sleep(MS)
    assert bursts.handed_out() == 0
    assert bursts.recv(100) == b"x"
    assert bursts.handed_out() == 0
    with pytest.raises(TimeoutError):
        bursts.recv(100)
    assert bursts.handed_out() == 1
    second = sent(far)
    assert bursts.recv(100) == b"x"
    # Neither has been taken yet, so the older one bounds both.
    assert bursts.oldest() <= first.latest + FLIGHT
    assert bursts.handed_out() == 1
    bursts.forget(1)
    assert second.earliest <= bursts.oldest() <= second.latest + FLIGHT
    assert bursts.getpeername() == far.getsockname()


def test_a_library_that_asks_late_begins_a_burst_after_all_that_it_had_read(
    pair: tuple[socket.socket, socket.socket], system_clock: SystemClock
) -> None:
    near, far = pair
    bursts = BurstSocket(near, system_clock)
    sent(far)
    assert bursts.recv(100) == b"x"
    system_clock.sleep(5 * MS)
    second = sent(far, b"yz")
    system_clock.sleep(MS)
    assert bursts.recv(1) == b"y"
    assert bursts.handed_out() == 1
    bursts.forget(1)
    assert second.earliest <= bursts.oldest() <= second.latest + FLIGHT
    assert bursts.recv(1) == b"z"
    assert bursts.handed_out() == 0


# --------------------------------------------------------------- a harness that is stopped

_HARNESS = """
import json, sys
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.wire.tl1 import Tl1Session
session = Tl1Session("ocs", "127.0.0.1", int(sys.argv[1]), SystemClock())
for line in sys.stdin:
    pending = session.submit("ENT-PATCH", "1,9")
    other = session.submit("RTRV-PORT-POWER", "9")
    print("sent", flush=True)
    reply = pending.result()
    other.result()
    print(json.dumps([pending.sent, reply.not_before, reply.received]), flush=True)
session.close()
"""


def test_pauses_of_the_harness_leave_acknowledgements_true() -> None:
    """A switch acknowledges after 40 ms, and answers another command after 60 ms."""
    moments: list[Span] = []

    def serve(connection: socket.socket) -> None:
        buffer, tags = b"", list[str]()
        while data := connection.recv(1000):
            buffer += data
            *commands, buffer = buffer.split(b";")
            tags += [command.decode().split(":")[3] for command in commands]
            while len(tags) >= 2:
                for delay in (0.04, 0.02):
                    time.sleep(delay)
                    reply = f"\r\n\n   ocs 26-11-22 10:00:00\r\nM  {tags.pop(0)} COMPLD\r\n;"
                    moments.append(sent(connection, reply.encode()))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        harness = subprocess.Popen(
            [sys.executable, "-c", _HARNESS, port],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert harness.stdin
        assert harness.stdout
        print(file=harness.stdin, flush=True)
        connection, _ = listening.accept()
        server = threading.Thread(target=serve, args=(connection,))
        server.start()
        spans = []
        for pause in (0.15, 0.0, 0.03, 0.15):
            if spans:
                print(file=harness.stdin, flush=True)
            assert harness.stdout.readline() == "sent\n"
            os.kill(harness.pid, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(harness.pid, signal.SIGCONT)
            spans.append(json.loads(harness.stdout.readline()))
        harness.communicate(timeout=30)
        server.join()
        connection.close()
    for (written, not_before, received), true in zip(spans, moments[::2], strict=True):
        assert written[0] <= not_before <= true.latest + FLIGHT // 2
        assert true.earliest <= received
    # The pause covers both replies, which are read together: the later one has the kernel's stamp.
    (_, not_before, received) = spans[0]
    assert received - not_before >= 60 * MS
