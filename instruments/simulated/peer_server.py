"""The listening side of simulated instruments on TCP and serial lines: one thread for a world's."""

import contextlib
import fcntl
import os
import selectors
import socket
import threading
import tty
from collections.abc import Callable
from typing import Protocol, TypeAlias

from instruments.clock import Clock, Flight


class Session(Protocol):
    """What a peer makes of one connection; called on the server's thread."""

    def received(self, data: bytes) -> None:
        """`data` arrived; what follows from it is scheduled before this returns."""

    def closed(self) -> None:
        """The client is gone."""


class PeerConnection(Protocol):
    """One client's connection, as a peer sees it."""

    def send(self, data: bytes) -> None:
        """Write to the client; one that is gone is no error, as for any instrument."""

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up; `abruptly` resets the connection instead of ending it in order."""


SessionFactory: TypeAlias = Callable[[PeerConnection, int], Session]
"""Makes the session of a new connection; told how many the same port had before."""


class _Uncounted:
    """Where a session counts by itself what is in flight."""

    def sent(self, count: int) -> None:
        pass

    def landed(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


class TcpPeerConnection:
    """A client's TCP connection; the bytes in flight on it are counted by its two ends."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._socket = connection
        self._flight = clock.flight(frozenset((connection.getsockname(), connection.getpeername())))
        self._hung_up = False

    def counted_by_session(self) -> Flight:
        """Leave the counting to the session, for a client that counts something else than bytes.

        To be called before anything is sent or received.
        """
        flight, self._flight = self._flight, _Uncounted()
        return flight

    def send(self, data: bytes) -> None:
        """Write to the client; one that is gone is no error, as for any instrument."""
        self._flight.sent(len(data))
        try:
            self._socket.sendall(data)
        except OSError:
            self._flight.landed(len(data))

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up; `abruptly` resets the connection instead of ending it in order.

        The end itself counts as one byte in flight until the client has seen it.
        """
        self._flight.sent(1)
        self._hung_up = True
        with contextlib.suppress(OSError):
            if abruptly:  # the reset is what closing sends, once the server has seen the end
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
                )
            self._socket.shutdown(socket.SHUT_RD if abruptly else socket.SHUT_RDWR)

    def received(self) -> bytes:
        """What is there to read; empty at the end."""
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""

    def acted_on(self, count: int) -> None:
        """Everything that follows from `count` bytes has been scheduled."""
        self._flight.landed(count)

    def gone(self) -> None:
        """The connection has ended; nothing is in flight any more, but for our own hanging up."""
        self._socket.close()
        if not self._hung_up:
            self._flight.close()


class SerialPeerLine:
    """The instrument's end of a serial line, which is a pseudo-terminal.

    Its other end stays open here as well, as a device's does when no program has it open.

    Attributes:
        device: the path that a client opens.
    """

    def __init__(self, clock: Clock) -> None:
        self._own, self._other = os.openpty()
        tty.setraw(self._other)
        self.device = os.ttyname(self._other)
        self._counted = clock.virtual
        self._flight = clock.flight(frozenset((self.device,)))

    def fileno(self) -> int:
        """What the server waits on."""
        return self._own

    def send(self, data: bytes) -> None:
        """Write to the client; what is sent when none listens is not in flight to anybody."""
        if self._counted and self._has_listener():
            self._flight.sent(len(data))
        while data:
            data = data[os.write(self._own, data) :]

    def _has_listener(self) -> bool:
        """Whether a client holds the lock by which programs keep each other off a line."""
        try:
            fcntl.flock(self._other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._other, fcntl.LOCK_UN)
        return False

    def close(self, *, abruptly: bool = False) -> None:
        """A serial line cannot hang up; its instrument falls silent."""

    def received(self) -> bytes:
        """What is there to read."""
        return os.read(self._own, 1 << 16)

    def acted_on(self, count: int) -> None:
        """Everything that follows from `count` bytes has been scheduled."""
        self._flight.landed(count)

    def gone(self) -> None:
        """Pull the plug."""
        self._flight.close()
        os.close(self._own)
        os.close(self._other)


class PeerServer:
    """Serves any number of peers, on loopback and on serial lines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._listeners: list[socket.socket] = []
        self._connections: dict[socket.socket, tuple[TcpPeerConnection, Session]] = {}
        self._lines: list[tuple[SerialPeerLine, Session]] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._others: list[Callable[[], None]] = []

    def listen(
        self, factory: Callable[[TcpPeerConnection, int], Session], port: int = 0
    ) -> tuple[str, int]:
        """Serve `factory`'s sessions on loopback; returns host and port."""
        listener = socket.create_server(("127.0.0.1", port))
        count = 0

        def accept() -> None:
            nonlocal count
            connection, _ = listener.accept()
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = TcpPeerConnection(connection, self._clock)
            except OSError:  # the client has gone again
                connection.close()
                return
            self._connections[connection] = peer, factory(peer, count)
            count += 1
            self._selector.register(
                connection, selectors.EVENT_READ, lambda: self._read(connection)
            )

        self._listeners.append(listener)
        self._register(listener, accept)
        host, bound = listener.getsockname()
        return host, bound

    def serial_line(self, factory: SessionFactory) -> str:
        """Serve a session on a new serial line; returns the path of its device."""
        line = SerialPeerLine(self._clock)
        session = factory(line, 0)
        self._lines.append((line, session))

        def read() -> None:
            data = line.received()
            session.received(data)
            line.acted_on(len(data))

        self._register(line, read)
        return line.device

    def _register(self, readable: socket.socket | SerialPeerLine, act: Callable[[], None]) -> None:
        with self._lock:
            self._selector.register(readable, selectors.EVENT_READ, act)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="peers", daemon=True)
                self._thread.start()
        self._wake.send(b"!")

    @property
    def clock(self) -> Clock:
        """The clock of all that is served."""
        return self._clock

    def close_too(self, close: Callable[[], None]) -> None:
        """Call `close` when this server is closed: for what listens in a way of its own."""
        self._others.append(close)

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for close in self._others:
            close()
        self._wake.close()
        if self._thread is not None:
            self._thread.join()
        for listener in self._listeners:
            listener.close()
        for peer, session in self._connections.values():
            peer.close()
            session.closed()
            peer.gone()
        self._connections.clear()
        for line, session in self._lines:
            session.closed()
            line.gone()
        self._selector.close()
        self._woken.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    key.data()
                elif not self._woken.recv(16):
                    return

    def _read(self, connection: socket.socket) -> None:
        peer, session = self._connections[connection]
        data = peer.received()
        if data:
            session.received(data)
            peer.acted_on(len(data))
        else:
            self._selector.unregister(connection)
            del self._connections[connection]
            session.closed()
            peer.gone()
