"""One thread reads all connections, and none of them can keep it from the others."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from scripted_tl1 import Call, report, scripted_tl1

from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.read_loop import ReadLoop
from lightrig.instruments.wire.restconf import RestconfSession
from lightrig.instruments.wire.scpi import scpi_session
from lightrig.instruments.wire.tcp import TcpConnection
from lightrig.instruments.wire.tl1 import Tl1Session

SESSIONS = 64


@contextlib.contextmanager
def served(reply: bytes) -> Iterator[tuple[str, int]]:
    """A server that answers the first bytes of each connection with `reply`."""
    with socket.create_server(("127.0.0.1", 0), backlog=SESSIONS) as listening:
        lines: list[socket.socket] = []

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = listening.accept()
                    lines.append(line)
                    line.recv(1 << 16)
                    line.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for line in lines:
                line.close()


class Kept:
    """A listener that keeps what comes, and can fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.came, self.ended = threading.Event(), threading.Event()
        self.data, self.reason, self._fails = b"", "", fails

    def received(self, data: bytes, not_before: int) -> None:
        if self._fails:
            raise ValueError("a listener with a bug")
        self.data += data
        self.came.set()

    def disconnected(self, reason: str) -> None:
        self.reason = reason
        self.ended.set()


@pytest.fixture
def lines(system_clock: SystemClock) -> Iterator[list[socket.socket]]:
    """Far ends of connections that a test adds."""
    far: list[socket.socket] = []
    yield far
    for each in far:
        each.close()


def connected(
    lines: list[socket.socket], clock: Clock, listener: Kept
) -> tuple[TcpConnection, socket.socket]:
    near, far = socket.socketpair()
    lines.append(far)
    return TcpConnection(near, listener, clock), far


def test_many_sessions_need_one_thread(system_clock: SystemClock) -> None:
    with (
        scripted_tl1(lambda call: call.done("1")) as server,
        served(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as http,
        served(b"maker,model,1,2\n") as scpi,
        contextlib.ExitStack() as opened,
    ):
        for _ in range(SESSIONS):
            tl1 = Tl1Session("ocs", *server.address, system_clock)
            opened.callback(tl1.close)
            assert tl1.command("RTRV-HDR").lines == ("1",)
            rest = RestconfSession("ocs", *http, system_clock)
            opened.callback(rest.close)
            assert rest.get("it").body == {}
            meter = scpi_session("ocs", Endpoint("scpi", *scpi), system_clock)
            opened.callback(meter.close)
            assert meter.query("*IDN?").text == "maker,model,1,2"
        # The servers have threads too, and another test may have left a connection open.
        assert sum(each.name == "wire" for each in threading.enumerate()) == 1


def test_the_thread_ends_with_the_last_connection() -> None:
    class Source:
        def __init__(self) -> None:
            self.near, self.far = socket.socketpair()
            self.fileno = self.near.fileno

        def read(self) -> str | None:
            return None if self.near.recv(10) else "the end"

        def finish(self, reason: str) -> None:
            self.near.close()
            self.far.close()

    loop = ReadLoop()
    for _ in range(2):  # a later connection has another thread
        known = set(threading.enumerate())
        sources = [Source(), Source()]
        for each in sources:
            loop.add(each)
        (reader,) = set(threading.enumerate()) - known
        sources[0].far.shutdown(socket.SHUT_WR)
        sources[1].far.sendall(b"x")
        reader.join(0.1)
        assert reader.is_alive()
        sources[1].far.shutdown(socket.SHUT_WR)
        reader.join(10)
        assert not reader.is_alive()


def test_a_switch_that_reads_nothing_keeps_no_other_from_its_answer(
    system_clock: SystemClock,
) -> None:
    """A write that waits for a full buffer holds no lock for which the common reader waits."""
    goes_on = threading.Event()
    called: list[Call] = []

    def script(call: Call) -> None:
        if call.connection == 1:
            called.append(call)
            goes_on.wait(60)
        else:
            call.done("here")

    with scripted_tl1(script) as server:
        stuck = Tl1Session("stuck", *server.address, system_clock)
        stuck.submit("RTRV-HDR")
        written = 0

        def fill() -> None:
            nonlocal written
            with contextlib.suppress(Exception):
                while not goes_on.is_set():
                    stuck.submit("RTRV-PATCH", "x" * 100_000)
                    written += 1

        writer = threading.Thread(target=fill)
        writer.start()
        before = -1
        while before != written:  # until the buffers of both ends are full
            before = written
            system_clock.sleep(200_000_000)
        # Its text has to be compared with the commands in flight.
        called[0].write(report("a;b"))
        other = Tl1Session("other", *server.address, system_clock)
        try:
            assert other.command("RTRV-HDR", timeout=10_000_000_000).lines == ("here",)
        finally:
            goes_on.set()
            stuck.close()
            writer.join()
            other.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_fails_ends_its_own_connection_only(
    system_clock: SystemClock, lines: list[socket.socket]
) -> None:
    failing, sound = Kept(fails=True), Kept()
    one, far = connected(lines, system_clock, failing)
    two, other = connected(lines, system_clock, sound)
    far.sendall(b"x")
    assert failing.ended.wait(30)
    assert "a listener with a bug" in failing.reason
    other.sendall(b"y")
    assert sound.came.wait(30)
    assert sound.data == b"y"
    one.close()
    two.close()
    assert one.over
    assert two.over


def test_a_connection_that_its_listener_closes_is_closed(
    system_clock: SystemClock, lines: list[socket.socket]
) -> None:
    """On the reader's own thread, which cannot wait for itself."""

    class Closing(Kept):
        connection: TcpConnection

        def received(self, data: bytes, not_before: int) -> None:
            self.connection.close()
            self.came.set()

    listener = Closing()
    listener.connection, far = connected(lines, system_clock, listener)
    far.sendall(b"x")
    assert listener.came.wait(30)
    assert far.recv(1) == b""
    assert not listener.ended.wait(0.1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_reads_connections_of_its_own(
    system_clock: SystemClock, lines: list[socket.socket]
) -> None:
    """The child of a fork has none of its parent's threads."""
    listener = Kept()
    connection, far = connected(lines, system_clock, listener)
    child = os.fork()
    if child == 0:
        kept = Kept()
        _, its = connected(lines, SystemClock(), kept)
        its.sendall(b"z")
        os._exit(0 if kept.came.wait(30) and kept.data == b"z" else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    far.sendall(b"y")
    assert listener.came.wait(30)
    connection.close()


def test_bytes_that_a_read_has_left_came_before_it(
    system_clock: SystemClock, lines: list[socket.socket]
) -> None:
    """No kernel stamp here (a Unix socket): only a read that left nothing bounds the next one."""
    bounds: list[tuple[int, int]] = []
    whole = threading.Event()
    size = (1 << 16) + 1000

    class Counting(Kept):
        def received(self, data: bytes, not_before: int) -> None:
            bounds.append((len(data), not_before))
            if sum(count for count, _ in bounds) == size:
                whole.set()

    near, far = socket.socketpair()
    lines.append(far)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    far.sendall(bytes(size))
    written = system_clock.now()
    connection = TcpConnection(near, Counting(), system_clock)
    assert whole.wait(30)
    connection.close()
    assert [count for count, _ in bounds] == [1 << 16, 1000]
    # All was there before the connection: its own begin is the bound of each, as of old.
    assert bounds[1][1] == bounds[0][1]
    assert written <= bounds[0][1]
