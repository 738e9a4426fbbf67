"""The error of a failed connection names address, cause and elapsed time."""

import re
import socket
import threading

import pytest
from unused_ports import unused_ports

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.tcp import TcpConnection, connect
from lightrig.instruments.wire.tl1 import Tl1Session


@pytest.fixture
def no_network(monkeypatch):
    """Fail on any lookup and any connection."""

    def refuse(*_args, **_options):
        raise AssertionError("the network was used")

    for name in ("create_connection", "getaddrinfo", "gethostbyname", "socket"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    "host", ["ocs.invalid", "a.b.invalid", "OCS.INVALID", "ocs.invalid.", "invalid"]
)
def test_placeholders_are_never_looked_up(host, system_clock):
    session = Tl1Session("ocs", host, 3082, system_clock)
    with pytest.raises(UnreachableError, match="never looked up") as raised:
        session.command("RTRV-HDR")
    assert f"{host}:3082" in str(raised.value)
    assert "testbed file" in str(raised.value)


def test_closed_port_error_names_address_and_time(system_clock):
    (port,) = unused_ports()
    session = Tl1Session("ocs", "127.0.0.1", port, system_clock)
    for _ in range(2):
        with pytest.raises(UnreachableError) as raised:
            session.command("RTRV-HDR")
        assert re.match(
            rf"ocs did not answer at 127\.0\.0\.1:{port} after \d+\.\d\d s: Connection refused",
            str(raised.value),
        )
        assert "  try " in str(raised.value)


def test_unanswered_connect_times_out(system_clock, monkeypatch):
    def never(address, timeout):
        system_clock.sleep(round(timeout * 1e9))
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", never)
    with pytest.raises(UnreachableError) as raised:
        connect("ocs", "192.0.2.1", 3082, 0.05, system_clock)
    error = re.search(r"at 192\.0\.2\.1:3082 after (\d+\.\d\d) s: no answer", str(raised.value))
    assert error is not None
    assert float(error[1]) >= 0.05


@pytest.mark.parametrize("host", ["two..dots", "x" * 70])
def test_invalid_host_name_is_reported(host, system_clock):
    with pytest.raises(UnreachableError, match="no host name"):
        connect("ocs", host, 3082, 0.1, system_clock)


@pytest.mark.parametrize("make_clock", [SystemClock, VirtualClock])
def test_close_before_the_first_read_is_a_disconnect(make_clock):
    class Listener:
        def __init__(self):
            self.reason = threading.Event()

        def received(self, data):
            raise AssertionError(data)

        def disconnected(self, reason):
            self.reason.set()

    clock = make_clock()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(20):
            line = connect("ocs", *server.getsockname(), 3.0, clock)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            accepted.close()
            listener = Listener()
            connection = TcpConnection(line, listener, clock)
            assert listener.reason.wait(30)
            with pytest.raises(OSError, match=r"[a-z]"):
                connection.send(b"hello")
            connection.close()
            assert line.fileno() == -1
    clock.close()
