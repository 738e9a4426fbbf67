"""Plain TCP to an instrument, read by a thread of its own.

A peer that closes is known at once, whether or not anybody waits for a reply.
"""

import contextlib
import socket
import threading
from typing import Protocol

from instruments.clock import Clock
from instruments.errors import UnreachableError

PLACEHOLDER_DOMAIN = ".invalid"
"""Names under it stand in example files for a lab's own; they are never looked up."""

_FORGETTING = 1.0
"""Seconds of real time that a simulated peer has to see its client's end."""


class Listener(Protocol):
    """Who is told what a connection brings; called on the connection's own thread."""

    def received(self, data: bytes) -> None:
        """`data` arrived; what it means must be acted on before this returns."""

    def disconnected(self, reason: str) -> None:
        """The connection is gone and will bring nothing more."""


def is_placeholder(host: str) -> bool:
    """Whether `host` stands in for a lab's own name, in whatever spelling."""
    return f".{host.rstrip('.').lower()}".endswith(PLACEHOLDER_DOMAIN)


def connect(instrument: str, host: str, port: int, timeout: float, clock: Clock) -> socket.socket:
    """Open a TCP connection, or raise `UnreachableError` with the address and the time it took.

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


class TcpConnection:
    """One open TCP connection; whatever arrives goes to `listener`."""

    def __init__(self, connection: socket.socket, listener: Listener, clock: Clock) -> None:
        self._socket = connection
        self._listener = listener
        self._virtual = clock.virtual
        ends = [connection.getsockname()]
        with contextlib.suppress(OSError):  # a peer that has hung up already has no name
            ends.append(connection.getpeername())
        self._flight = clock.flight(frozenset(ends))
        self._reader = threading.Thread(target=self._read, name="wire", daemon=True)
        self._reader.start()

    def send(self, data: bytes) -> None:
        """Write `data`; raises OSError if the connection is gone."""
        try:
            self._flight.sent(len(data))
            self._socket.sendall(data)
        except BaseException:  # an interrupt too: nobody knows how much of it went out
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            raise

    def close(self) -> None:
        """End the connection; the listener hears nothing of it.

        A simulated peer has forgotten its client before this returns: what it would still do is
        not to depend on which of the two is faster.
        """
        self._listener = _Deaf()
        elsewhere = threading.current_thread() is not self._reader
        if self._virtual and elsewhere:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._reader.join(_FORGETTING)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if elsewhere:
            self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        reason = "the peer closed the connection"
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except OSError as error:
                reason = error.strerror or str(error)
                break
            if not data:
                break
            self._listener.received(data)
            self._flight.landed(len(data))
        self._listener.disconnected(reason)
        self._socket.close()
        self._flight.close()


class _Deaf:
    def received(self, data: bytes) -> None:
        pass

    def disconnected(self, reason: str) -> None:
        pass
