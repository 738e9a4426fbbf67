"""The client's end of gRPC calls on one HTTP/2 connection (gRPC's PROTOCOL-HTTP2.md; RFC 9113).

h2 encodes and decodes frames; the bytes go over a `TcpConnection`, whose ends count them, so that
calls take part in virtual time. grpc's own library writes and reads on threads of its own, which
no clock can wait for.
"""

import contextlib
import re
import socket
import struct
import threading
import urllib.parse
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from lightrig.instruments.clock import Clock
from lightrig.instruments.wire.framing import LONGEST, FramingError
from lightrig.instruments.wire.stream import StreamClosedError
from lightrig.instruments.wire.tcp import Arrivals, TcpConnection

UNKNOWN = 2
"""gRPC's status of a call that ended without one (PROTOCOL-HTTP2.md, "Responses")."""

_PREFIX = struct.Struct("!BI")
_FRAME_HEAD, _GOAWAY = 9, 0x7
_STATUS = re.compile("[0-9]{1,9}")
_WINDOW = 1 << 20
"""Octets that a switch may send before it hears of any; with HTTP/2's 65,535 long tables wait."""


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's prefix: not compressed, and its length."""
    return _PREFIX.pack(0, len(message)) + message


class CallListener(Protocol):
    """Receiver of what comes in calls; called on the connection's reader thread."""

    def message(self, call: int, data: bytes, not_before: int) -> None:
        """Take one message of a call; not_before: lower bound of its arrival, in ns."""

    def ended(self, call: int, status: int, text: str, not_before: int) -> None:
        """Take the end of a call, with gRPC's status and its text."""

    def garbled(self, call: int, error: FramingError) -> None:
        """Take that a call's answer violates the protocol; 0 for all calls, which have ended."""

    def disconnected(self, connection: "GrpcConnection", reason: str) -> None:
        """Take the end of the connection, and with it of all calls."""


