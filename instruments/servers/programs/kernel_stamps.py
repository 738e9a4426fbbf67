"""Arrival times of datagrams, by the kernel's stamp or a NIC's, not by the time of reading."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["KernelStamps", "Lead", "open_stamps", "read_lead"]

_NET = "/sys/class/net"
_SO_TIMESTAMPING = 37
_RX_HARDWARE, _RX_SOFTWARE, _SOFTWARE, _RAW_HARDWARE = 1 << 2, 1 << 3, 1 << 4, 1 << 6
_ATTEMPTS = 3
_UNDISTURBED_NS = 100_000
_RATE = 1e-3
_NAMES = {0: "CLOCK_REALTIME", 2: "its NIC's PTP clock"}
_STAMPS = struct.Struct("@6q")  # three times in s and ns: software, an unused one, hardware


class Lead(NamedTuple):
    """Lead of a clock over this program's, in ns, at a time `at` of the latter."""

    at: int
    least: int
    most: int


def read_lead(clock: int) -> Lead:
    """Return bounds of how far `clock` is ahead of this program's clock now."""
    # A program that loses its processor between the two readings would bound it loosely.
    for _ in range(_ATTEMPTS):
        before, ahead, after = now(), time.clock_gettime_ns(clock), now()
        if after - before < _UNDISTURBED_NS:
            break
    return Lead(after, ahead - after, ahead - before)


class KernelStamps:
    """Times of reception by the kernel, or by the NIC's own clock where that is being stamped.

    A datagram is read when this program is scheduled, and had been there before. The kernel stamps
    it by CLOCK_REALTIME, a NIC with stamping switched on (SIOCSHWTSTAMP, which this program leaves
    alone) by its PTP clock. Both are mapped by the least lead of that clock since the socket was
    last empty, when the datagram had not come yet: so a clock that is set or slewed meanwhile
    makes the time later, and never too early. The kernel begins to stamp some time after it is
    asked to; datagrams before that have the time at which they are read.

    `steps` are changes of a lead that `_RATE` does not explain: name of the clock, this program's
    time of the readings before and after, and least and greatest size in ns. One of less than the
    two readings took is not seen, nor are two within a wait that undo each other.

    Args:
        clocks: of the stamps, by their place among the three of the kernel: 0 for its own, 2 for
            those of the NIC.
        device: descriptor of the NIC's clock, which is closed with this.
        lead: reads how far a clock is ahead.
    """

    def __init__(
        self,
        clocks: dict[int, int],
        device: int | None = None,
        lead: Callable[[int], Lead] = read_lead,
    ) -> None:
        self.source = "kernel" if 0 in clocks else "reader"
        self._clocks, self._device, self._read_lead = clocks, device, lead
        self.steps: list[tuple[str, int, int, int, int]] = []
        self._last: dict[int, Lead] = {}
        self._before = self._leads = self._read()

    def _read(self) -> dict[int, int]:
        return {place: self._lead(place) for place in self._clocks}

    def _lead(self, place: int) -> int:
        """Return the least lead of a clock now; note a step since it was last read."""
        new = self._read_lead(self._clocks[place])
        old = self._last.get(place, new)
        self._last[place] = new
        slack = int(_RATE * (new.at - old.at))
        least, most = new.least - old.most - slack, new.most - old.least + slack
        if least > 0 or most < 0:
            self.steps.append((_NAMES[place], old.at, new.at, least, most))
        return new.least

    def take_steps(self) -> list[tuple[str, int, int, int, int]]:
        """Return the steps since the last call."""
        taken, self.steps = self.steps, []
        return taken

    def emptied(self) -> None:
        """Note that no datagram waited since the last call, and that none was read since."""
        found = self._read()
        # That of the last call too: the next datagram may have come just before this reading.
        self._leads = {place: min(lead, self._before[place]) for place, lead in found.items()}
        self._before = found

    def receive(self, sock: socket.socket) -> tuple[bytes, int]:
        """Return a datagram, and when it was there; raises OSError."""
        data, control, _, _ = sock.recvmsg(2048, socket.CMSG_SPACE(_STAMPS.size))
        there = now()
        for level, kind, content in control:
            if (level, kind) != (socket.SOL_SOCKET, _SO_TIMESTAMPING):
                continue
            times = _STAMPS.unpack(content[: _STAMPS.size])
            for place in self._clocks:
                stamp = times[2 * place] * 1_000_000_000 + times[2 * place + 1]
                if stamp:
                    lead = self._leads[place] = min(self._leads[place], self._lead(place))
                    there = min(there, stamp - lead)
                    self.source = "NIC" if place else self.source
        return data, there

    def close(self) -> None:
        """Close the NIC's clock."""
        if self._device is not None:
            os.close(self._device)
            self._device = None


def open_stamps(sock: socket.socket, port: str) -> KernelStamps:
    """Have the kernel stamp what `sock` receives, and open the clock of the NIC of `port`.

    Each as far as there is one: `KernelStamps.source` says whose stamps are to be expected.
    """
    clocks: dict[int, int] = {}
    device = None
    flags = _RX_SOFTWARE | _SOFTWARE | _RX_HARDWARE | _RAW_HARDWARE
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, flags)
        clocks[0] = time.CLOCK_REALTIME
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{_NET}/{port}/device/ptp")[:1]:
            device = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC)
            clock = (~device << 3) | 3  # FD_TO_CLOCKID of the kernel's posix-timers
            time.clock_gettime_ns(clock)
            clocks[2] = clock
    return KernelStamps(clocks, device)
