"""A connection over loopback is taken from a socket that this account or root still has open."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.accounts import EVE, needs_accounts, shell

from lightrig.instruments.loopback_peers import is_trusted


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def test_an_open_socket_of_this_account_is_trusted(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        client.shutdown(socket.SHUT_WR)
        with listener.accept()[0] as accepted:
            assert is_trusted(accepted)


@needs_accounts
def test_a_request_whose_sender_has_ended_is_not_trusted(listener: socket.socket) -> None:
    """Once its end is known, the kernel lists a socket without a process as one of root's."""
    port = listener.getsockname()[1]
    shell(EVE, f"bash -c 'echo request >/dev/tcp/127.0.0.1/{port}'")
    with listener.accept()[0] as accepted:
        assert accepted.recv(100) == b"request\n"
        until = time.monotonic() + 10
        while listed_accounts(accepted) != {0}:
            assert time.monotonic() < until
        assert not is_trusted(accepted)


def listed_accounts(connection: socket.socket) -> set[int]:
    """Accounts of the socket at the other end, by both ports, in proc_net_tcp(5).

    While it changes its state the kernel may list it twice; another connection of the machine may
    have the same port on its side.
    """
    ports = [f"{each[1]:04X}" for each in (connection.getpeername(), connection.getsockname())]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(each[7]) for each in lines if [end.split(":")[1] for end in each[1:3]] == ports}
