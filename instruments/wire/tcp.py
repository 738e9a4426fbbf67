"""TCP to an instrument, read by a thread of all connections.

The thread notices a close at once, also while no reply is expected.
"""

import contextlib
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.read_loop import ReadLoop

PLACEHOLDER_DOMAIN = ".invalid"
"""Domain of the placeholder names in example files; they are never looked up."""

CONNECT_TIMEOUT = 3.0
"""Time for a connection where nobody states one, in s."""

TLS_TIMEOUT = 5.0
"""Time for the encryption of a connection where nobody states one, in s."""

_SIMULATED_TIMEOUT = 120.0
"""Real time, in s, for a handshake with a simulated device, so that one which hangs ends."""

CLOSE_TIMEOUT = 20.0
"""Real time, in s, in which a simulated device notices that its client closed, however busy this
machine is; one that never closes its end is not waited for any longer."""


class Listener(Protocol):
    """Receiver of a connection's bytes; called on the thread that reads all connections.

    It must not wait: see `ReadLoop`.
    """

    def received(self, data: bytes, not_before: int) -> None:
        """Take `data`, and act on it before returning: then the bytes count as landed.

        not_before: lower bound of the arrival of its last byte, in ns; 0 where none is known.
        """

    def disconnected(self, reason: str) -> None:
        """Take the end of the connection."""


class EncryptedSocket(socket.socket):
    """A socket that decrypts what it reads: what this module has to know of `tls`.

    Only wires with TLS load that module, and with it OpenSSL.

    Attributes:
        read_encrypted: reads encrypted bytes, in place of the socket's own method.
    """

    read_encrypted: Callable[[int], bytes]

    def drained(self) -> bool:
        """Whether everything that was read has been handed out."""
        raise NotImplementedError


def is_placeholder(host: str) -> bool:
    """Whether `host` is a placeholder, in any spelling."""
    return f".{host.rstrip('.').lower()}".endswith(PLACEHOLDER_DOMAIN)


def handshake_timeout(seconds: float, clock: Clock) -> float:
    """Return the real time, in s, for a handshake for which `seconds` are stated.

    In virtual time its peer is simulated by this process, and no time passes while either of them
    works: a handshake that takes long shows how busy this machine is, not that the peer is silent.
    """
    return max(seconds, _SIMULATED_TIMEOUT) if clock.virtual else seconds


def connect(instrument: str, host: str, port: int, timeout: float, clock: Clock) -> socket.socket:
    """Open a TCP connection; `UnreachableError` names the address and the time it took.

    `timeout` is in seconds of real time.
    """
    start = clock.now()

    def unreachable(why: str, advice: str) -> UnreachableError:
        took = (clock.now() - start) / 1e9
        return UnreachableError(
            instrument,
            f"did not answer at {host}:{port} after {took:.2f} s: {why}",
            details=[("try", advice)],
        )

    if is_placeholder(host):
        raise unreachable(
            "names under .invalid are placeholders and are never looked up",
            "write the instrument's own address into the testbed file",
        )
    try:
        connection = socket.create_connection((host, port), timeout=timeout)
    except TimeoutError as error:
        raise unreachable("no answer", "power, cable, route, firewall; ping the address") from error
    except OSError as error:
        raise unreachable(
            error.strerror or str(error), "is the address right, is the service on?"
        ) from error
    except UnicodeError as error:
        raise unreachable("that is no host name", "is the address right?") from error
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


_LOOP = ReadLoop()
"""Reads all connections of this process that are not encrypted."""

os.register_at_fork(after_in_child=_LOOP.forget)


class TcpConnection:
    """An open TCP connection; received bytes go to `listener`."""

    def __init__(self, connection: socket.socket, listener: Listener, clock: Clock) -> None:
        self._socket = connection
        self._listener = listener
        self._receiver = StampedReceiver(connection, clock)
        self._virtual = clock.virtual
        ends = [connection.getsockname()]
        with contextlib.suppress(OSError):  # a peer that has hung up already has no name
            ends.append(connection.getpeername())
        self._flight = clock.flight(frozenset(ends))
        self._ended = threading.Event()
        # An encrypted one has a thread for itself: a TLS record may come in parts, and its reader
        # waits for the rest; a gRPC connection also writes while it reads.
        self._loop = ReadLoop() if isinstance(connection, EncryptedSocket) else _LOOP
        self._loop.add(self)

    @property
    def over(self) -> bool:
        """Whether it has ended, and its listener has been informed."""
        return self._ended.is_set()

    def send(self, data: bytes) -> None:
        """Write `data`; raises OSError if the connection has ended."""
        try:
            self._flight.sent(len(data))  # before the write: the reader may land it at once
            self._socket.sendall(data)
        except BaseException:  # an interrupt too: how much of it was written is unknown
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            raise

    def close(self) -> None:
        """Close the connection without informing the listener.

        In virtual time this waits until the simulated device has closed its end: what it would
        still do must not depend on which of the two is faster.
        """
        self._listener = _NoListener()
        elsewhere = not self._loop.current
        if self._virtual and elsewhere:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._ended.wait(CLOSE_TIMEOUT)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if elsewhere:
            self._ended.wait()

    # ------------------------------------------------------------- on the reader thread

    def fileno(self) -> int:
        """Return the socket's descriptor; for the loop, as `read` and `finish` are."""
        return self._socket.fileno()

    def read(self) -> str | None:
        """Hand what has come to the listener; see `Readable`."""
        while True:
            try:
                data, not_before = self._receiver.receive(1 << 16)
            except OSError as error:
                return error.strerror or str(error)
            if not data:
                return "the peer closed the connection"
            self._listener.received(data, not_before)
            self._flight.landed(len(data))
            if self._receiver.drained():
                return None

    def finish(self, reason: str) -> None:
        """Inform the listener of the end; see `Readable`."""
        try:
            self._listener.disconnected(reason)
        finally:
            self._socket.close()
            self._flight.close()
            self._ended.set()


