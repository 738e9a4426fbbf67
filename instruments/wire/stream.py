"""Byte streams to instruments: TCP and serial lines.

On the system clock the querying thread reads by itself, which saves a switch of threads for each
reply. In virtual time a thread per connection reads and the querying thread waits on the clock:
a thread blocked in `recv` would count as running, and time would never move.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lightrig.instruments.clock import Clock, Event
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT, Arrivals, TcpConnection, connect
from lightrig.testbeds import LightrigError

if TYPE_CHECKING:
    import serial


class StreamClosedError(Exception):
    """The connection has ended; the layers above, which know the query, make an error of it."""


class Stream(Protocol):
    """An open connection to an instrument that carries bytes."""

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""

    def receive(self, timeout: int) -> bytes:
        """Return the bytes that have come, at least one.

        Raises:
            TimeoutError: nothing came within `timeout` ns.
            StreamClosedError: the connection has ended.
        """

    def pending(self) -> bytes:
        """Return the bytes that have come, without waiting."""

    def close(self) -> None:
        """Close the connection."""


_WRITE_TIMEOUT = 5.0
"""Seconds after which writing to a blocked serial line fails."""

_LINE_BUFFER = 1 << 12
"""Size of the kernel's buffer of a line, in bytes: no read returns more."""

OpenStream: TypeAlias = Callable[[], Stream]
"""Function that opens a stream or raises `UnreachableError`."""


def tcp_stream(
    instrument: str, host: str, port: int, clock: Clock, connect_timeout: float = CONNECT_TIMEOUT
) -> Stream:
    """Open a TCP stream, within `connect_timeout` s of real time; raises `UnreachableError`."""
    connection = connect(instrument, host, port, connect_timeout, clock)
    if clock.virtual:
        return ThreadedStream(clock, lambda reader: TcpConnection(connection, reader, clock))
    return _TcpStream(connection)


def serial_stream(
    instrument: str, device: str, clock: Clock, *, baud: int, rtscts: bool = False
) -> Stream:
    """Open a serial line, 8N1; raises `UnreachableError`."""
    import serial  # noqa: PLC0415 - most benches have no serial line

    start = clock.now()
    try:
        line = serial.Serial(
            device, baud, rtscts=rtscts, timeout=0, write_timeout=_WRITE_TIMEOUT, exclusive=True
        )
        line.reset_input_buffer()
    except (serial.SerialException, OSError, ValueError) as error:
        took = (clock.now() - start) / 1e9
        raise UnreachableError(
            instrument,
            f"did not answer at {device} after {took:.2f} s: {error}",
            details=[("try", "is it plugged in, may you open the device, is it open elsewhere?")],
        ) from error
    return line_stream(_SerialLine(line), device, clock)


class Line(Protocol):
    """An open serial line; every failure raises OSError."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""

    def read(self) -> bytes:
        """Return the bytes that have come; only called when there are some."""

    def write(self, data: bytes) -> None:
        """Write `data`."""

    def close(self) -> None:
        """Close it."""


def line_stream(line: Line, device: str, clock: Clock) -> Stream:
    """Return a stream over an open serial line; its path is the key of the bytes in flight."""
    if clock.virtual:
        return ThreadedStream(clock, lambda reader: _LineConnection(line, device, reader, clock))
    return _LineStream(line)


class _SerialLine:
    def __init__(self, line: "serial.Serial") -> None:
        self.fileno = line.fileno
        self.close = line.close
        self._descriptor = line.fileno()
        self._writable = select.poll()
        self._writable.register(self._descriptor, select.POLLOUT)

    def read(self) -> bytes:
        return os.read(self._descriptor, _LINE_BUFFER)

    def write(self, data: bytes) -> None:
        # Not by pyserial, whose select() knows no file descriptor above 1023: a line takes five
        # of them, so that a fabric of some 200 lines could not be written to.
        while True:
            try:
                written = os.write(self._descriptor, data)
            except BlockingIOError:  # pyserial opens lines non-blocking
                written = 0
            if written == len(data):
                return
            data = data[written:]
            if not self._writable.poll(_WRITE_TIMEOUT * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"took nothing within {_WRITE_TIMEOUT} s")


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
    """Read from a readable line; raises `StreamClosedError`."""
    try:
        data = line.read()
    except OSError as error:
        raise StreamClosedError(error.strerror or str(error)) from error
    if not data:
        raise StreamClosedError("the serial line was cut")
    return data


# ------------------------------------------------------------------------ virtual time


class Connection(Protocol):
    """A connection whose reader thread hands received bytes to a `ThreadedStream`."""

    def send(self, data: bytes) -> None:
        """Write `data`; raises OSError."""

    def close(self) -> None:
        """Close it."""


class ThreadedStream:
    """A stream over a connection that a thread reads as soon as bytes come."""

    def __init__(
        self, clock: Clock, open_connection: "Callable[[ThreadedStream], Connection]"
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buffer = b""
        self._end: str | None = None
        self._waiting: Event | None = None
        self._arrivals = Arrivals()
        self._connection = open_connection(self)

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""
        try:
            self._connection.send(data)
        except OSError as error:
            raise StreamClosedError(error.strerror or str(error)) from error

    def receive(self, timeout: int) -> bytes:
        """Wait for bytes; see `Stream.receive`."""
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
        """Return the bytes that have come, without waiting; raises `StreamClosedError`."""
        with self._lock:
            self._waiting = None
            if not self._readable:
                return b""
            data, self._buffer = self._buffer, b""
            end = self._end
        if not data and end is not None:
            raise StreamClosedError(end)
        return data

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def received(self, data: bytes, not_before: int) -> None:
        """Take bytes from the connection's thread."""
        self._arrivals.read(not_before)
        self._arrived(data, None)

    def disconnected(self, reason: str) -> None:
        """Take the end of the connection from its thread."""
        self._arrived(b"", reason)

    def _arrived(self, data: bytes, end: str | None) -> None:
        with self._lock:
            self._buffer += data
            self._end = self._end or end
            self._intercept()
            waiting = self._waiting if self._readable else None
        if waiting is not None:
            waiting.set()

    @property
    def _readable(self) -> bool:
        """Whether `receive` has something to return or raise; with the lock acquired."""
        return bool(self._buffer) or self._end is not None

    def _intercept(self) -> None:
        """Take out messages that are not for `receive`; with the lock acquired. For subclasses."""


class _LineConnection:
    """A serial line read by a thread."""

    def __init__(self, line: Line, device: str, reader: ThreadedStream, clock: Clock) -> None:
        self._line = line
        self._stream = reader
        self._clock = clock
        self._flight = clock.flight(frozenset((device,)))
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._read, name="serial", daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        # Bytes that are counted and not written would be in flight for ever, and virtual time
        # would stand still: Ctrl-C has to wait meanwhile.
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
        # A line has no end of file, so the instrument is not informed of the close. One
        # nanosecond of virtual time passes only when nothing is in flight any more. A clock that
        # has failed has raised its error elsewhere.
        with contextlib.suppress(LightrigError):
            self._clock.sleep(1)
        os.close(self._wake)
        self._thread.join()
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
                self._stream.disconnected(str(error))
                return
            self._stream.received(data, self._clock.now())
            self._flight.landed(len(data))
