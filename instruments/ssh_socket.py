"""A connected socket as paramiko reads it."""

import contextlib
import socket
from typing import Any

_LONGEST_READ = 1 << 16


class SshSocket:
    """A connected socket that reads ahead, and whose end wakes the thread that reads.

    paramiko reads a message in two pieces, and gives each read a timeout of 0.1 s, after which it
    sees whether its side has closed the connection. Here the first piece brings the second, and
    `close` ends a read that is under way, so that `settimeout(None)` spares the looks.

    Args:
        connection: the socket; all of its other methods are offered as well.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ahead = b""
        self.send = connection.send
        self.settimeout = connection.settimeout

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        """Receive, as `socket.recv` does."""
        data = self._ahead or self._connection.recv(_LONGEST_READ)
        self._ahead = data[size:]
        return data[:size]

    def close(self) -> None:
        """End the connection and close the socket."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
