"""Earliest arrival of bytes that a thread may have read late.

A stamp that is taken after a read says that the bytes had come by then. Where the process was
paused, or its thread not scheduled, they had come long before. The kernel stamps every segment as
it receives it, and hands the stamp of the last byte out with the data (socket(7), SO_TIMESTAMPNS;
on TCP streams since Linux 4.14). The last byte of a read is therefore known from both sides;
earlier bytes of the same read came after the last byte of the read before.
"""

import contextlib
import select
import socket
import struct
from collections import deque
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.wire.tls import TlsSocket

_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("@qq")


class StampedReceiver:
    """Receives from a connected TCP socket, with a lower bound of the arrival of the last byte.

    Args:
        connection: the socket.
        clock: the bench's clock. In virtual time bytes are read at the moment of their arrival.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._offset = clock.realtime_offset()
        self._asked = clock.now()
        # What is decrypted comes out of buffers: its bound is that of the encrypted bytes.
        self._encrypted = connection if isinstance(connection, TlsSocket) else None
        self._bounds = Arrivals()
        if self._offset is not None:
            if self._encrypted is not None:
                self._bounds.read(self._asked)
                self._encrypted.read_encrypted = self._read_encrypted
            with contextlib.suppress(OSError):  # an older kernel
                connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def receive(self, size: int) -> tuple[bytes, int]:
        """Return up to `size` bytes, none at the end, and when the last had not come yet, in ns.

        Raises OSError.
        """
        if self._offset is None:
            return self._connection.recv(size), self._clock.now()
        if self._encrypted is not None:
            data = self._encrypted.recv(size)
            return data, self._bounds.of_message(last=self._encrypted.drained())
        return self._receive(size)

    def _read_encrypted(self, size: int) -> bytes:
        data, not_before = self._receive(size)
        self._bounds.read(not_before)
        return data

    def _receive(self, size: int) -> tuple[bytes, int]:
        # Without a stamp: what the last read has left came after that read was begun.
        not_before, self._asked = self._asked, self._clock.now()
        data, control, _, _ = self._connection.recvmsg(size, socket.CMSG_SPACE(_STAMP.size))
        stamps = [
            seconds * 1_000_000_000 + nanoseconds
            for level, kind, content in control
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)
            for seconds, nanoseconds in [_STAMP.unpack(content)]
        ]
        before, after = self._offset, self._clock.realtime_offset()
        assert before is not None
        assert after is not None
        self._offset = after
        # The two clocks keep their distance, however they are slewed, until the calendar is set.
        stepped = after.earliest > before.latest or before.earliest > after.latest
        if stamps and not stepped:
            not_before = max(not_before, stamps[-1] - min(before.latest, after.latest))
        return data, not_before


class BurstSocket:
    """A connected socket that another library reads, on a thread of its own.

    What that library hands out came no earlier than the burst that it was part of. A burst begins
    with the first bytes after the library had read all that there was and asks for more: all
    before it has been handed out then, or is part of something unfinished.

    Args:
        connection: the socket; all of its other methods are offered as well.
        clock: the bench's clock.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._receiver = StampedReceiver(connection, clock)
        self._clock = clock
        self._bursts = deque[int]()
        self._idle = True
        self._drained = True
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        """Receive, as `socket.recv` does."""
        # Looked for at the end of the last read too: on a busy machine the library may ask so late
        # that the next bytes have come.
        self._idle = self._idle or self._drained or not self._poll.poll(0)
        data, not_before = self._receiver.receive(size)
        self._drained = not self._poll.poll(0)
        if self._idle and data:
            self._bursts.append(not_before)
            self._idle = False
        return data

    def handed_out(self) -> int:
        """Return the number of bursts of which the library has handed out everything by now."""
        idle = self._idle
        return len(self._bursts) if idle else max(len(self._bursts) - 1, 0)

    def forget(self, count: int) -> None:
        """Forget the first `count` bursts: what they brought has been taken."""
        for _ in range(count):
            self._bursts.popleft()

    def oldest(self) -> int:
        """Return a lower bound of the arrival of what has not been taken yet, in ns."""
        return self._clock.now() if self._clock.virtual else self._bursts[0]


class Arrivals:
    """Earliest arrivals of the messages in a stream of bytes that is cut after each read."""

    def __init__(self) -> None:
        self._last = self._before = 0

    def read(self, not_before: int) -> None:
        """Take the bound of the last byte of what was just read."""
        self._before, self._last = self._last, not_before

    def of_message(self, *, last: bool) -> int:
        """Return the bound of a message; `last`: whether no byte has come after it."""
        return self._last if last else min(self._before, self._last)
