"""GPIB, USB, VXI-11, HiSLIP and serial lines through PyVISA.

PyVISA can neither wait for several events nor interrupt a read. So its reads run on a thread, and
the querying thread waits on the clock. Its pure-Python backend takes the end of a TCP connection
for "nothing yet" and reads again and again until its timeout; so its sockets are watched, and
closed when the instrument closes its end.

An instrument is read only after a query: on GPIB and USB a read without one is an error.
Sockets that carry plain SCPI are opened by `instruments.wire.stream` instead.
"""

import contextlib
import fcntl
import os
import queue
import select
import socket
import threading
import traceback
from collections.abc import Iterator
from typing import Any, cast

import pyvisa
from pyvisa import rname
from pyvisa.constants import SerialTermination, StatusCode

from lightrig.instruments.clock import Clock, Flight
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.framing import LONGEST, FramingError, Scpi
from lightrig.instruments.wire.stream import Stream, ThreadedStream, line_stream, tcp_stream
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT, is_placeholder

BACKEND = "@py"
"""PyVISA's pure-Python backend, which needs no vendor's library; PYVISA_LIBRARY names another."""

_WRITE_TIMEOUT = 5000
_NO_TIMEOUT = 3_600_000
"""Timeouts of the library, in ms."""
_GRACE = 0.02
"""Time for a read to end by itself after the instrument closed or time ran out, in s."""
_CHUNK = 1 << 16
_WHOLE = LONGEST + 1
"""Most that one read returns, in bytes.

pyvisa-py up to 0.8.1 overlooks the end of a VXI-11 reply that fills its read, and waits for more
(issue 608 there, mended by 612). There a read is longer than any reply; it asks the instrument for
no more at once than that takes.
"""
_NO_WARNING = (StatusCode.success_device_not_present, StatusCode.success_max_count_read)


def is_serial(resource: str) -> bool:
    """Whether a resource is a serial line: opening it anew does not discard a late reply."""
    return resource.strip().upper().startswith("ASRL")


def visa_stream(
    instrument: str,
    resource: str,
    clock: Clock,
    *,
    baud: int = 9600,
    connect_timeout: float = CONNECT_TIMEOUT,
) -> Stream:
    """Open a VISA resource, within `connect_timeout` s; `baud` is for serial lines.

    Raises `UnreachableError`.
    """
    start = clock.now()

    def unreachable(why: object, advice: str) -> UnreachableError:
        took = (clock.now() - start) / 1e9
        return UnreachableError(
            instrument,
            f"did not answer at {resource} after {took:.2f} s: {why}",
            details=[("try", advice)],
        )

    try:
        name: Any = rname.parse_resource_name(resource)
    except rname.InvalidResourceName as error:
        raise unreachable(error, "is it a name as `pyvisa-shell` lists them?") from error
    host = getattr(name, "host_address", "")
    if is_placeholder(host.partition(",")[0]):
        raise unreachable(
            "names under .invalid are placeholders and are never looked up",
            "write the instrument's address into the testbed file",
        )
    if name.interface_type == "TCPIP" and name.resource_class == "SOCKET":
        return tcp_stream(instrument, host, int(name.port), clock, connect_timeout)
    try:
        manager = pyvisa.ResourceManager(os.environ.get("PYVISA_LIBRARY", BACKEND))
        opened: Any = manager.open_resource(resource, open_timeout=round(connect_timeout * 1e3))
        if is_serial(resource):
            opened.baud_rate = baud
            opened.end_input = SerialTermination.none  # the framing finds message ends
        line = _VisaLine(opened) if hasattr(_interface(opened), "fileno") else None
    except Exception as error:  # the library raises its protocols' errors of any type
        _close_leftovers(error)
        *_, cause = _chain(error)
        advice = "`pyvisa-info`; is the instrument on, is its interface enabled?"
        raise unreachable(cause, advice) from error
    if line is not None:
        return line_stream(line, name.board, clock)
    return _VisaStream(opened, clock)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, and so on."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _close_leftovers(error: BaseException) -> None:
    """Close the sockets of a failed attempt, which the library leaves to the garbage collector.

    They are locals of its frames; until they are closed an instrument with one session, as many
    have, refuses the next attempt.
    """
    for one in _chain(error):
        for frame, _ in traceback.walk_tb(one.__traceback__):
            for value in list(frame.f_locals.values()):
                for left in _sockets_in(value):
                    left.close()


def _sockets_in(interface: object) -> list[socket.socket]:
    """Return the sockets of the pure-Python backend's HiSLIP and VXI-11 clients."""
    found = [getattr(interface, name, None) for name in ("_sync", "_async", "sock")]
    return [each for each in found if isinstance(each, socket.socket)]


def _interface(opened: Any) -> Any:
    """Return the pure-Python backend's protocol client; None for another library."""
    sessions = getattr(opened.visalib, "sessions", {})
    return getattr(sessions.get(opened.session), "interface", None)


