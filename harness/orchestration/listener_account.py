"""Requests to a service of this machine, sent only where the kernel names a trusted account for it.

A port of loopback belongs to whichever account listens first: another account can wait there for
the token of a service that has ended. So the client connects, asks the kernel whose the other end
is, and sends nothing to an account that is neither its own nor root's. Root's is trusted, since
root reads the token file, and the memory of this process, anyway. At a Unix socket the kernel
states who listens.

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
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import httpx

from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import LightrigError
from lightrig.testbeds.private_files import PrivateFileError, read_private

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

    path: of a Unix socket, in the place of the port of a request. Requests raise
    `ListenerAccountError` before anything is sent, and `httpx.TransportError`.
    """

    def __init__(self, timeout_s: float, path: Path | None = None) -> None:
        self._timeout_s, self._path = timeout_s, path

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its answer."""
        url = request.url
        made = http.client.HTTPConnection(url.host, url.port or 80, timeout=self._timeout_s)
        try:
            if self._path is None:
                made.connect()
                check_account(made.sock)
            else:
                made.sock = socket.socket(socket.AF_UNIX)
                made.sock.settimeout(self._timeout_s)
                made.sock.connect(str(self._path))
                check_socket(made.sock, self._path)
            target = url.raw_path.decode("ascii")
            made.request(request.method, target, request.read(), dict(request.headers))
            answer = made.getresponse()
        except (OSError, http.client.HTTPException) as error:
            made.close()
            raise _transport_error(error) from error
        except BaseException:
            made.close()
            raise
        return httpx.Response(
            answer.status, headers=answer.getheaders(), stream=_Stream(made, answer)
        )


class _Stream(httpx.SyncByteStream):
    """The body of an answer as it comes, so that whoever reads it can bound it."""

    def __init__(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> None:
        self._connection, self._answer = connection, answer

    def __iter__(self) -> Iterator[bytes]:
        left = self._answer.length  # None of what comes in chunks, whose end is checked
        try:
            while piece := self._answer.read1(1 << 16):
                left = None if left is None else left - len(piece)
                yield piece
            if left:
                raise http.client.IncompleteRead(b"", left)
        except (OSError, http.client.HTTPException) as error:
            raise _transport_error(error) from error

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def _transport_error(error: Exception) -> httpx.TransportError:
    return httpx.TransportError(str(error) or type(error).__name__)


class TokenAuth(httpx.Auth):
    """The token of a file, which is read again where the service no longer takes it.

    A service writes a new one at each start. Raises `PrivateFileError`.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._token = file, token_of(file)

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        """Send the token, and the next one after a refusal."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        answer: Any = yield request
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            former, self._token = self._token, token_of(self._file)
            if self._token != former:
                request.headers["Authorization"] = f"Bearer {self._token}"
                yield request


def token_of(file: Path) -> str:
    """Return the token in a file of mode 0600, which may be no link; raises `PrivateFileError`."""
    found = read_private(file, group=False, links=False)
    token = found.decode("ascii", "replace").strip()
    if not token:
        raise PrivateFileError(f"{file} holds no token: start the service again, it writes one")
    return token


def check_socket(connected: socket.socket, path: Path) -> None:
    """Raise `ListenerAccountError` unless this account or root listens at a Unix socket."""
    size = struct.calcsize("3i")
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, account, _ = struct.unpack("3i", found)
    if account not in {0, os.geteuid()}:
        raise ListenerAccountError(
            f"{path}: account {account} listens there, neither this one ({os.geteuid()}) nor root: "
            "nothing was sent; remove it, or state another --socket PATH"
        )


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
            "without --port service and command use a Unix socket"
        )
    strangers = {row.account for row in [*ends, *_listeners(rows, server)]} - {0, os.geteuid()}
    if strangers:
        raise ListenerAccountError(
            f"{where}: account {min(strangers)} listens there, neither this one ({os.geteuid()}) "
            "nor root: nothing was sent; `ss -ltnp` as root names its process, and the service can "
            "have another --port, or none: a Unix socket"
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
