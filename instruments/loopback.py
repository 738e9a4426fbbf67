"""A TCP port on loopback whose connections are handed on."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from lightrig.instruments.read_loop import ReadLoop

_LOOP = ReadLoop("listeners")
"""Accepts the connections of all listeners of this process."""

os.register_at_fork(after_in_child=_LOOP.forget)


class LoopbackListener:
    """Accepts connections on the thread of all listeners until closed.

    Args:
        accepted: takes each connection, and closes it; it must not wait.
        port: TCP port, 0 for any free one.

    Attributes:
        address: host and port.

    Raises OSError if the port is taken.
    """

    def __init__(self, accepted: Callable[[socket.socket], None], port: int = 0) -> None:
        self._accepted = accepted
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()
        self._ended = threading.Event()
        self._process = os.getpid()
        _LOOP.add(self)

    def close(self) -> None:
        """Stop listening; connections that were handed on stay."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        if os.getpid() == self._process:  # the child of a fork has no thread that would end it
            self._ended.wait()
        self._listener.close()

    def fileno(self) -> int:
        """Return the descriptor that the thread waits for."""
        return self._listener.fileno()

    def read(self) -> str | None:
        """Accept a connection; return why no more will come."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # the client has left meanwhile
            return None
        except OSError as error:
            return str(error)
        connection.setblocking(True)
        self._accepted(connection)
        return None

    def finish(self, reason: str) -> None:
        """Take the end."""
        self._ended.set()
