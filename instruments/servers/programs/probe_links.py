"""Carriers and firmware states of a server's ports: read from sysfs, announced by netlink."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from lightrig.instruments.servers.programs.probe_events import EventLog, StageChange
from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["NET", "RDMA", "LinkMessages", "Sensor", "describe_port", "open_netlink"]

NET = "/sys/class/net"
RDMA = "/sys/class/infiniband"

_RTMGRP_LINK, _RTM_NEWLINK, _IFF_LOWER_UP = 1, 16, 0x10000


class _KernelFile:
    """A file of sysfs that stays open, since it is read many times a second."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> bytes:
        """Return the beginning of the file; empty where its device is down or gone."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, 24, 0)
        except OSError as error:
            # EINVAL: the device is administratively down. ENODEV, ENOENT: it was removed, and a
            # new one may appear under the same name.
            if error.errno == errno.EINVAL:
                return b""
            if error.errno in (errno.ENODEV, errno.ENOENT):
                self.close()
                return b""
            raise

    def close(self) -> None:
        """Close the file; it is opened again when it is read."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Sensor:
    """A sysfs file whose first byte shows whether a stage of a port is up.

    count: a file with the kernel's number of changes of this stage. By it a stage is seen that went
    and came again between two reads, as it does while no processor runs this program.

    Attributes:
        up: whether it is up.
        read_until: when it was read last, in ns; all changes before are in the log.
        announced: how many changes of it the kernel has announced.
    """

    def __init__(
        self, port: str, stage: str, path: str, up_byte: bytes, count: str | None = None
    ) -> None:
        self.port, self.stage = port, stage
        self._state, self._up_byte = _KernelFile(path), up_byte
        self._count = None if count is None else _KernelFile(count)
        self.read_until = self._began = now()
        self._changes = self._read_count()
        self.up = self._state.read()[:1] == up_byte
        # Changes that the kernel has announced, and that this has logged: never fewer of them.
        self.announced = self._logged = 0

    def _read_count(self) -> int:
        return int(self._count.read() or 0) if self._count is not None else 0

    def sample(self, log: EventLog) -> None:
        """Read the files, and log a change since they were last read."""
        before = now()  # the old value was certain only up to the last read's start
        # Before the state: of a change between the two reads only the state is new, and the count
        # of the next sample is one more, by which nothing is seen twice.
        announced = self.announced
        changes = self._read_count()
        state = self._state.read()
        up = state[:1] == self._up_byte
        changed = up != self.up
        if changed:
            self._note(log, up, self.read_until)
            self.up = up
        counted = changes - self._changes - changed if state else 0
        for _ in range(counted // 2):
            self._note(log, not up, self.read_until)
            self._note(log, up, self.read_until)
        if self._logged < announced:
            # A change that neither state nor count has shown, as of a device that was
            # administratively down meanwhile. Announcements may be late, and tell no time.
            self._note(log, not up, self._began)
            self._note(log, up, self._began)
        self._changes = changes
        self.read_until = before

    def _note(self, log: EventLog, up: bool, earliest: int) -> None:
        log.add(StageChange(self.port, self.stage, up, earliest, now(), "sysfs"))
        self._logged += 1

    def close(self) -> None:
        """Close the files; they are opened again when they are read."""
        self._state.close()
        if self._count is not None:
            self._count.close()


def open_netlink() -> socket.socket | None:
    """Open a netlink socket for link changes; None if the kernel has none."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        sock = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
        )
    except OSError:
        return None
    sock.bind((0, _RTMGRP_LINK))
    return sock


class LinkMessages:
    """Carrier changes as announced by the kernel: late and rate-limited, so a cross-check.

    Each that it announces has happened: its sensor counts them, and logs one that it did not see.
    """

    def __init__(self, sock: socket.socket, carriers: Iterable[Sensor]) -> None:
        self.socket = sock
        self._sensors = {socket.if_nametoindex(each.port): each for each in carriers}
        self._up = {each.port: each.up for each in self._sensors.values()}

    def receive(self, log: EventLog) -> None:
        """Read one message, and log the carriers that it announces."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            # ENOBUFS: messages were lost. The next one has the present state.
            return
        at = now()
        for index, up in self._carriers(data):
            sensor = self._sensors.get(index)
            if sensor is not None and self._up[sensor.port] != up:
                self._up[sensor.port] = up
                sensor.announced += 1
                log.add(StageChange(sensor.port, "carrier", up, None, at, "netlink"))

    @staticmethod
    def _carriers(data: bytes) -> Iterator[tuple[int, bool]]:
        offset = 0
        while offset + 32 <= len(data):
            length, kind = struct.unpack_from("=IH", data, offset)
            if kind == _RTM_NEWLINK:
                index, flags = struct.unpack_from("=iI", data, offset + 20)
                yield index, bool(flags & _IFF_LOWER_UP)
            offset += max(16, (length + 3) & ~3)


def _read_text(path: str) -> str | None:
    """Read a sysfs or proc file; None if the kernel has no value."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def describe_port(port: str) -> dict[str, Any]:
    """Return what `ports` replies about a network device."""
    base = f"{NET}/{port}"
    carrier, speed = _read_text(f"{base}/carrier"), int(_read_text(f"{base}/speed") or -1)
    driver = f"{base}/device/driver"
    return {
        "carrier": None if carrier is None else carrier == "1",
        "carrier_changes": int(_read_text(f"{base}/carrier_changes") or 0),
        "speed_mbps": speed if speed > 0 else None,
        "driver": os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None,
        "mac": _read_text(f"{base}/address"),
    }
