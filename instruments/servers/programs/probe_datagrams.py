"""Numbered datagrams that the ports of servers send each other: the evidence of outages."""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import platform
import socket
import struct
import uuid

from lightrig.instruments.servers.programs.kernel_stamps import KernelStamps, open_stamps
from lightrig.instruments.servers.programs.probe_events import (
    ClockStep,
    DatagramGap,
    EventLog,
    LateDatagram,
    StageChange,
    stamped_datagram,
)
from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["DATAGRAM", "MAGIC", "DatagramStream", "open_stream"]

_SILENCE_PERIODS, _SILENCE_NS = 5, 5_000_000
_DEPARTURES_STORED = 1 << 16
_MOST_LATE = 1024
"""Numbers by which a datagram may come late, and is no duplicate."""
_LATELY = 256
"""Datagrams of which the slowest is noted, at least."""

_SO_BINDTODEVICE = getattr(socket, "SO_BINDTODEVICE", 25)
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER = 4 << 20
_LARGEST_IN_BUFFER = 4352  # what a small datagram may take there: a page and its descriptor

MAGIC = b"LRP1"

DATAGRAM = struct.Struct("!4sI16sQQQ")
"""Magic, sender's token, boot id, number, send time, previous send time; "host\\0port" follows."""


def _attach_filter(sock: socket.socket, token: int) -> None:
    """Attach a BPF filter: only datagrams of probes, and not the copies of our broadcasts."""
    udp_header = 8
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, udp_header),  # load the magic
            (0x15, 0, 3, int.from_bytes(MAGIC, "big")),
            (0x20, 0, 0, udp_header + 4),  # load the token
            (0x15, 1, 0, token),
            (0x06, 0, 0, 0xFFFF),  # accept
            (0x06, 0, 0, 0),  # drop
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, description)