class _VisaLine:
    """A serial line that PyVISA has opened."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._opened.timeout = _WRITE_TIMEOUT
        self.fileno = _interface(opened).fileno
        try:
            fcntl.flock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            opened.close()
            raise

    def read(self) -> bytes:
        """Return the bytes that have come; only called when there are some."""
        with _as_os_error(), self._opened.ignore_warning(*_NO_WARNING):
            waiting = max(1, self._opened.bytes_in_buffer)
            data, _ = self._opened.visalib.read(self._opened.session, waiting)
            return bytes(data)

    def write(self, data: bytes) -> None:
        """Write `data`; raises OSError."""
        with _as_os_error():
            self._opened.write_raw(data)

    def close(self) -> None:
        """Close the line."""
        _close(self._opened)


def _close(opened: Any) -> None:
    """Close a session, also after the instrument closed it."""
    try:
        with contextlib.suppress(OSError), _as_os_error():
            opened.close()
    finally:
        opened.session = None  # else its finalizer closes it a second time


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the library raises its protocols' errors of any type
        raise OSError(str(error) or type(error).__name__) from error


class _VisaStream(ThreadedStream):
    """A stream of whole messages; `receive` starts a read unless one is in progress."""

    def __init__(self, opened: Any, clock: Clock) -> None:
        super().__init__(clock, lambda reader: _MessageReader(opened, reader, clock))
        self._messages = cast(_MessageReader, self._connection)

    def receive(self, timeout: int) -> bytes:
        """The next message; see `Stream.receive`."""
        self._messages.fetch(max(1, -(-timeout // 1_000_000)))
        return super().receive(timeout)


class _MessageReader:
    """Reads messages on request, on one thread, and watches for a close on another.

    HiSLIP pushes messages, so a read starts with every query. On a bus (GPIB, USB, VXI-11) a read
    is a request to the instrument, and starts only when a thread waits for the reply.
    """

    def __init__(self, opened: Any, reader: ThreadedStream, clock: Clock) -> None:
        self._opened = opened
        self._stream = reader
        self._virtual = clock.virtual
        self._sockets = _sockets_in(_interface(opened))
        self._chunk = _WHOLE if len(self._sockets) == 1 else _CHUNK  # one socket: VXI-11
        self._flight = self._flight_of(clock)
        if self._flight is None:  # a bus keeps the reply to a query of an earlier session
            with contextlib.suppress(OSError), _as_os_error():
                opened.clear()
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._woken, self._wake = os.pipe()
        self._threads = [
            threading.Thread(target=work, name="visa", daemon=True)
            for work in (self._read_on_demand, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def _flight_of(self, clock: Clock) -> Flight | None:
        """Return the message count of HiSLIP's synchronous channel; None on a bus."""
        if len(self._sockets) < 2:
            return None
        ends = self._sockets[0]
        return clock.flight(frozenset((ends.getsockname(), ends.getpeername())))

    def send(self, data: bytes) -> None:
        """Write one message; raises OSError."""
        if self._flight is not None:
            self._flight.sent(1)
        with _as_os_error():
            self._opened.timeout = _WRITE_TIMEOUT
            self._opened.write_raw(data)
        if self._flight is not None:
            self._read(_NO_TIMEOUT)

    def fetch(self, timeout_ms: int) -> None:
        """Start reading a message on a bus, unless a read is in progress."""
        if self._flight is None:
            self._read(timeout_ms)

    def _read(self, timeout_ms: int) -> None:
        if self._idle.is_set():
            self._idle.clear()
            self._wanted.put(timeout_ms)

    def close(self) -> None:
        """Close the session, and end a read that the library is in."""
        self._stream.disconnected("the connection is closed")
        if self._virtual:  # as `TcpConnection.close`
            self._cut(socket.socket.shutdown, socket.SHUT_WR)
            self._threads[-1].join(1.0)
        if not self._idle.wait(_GRACE if self._flight is None else 0):
            self._cut(socket.socket.shutdown, socket.SHUT_RDWR)
        os.close(self._wake)
        _close(self._opened)
        self._wanted.put(None)
        for thread in self._threads:
            thread.join(1.0)
        os.close(self._woken)
        if self._flight is not None:
            self._flight.close()

    def _cut(self, action: Any, *arguments: int) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                action(each, *arguments)

    # ------------------------------------------------------------------ on the threads

    def _read_on_demand(self) -> None:
        while (timeout := self._wanted.get()) is not None:
            try:
                with _as_os_error():
                    message = self._message(timeout)
            except OSError as error:
                if not _timed_out(error.__cause__):
                    self._stream.disconnected(str(error))
            else:
                self._stream.received(message, 0)
                if self._flight is not None:
                    self._flight.landed(1)
            self._idle.set()

    def _message(self, timeout_ms: int) -> bytes:
        self._opened.timeout = timeout_ms
        message = bytearray()
        status = StatusCode.success_max_count_read
        with self._opened.ignore_warning(*_NO_WARNING):
            while status == StatusCode.success_max_count_read:
                chunk, status = self._opened.visalib.read(self._opened.session, self._chunk)
                message += chunk
                if len(message) > LONGEST:
                    raise ValueError("no end of an answer came")
        return _with_end(bytes(message))

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for each in self._sockets:
            poll.register(each, select.POLLRDHUP)
        if any(descriptor == self._woken for descriptor, _ in poll.poll()):
            return
        self._idle.wait(_GRACE)  # let the reader finish what came before the end
        self._stream.disconnected("the peer closed the connection")
        self._cut(socket.socket.close)
        if self._flight is not None:
            self._flight.close()


def _timed_out(error: BaseException | None) -> bool:
    return isinstance(error, pyvisa.VisaIOError) and error.error_code == StatusCode.error_timeout


def _with_end(message: bytes) -> bytes:
    """Return a whole message with a terminator that the framing recognises."""
    with contextlib.suppress(FramingError):
        if Scpi().cut(message) is None:
            return message + b"\n"
    return message
