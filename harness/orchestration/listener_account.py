"""Requests to a service on loopback, sent only where the kernel names its account as a trusted one.

A port of loopback belongs to whichever account listens first: another account can wait there for
the token of a service that has ended. So the client connects, asks the kernel whose the other end
is, and sends nothing to an account that is neither its own nor root's. Root's is trusted, since
root reads the token file, and the memory of this process, anyway.

Both the connection's other end and the listener are asked. Until a connection is accepted its end
has no account of its own, and some kernels name root for it; and the listener may be a later one.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import httpx

from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import LightrigError

_Address: TypeAlias = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]

_TABLES = ("/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6")
_LISTEN = 0x0A
"""State of a socket that listens: include/net/tcp_states.h of Linux."""

_NAMED_NS = 1_000_000_000
_AGAIN_NS = 10_000_000
"""The kernel names the other end of a new connection at once, or in a moment under load."""


class ListenerAccountError(LightrigError):
    """A port of loopback belongs to another account, or to none that the kernel names."""


class _Row(NamedTuple):
    """A TCP socket of this network namespace, as proc_pid_net(5) describes it."""

    local: _Address
    remote: _Address
    state: int
    account: int


class AccountTransport(httpx.BaseTransport):
    """Sends each request over a connection of its own, once its other end is known.

    Requests raise `ListenerAccountError` before anything is sent, and `httpx.TransportError`.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its answer."""
        url = request.url
        made = http.client.HTTPConnection(url.host, url.port or 80, timeout=self._timeout_s)
        try:
            with contextlib.closing(made):
                made.connect()
                check_account(made.sock)
                target = url.raw_path.decode("ascii")
                made.request(request.method, target, request.read(), dict(request.headers))
                answer = made.getresponse()
                return httpx.Response(
                    answer.status, headers=answer.getheaders(), content=answer.read()
                )
        except (OSError, http.client.HTTPException) as error:
            raise httpx.TransportError(str(error) or type(error).__name__) from error


def check_account(connected: socket.socket) -> None:
    """Raise `ListenerAccountError` unless a connection's other end is this account's or root's."""
    server, client = (
        (ipaddress.ip_address(address[0]), address[1])
        for address in (connected.getpeername(), connected.getsockname())
    )
    clock = SystemClock()
    until = clock.now() + _NAMED_NS
    rows: list[_Row] = []
    ends: list[_Row] = []
    while not ends and clock.now() < until:
        if rows:
            clock.sleep(_AGAIN_NS)
        rows = [*_rows()]
        ends = [row for row in rows if (row.local, row.remote) == (server, client)]
    where = f"{server[0]}:{server[1]}"
    if not ends:
        raise ListenerAccountError(
            f"{where}: the kernel does not name the account that listens there: nothing was sent; "
            "state --socket PATH, for the service and for this command"
        )
    strangers = {row.account for row in [*ends, *_listeners(rows, server)]} - {0, os.geteuid()}
    if strangers:
        raise ListenerAccountError(
            f"{where}: account {min(strangers)} listens there, neither this one ({os.geteuid()}) "
            "nor root: nothing was sent; `ss -ltnp` as root names its process, and the service can "
            "have another --port, or --socket PATH"
        )


def _listeners(rows: list[_Row], server: _Address) -> list[_Row]:
    """Return the listeners that the kernel gives a connection to `server`: the most specific."""
    listening = [row for row in rows if row.state == _LISTEN and row.local[1] == server[1]]
    families = (ipaddress.IPv4Address(0), ipaddress.IPv6Address(0))
    for address in (server[0], *sorted(families, key=lambda one: one.version != server[0].version)):
        if found := [row for row in listening if row.local[0] == address]:
            return found
    return []


def _rows() -> Iterator[_Row]:
    for table in _TABLES:
        with contextlib.suppress(FileNotFoundError):  # without IPv6
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                _, local, remote, state, _, _, _, account, *_ = line.split()
                yield _Row(_address(local), _address(remote), int(state, 16), int(account))


def _address(text: str) -> _Address:
    """Return an address of a table: units of 32 bits in this machine's order of bytes, and port."""
    host, _, port = text.partition(":")
    shown = bytes.fromhex(host)
    count = len(shown) // 4
    found = ipaddress.ip_address(struct.pack(f"={count}I", *struct.unpack(f">{count}I", shown)))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found, int(port, 16)