class GrpcConnection:
    """One HTTP/2 connection with calls in flight.

    Args:
        connection: an open socket, encrypted.
        clock: the bench's clock.
        authority: host and port, as calls name them.
        metadata: sent with every call.
        listener: takes what comes.

    Raises `StreamClosedError` where the other end has closed it.

    Attributes:
        over: whether no further call can be made on it.
    """

    def __init__(
        self,
        connection: socket.socket,
        clock: Clock,
        authority: str,
        metadata: Mapping[str, str],
        listener: CallListener,
    ) -> None:
        self.over = False
        self._authority = authority
        self._metadata = metadata
        self._listener = listener
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._parts: dict[int, bytearray] = {}
        self._buffer = b""
        self._failed = False
        self._virtual = clock.virtual
        self._arrivals = Arrivals()
        self._unsent: deque[tuple[int, bytes, bool]] = deque()
        # Frames leave in the order in which h2 has made them; the reader thread writes as well.
        self._lock = threading.RLock()
        try:
            with self._lock:
                self._http.initiate_connection()
                self._http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW})
                self._http.increment_flow_control_window(_WINDOW)
                self._tcp = TcpConnection(connection, self, clock)
                self._flush()
        except StreamClosedError:
            self._tcp.close()  # without the lock: the reader, which this awaits, may wait for it
            raise

    def begin(self, method: str) -> int:
        """Begin a call of `method`, such as `/gnmi.gNMI/Get`; return its number.

        Raises `StreamClosedError`.
        """
        with self._lock:
            try:
                call = self._http.get_next_available_stream_id()
                self._http.send_headers(call, [*self._head(method)])
            except H2Error as error:
                self.over = True
                raise StreamClosedError(str(error) or type(error).__name__) from error
            self._parts[call] = bytearray()
            return call

    def send(self, call: int, message: bytes, *, last: bool) -> None:
        """Write a message of a call; `last`: no other will follow. Raises `StreamClosedError`."""
        with self._lock:
            self._unsent.append((call, framed(message), last))
            self._flush()

    def cancel(self, call: int) -> None:
        """End a call; what still comes of it is discarded."""
        with self._lock:
            if self._parts.pop(call, None) is not None and not self._failed:
                with contextlib.suppress(H2Error):  # the server has closed the stream
                    self._http.reset_stream(call, error_code=0x8)  # CANCEL
                self._flush()

    def close(self) -> None:
        """Close the connection without informing the listener."""
        self.over = True
        self._tcp.close()

    def _head(self, method: str) -> Sequence[tuple[str, str]]:
        return (
            (":method", "POST"),
            (":scheme", "https"),
            (":path", method),
            (":authority", self._authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "lightrig"),
            *self._metadata.items(),
        )

    def _flush(self) -> None:
        """Write what the other end's windows allow; with the lock acquired."""
        while self._unsent:
            call, data, last = self._unsent[0]
            if call not in self._parts:  # cancelled
                self._unsent.popleft()
                continue
            room = self._http.local_flow_control_window(call)
            piece = data[: min(room, self._http.max_outbound_frame_size)]
            if not piece:
                break
            rest = data[len(piece) :]
            self._http.send_data(call, piece, end_stream=last and not rest)
            if rest:
                self._unsent[0] = (call, rest, last)
            else:
                self._unsent.popleft()
        if waiting := self._http.data_to_send():
            try:
                self._tcp.send(waiting)
            except OSError as error:
                self.over = True
                raise StreamClosedError(error.strerror or str(error)) from error

    # ------------------------------------------------------------- on the reader thread

    def received(self, data: bytes, not_before: int) -> None:
        """Take bytes."""
        with self._lock:
            if self._failed:
                return
            try:
                events = self._http.receive_data(self._frames(data))
                self._flush()
            except StreamClosedError:
                return  # the end of the connection is read next
            except (H2Error, UnicodeDecodeError) as error:
                self.over = self._failed = True
                self._listener.garbled(0, FramingError(f"it is no HTTP/2: {_named(error)}"))
                return
            # In virtual time all that is read has come now, however it was cut.
            self._arrivals.read(not_before)
            earlier = not_before if self._virtual else self._arrivals.of_message(last=False)
            for place, event in enumerate(events):
                behind = events[place + 1 :]
                last = not self._buffer and all(isinstance(e, StreamEnded) for e in behind)
                try:
                    self._take(event, not_before if last else earlier, earlier)
                except StreamClosedError:
                    return

    def disconnected(self, reason: str) -> None:
        """Take the end of the connection."""
        self.over = True
        self._listener.disconnected(self, reason)

    def _take(self, event: Event, not_before: int, earlier: int) -> None:
        match event:
            case ResponseReceived(stream_id=call, headers=headers, stream_ended=ended):
                self._response(call, _fields(headers), ended is not None, not_before)
            case TrailersReceived(stream_id=call, headers=headers):
                self._end(call, _fields(headers), not_before)
            case DataReceived(stream_id=call, data=data, flow_controlled_length=length):
                self._http.acknowledge_received_data(length, call)
                self._flush()
                self._data(call, data, not_before, earlier)
            case StreamEnded(stream_id=call):
                self._end(call, {}, not_before)
            case StreamReset(stream_id=call, error_code=code):
                self._end(call, {"grpc-message": f"the call was reset: {code!r}"}, not_before)

    def _frames(self, data: bytes) -> bytes:
        """Return the whole frames that have come, but for GOAWAY.

        After that one no call may begin, and those that have begun still end as they would (RFC
        9113, section 6.8). h2 takes it for the end of the connection.
        """
        self._buffer += data
        whole = b""
        while len(self._buffer) >= _FRAME_HEAD:
            length = int.from_bytes(self._buffer[:3], "big")
            if length > self._http.max_inbound_frame_size:  # h2 says what is wrong with it
                whole, self._buffer = whole + self._buffer, b""
                break
            frame = self._buffer[: _FRAME_HEAD + length]
            if len(frame) < _FRAME_HEAD + length:
                break
            self._buffer = self._buffer[len(frame) :]
            if frame[3] == _GOAWAY:
                self.over = True
            else:
                whole += frame
        return whole

    def _response(self, call: int, head: Mapping[str, str], ended: bool, not_before: int) -> None:
        if call not in self._parts:
            return
        if head.get(":status") != "200" or not head.get("content-type", "").startswith(
            "application/grpc"
        ):
            self._garbled(call, f"status {head.get(':status')}, {head.get('content-type')}")
        elif ended:  # "Trailers-Only"
            self._end(call, head, not_before)

    def _data(self, call: int, data: bytes, not_before: int, earlier: int) -> None:
        if call not in self._parts:
            return
        buffer = self._parts[call]
        buffer += data  # in place: a message of 8 MB comes in 500 frames
        while len(buffer) >= _PREFIX.size:
            compressed, length = _PREFIX.unpack_from(buffer)
            if compressed or length > LONGEST:
                self._garbled(call, f"a message begins with {buffer[:5]!r}")
                return
            end = _PREFIX.size + length
            if len(buffer) < end:
                break
            message = bytes(buffer[_PREFIX.size : end])
            del buffer[:end]
            self._listener.message(call, message, earlier if buffer else not_before)

    def _end(self, call: int, trailers: Mapping[str, str], not_before: int) -> None:
        left = self._parts.pop(call, None)
        if left is None:
            return
        if left:
            self._listener.garbled(call, FramingError("the last message was cut short"))
            return
        status = trailers.get("grpc-status", str(UNKNOWN))
        text = urllib.parse.unquote(trailers.get("grpc-message", "")) or (
            "" if "grpc-status" in trailers else "the call ended without a status"
        )
        if not _STATUS.fullmatch(status):  # `str.isdigit` takes more than `int` does
            why = f"it is no gRPC: grpc-status {status[:40]!r}"
            self._listener.garbled(call, FramingError(why))
            return
        self._listener.ended(call, int(status), text, not_before)

    def _garbled(self, call: int, why: str) -> None:
        self.cancel(call)
        self._listener.garbled(call, FramingError(f"it is no gRPC: {why}"))


def _fields(headers: object) -> dict[str, str]:
    assert isinstance(headers, list)
    return {str(name): str(value) for name, value in headers}


def _named(error: Exception) -> str:
    return type(error).__name__
