"""A TCP port on loopback whose connections are handed on."""

import contextlib
import socket
import threading
from collections.abc import Callable


class LoopbackListener:
    """Accepts connections on a thread until closed.

    Args:
        name: name of the thread.
        accepted: takes each connection, and closes it.
        port: TCP port, 0 for any free one.

    Attributes:
        address: host and port.

    Raises OSError if the port is taken.
    """

    def __init__(self, name: str, accepted: Callable[[socket.socket], None], port: int = 0) -> None:
        self._accepted = accepted
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._thread = threading.Thread(target=self._accept, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; connections that were handed on stay."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._accepted(connection)
