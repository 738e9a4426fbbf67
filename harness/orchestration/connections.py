"""Connections to the HTTP service: few, and for seconds, until they have shown that they may ask.

Each account of the machine can connect to a port of loopback, and each host to one beyond. A
connection takes a descriptor, and the service needs those for its switches and its lead. So a
connection is counted from when the kernel hands it over, also amid a TLS handshake, until a request
on it is admitted: one with the token, or the first of a peer with a key or of a permitted account.
What such a peer sends or leaves out until then prolongs nothing. Where there are too many, those of
the address with most of them are closed first: one host that opens thousands keeps no other out.

Admitted connections are bounded too, since a client with the token may be stuck, or its host cut
off: in number by the descriptors that the process may have, and in the time for the rest of a
request and for an answer that the client does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import os
import resource
import socket
import ssl
import struct
import sys
import termios
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from lightrig.harness.orchestration.answers import Problem
from lightrig.testbeds import LightrigError
from lightrig.testbeds.escaping import escape_line

FIRST_REQUEST_S = 10.0
"""Time that a new connection has until a request on it is admitted."""

MOST_UNASKED = 256
"""Connections without an admitted request, beyond which the oldest is closed."""

MOST_UNASKED_OF_PEER = 192
"""The same of one address, of one network /64 of IPv6, or of one account at a Unix socket."""

REFUSED_S = 1.0
"""Time in which a client may read that its request was refused, before its connection is closed."""

KEEP_ALIVE_S = 20
"""Time that an admitted connection stays open after an answer.

Far longer than the 5 s after which clients of httpx use none again: who closes first must not be a
race, which a client loses whose request comes as the service closes.
"""

BETWEEN_BYTES_S = 10.0
"""Longest pause amid an admitted client's request."""

WHOLE_REQUEST_S = 60.0
"""Longest time from the first byte of an admitted client's request to its last."""

ANSWER_S = 60.0
"""Longest time in which an answer waits for the client to read it."""

LATE_ANSWER_S = 5.0
MOST_LATE_ANSWERS = 16
"""Answers that wait for longer than `LATE_ANSWER_S`, beyond which the oldest is given up."""

TICKS_BETWEEN_LOOKS = 10
"""Ticks of uvicorn, of 0.1 s each, between two looks at admitted connections."""

RESERVED_DESCRIPTORS = 64
"""Descriptors that no connection takes beside those that are open when the server begins: for the
files of the lead and of what is wanted, and for switches that are connected again."""

LEAST_ADMITTED = 16
"""Admitted connections that there may be however few descriptors are left."""

PROBLEM_TYPE = "application/problem+json"

RETRY_AFTER = {"Retry-After": "1"}
"""Header of an answer to a request that may be sent again after a second."""

CLOSE = {"Connection": "close"}

_PLACES_FOR_REQUESTS = 16
"""Admitted connections among the most that may not wait for an epoch."""

_REPORT_S = 60.0
"""Errors of connections are printed at most once in this time."""

_BACKLOG = 4096
"""Connections that wait in the kernel, where they take no descriptor; beyond, clients try again
after a second."""

_ACCEPTED_AT_ONCE = 16
"""Connections that are accepted before those that were are read: fewer than are closed for them."""

_OUT_OF_DESCRIPTORS_S = 0.1
"""Pause in which descriptors are given back before connections are accepted again."""


