"""Bytes to and from an instrument, read when they are asked for.

On the system's clock the asking thread reads by itself, which saves a switch of threads for
each answer. In virtual time a connection's own thread reads, and the asker waits on the clock.
"""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

import serial

from instruments.clock import Clock, Event
from instruments.errors import UnreachableError
from instruments.wire.tcp import TcpConnection, connect
from testbeds import LightrigError


class StreamClosedError(Exception):
    """The other end is gone; for the layers above a stream, which know who asked what."""


class Stream(Protocol):
    """An open way to an instrument that carries bytes."""

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""

    def receive(self, timeout: int) -> bytes:
        """What has come, at least one byte.

        Raises:
            TimeoutError: nothing came within `timeout` ns.
            StreamClosedError: nothing will come any more.
        """

    def pending(self) -> bytes:
        """What has come and nobody has asked for, without waiting."""

    def close(self) -> None:
        """End it."""


_WRITING = 5.0
"""Seconds after which a line that takes nothing is given up."""

OpenStream: TypeAlias = Callable[[], Stream]
"""Opens a stream, or raises `UnreachableError`."""


def tcp_stream(
    instrument: str, host: str, port: int, clock: Clock, connect_timeout: float = 3.0
) -> Stream:
    """A stream over TCP; `connect_timeout` in seconds of real time. Raises `UnreachableError`."""
    connection = connect(instrument, host, port, connect_timeout, clock)
    if clock.virtual:
        return Awaited(clock, lambda arrivals: TcpConnection(connection, arrivals, clock))
    return _TcpStream(connection)


def serial_stream(
    instrument: str, device: str, clock: Clock, *, baud: int, rtscts: bool = False
) -> Stream:
    """A stream over a serial line, 8N1. Raises `UnreachableError`."""
    start = clock.now()
    try:
        line = serial.Serial(
            device, baud, rtscts=rtscts, timeout=0, write_timeout=_WRITING, exclusive=True
        )
        line.reset_input_buffer()
    except (serial.SerialException, OSError, ValueError) as error:
        took = (clock.now() - start) / 1e9
        raise UnreachableError(
            instrument,
            f"did not answer at {device} after {took:.2f} s: {error}",
            details=[("try", "is it plugged in, may you open the device, has another it open?")],
        ) from error
    return line_stream(_SerialLine(line), device, clock)


class Line(Protocol):
    """A serial line that is open; whatever goes wrong with it raises OSError."""

    def fileno(self) -> int:
        """What tells that there is something to read."""

    def read(self) -> bytes:
        """What has come; something has."""

    def write(self, data: bytes) -> None:
        """Write `data`."""

    def close(self) -> None:
        """Let go of it."""


def line_stream(line: Line, device: str, clock: Clock) -> Stream:
    """A stream over an open serial line; the line's path counts what is in flight."""
    if clock.virtual:
        return Awaited(clock, lambda arrivals: _LineConnection(line, device, arrivals, clock))
    return _LineStream(line)


class _SerialLine:
    def __init__(self, line: serial.Serial) -> None:
        self._line = line
        self.fileno = line.fileno
        self.close = line.close

    def read(self) -> bytes:
        return os.read(self._line.fileno(), 1 << 16)

    def write(self, data: bytes) -> None:
        self._line.write(data)


class _TcpStream:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise StreamClosedError(error.strerror or str(error)) from error

    def receive(self, timeout: int) -> bytes:
        if not self._poll.poll(max(timeout, 0) / 1e6):
            raise TimeoutError
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise StreamClosedError(error.strerror or str(error)) from error
        if not data:
            raise StreamClosedError("the peer closed the connection")
        return data

    def pending(self) -> bytes:
        return self.receive(0) if self._poll.poll(0) else b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _LineStream:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line.fileno(), select.POLLIN)

    def send(self, data: bytes) -> None:
        try:
            self._line.write(data)
        except OSError as error:
            raise StreamClosedError(str(error)) from error

    def receive(self, timeout: int) -> bytes:
        if not self._poll.poll(max(timeout, 0) / 1e6):
            raise TimeoutError
        return _read(self._line)

    def pending(self) -> bytes:
        return _read(self._line) if self._poll.poll(0) else b""

    def close(self) -> None:
        self._line.close()


