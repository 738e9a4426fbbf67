"""A cable to a server of SSH, of which the begin of what the server sends can be let through."""

import contextlib
import socket
import threading
from collections.abc import Callable

IN_BANNER = 10
IN_KEY_EXCHANGE = 300
"""RFC 4253: a banner has at most 255 bytes; the server's KEXINIT follows, of some 1,000 bytes."""


class Cable:
    """Carries connections to a port; of what a server sends only the begin arrives.

    Attributes:
        most: number of bytes of the server that arrive; None for all.
        until: number of bytes of the client after which none arrive; None for no limit.
        closes: whether the connection is closed then, or stands still.
        asked: bytes that the client has sent on the last connection.
    """

    def __init__(self, port: int) -> None:
        self.most: int | None = None
        self.until: int | None = None
        self.closes = True
        self.asked = 0
        self._target = port
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def cut(self) -> None:
        """Close every connection at both ends."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._ends += client, server
                self.asked = 0
                self._start(self._carry_all, client, server)
                self._start(self._carry_some, server, client)

    def _carry_all(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.asked += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)

    def _carry_some(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            carried = 0
            while data := source.recv(1 << 16):
                left = len(data) if self.most is None else max(self.most - carried, 0)
                if self.until is not None and self.asked > self.until:
                    left = 0
                carried += len(data)
                sink.sendall(data[:left])
                if len(data) > left and self.closes:
                    break
            sink.shutdown(socket.SHUT_RDWR)
