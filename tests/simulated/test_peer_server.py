"""The simulated instruments' server survives its clients, and closes all that it opened."""

import contextlib
import fcntl
import socket
import threading

import pytest
from real_time import over_soon
from unused_ports import unused_ports

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.simulated.protocols.device_server import DeviceServer

RESET = b"\x01\0\0\0\0\0\0\0"


class Echo:
    def __init__(self, connection, index):
        self.connection = connection
        self.index = index
        self.ended = threading.Event()

    def received(self, data):
        if data == b"reset":
            self.connection.close(abruptly=True)
        elif data == b"end":
            self.connection.close()
        else:
            self.connection.send(f"{self.index}:".encode() + data)

    def closed(self):
        self.ended.set()


@pytest.fixture
def echoes():
    """Return the address of an echo server, and its sessions."""
    clock = SystemClock()
    server = DeviceServer(clock)
    sessions = []

    def make(connection, index):
        sessions.append(Echo(connection, index))
        return sessions[-1]

    yield server.listen(make, *unused_ports()), sessions, server
    with contextlib.suppress(OSError, ValueError, RuntimeError, KeyError):
        server.close()
    clock.close()


def ask(line, data):
    line.sendall(data)
    return line.recv(100)


def test_connections_are_counted_by_port(echoes):
    address, _, server = echoes
    other = server.listen(Echo)
    assert address[0] == other[0] == "127.0.0.1"
    with contextlib.ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(to, 30))
            for to in (address, other, address)
        ]
        assert [ask(line, b"x") for line in lines] == [b"0:x", b"0:x", b"1:x"]


def test_it_listens_on_loopback_at_the_given_port(echoes):
    _, _, server = echoes
    (port,) = unused_ports()
    assert server.listen(Echo, port) == ("127.0.0.1", port)


@pytest.mark.parametrize(("word", "ends"), [(b"end", "end"), (b"reset", "reset")])
def test_a_connection_is_closed_in_order_or_reset(echoes, word, ends):
    address, sessions, _ = echoes
    for _ in range(10):
        with socket.create_connection(address, 30) as line:
            line.sendall(word)
            if ends == "end":
                assert line.recv(100) == b""
            else:
                with pytest.raises(ConnectionResetError):
                    line.recv(100)
        assert sessions[-1].ended.wait(30)


def test_clients_that_vanish_do_no_harm(echoes):
    address, sessions, _ = echoes
    for _ in range(50):
        line = socket.create_connection(address, 30)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        line.close()
    with socket.create_connection(address, 30) as line:
        assert ask(line, b"x").endswith(b":x")
    assert all(session.ended.wait(30) for session in sessions)


def test_writing_to_a_client_that_has_left_is_no_error(echoes):
    address, sessions, _ = echoes
    with socket.create_connection(address, 30) as line:
        assert ask(line, b"x") == b"0:x"
    assert sessions[0].ended.wait(30)
    for _ in range(3):
        sessions[0].connection.send(b"late")


def test_closing_drops_every_connection(echoes):
    address, sessions, server = echoes
    with socket.create_connection(address, 30) as line:
        assert ask(line, b"x") == b"0:x"
        threads = threading.active_count()
        with over_soon():
            server.close()
            assert line.recv(100) == b""
        assert sessions[0].ended.is_set()
        assert threading.active_count() < threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 30)


def test_a_server_that_never_listened_closes():
    server = DeviceServer(SystemClock())
    server.close()


def test_output_without_a_serial_client_is_not_in_flight():
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)
    lines = []

    def session(connection, index):
        lines.append(connection)
        return Echo(connection, index)

    device = server.serial_line(session)
    lines[0].send(b"is anybody there?")
    clock.sleep(1)
    with open(device, "rb", buffering=0) as client:
        fcntl.flock(client, fcntl.LOCK_EX)
        lines[0].send(b"hello")
        assert clock.flight(frozenset((device,))).count == 5
        heard = b""
        while not heard.endswith(b"hello"):
            heard += client.read(100)
        clock.flight(frozenset((device,))).landed(5)
    lines[0].send(b"still there?")
    clock.sleep(1)
    server.close()
    clock.close()


def test_a_session_may_count_by_itself():
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)
    flights = []

    class Counting(Echo):
        def __init__(self, connection, index):
            super().__init__(connection, index)
            flights.append(connection.counted_by_session())

    with socket.create_connection(server.listen(Counting), 5) as line:
        assert ask(line, b"x") == b"0:x"
        clock.sleep(1)  # nobody counted these bytes, so they do not hold time up
        ends = frozenset((line.getsockname(), line.getpeername()))
        assert clock.flight(ends) is flights[0]
    server.close()
    clock.close()
