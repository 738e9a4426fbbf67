"""One thread that reads the channels of all simulated probes.

paramiko gives each connection a thread, and a channel can be read on any other. A thread for each
channel as well would be a second one for each simulated server.
"""

import os
import queue
import threading
from collections.abc import Callable

import paramiko

from lightrig.instruments.machine_limits import report_on_thread
from lightrig.instruments.simulated.protocols.ssh_listener import CLIENT_LEFT


class ChannelReader:
    """Reads channels from their `add` to their end; its thread ends with the last of them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all channels; for the child of a fork, which has none of the threads."""
        self._lock = threading.Lock()
        self._channels = 0
        self._ready: queue.SimpleQueue[_Source | None] = queue.SimpleQueue()

    def add(
        self,
        channel: paramiko.Channel,
        received: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        """Read `channel` from now on.

        received: takes what has come, ended: the end; neither may wait, for the others wait too.
        """
        with self._lock:
            if not self._channels:
                self._ready = queue.SimpleQueue()
                threading.Thread(
                    target=self._run, args=(self._ready,), name="probes", daemon=True
                ).start()
            self._channels += 1
            source = _Source(channel, received, ended, self._ready)
        channel.in_buffer.set_event(source)

    def _run(self, ready: "queue.SimpleQueue[_Source | None]") -> None:
        while source := ready.get():
            try:
                more = source.read()
            except Exception:  # of what takes the bytes: the others are read on
                report_on_thread()
                more = False
            if more:
                continue
            with self._lock:
                self._channels -= 1
                if not self._channels:
                    ready.put(None)


class _Source(threading.Event):
    """A channel's bytes; paramiko sets this event, on its own thread, when there are some."""

    def __init__(
        self,
        channel: paramiko.Channel,
        received: Callable[[bytes], None],
        ended: Callable[[], None],
        ready: "queue.SimpleQueue[_Source | None]",
    ) -> None:
        super().__init__()
        self._channel, self._received, self._ended = channel, received, ended
        self._ready = ready
        self._over = False

    def set(self) -> None:
        if not self.is_set():
            super().set()
            self._ready.put(self)

    def read(self) -> bool:
        """Hand on what has come; returns whether more may."""
        while self.is_set() and not self._over:  # it may be ready once more behind its end
            try:
                data = self._channel.recv(1 << 16)
            except CLIENT_LEFT:
                data = b""
            if not data:
                self._over = True
                self._ended()
                return False
            self._received(data)
        return True


PROBES = ChannelReader()
"""Reads the channels of all simulated probes of this process."""

os.register_at_fork(after_in_child=PROBES.forget)
