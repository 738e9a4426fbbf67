"""A server's end of gRPC over HTTP/2: one session of a device for each call.

What a session receives is `METHOD`, a line end and a message with gRPC's prefix (a flag, a length
of four bytes); without a message, that the client sends no more. What it sends is the same prefix
and a message, or gRPC-Web's form of the trailers (flag 0x80), with which the call ends. So a reply
is one piece of bytes, which a wire fault can change; bytes that are neither are written as they
are.

Written from gRPC's PROTOCOL-HTTP2.md and PROTOCOL-WEB.md; h2 reads and words the frames.
"""

import struct
import threading
import urllib.parse
from collections import deque
from collections.abc import Mapping

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import H2Error

from lightrig.instruments.simulated.protocols.device_server import (
    DeviceConnection,
    Session,
    SessionFactory,
)
from lightrig.instruments.simulated.protocols.tls_server import TlsConnection

UNAUTHENTICATED = 16
_TRAILERS = 0x80
_PREFIX = struct.Struct("!BI")
_HEAD = ((":status", "200"), ("content-type", "application/grpc"))
_CALLS = 100_000
"""More calls than one connection has; numbers calls of all connections."""


def reply(message: bytes) -> bytes:
    """Return a message as a session sends it."""
    return _PREFIX.pack(0, len(message)) + message


def trailers(status: int = 0, text: str = "") -> bytes:
    """Return the end of a call as a session sends it."""
    fields = f"grpc-status:{status}\r\ngrpc-message:{urllib.parse.quote(text)}\r\n".encode()
    return _PREFIX.pack(_TRAILERS, len(fields)) + fields


class GrpcServer:
    """Makes the HTTP/2 session of each encrypted connection.

    Args:
        factory: makes the session of each call.
        login: user and password that it accepts as metadata; a verified certificate will do too.
    """

    def __init__(self, factory: SessionFactory, login: tuple[str, str]) -> None:
        self.factory = factory
        self.login = login

    def __call__(self, connection: DeviceConnection, index: int) -> "GrpcSession":
        """Return the session of a new connection."""
        assert isinstance(connection, TlsConnection)
        return GrpcSession(self, connection, index)


class GrpcSession:
    """Device end of one client's HTTP/2 connection."""

    def __init__(self, server: GrpcServer, connection: TlsConnection, index: int) -> None:
        self._server = server
        self._connection = connection
        self._index = index
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._calls: dict[int, _Call] = {}
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._endings: dict[int, Mapping[str, str]] = {}
        self._lock = threading.RLock()  # calls are answered on the clock's thread
        with self._lock:
            self._http.initiate_connection()
            self._flush()

    def received(self, data: bytes) -> None:
        """Take bytes."""
        with self._lock:
            try:
                events = self._http.receive_data(data)
            except H2Error:
                self._connection.close()
                return
            for event in events:
                self._take(event)
            self._flush()

    def closed(self) -> None:
        """End all calls, since the client has left."""
        with self._lock:
            calls = [*self._calls.values()]
            self._calls.clear()
        for call in calls:
            call.session.closed()

    def send(self, number: int, data: bytes) -> None:
        """Write a call's reply; see the module."""
        with self._lock:
            if number not in self._calls:  # it has ended, as has a client's interest in it
                return
            self._head(number)
            while data and number not in self._endings:
                flag, length = _PREFIX.unpack_from(data) if len(data) >= _PREFIX.size else (1, 0)
                end = _PREFIX.size + length
                if flag == _TRAILERS and len(data) >= end:
                    self._endings[number] = _fields(data[_PREFIX.size : end])
                    end = len(data)
                elif flag or len(data) < end:
                    end = len(data)
                    self._unsent.append((number, data))
                else:
                    self._unsent.append((number, data[:end]))
                data = data[end:]
            self._flush()

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up."""
        self._connection.close(abruptly=abruptly)

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=number, headers=headers):
                self._begin(number, {str(name): str(value) for name, value in headers or ()})
            case DataReceived(stream_id=number, data=data, flow_controlled_length=length):
                self._http.acknowledge_received_data(length, number)
                if number in self._calls:
                    self._calls[number].received(data)
            case StreamEnded(stream_id=number):
                if number in self._calls:
                    self._calls[number].half_closed()
            case StreamReset(stream_id=number):
                if (ended := self._calls.pop(number, None)) is not None:
                    ended.session.closed()
            case ConnectionTerminated():
                self._connection.close()

    def _begin(self, number: int, head: Mapping[str, str]) -> None:
        shown = (head.get("username", ""), head.get("password", ""))
        if not self._connection.verified and shown != self._server.login:
            ending = {"grpc-status": str(UNAUTHENTICATED), "grpc-message": "Unauthenticated"}
            self._http.send_headers(number, [*_HEAD, *ending.items()], end_stream=True)
            return
        call = self._calls[number] = _Call(self, number, head.get(":path", ""))
        call.session = self._server.factory(call, self._index * _CALLS + number)

    def _head(self, number: int) -> None:
        if not self._calls[number].answered:
            self._calls[number].answered = True
            self._http.send_headers(number, list(_HEAD))

    def _flush(self) -> None:
        """Write what the client's windows allow; with the lock acquired."""
        blocked: deque[tuple[int, bytes]] = deque()
        while self._unsent:
            number, data = self._unsent.popleft()
            if number not in self._calls:
                continue
            waits = any(number == each for each, _ in blocked)
            room = 0 if waits else self._http.local_flow_control_window(number)
            piece = data[: min(room, self._http.max_outbound_frame_size)]
            if piece:
                self._http.send_data(number, piece)
            if rest := data[len(piece) :]:
                if piece:
                    self._unsent.appendleft((number, rest))
                else:
                    blocked.append((number, rest))
        self._unsent = blocked
        for number, ending in [*self._endings.items()]:
            if not any(number == each for each, _ in blocked):
                del self._endings[number]
                if self._calls.pop(number, None) is not None:
                    self._http.send_headers(number, [*ending.items()], end_stream=True)
        if waiting := self._http.data_to_send():
            self._connection.send(waiting)


class _Call:
    """One call, as its session's connection."""

    session: Session

    def __init__(self, connection: GrpcSession, number: int, method: str) -> None:
        self.answered = False
        self._connection = connection
        self._number = number
        self._method = method.encode()
        self._buffer = b""

    def received(self, data: bytes) -> None:
        """Take bytes of the client's messages."""
        self._buffer += data
        while len(self._buffer) >= _PREFIX.size:
            end = _PREFIX.size + _PREFIX.unpack_from(self._buffer)[1]
            if len(self._buffer) < end:
                return
            message, self._buffer = self._buffer[:end], self._buffer[end:]
            self.session.received(self._method + b"\n" + message)

    def half_closed(self) -> None:
        """Tell the session that the client sends nothing more."""
        self.session.received(self._method + b"\n")

    def send(self, data: bytes) -> None:
        """Write a reply to the client."""
        self._connection.send(self._number, data)

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up."""
        self._connection.close(abruptly=abruptly)


def _fields(text: bytes) -> dict[str, str]:
    lines = text.decode("ascii", "replace").split("\r\n")
    return {name: value for name, _, value in (line.partition(":") for line in lines) if name}