class _NoListener:
    def received(self, data: bytes, not_before: int) -> None:
        pass

    def disconnected(self, reason: str) -> None:
        pass


_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("@qq")


class StampedReceiver:
    """Receives from a connected TCP socket, with a lower bound of the arrival of the last byte.

    A stamp that is taken after a read says that the bytes had come by then. Where the process was
    paused, or its thread not scheduled, they had come long before. The kernel stamps every segment
    as it receives it, and hands the stamp of the last byte out with the data (socket(7),
    SO_TIMESTAMPNS; on TCP streams since Linux 4.14). The last byte of a read is therefore known
    from both sides; earlier bytes of the same read came after the last byte of the read before.

    Args:
        connection: the socket.
        clock: the bench's clock. In virtual time bytes are read at the moment of their arrival.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._offset = clock.realtime_offset()
        self._asked = clock.now()
        # What is decrypted comes out of buffers: its bound is that of the encrypted bytes.
        self._encrypted = connection if isinstance(connection, EncryptedSocket) else None
        self._bounds = Arrivals()
        if self._offset is not None:
            if self._encrypted is not None:
                self._bounds.read(self._asked)
                self._encrypted.read_encrypted = self._read_encrypted
            with contextlib.suppress(OSError):  # an older kernel
                connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def receive(self, size: int) -> tuple[bytes, int]:
        """Return up to `size` bytes, none at the end, and when the last had not come yet, in ns.

        Raises OSError.
        """
        if self._offset is None:
            return self._connection.recv(size), self._clock.now()
        if self._encrypted is not None:
            data = self._encrypted.recv(size)
            return data, self._bounds.of_message(last=self._encrypted.drained())
        return self._receive(size)

    def drained(self) -> bool:
        """Whether nothing has come that the socket does not tell of any more."""
        return self._encrypted is None or self._encrypted.drained()

    def _read_encrypted(self, size: int) -> bytes:
        data, not_before = self._receive(size)
        self._bounds.read(not_before)
        return data

    def _receive(self, size: int) -> tuple[bytes, int]:
        # Without a stamp: what comes now came after the last read was begun that left nothing.
        not_before, asked = self._asked, self._clock.now()
        data, control, _, _ = self._connection.recvmsg(size, socket.CMSG_SPACE(_STAMP.size))
        if len(data) < size:
            self._asked = asked
        stamps = [
            seconds * 1_000_000_000 + nanoseconds
            for level, kind, content in control
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)
            for seconds, nanoseconds in [_STAMP.unpack(content)]
        ]
        before, after = self._offset, self._clock.realtime_offset()
        assert before is not None
        assert after is not None
        self._offset = after
        # The two clocks keep their distance, however they are slewed, until the calendar is set.
        stepped = after.earliest > before.latest or before.earliest > after.latest
        if stamps and not stepped:
            not_before = max(not_before, stamps[-1] - min(before.latest, after.latest))
        return data, not_before


class BurstSocket:
    """A connected socket that another library reads, on a thread of its own.

    What that library hands out came no earlier than the burst that it was part of. A burst begins
    with the first bytes after the library had read all that there was and asks for more: all
    before it has been handed out then, or is part of something unfinished.

    Args:
        connection: the socket; all of its other methods are offered as well.
        clock: the bench's clock.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._receiver = StampedReceiver(connection, clock)
        self._clock = clock
        self._bursts = deque[int]()
        self._idle = True
        self._drained = True
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        """Receive, as `socket.recv` does."""
        # Looked for at the end of the last read too: on a busy machine the library may ask so late
        # that the next bytes have come.
        self._idle = self._idle or self._drained or not self._poll.poll(0)
        data, not_before = self._receiver.receive(size)
        self._drained = not self._poll.poll(0)
        if self._idle and data:
            self._bursts.append(not_before)
            self._idle = False
        return data

    def handed_out(self) -> int:
        """Return the number of bursts of which the library has handed out everything by now."""
        idle = self._idle
        return len(self._bursts) if idle else max(len(self._bursts) - 1, 0)

    def forget(self, count: int) -> None:
        """Forget the first `count` bursts: what they brought has been taken."""
        for _ in range(count):
            self._bursts.popleft()

    def oldest(self) -> int:
        """Return a lower bound of the arrival of what has not been taken yet, in ns."""
        return self._clock.now() if self._clock.virtual else self._bursts[0]


class Arrivals:
    """Earliest arrivals of the messages in a stream of bytes that is cut after each read."""

    def __init__(self) -> None:
        self._last = self._before = 0

    def read(self, not_before: int) -> None:
        """Take the bound of the last byte of what was just read."""
        self._before, self._last = self._last, not_before

    def of_message(self, *, last: bool) -> int:
        """Return the bound of a message; `last`: whether no byte has come after it."""
        return self._last if last else min(self._before, self._last)
