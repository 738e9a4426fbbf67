"""Threads that read connections: one for any number of them.

With a thread for each connection a hall of 2,016 switches would have as many threads. Here one
thread waits for all connections (epoll) and hands each what has come. What a connection does with
its bytes must not wait, neither for other bytes nor for a lock that is held over a write: meanwhile
no connection of the loop is read.
"""

import select
import threading
from typing import Protocol

from lightrig.instruments.machine_limits import report_on_thread


class Readable(Protocol):
    """A connection that a `ReadLoop` reads."""

    def fileno(self) -> int:
        """Return the descriptor, which stays the same until `finish` is called."""

    def read(self) -> str | None:
        """Take what has come; return why no more will come, None if more may."""

    def finish(self, reason: str) -> None:
        """Take the end; the loop does not watch the descriptor any more, which may be closed."""


class ReadLoop:
    """One thread that reads connections from their `add` to their end; it ends with the last.

    name: of the thread.
    """

    def __init__(self, name: str = "wire") -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Forget all connections; for the child of a fork, which has none of the threads."""
        self._lock = threading.Lock()
        self._connections: dict[int, Readable] = {}
        self._poll: select.epoll | None = None
        self._thread: threading.Thread | None = None

    def add(self, connection: Readable) -> None:
        """Read `connection` from now on."""
        with self._lock:
            if self._poll is None:
                self._poll = select.epoll()
                self._thread = threading.Thread(
                    target=self._run, args=(self._poll,), name=self._name, daemon=True
                )
                self._thread.start()
            self._connections[connection.fileno()] = connection
            self._poll.register(connection.fileno(), select.EPOLLIN)

    @property
    def current(self) -> bool:
        """Whether this is the loop's thread."""
        return threading.current_thread() is self._thread

    def _run(self, poll: select.epoll) -> None:
        with poll:
            while self._poll is poll:
                for descriptor, _ in poll.poll():
                    self._read(poll, descriptor)

    def _read(self, poll: select.epoll, descriptor: int) -> None:
        connection = self._connections[descriptor]
        try:
            reason = connection.read()
        except Exception as error:  # of what takes the bytes: the others are read on
            report_on_thread()
            reason = f"what came could not be taken: {error!r}"
        if reason is None:
            return
        with self._lock:
            # Before the descriptor is closed: its number may be given to another connection.
            del self._connections[descriptor]
            poll.unregister(descriptor)
        try:
            connection.finish(reason)
        except Exception:
            report_on_thread()
        with self._lock:
            if not self._connections:
                self._poll = None
