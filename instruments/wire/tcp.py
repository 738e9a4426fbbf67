"""Plain TCP to an instrument, read by a thread.

The thread notices a close at once, also while no reply is expected.
"""

import contextlib
import socket
import threading
from typing import Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.arrival import StampedReceiver

PLACEHOLDER_DOMAIN = ".invalid"
"""Domain of the placeholder names in example files; they are never looked up."""

_CLOSE_TIMEOUT = 1.0
"""Real time, in s, in which a simulated device has to notice that its client closed."""


class Listener(Protocol):
    """Receiver of a connection's bytes; called on the connection's reader thread."""

    def received(self, data: bytes, not_before: int) -> None:
        """Take `data`, and act on it before returning: then the bytes count as landed.

        not_before: lower bound of the arrival of its last byte, in ns; 0 where none is known.
        """

    def disconnected(self, reason: str) -> None:
        """Take the end of the connection."""


def is_placeholder(host: str) -> bool:
    """Whether `host` is a placeholder, in any spelling."""
    return f".{host.rstrip('.').lower()}".endswith(PLACEHOLDER_DOMAIN)


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
        self._reader = threading.Thread(target=self._read, name="wire", daemon=True)
        self._reader.start()

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
        elsewhere = threading.current_thread() is not self._reader
        if self._virtual and elsewhere:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._reader.join(_CLOSE_TIMEOUT)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if elsewhere:
            self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        reason = "the peer closed the connection"
        while True:
            try:
                data, not_before = self._receiver.receive(1 << 16)
            except OSError as error:
                reason = error.strerror or str(error)
                break
            if not data:
                break
            self._listener.received(data, not_before)
            self._flight.landed(len(data))
        self._listener.disconnected(reason)
        self._socket.close()
        self._flight.close()


class _NoListener:
    def received(self, data: bytes, not_before: int) -> None:
        pass

    def disconnected(self, reason: str) -> None:
        pass
