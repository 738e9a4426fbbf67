"""An instrument's end of HiSLIP 1.0 (IVI-6.1): SCPI in messages, over two TCP connections.

On the synchronous channel go commands and answers, on the asynchronous one what must not wait
behind them: the status byte, a device clear, locks. Synchronized mode only: an answer that the
client has not taken when its next message comes is lost, and both channels say so.

Client and server count messages in flight, not bytes: a client's VISA library does not tell
what it writes beside them. A message is what DataEND ends; the connection that counts is the
synchronous one.
"""

import itertools
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from lightrig.instruments.clock import Flight
from lightrig.instruments.simulated.protocols.device_server import (
    DeviceConnection,
    Session,
    SessionFactory,
    TcpDeviceConnection,
)
from lightrig.instruments.simulated.protocols.session_output import SessionOutput

SUB_ADDRESS = "hislip0"
_HEADER = struct.Struct("!2sBBIQ")
_VERSION = 0x0100
_VENDOR = int.from_bytes(b"LR")
_LARGEST = 1 << 20
_MESSAGE_AVAILABLE = 1 << 4


class _Kind(IntEnum):
    """Type of a message."""

    INITIALIZE = 0
    INITIALIZE_RESPONSE = 1
    FATAL_ERROR = 2
    ERROR = 3
    LOCK = 4
    LOCK_RESPONSE = 5
    DATA = 6
    DATA_END = 7
    CLEAR_COMPLETE = 8
    CLEAR_ACKNOWLEDGE = 9
    REMOTE = 10
    REMOTE_RESPONSE = 11
    TRIGGER = 12
    INTERRUPTED = 13
    ASYNC_INTERRUPTED = 14
    MAX_SIZE = 15
    MAX_SIZE_RESPONSE = 16
    ASYNC_INITIALIZE = 17
    ASYNC_INITIALIZE_RESPONSE = 18
    ASYNC_CLEAR = 19
    STATUS = 21
    STATUS_RESPONSE = 22
    ASYNC_CLEAR_ACKNOWLEDGE = 23
    LOCK_INFO = 24
    LOCK_INFO_RESPONSE = 25


def hislip_resource(host: str, port: int) -> str:
    """Return the VISA resource name of an instrument that listens there."""
    return f"TCPIP::{host}::{SUB_ADDRESS},{port}::INSTR"


@dataclass(frozen=True, slots=True)
class _Message:
    kind: int  # a `_Kind`, or one that is not known here
    control: int
    parameter: int
    payload: bytes = b""

    def __bytes__(self) -> bytes:
        head = _HEADER.pack(b"HS", self.kind, self.control, self.parameter, len(self.payload))
        return head + self.payload


class _Unreadable(Exception):  # noqa: N818 - the client's failure, not ours
    """Raised for bytes that are no HiSLIP."""


class _Reader:
    """Cuts messages out of one channel."""

    def __init__(self) -> None:
        self._buffer = b""

    def messages(self, data: bytes) -> Iterator[_Message]:
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            prologue, kind, control, parameter, length = _HEADER.unpack_from(self._buffer)
            if prologue != b"HS" or length > _LARGEST:
                raise _Unreadable
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            payload, self._buffer = self._buffer[_HEADER.size : end], self._buffer[end:]
            yield _Message(kind, control, parameter, payload)


class HislipServer:
    """HiSLIP in front of an instrument's SCPI: a factory of sessions for `DeviceServer.listen`.

    Args:
        instrument: makes a SCPI session, as for a raw socket.
    """

    def __init__(self, instrument: SessionFactory) -> None:
        self._instrument = instrument
        self._numbers = itertools.count(1)
        self._clients: dict[int, _Client] = {}
        self.locked_by: _Client | None = None

    def __call__(self, connection: TcpDeviceConnection, index: int) -> "_Channel":
        """Open one channel; its first message names its client and its kind."""
        return _Channel(self, connection)

    def client(self, connection: TcpDeviceConnection, flight: Flight) -> "_Client":
        """Add a client that has opened its synchronous channel."""
        number = next(self._numbers) & 0xFFFF
        client = self._clients[number] = _Client(self, number, connection, flight, self._instrument)
        return client

    def find(self, number: int) -> "_Client | None":
        """Return the client of a session number."""
        return self._clients.get(number)

    def forget(self, client: "_Client") -> None:
        """Remove a client that has left, with its lock."""
        self._clients.pop(client.number, None)
        if self.locked_by is client:
            self.locked_by = None


