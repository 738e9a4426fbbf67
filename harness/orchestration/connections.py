"""Connections to the HTTP service: few, and for seconds, until they have shown that they may ask.

Each account of the machine can connect to a port of loopback, and each host to one beyond. A
connection takes a descriptor, and the service needs those for its switches and its lead. So a
connection is counted from when the kernel hands it over, also amid a TLS handshake, until a request
on it is admitted: one with the token, or the first of a peer with a key or of a permitted account.
What such a peer sends or leaves out until then prolongs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_S = 10.0
"""Time that a new connection has until a request on it is admitted."""

MOST_UNASKED = 128
"""Connections without an admitted request, beyond which the oldest is closed."""

_BACKLOG = 1024
"""Connections that wait in the kernel, where they take no descriptor; beyond, clients try again
after a second."""

_ACCEPTED_AT_ONCE = 32
"""Connections that are accepted before those that were are read: fewer than are closed for them."""

_OUT_OF_DESCRIPTORS_S = 0.1
"""Pause in which descriptors are given back before connections are accepted again."""


class Server(uvicorn.Server):
    """A server that accepts its connections itself.

    asyncio's own accepting names a connection only once its TLS handshake is over, and allows that
    a minute. asks_token: whether a request is admitted by `request.state.admit()` alone.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        context: ssl.SSLContext | None,
        *,
        asks_token: bool,
    ) -> None:
        super().__init__(config)
        self._listening, self._context, self.asks_token = listening, context, asks_token
        self._waiting: dict[_Connection, asyncio.TimerHandle] = {}
        self._silent: set[_Connection] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def has_keys(self) -> bool:
        """Whether a connection is made only to peers with a key."""
        return self._context is not None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets=[])
        self._listening.setblocking(False)
        self._listening.listen(_BACKLOG)
        self._resume()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end those that there are."""
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()
        for connection in [*self._waiting]:
            self._drop(connection)
        await super().shutdown(sockets)

    def forget(self, connection: _Connection) -> None:
        """Count a connection no more: a request on it was admitted, or it has ended."""
        if (expiry := self._waiting.pop(connection, None)) is not None:
            expiry.cancel()

    def _resume(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # out of descriptors or memory, whatever has taken them
                loop.remove_reader(self._listening)
                self._pause = loop.call_later(_OUT_OF_DESCRIPTORS_S, self._resume)
                for connection in [*self._waiting][: len(self._waiting) // 2 + 1]:
                    self._drop(connection)
                return
            accepted.setblocking(False)
            if accepted.family == socket.AF_UNIX and _account(accepted) not in {0, os.geteuid()}:
                accepted.close()
                continue
            connection = _Connection(self, accepted)
            self._waiting[connection] = loop.call_later(FIRST_REQUEST_S, self._drop, connection)
            self._silent.add(connection)
            loop.add_reader(accepted, self._begin, connection, accepted)
            if len(self._waiting) > MOST_UNASKED:
                self._drop(self._next_to_close())

    def _next_to_close(self) -> _Connection:
        """Return the oldest connection of those that are closed first.

        These are clients that have sent nothing or were refused, while they have more than half of
        the places: a burst of them pushes out none that is amid its handshake or its request. So
        have new clients, which have sent nothing yet, the other half.
        """
        idle = [one for one in self._waiting if one in self._silent or one.is_refused]
        if 2 * len(idle) > MOST_UNASKED:
            return idle[0]
        return min((one for one in self._waiting if one not in idle), key=lambda one: one.has_key)

    def _begin(self, connection: _Connection, accepted: socket.socket) -> None:
        """Serve a client that has sent something, as those of HTTP and TLS do first."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(accepted)
        self._silent.discard(connection)
        task = loop.create_task(self._connect(connection, accepted))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _connect(self, connection: _Connection, accepted: socket.socket) -> None:
        """Make a transport of an accepted socket, over TLS once the handshake is over."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._context)
        except OSError:  # of TLS too: no key, or none of the authority
            self.forget(connection)

    def _drop(self, connection: _Connection) -> None:
        self.forget(connection)
        if connection in self._silent:
            self._silent.discard(connection)
            connection.close_silent()
        else:
            connection.drop()


class _Connection(H11Protocol):
    """A connection that the server counts until a request on it is admitted."""

    def __init__(self, server: Server, accepted: socket.socket) -> None:
        state = {**server.lifespan.state, "admit": self._admit}
        super().__init__(server.config, server.server_state, state)
        self._server, self._accepted = server, accepted

    @property
    def has_key(self) -> bool:
        """Whether a TLS handshake has shown a key."""
        return self._server.has_keys and self.transport is not None

    @property
    def is_refused(self) -> bool:
        """Whether a request was answered, which did not admit it."""
        return self.cycle is not None and self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self._server.asks_token:
            self._admit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        super().connection_lost(exc)

    def close_silent(self) -> None:
        """Close the connection before it is served."""
        self.loop.remove_reader(self._accepted)
        self._accepted.close()

    def drop(self) -> None:
        """Close the connection at once, whatever is unsent or amid a handshake."""
        if self.transport is not None:
            self.transport.abort()
        else:  # the event loop has the socket, and reads its end from it
            with contextlib.suppress(OSError):
                self._accepted.shutdown(socket.SHUT_RDWR)

    def _admit(self) -> None:
        self._server.forget(self)


def _account(made: Any) -> int:
    """Return the account of the process that connected to a Unix socket."""
    found = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    account: int = struct.unpack("3i", found)[1]
    return account