def _enlarge_buffer(sock: socket.socket) -> None:
    """Enlarge the receive buffer, so that a pause of this program loses nothing.

    Beyond the system's limit only where the program may.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    with contextlib.suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)


class _Heard:
    """The datagrams of one sender that a port has received, by their numbers.

    Attributes:
        highest: the greatest number.
        count: how many came, each once.
    """

    def __init__(self, number: int) -> None:
        self.highest = number
        # Those before the first may still come.
        self._missing = set(range(max(number - _MOST_LATE, 1), number))
        self._slowest = self._before = (0, -1 << 62)
        self.count = 0

    def is_late(self, number: int) -> bool:
        """Take a number up to the highest; whether it was missing, and no duplicate."""
        late = number in self._missing
        self._missing.discard(number)
        self.count += late
        return late

    def take(self, number: int, sent: int, received: int) -> None:
        """Take a number that is greater than all before."""
        passed = range(max(self.highest + 1, number - _MOST_LATE), number)
        if passed:
            self._missing.update(passed)
            if len(self._missing) > 4 * _MOST_LATE:
                self._missing = {each for each in self._missing if each > number - _MOST_LATE}
        self.highest = number
        if not self.count % _LATELY:
            self._before, self._slowest = self._slowest, (sent, received)
        self.count += 1
        self._slowest = max(self._slowest, (sent, received), key=_transit)

    def slowest_lately(self) -> tuple[int, int]:
        """Return send time and time of reception of the slowest of the last datagrams."""
        return max(self._slowest, self._before, key=_transit)


def _transit(stamps: tuple[int, int]) -> int:
    """Return the time between two stamps, up to the offset of their clocks."""
    return stamps[1] - stamps[0]


class DatagramStream:
    """The numbered datagrams that one port sends and receives.

    Args:
        sock: of the port, which does not block; see `open_stream`.
        stamps: of what it receives; None: the time at which it is read.
        port: name of the network device.
        boot: identity of this boot of the machine.
        udp_port: to which all streams send.
        period_ns: between two datagrams of a sender.
        departures: number of send times that are stored.
    """

    def __init__(
        self,
        sock: socket.socket,
        stamps: KernelStamps | None,
        port: str,
        boot: bytes,
        udp_port: int,
        period_ns: int,
        departures: int = _DEPARTURES_STORED,
    ) -> None:
        self.socket, self.stamps, self.port = sock, stamps, port
        self.sent = self.received = self.idle = 0
        self.late = self.duplicates = 0
        self._heard: dict[int, _Heard] = {}
        self._boot = boot
        self._names = f"{platform.node()}\0{port}".encode()
        self._target = ("255.255.255.255", udp_port)
        self._silence = max(_SILENCE_PERIODS * period_ns, _SILENCE_NS)
        self.token = int.from_bytes(os.urandom(4), "big")
        self._departures = array.array("q", bytes(8 * departures))
        self._up = False
        self._last_sent = 0
        self._last_stamp = self._down_since = self._empty_at = now()
        self._last_after = self._empty_at
        self._unread = 0
        self._last: tuple[int, bytes, int, int] | None = None
        buffer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self._capacity = buffer // _LARGEST_IN_BUFFER

    def close(self) -> None:
        """Close the socket and the clock of its stamps."""
        self.socket.close()
        if self.stamps is not None:
            self.stamps.close()

    def send(self) -> None:
        """Send the next datagram, and note when."""
        at, number = now(), self.sent + 1
        head = DATAGRAM.pack(MAGIC, self.token, self._boot, number, at, self._last_sent or at)
        self._last_sent = at
        # Without link, address or buffer space the datagram is lost, like one on the fiber.
        with contextlib.suppress(OSError):
            self.socket.sendto(head + self._names, self._target)
        self._departures[number % len(self._departures)] = now()
        self.sent = number

    def heard(self) -> dict[str, int]:
        """Return how many datagrams came from each sender, by its token."""
        return {str(token): heard.count for token, heard in list(self._heard.items())}

    def partner(self) -> tuple[int, int] | None:
        """Return the token of the last datagram's sender and when it came; None without one."""
        return None if self._last is None else (self._last[0], self._last_stamp)

    def departure(self, number: int) -> int | None:
        """Return the send time of a datagram by number; None if it is not stored (any more)."""
        if not max(0, self.sent - len(self._departures)) < number <= self.sent:
            return None
        return self._departures[number % len(self._departures)] or None

    def receive(self, log: EventLog) -> None:
        """Read one datagram; log a gap before it, and that the stage is up."""
        try:
            if self.stamps is None:
                data, at = self.socket.recv(2048), now()
            else:
                data, at = self.stamps.receive(self.socket)
                self._note_steps(log)
        except OSError:
            # Nothing to read after a bad checksum, or the device went down.
            return
        if len(data) < DATAGRAM.size:
            return
        _, token, boot, sequence, sent, previous = DATAGRAM.unpack_from(data)
        self.received += 1
        self._unread += 1
        heard = self._heard.get(token)
        if heard is not None and sequence <= heard.highest:
            # It was overtaken, or is there twice: it ends no interruption, and begins none.
            if heard.is_late(sequence):
                self.late += 1
                log.add_late(LateDatagram(self.port, token, sequence, heard.highest - sequence))
            else:
                self.duplicates += 1
            return
        if heard is None:
            heard = self._heard[token] = _Heard(sequence)
        last = self._last
        consecutive = last is not None and last[0] == token and last[2] == sequence - 1
        if last is not None and not consecutive:
            backlog = self._unread > self._capacity
            slowest = self._heard[last[0]].slowest_lately()
            first = (token, boot, sequence, previous)
            log.add_gap(DatagramGap(self.port, last, first, at, backlog, slowest))
        heard.take(sequence, sent, at)
        self._last = (token, boot, sequence, sent)
        self._last_stamp, self._last_after = at, self._empty_at
        if self._up:
            return
        self._up = True
        earliest, source, lost = self._down_since, "udp", None
        if consecutive:
            # No number is missing: the sender paused, and the link may have been up all along.
            self.idle += 1
            source = "idle"
        elif boot == self._boot:
            # Same clock: its predecessor was lost, so the link was still down when that was sent.
            earliest = max(earliest, previous)
        else:
            # Another clock: the harness, which knows both clocks, tightens the bound.
            lost = (str(uuid.UUID(bytes=boot)), previous)
        log.add(StageChange(self.port, "datagram", True, earliest, at, source, lost))

    def _note_steps(self, log: EventLog) -> None:
        """Log steps of the clock of the stamps, before what they would make doubtful."""
        if self.stamps is not None and self.stamps.steps:
            for step in self.stamps.take_steps():
                log.add_step(ClockStep(self.port, *step))

    def listen_for_silence(self, log: EventLog, empty_at: int) -> None:
        """Declare the stage down after silence; the socket was empty at `empty_at`.

        Measured from `empty_at` and not from now: a datagram that came since is not silence.
        The last one may have waited for a reader that was not scheduled: it came after the
        socket had been empty for the last time.
        """
        self._empty_at, self._unread = empty_at, 0
        if self.stamps is not None:
            self.stamps.emptied()
            self._note_steps(log)
        if self._up and empty_at - self._last_stamp > self._silence:
            self._up = False
            self._down_since = since = self._last_after
            last = None if self._last is None else stamped_datagram(*self._last)
            # Not the time of this line: a sender that pauses may have gone on since.
            log.add(StageChange(self.port, "datagram", False, since, empty_at, "udp", last))


def open_stream(port: str, boot: bytes, udp_port: int, period_ns: int) -> DatagramStream:
    """Open the socket of a port's datagrams, on that device alone; raises `OSError`."""
    sock = socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    with contextlib.ExitStack() as opened:
        opened.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, port.encode() + b"\0")
        _enlarge_buffer(sock)
        stream = DatagramStream(sock, open_stamps(sock, port), port, boot, udp_port, period_ns)
        opened.callback(stream.close)
        _attach_filter(sock, stream.token)
        sock.bind(("", udp_port))
        opened.pop_all()
    return stream