class _Channel:
    """One TCP connection, until its first message names its purpose."""

    def __init__(self, peer: HislipServer, connection: TcpDeviceConnection) -> None:
        self._peer = peer
        self._connection = connection
        self._flight = connection.counted_by_session()
        self._reader = _Reader()
        self._client: _Client | None = None
        self._act: Callable[[_Message], None] = self._begin

    def received(self, data: bytes) -> None:
        """Act on every whole message."""
        try:
            for message in self._reader.messages(data):
                self._act(message)
        except _Unreadable:
            self._give_up(1, "Poorly formed message header")

    def closed(self) -> None:
        """Without either channel a client is gone."""
        if self._client is not None:
            self._client.client_left()
        if self._client is None or not self._client.hung_up:
            self._flight.close()

    def _begin(self, message: _Message) -> None:
        if message.kind == _Kind.INITIALIZE:
            if message.payload.decode("ascii", "replace").lower() not in {"", SUB_ADDRESS}:
                self._give_up(3, "Invalid Initialization sequence")
                return
            self._client = self._peer.client(self._connection, self._flight)
            self._act = self._client.synchronous
            answer = _Message(_Kind.INITIALIZE_RESPONSE, 0, _VERSION << 16 | self._client.number)
        elif (
            client := self._peer.find(message.parameter)
        ) and message.kind == _Kind.ASYNC_INITIALIZE:
            self._client = client
            client.aside = self._connection
            self._act = client.asynchronous
            answer = _Message(_Kind.ASYNC_INITIALIZE_RESPONSE, 0, _VENDOR)
        else:
            self._give_up(3, "Invalid Initialization sequence")
            return
        self._connection.send(bytes(answer))

    def _give_up(self, code: int, text: str) -> None:
        self._connection.send(bytes(_Message(_Kind.FATAL_ERROR, code, 0, text.encode())))
        self._connection.close()