def _read(line: Line) -> bytes:
    """What has come; something must have. Raises `StreamClosedError`."""
    try:
        data = line.read()
    except OSError as error:
        raise StreamClosedError(error.strerror or str(error)) from error
    if not data:
        raise StreamClosedError("the serial line was cut")
    return data


# ------------------------------------------------------------------------ virtual time


class Connection(Protocol):
    """A connection that hands what it brings to an `Awaited`, on a thread of its own."""

    def send(self, data: bytes) -> None:
        """Write `data`; raises OSError."""

    def close(self) -> None:
        """End it."""


class Awaited:
    """A stream on top of a connection that is read by a thread of its own."""

    def __init__(self, clock: Clock, open_connection: "Callable[[Awaited], Connection]") -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._came = b""
        self._end: str | None = None
        self._waiting: Event | None = None
        self._connection = open_connection(self)

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""
        try:
            self._connection.send(data)
        except OSError as error:
            raise StreamClosedError(error.strerror or str(error)) from error

    def receive(self, timeout: int) -> bytes:
        """What has come; see `Stream.receive`."""
        waiting = None
        with self._lock:
            if not self._readable:
                waiting = self._waiting = self._clock.event()
        if waiting is not None:
            waiting.wait(max(timeout, 0))
        data = self.pending()
        if not data:
            raise TimeoutError
        return data

    def pending(self) -> bytes:
        """What has come and nobody has asked for, without waiting; raises `StreamClosedError`."""
        with self._lock:
            self._waiting = None
            if not self._readable:
                return b""
            data, self._came = self._came, b""
            end = self._end
        if not data and end is not None:
            raise StreamClosedError(end)
        return data

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def received(self, data: bytes) -> None:
        """Take what the connection brought."""
        self._tell(data, None)

    def disconnected(self, reason: str) -> None:
        """Learn that the connection will bring nothing more."""
        self._tell(b"", reason)

    def _tell(self, data: bytes, end: str | None) -> None:
        with self._lock:
            self._came += data
            self._end = self._end or end
            self._set_apart()
            waiting = self._waiting if self._readable else None
        if waiting is not None:
            waiting.set()

    @property
    def _readable(self) -> bool:
        """Whether there is something for those who ask; the lock is held."""
        return bool(self._came) or self._end is not None

    def _set_apart(self) -> None:
        """Take out of what came what is not for those who ask; the lock is held."""


class _LineConnection:
    """A serial line read by a thread of its own; bytes in flight are counted by its path."""

    def __init__(self, line: Line, device: str, arrivals: Awaited, clock: Clock) -> None:
        self._line = line
        self._arrivals = arrivals
        self._clock = clock
        self._flight = clock.flight(frozenset((device,)))
        self._woken, self._wake = os.pipe()
        self._reader = threading.Thread(target=self._read, name="serial", daemon=True)
        self._reader.start()

    def send(self, data: bytes) -> None:
        # What is counted and never written is in flight for ever: Ctrl-C has to wait meanwhile.
        allowed = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            self._flight.sent(len(data))
            self._write(data)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, allowed)

    def _write(self, data: bytes) -> None:
        try:
            self._line.write(data)
        except OSError:
            self._flight.landed(len(data))
            raise

    def close(self) -> None:
        with contextlib.suppress(LightrigError):  # a clock that has failed has told it already
            self._clock.sleep(1)  # which is over when nothing is under way any more
        os.close(self._wake)
        self._reader.join()
        os.close(self._woken)
        self._line.close()

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._line.fileno(), select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while all(descriptor != self._woken for descriptor, _ in poll.poll()):
            try:
                data = _read(self._line)
            except StreamClosedError as error:
                self._arrivals.disconnected(str(error))
                return
            self._arrivals.received(data)
            self._flight.landed(len(data))
