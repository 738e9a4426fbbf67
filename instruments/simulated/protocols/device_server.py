"""Server of simulated devices on TCP and serial lines: one thread for all of a world.

One thread, because the order in which bytes are handled must not depend on a scheduler: sessions
schedule what follows from received bytes on the clock, and only the clock's time decides what
happens next. In virtual time every byte that is written counts as in flight until its reader has
scheduled what follows from it; the clock moves only when nothing is in flight. So a session must
schedule before `received` returns, and what cannot be read any more must be discounted.
"""

import contextlib
import fcntl
import os
import selectors
import socket
import threading
import tty
from collections.abc import Callable
from typing import Protocol, TypeAlias

from lightrig.instruments.clock import Clock, Flight


class Session(Protocol):
    """Device end of one connection; called on the server's thread."""

    def received(self, data: bytes) -> None:
        """Take `data`; what follows from it is scheduled before this returns."""

    def closed(self) -> None:
        """End, since the client has left."""


class DeviceConnection(Protocol):
    """One client's connection, as a session uses it."""

    def send(self, data: bytes) -> None:
        """Write to the client; one that has left is no error, as for any instrument."""

    def close(self, *, abruptly: bool = False) -> None:
        """Close the connection; `abruptly` resets it instead of ending it in order."""


SessionFactory: TypeAlias = Callable[[DeviceConnection, int], Session]
"""Makes the session of a new connection; gets the number of earlier ones on the same port."""


class _Uncounted:
    """Stands in where a session counts by itself what is in flight."""

    def sent(self, count: int) -> None:
        pass

    def landed(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


class TcpDeviceConnection:
    """A client's TCP connection; the bytes in flight on it are counted by its two ends."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._socket = connection
        self._flight = clock.flight(frozenset((connection.getsockname(), connection.getpeername())))
        self._hung_up = False

    def counted_by_session(self) -> Flight:
        """Leave the counting to the session, for a client that counts messages, not bytes.

        Must be called before anything is sent or received.
        """
        flight, self._flight = self._flight, _Uncounted()
        return flight

    def send(self, data: bytes) -> None:
        """Write to the client; one that has left is no error, as for any instrument."""
        self._flight.sent(len(data))
        try:
            self._socket.sendall(data)
        except OSError:
            self._flight.landed(len(data))

    def close(self, *, abruptly: bool = False) -> None:
        """Close the connection; `abruptly` resets it instead of ending it in order."""
        # The end counts as one byte in flight until the client has seen it: else time could
        # move, and a timeout pass, between the end and its discovery.
        self._flight.sent(1)
        self._hung_up = True
        with contextlib.suppress(OSError):
            if abruptly:  # with this option the close that follows sends a reset
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
                )
            self._socket.shutdown(socket.SHUT_RD if abruptly else socket.SHUT_RDWR)

    def end_output(self) -> None:
        """Write nothing more; what the client still writes is read until it closes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def received(self) -> bytes:
        """Read what has arrived; empty at the end."""
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""

    def acted_on(self, count: int) -> None:
        """Discount `count` bytes, once everything that follows from them is scheduled."""
        self._flight.landed(count)

    def ended(self) -> None:
        """Release the socket after the end of the connection."""
        self._socket.close()
        if not self._hung_up:  # else the client discounts the end when it sees it
            self._flight.close()


class SerialDeviceLine:
    """Device end of a serial line, which is a pseudo-terminal.

    The client's end stays open here as well: a terminal that no program has open would report
    an end, where a real serial line is silent.

    Attributes:
        device: path that a client opens.
    """

    def __init__(self, clock: Clock) -> None:
        self._device_end, self._client_end = os.openpty()
        tty.setraw(self._client_end)
        self.device = os.ttyname(self._client_end)
        self._counted = clock.virtual
        self._flight = clock.flight(frozenset((self.device,)))

    def fileno(self) -> int:
        """Return the descriptor that the server waits for."""
        return self._device_end

    def send(self, data: bytes) -> None:
        """Write to the client; without a client nothing is in flight."""
        if self._counted and self._has_listener():
            self._flight.sent(len(data))
        while data:
            data = data[os.write(self._device_end, data) :]

    def _has_listener(self) -> bool:
        """Whether a client holds the lock by which programs reserve a serial line."""
        try:
            fcntl.flock(self._client_end, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._client_end, fcntl.LOCK_UN)
        return False

    def close(self, *, abruptly: bool = False) -> None:
        """Do nothing: a serial line cannot be closed from this end."""

    def received(self) -> bytes:
        """Read what has arrived."""
        return os.read(self._device_end, 1 << 16)

    def acted_on(self, count: int) -> None:
        """Discount `count` bytes, once everything that follows from them is scheduled."""
        self._flight.landed(count)

    def ended(self) -> None:
        """Release the line."""
        self._flight.close()
        os.close(self._device_end)
        os.close(self._client_end)


class DeviceServer:
    """Serves any number of devices, on loopback and on serial lines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._listeners: list[socket.socket] = []
        self._connections: dict[socket.socket, tuple[TcpDeviceConnection, Session]] = {}
        self._lines: list[tuple[SerialDeviceLine, Session]] = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._on_close: list[Callable[[], None]] = []

    def listen(
        self, factory: Callable[[TcpDeviceConnection, int], Session], port: int = 0
    ) -> tuple[str, int]:
        """Serve `factory`'s sessions on loopback; return host and port."""
        listener = socket.create_server(("127.0.0.1", port))
        count = 0

        def accept() -> None:
            nonlocal count
            connection, _ = listener.accept()
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end = TcpDeviceConnection(connection, self._clock)
            except OSError:  # the client has left already
                connection.close()
                return
            self._connections[connection] = end, factory(end, count)
            count += 1
            self._selector.register(
                connection, selectors.EVENT_READ, lambda: self._read(connection)
            )

        self._listeners.append(listener)
        self._register(listener, accept)
        host, bound = listener.getsockname()
        return host, bound

    def serial_line(self, factory: SessionFactory) -> str:
        """Serve a session on a new serial line; return the path of its device."""
        line = SerialDeviceLine(self._clock)
        session = factory(line, 0)
        self._lines.append((line, session))

        def read() -> None:
            data = line.received()
            session.received(data)
            line.acted_on(len(data))

        self._register(line, read)
        return line.device

    def _register(
        self, readable: socket.socket | SerialDeviceLine, act: Callable[[], None]
    ) -> None:
        with self._lock:
            self._selector.register(readable, selectors.EVENT_READ, act)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="devices", daemon=True)
                self._thread.start()
        self._wake.send(b"!")  # the thread waits for the old set: let it look again

    @property
    def clock(self) -> Clock:
        """Clock of all devices."""
        return self._clock

    def on_close(self, close: Callable[[], None]) -> None:
        """Call `close` when this server is closed: for listeners with their own threads."""
        self._on_close.append(close)

    def close(self) -> None:
        """Stop listening and drop every connection."""
        for close in self._on_close:
            close()
        self._wake.close()
        if self._thread is not None:
            self._thread.join()
        for listener in self._listeners:
            listener.close()
        for end, session in self._connections.values():
            end.close()
            session.closed()
            end.ended()
        self._connections.clear()
        for line, session in self._lines:
            session.closed()
            line.ended()
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
        end, session = self._connections[connection]
        data = end.received()
        if data:
            session.received(data)
            end.acted_on(len(data))
        else:
            self._selector.unregister(connection)
            del self._connections[connection]
            session.closed()
            end.ended()
