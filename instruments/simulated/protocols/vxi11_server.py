"""An instrument's end of VXI-11 (VXIbus TCP/IP Instrument Protocol, 1.0): SCPI in remote calls.

Calls are those of ONC RPC over TCP (RFC 5531), encoded by XDR (RFC 4506): open a link, write,
read, status byte, clear. Locks are granted to whoever asks. There is no port mapper, which needs
TCP port 111: a resource names the port. In real time alone: a client does not tell what it writes.
"""

import struct
import threading

from lightrig.instruments.clock import Clock, Scheduled
from lightrig.instruments.simulated.protocols.device_server import (
    Session,
    SessionFactory,
    TcpDeviceConnection,
)
from lightrig.instruments.simulated.protocols.session_output import SessionOutput

_CORE, _CORE_VERSION = 0x0607AF, 1
_CREATE_LINK, _WRITE, _READ, _STATUS, _CLEAR = 10, 11, 12, 13, 15
_PLAIN = frozenset({14, 16, 17, 18, 19, 20, 23})
"""Calls that have an error for an answer: trigger, remote, local, lock, unlock, SRQ, the end."""

_TIMED_OUT, _NOT_SUPPORTED = 15, 8
_COUNT_REACHED, _END = 1, 4
_MESSAGE_AVAILABLE = 1 << 4
_LARGEST = 1 << 20
_LAST = 0x80000000
_PROGRAM_UNAVAILABLE = 1


def vxi11_resource(host: str, port: int) -> str:
    """Return the VISA resource name of an instrument that listens there."""
    return f"TCPIP::{host},{port}::inst0::INSTR"


class Vxi11Server:
    """VXI-11 in front of an instrument's SCPI: a factory of sessions for `DeviceServer.listen`.

    Args:
        instrument: makes a SCPI session, as for a raw socket.
        clock: that of the world; a system clock.
        name: the instrument's, for the clock.
    """

    def __init__(self, instrument: SessionFactory, clock: Clock, name: str) -> None:
        self.instrument = instrument
        self.clock = clock
        self.name = name

    def __call__(self, connection: TcpDeviceConnection, index: int) -> "_Link":
        """Take a connection, which has one link."""
        return _Link(self, connection, index)


class _Link:
    """One client's connection: its calls, and the SCPI session behind them."""

    def __init__(self, server: Vxi11Server, connection: TcpDeviceConnection, index: int) -> None:
        self._server = server
        self._connection = connection
        self._index = index
        self._lock = threading.RLock()  # answers come on the clock's own thread
        self._buffer = b""
        self._call = b""
        self._scpi: Session | None = None
        self._output: SessionOutput | None = None
        self._answers = bytearray()
        self._reading: tuple[int, int, Scheduled] | None = None

    # ------------------------------------------------------------------ the instrument's side

    def send(self, data: bytes) -> None:
        """Take an answer, which a read will ask for, or does already; called with the lock."""
        self._answers += data
        if self._reading is not None:
            number, size, limit = self._reading
            self._reading = None
            limit.cancel()
            self._answer_read(number, size)

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up."""
        self._connection.close(abruptly=abruptly)

    # ---------------------------------------------------------------------- the client's side

    def received(self, data: bytes) -> None:
        """Carry out every whole call."""
        self._buffer += data
        while len(self._buffer) >= 4:
            (head,) = struct.unpack_from("!I", self._buffer)
            end = 4 + (head & ~_LAST)
            if len(self._buffer) < end:
                return
            self._call += self._buffer[4:end]
            self._buffer = self._buffer[end:]
            if head & _LAST:
                call, self._call = self._call, b""
                with self._lock:
                    self._carry_out(call)

    def closed(self) -> None:
        """End with the client."""
        with self._lock:
            self._end_session()

    def _carry_out(self, call: bytes) -> None:
        try:
            number, _, _, program, version, procedure = struct.unpack_from("!6I", call)
            at = 24
            for _ in range(2):  # credentials and verifier
                at += 8 + _padded(struct.unpack_from("!2I", call, at)[1])
            arguments = call[at:]
            if (program, version) != (_CORE, _CORE_VERSION):
                self._reply(number, b"", accepted=_PROGRAM_UNAVAILABLE)
                return
            self._run(number, procedure, arguments)
        except struct.error:  # nothing that can be answered
            self._connection.close()

    def _run(self, number: int, procedure: int, arguments: bytes) -> None:
        if procedure == _CREATE_LINK:
            self._begin_session()
            self._reply(number, struct.pack("!4I", 0, self._index + 1, 0, _LARGEST))
        elif procedure == _WRITE:
            flags, length = struct.unpack_from("!2I", arguments, 12)
            data = arguments[20 : 20 + length]
            ends = flags & 8 and not data.endswith(b"\n")
            if self._scpi is not None:
                self._scpi.received(data + (b"\n" if ends else b""))
            self._reply(number, struct.pack("!2I", 0, length))
        elif procedure == _READ:
            _, size, limit = struct.unpack_from("!3I", arguments)
            self._read(number, size, limit)
        elif procedure == _STATUS:
            waiting = _MESSAGE_AVAILABLE if self._answers else 0
            self._reply(number, struct.pack("!2I", 0, waiting))
        elif procedure == _CLEAR:
            self._begin_session()
            self._reply(number, struct.pack("!I", 0))
        elif procedure in _PLAIN or procedure == 0:
            self._reply(number, struct.pack("!I", 0) if procedure else b"")
        else:
            self._reply(number, struct.pack("!I", _NOT_SUPPORTED))

    def _read(self, number: int, size: int, limit: int) -> None:
        """Answer a read at once, or once there is an answer, or after `limit` ms without one."""
        if self._answers:
            self._answer_read(number, size)
            return
        clock = self._server.clock

        def give_up() -> None:
            with self._lock:
                if self._reading is not None and self._reading[0] == number:
                    self._reading = None
                    self._reply(number, struct.pack("!3I", _TIMED_OUT, 0, 0))

        at = clock.now() + limit * 1_000_000
        self._reading = number, size, clock.schedule(at, self._server.name, give_up)

    def _answer_read(self, number: int, size: int) -> None:
        part = bytes(self._answers[:size])
        del self._answers[: len(part)]
        reason = (_COUNT_REACHED if len(part) == size else 0) | (0 if self._answers else _END)
        head = struct.pack("!3I", 0, reason, len(part))
        self._reply(number, head + part + bytes(_padded(len(part)) - len(part)))

    def _reply(self, number: int, result: bytes, *, accepted: int = 0) -> None:
        reply = struct.pack("!6I", number, 1, 0, 0, 0, accepted) + result
        self._connection.send(struct.pack("!I", _LAST | len(reply)) + reply)

    def _begin_session(self) -> None:
        self._end_session()
        self._output = SessionOutput(self, self._lock)
        self._scpi = self._server.instrument(self._output, self._index)

    def _end_session(self) -> None:
        if self._reading is not None:
            self._reading[2].cancel()
            self._reading = None
        if self._output is not None:
            self._output.mute()
        if self._scpi is not None:
            self._scpi.closed()
            self._scpi = None
        self._answers.clear()


def _padded(length: int) -> int:
    """Return the length that XDR gives to so many bytes."""
    return length + -length % 4