class _Client:
    """A client with its two channels, and the SCPI session behind them."""

    def __init__(
        self,
        peer: HislipServer,
        number: int,
        connection: TcpDeviceConnection,
        flight: Flight,
        instrument: SessionFactory,
    ) -> None:
        self.number = number
        self.aside: DeviceConnection | None = None
        self.hung_up = False
        self._flight = flight
        self._lock = threading.RLock()  # in real time answers come on the clock's own thread
        self._peer = peer
        self._connection = connection
        self._instrument = instrument
        self._largest = _LARGEST
        self._clearing = False
        self._incoming = b""
        self._outgoing = b""
        self._asked = 0
        self._answer_due = False
        self._answer_untaken = False
        self._scpi = self._new_session()

    def _new_session(self) -> Session:
        self._answers = SessionOutput(self, self._lock)
        return self._instrument(self._answers, self.number - 1)

    def client_left(self) -> None:
        """Either channel has ended: so does the other."""
        if self._peer.find(self.number) is self:
            self._peer.forget(self)
            with self._lock:
                self._answers.mute()
            self._scpi.closed()
            for channel in filter(None, (self._connection, self.aside)):
                channel.close()

    # ------------------------------------------------------------- the synchronous channel

    def synchronous(self, message: _Message) -> None:
        """Act on what the client says on the channel that keeps order."""
        if self.aside is None:
            self._say(_Message(_Kind.FATAL_ERROR, 2, 0, b"Both channels must be established"))
            self._connection.close()
        elif message.kind in {_Kind.DATA, _Kind.DATA_END}:
            self._data(message)
        elif message.kind == _Kind.CLEAR_COMPLETE:
            self._clearing = False
            self._say(_Message(_Kind.CLEAR_ACKNOWLEDGE, 0, 0))
        elif message.kind != _Kind.TRIGGER:
            self._say(_Message(_Kind.ERROR, 1, 0, b"Unrecognized message type"))

    def _data(self, message: _Message) -> None:
        ends = message.kind == _Kind.DATA_END
        with self._lock:
            if not self._clearing:
                self._take(message, ends=ends)
        if ends:
            self._flight.landed(1)

    def _take(self, message: _Message, *, ends: bool) -> None:
        if message.control & 1:
            self._answer_untaken = False
        if self._answer_due or self._answer_untaken:
            self._interrupt(message.parameter)
        self._asked = message.parameter
        self._incoming += message.payload
        if ends:
            command, self._incoming = self._incoming, b""
            self._answer_due = b"?" in command
            self._scpi.received(command if command.endswith(b"\n") else command + b"\n")

    def _interrupt(self, by: int) -> None:
        """An answer that nobody waits for any more is lost."""
        self._abandon()
        self._say(_Message(_Kind.INTERRUPTED, 0, by))
        self._say_aside(_Message(_Kind.ASYNC_INTERRUPTED, 0, by))

    def _abandon(self) -> None:
        with self._lock:
            self._answers.mute()
            self._scpi.closed()
            self._incoming = self._outgoing = b""
            self._answer_due = self._answer_untaken = False
            self._scpi = self._new_session()

    def send(self, data: bytes) -> None:
        """Send an answer, whole if it ends with a line feed; called with the lock."""
        self._outgoing += data
        ends = data.endswith(b"\n")
        largest = max(1, self._largest - _HEADER.size)
        while len(self._outgoing) > largest or (self._outgoing and not ends):
            part, self._outgoing = self._outgoing[:largest], self._outgoing[largest:]
            self._say(_Message(_Kind.DATA, 0, self._asked, part))
        if ends:
            if self._answer_due:  # a client passes over what comes beside the answer
                self._flight.sent(1)
            self._answer_due, self._answer_untaken = False, True
            self._say(_Message(_Kind.DATA_END, 0, self._asked, self._outgoing))
            self._outgoing = b""

    def close(self, *, abruptly: bool = False) -> None:
        """End the connection; its end counts until the client has seen it."""
        self.hung_up = True
        self._flight.sent(1)
        self._connection.close(abruptly=abruptly)

    # ------------------------------------------------------------ the asynchronous channel

    def asynchronous(self, message: _Message) -> None:
        """Act on what the client says beside the order of its commands."""
        match message.kind:
            case _Kind.MAX_SIZE:
                self._largest = max(_HEADER.size + 1, int.from_bytes(message.payload))
                self._say_aside(_Message(_Kind.MAX_SIZE_RESPONSE, 0, 0, _LARGEST.to_bytes(8)))
            case _Kind.ASYNC_CLEAR:
                self._clearing = True
                self._abandon()
                self._say_aside(_Message(_Kind.ASYNC_CLEAR_ACKNOWLEDGE, 0, 0))
            case _Kind.STATUS:
                waiting = self._answer_untaken and not message.control & 1
                self._say_aside(_Message(_Kind.STATUS_RESPONSE, _MESSAGE_AVAILABLE * waiting, 0))
            case _Kind.LOCK:
                self._say_aside(_Message(_Kind.LOCK_RESPONSE, self._locking(message), 0))
            case _Kind.LOCK_INFO:
                holders = int(self._peer.locked_by is not None)
                self._say_aside(_Message(_Kind.LOCK_INFO_RESPONSE, holders, holders))
            case _Kind.REMOTE:
                self._say_aside(_Message(_Kind.REMOTE_RESPONSE, 0, 0))
            case _:
                self._say_aside(_Message(_Kind.ERROR, 1, 0, b"Unrecognized message type"))

    def _locking(self, message: _Message) -> int:
        """Exclusive locks only, and nobody is kept waiting for one: 1 yes, 0 no, 3 an error."""
        if message.control:
            if message.payload:
                return 3
            if self._peer.locked_by not in {None, self}:
                return 0
            self._peer.locked_by = self
            return 1
        if self._peer.locked_by is not self:
            return 3
        self._peer.locked_by = None
        return 1

    def _say(self, message: _Message) -> None:
        self._connection.send(bytes(message))

    def _say_aside(self, message: _Message) -> None:
        if self.aside is not None:
            self.aside.send(bytes(message))