def problem(code: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that was not carried out (RFC 9457)."""
    found = Problem(type="about:blank", title=HTTPStatus(code).phrase, status=code, detail=detail)
    return JSONResponse(found.model_dump(), code, headers, media_type=PROBLEM_TYPE)


class TooManyConnectionsError(LightrigError):
    """As many connections have been admitted, or wait, as the service bears."""


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
        self._admitted: set[_Connection] = set()
        self._most_admitted = LEAST_ADMITTED
        self._waits: set[asyncio.Timeout] = set()
        self._next_report = 0.0
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def has_keys(self) -> bool:
        """Whether a connection is made only to peers with a key."""
        return self._context is not None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets=[])
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._report)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = len(os.listdir("/proc/self/fd")) + MOST_UNASKED + RESERVED_DESCRIPTORS
        self._most_admitted = max(most - taken, LEAST_ADMITTED)
        self._listening.setblocking(False)
        if self._listening.family != socket.AF_UNIX:  # which connections inherit: an answer is two
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # segments
        self._listening.listen(_BACKLOG)
        self._resume()

    def end(self) -> None:
        """Ask for the end of the server, from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Serve until `end` is called, which uvicorn sees a tenth of a second later."""
        ticks = asyncio.ensure_future(super().main_loop())
        asked = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait((ticks, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ticks.done():
            ticks.result()
        ticks.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end those that there are."""
        asyncio.get_running_loop().remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()
        for connection in [*self._waiting]:
            self._drop(connection)
        for wait in self._waits:
            wait.reschedule(0)
        for served in [*self.server_state.connections]:
            served.shutdown()
        await asyncio.sleep(0)  # what is closed leaves the state in the next round of the loop
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)  # waits for tenths of a second
            return
        for each in sockets or ():
            each.close()
        await self.lifespan.shutdown()

    async def on_tick(self, counter: int) -> bool:
        """Close admitted connections whose requests or answers take too long, once a second."""
        if counter % TICKS_BETWEEN_LOOKS == 0:
            now = asyncio.get_running_loop().time()
            late = []
            for connection in [*self._admitted]:
                if connection.is_overdue(now):
                    connection.reset()
                elif (since := connection.unread_since(now)) < now - LATE_ANSWER_S:
                    late.append((since, id(connection), connection))
            for _, _, connection in sorted(late)[: max(len(late) - MOST_LATE_ANSWERS, 0)]:
                connection.reset()
        return await super().on_tick(counter)

    def admit(self, connection: _Connection) -> None:
        """Let a client keep its connection; raises `TooManyConnectionsError`."""
        if connection in self._admitted:
            return
        if len(self._admitted) >= self._most_admitted:
            raise TooManyConnectionsError(
                f"{self._most_admitted} connections are open, as many as this service's limit of "
                "descriptors leaves: try again, or start it after `ulimit -n 4096`"
            )
        self.forget(connection)
        self._admitted.add(connection)

    @contextlib.asynccontextmanager
    async def place_to_wait(self, seconds: float) -> AsyncIterator[None]:
        """Take a place for a request that waits; raises `TooManyConnectionsError`.

        Fewer may wait than are admitted: the rest is for requests that are answered at once. Raises
        TimeoutError within after `seconds`, and when the server ends, so that it is answered yet.
        """
        most = max(self._most_admitted - _PLACES_FOR_REQUESTS, 1)
        if len(self._waits) >= most:
            raise TooManyConnectionsError(
                f"{most} requests wait already, the most of this service: try again, or start it "
                "after `ulimit -n 4096`"
            )
        async with asyncio.timeout(0 if self.should_exit else seconds) as limit:
            self._waits.add(limit)
            try:
                yield
            finally:
                self._waits.discard(limit)

    def forget(self, connection: _Connection) -> None:
        """Count a connection no more: a request on it was admitted, or it has ended."""
        self._admitted.discard(connection)
        if (expiry := self._waiting.pop(connection, None)) is not None:
            expiry.cancel()

    def hasten(self, connection: _Connection) -> None:
        """Close a connection on which a request was refused once that can have been read."""
        if (expiry := self._waiting.get(connection)) is not None:
            expiry.cancel()
            loop = asyncio.get_running_loop()
            self._waiting[connection] = loop.call_later(REFUSED_S, self._drop, connection)

    def _report(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Print an error of a connection in one line, unless one was a short time ago."""
        if (now := loop.time()) >= self._next_report:
            self._next_report = now + _REPORT_S
            why = repr(context.get("exception") or context.get("message"))
            sys.stderr.write(escape_line(f"lightrig: a connection ended by {why[:200]}") + "\n")

    def _resume(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
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
            connection = _Connection(self, accepted, _peer(accepted, address))
            self._waiting[connection] = loop.call_later(FIRST_REQUEST_S, self._expire, connection)
            self._silent.add(connection)
            loop.add_reader(accepted, self._begin, connection, accepted)
            peers = Counter(one.peer for one in self._waiting)
            if peers[connection.peer] > MOST_UNASKED_OF_PEER:
                self._drop(self._next_to_close(connection.peer))
            elif len(self._waiting) > MOST_UNASKED:
                self._drop(self._next_to_close(max(peers, key=lambda peer: peers[peer])))

    def _next_to_close(self, peer: str) -> _Connection:
        """Return the oldest connection of those of an address that are closed first.

        These are clients that have sent nothing or were refused, while they have more than half of
        its places: a burst of them pushes out none that is amid its handshake or its request. So
        have new clients, which have sent nothing yet, the other half. A request that has come is
        answered in a moment, and its connection is closed last; so is what a client has sent that
        a busy service has not read yet.
        """
        every = [one for one in self._waiting if one.peer == peer]
        idle = [one for one in every if one in self._silent or one.is_refused]
        if 2 * len(idle) > len(every):
            return min(idle, key=lambda one: one.has_unread)
        order = {one: number for number, one in enumerate(every)}
        return min(
            order.keys() - idle,
            key=lambda one: (one.is_asking, one.has_key, one.has_unread, order[one]),
        )

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
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=FIRST_REQUEST_S if self._context else None,
            )
        except OSError:  # of TLS too: no key, or none of the authority
            self.forget(connection)

    def _expire(self, connection: _Connection) -> None:
        """Close a connection whose time is over; what has come by then is read first, once."""
        if connection.has_unread or connection.is_asking:  # the service was late, not the client
            loop = asyncio.get_running_loop()
            self._waiting[connection] = loop.call_later(REFUSED_S, self._drop, connection)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self.forget(connection)
        if connection in self._silent:
            self._silent.discard(connection)
            connection.close_silent()
        else:
            connection.drop()


class _Connection(H11Protocol):
    """A connection that the server counts until a request on it is admitted.

    peer: the address that is counted for it.
    """

    def __init__(self, server: Server, accepted: socket.socket, peer: str) -> None:
        place = server.place_to_wait
        state = {**server.lifespan.state, "admit": self._admit, "place_to_wait": place}
        super().__init__(server.config, server.server_state, state)
        self._server, self._accepted, self.peer = server, accepted, peer
        self._served: Any = self.app
        self.app: Any = self._answer
        self._began = self._last_byte = 0.0
        self._unread_since: float | None = None

    @property
    def has_key(self) -> bool:
        """Whether a TLS handshake has shown a key."""
        return self._server.has_keys and self.transport is not None

    @property
    def is_asking(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_refused(self) -> bool:
        """Whether a request was answered, which did not admit it."""
        return self.cycle is not None and self.cycle.response_complete

    @property
    def has_unread(self) -> bool:
        """Whether the kernel has bytes of the client that the service has not read yet."""
        return self._accepted.fileno() >= 0 and _unread(self._accepted) > 0

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Carry out a request; without a token to wait for, it is the first proof of who asks."""
        if not self._server.asks_token:
            try:
                self._admit()
            except TooManyConnectionsError as error:
                found = problem(503, str(error), {**RETRY_AFTER, **CLOSE})
                await found(scope, receive, send)
                return
        await self._served(scope, receive, send)

    def data_received(self, data: bytes) -> None:
        self._last_byte = self.loop.time()
        if not self._is_amid_a_request:
            self._began = self._last_byte
        super().data_received(data)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, unless a request has come that was not read yet."""
        if self.has_unread:
            self.timeout_keep_alive_task = self.loop.call_later(
                KEEP_ALIVE_S, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._server.hasten(self)

    @property
    def _is_amid_a_request(self) -> bool:
        """Whether a part of a request has come."""
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def is_overdue(self, now: float) -> bool:
        """Whether the rest of a request, or the reading of an answer, takes too long."""
        if self.unread_since(now) < now - ANSWER_S:
            return True
        return self._is_amid_a_request and (
            (now - self._last_byte > BETWEEN_BYTES_S and not self.has_unread)
            or now - self._began > WHOLE_REQUEST_S
        )

    def unread_since(self, now: float) -> float:
        """Return since when each look has found a part of an answer not sent; `now` without one.

        The kernel is asked: what TLS has encrypted no transport counts.
        """
        if self._accepted_end is None or not _unsent(self._accepted_end):
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        return now if self._unread_since is None else self._unread_since

    @property
    def _accepted_end(self) -> int | None:
        made = None if self.transport is None else self.transport.get_extra_info("socket")
        return None if made is None or made.fileno() < 0 else int(made.fileno())

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

    def reset(self) -> None:
        """Close the connection, and let the kernel drop what the client has not read."""
        with contextlib.suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            made = self.transport.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.drop()

    def _admit(self) -> None:
        self._server.admit(self)


def _unsent(descriptor: int) -> int:
    """Return the bytes that a socket has not sent, or whose receipt is not acknowledged."""
    counted = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    count: int = struct.unpack("i", counted)[0]
    return count


def _unread(made: socket.socket) -> int:
    """Return the bytes that have come to a socket and were not read."""
    counted = fcntl.ioctl(made, termios.FIONREAD, bytes(4))
    count: int = struct.unpack("i", counted)[0]
    return count


def _peer(made: Any, address: Any) -> str:
    """Return whom a connection is counted for: an IPv4 address, a network of IPv6, an account."""
    if made.family == socket.AF_UNIX:
        return str(_account(made))
    found = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def _account(made: Any) -> int:
    """Return the account of the process that connected to a Unix socket."""
    found = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    account: int = struct.unpack("3i", found)[1]
    return account
