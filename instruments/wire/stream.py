"""Bytes to and from an instrument, read when they are asked for.

On the system's clock the asking thread reads by itself, which saves a switch of threads for
each answer. In virtual time a connection's own thread reads, and the asker waits on the clock.
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

import serial

from instruments.clock import Clock, Event
from instruments.errors import UnreachableError
from instruments.wire.tcp import TcpConnection, connect


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


OpenStream: TypeAlias = Callable[[], Stream]
"""Opens a stream, or raises `UnreachableError`."""


def tcp_stream(
    instrument: str, host: str, port: int, clock: Clock, connect_timeout: float = 3.0
) -> Stream:
    """A stream over TCP; `connect_timeout` in seconds of real time. Raises `UnreachableError`."""
    connection = connect(instrument, host, port, connect_timeout, clock)
    if clock.virtual:
        return _Awaited(clock, lambda arrivals: TcpConnection(connection, arrivals, clock))
    return _TcpStream(connection)


def serial_stream(
    instrument: str, device: str, clock: Clock, *, baud: int, rtscts: bool = False
) -> Stream:
    """A stream over a serial line, 8N1. Raises `UnreachableError`."""
    start = clock.now()
    try:
        line = serial.Serial(device, baud, rtscts=rtscts, timeout=0, exclusive=True)
        line.reset_input_buffer()
    except (serial.SerialException, OSError, ValueError) as error:
        took = (clock.now() - start) / 1e9
        raise UnreachableError(
            instrument,
            f"did not answer at {device} after {took:.2f} s: {error}",
            details=[("try", "is it plugged in, may you open the device, has another it open?")],
        ) from error
    if clock.virtual:
        return _Awaited(clock, lambda arrivals: _SerialConnection(line, device, arrivals, clock))
    return _SerialStream(line)


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
        try:
            return self.receive(0)
        except TimeoutError:
            return b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _SerialStream:
    def __init__(self, line: serial.Serial) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line.fileno(), select.POLLIN)

    def send(self, data: bytes) -> None:
        _write(self._line, data)

    def receive(self, timeout: int) -> bytes:
        if not self._poll.poll(max(timeout, 0) / 1e6):
            raise TimeoutError
        return _read(self._line)

    def pending(self) -> bytes:
        try:
            return self.receive(0)
        except TimeoutError:
            return b""

    def close(self) -> None:
        self._line.close()


def _write(line: serial.Serial, data: bytes) -> None:
    try:
        line.write(data)
    except (serial.SerialException, OSError) as error:
        raise StreamClosedError(str(error)) from error


def _read(line: serial.Serial) -> bytes:
    """What has come; at least one byte must have. Raises `StreamClosedError`."""
    try:
        data = os.read(line.fileno(), 1 << 16)
    except (OSError, serial.SerialException) as error:
        raise StreamClosedError(str(error)) from error
    if not data:
        raise StreamClosedError("the serial line was cut")
    return data


# ------------------------------------------------------------------------ virtual time


class _Pushing(Protocol):
    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class _Awaited:
    """A stream on top of a connection that is read by a thread of its own."""

    def __init__(self, clock: Clock, open_connection: "Callable[[_Awaited], _Pushing]") -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._came = b""
        self._end: str | None = None
        self._waiting: Event | None = None
        self._connection = open_connection(self)

    def send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except OSError as error:
            raise StreamClosedError(error.strerror or str(error)) from error

    def receive(self, timeout: int) -> bytes:
        with self._lock:
            if not self._came and self._end is None:
                self._waiting = self._clock.event()
            waiting = self._waiting
        if waiting is not None:
            waiting.wait(max(timeout, 0))
        with self._lock:
            self._waiting = None
            data, self._came = self._came, b""
            end = self._end
        if data:
            return data
        if end is not None:
            raise StreamClosedError(end)
        raise TimeoutError

    def pending(self) -> bytes:
        with self._lock:
            data, self._came = self._came, b""
            end = self._end
        if not data and end is not None:
            raise StreamClosedError(end)
        return data

    def close(self) -> None:
        self._connection.close()

    def received(self, data: bytes) -> None:
        with self._lock:
            self._came += data
            waiting = self._waiting
        if waiting is not None:
            waiting.set()

    def disconnected(self, reason: str) -> None:
        with self._lock:
            self._end = reason
            waiting = self._waiting
        if waiting is not None:
            waiting.set()


class _SerialConnection:
    """A serial line read by a thread of its own; bytes in flight are counted by its path."""

    def __init__(self, line: serial.Serial, device: str, arrivals: _Awaited, clock: Clock) -> None:
        self._line = line
        self._arrivals = arrivals
        self._flight = clock.flight(frozenset((device,)))
        self._woken, self._wake = os.pipe()
        self._reader = threading.Thread(target=self._read, name="serial", daemon=True)
        self._reader.start()

    def send(self, data: bytes) -> None:
        self._flight.sent(len(data))
        _write(self._line, data)

    def close(self) -> None:
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
