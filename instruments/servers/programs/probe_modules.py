"""Reading the memory of transceivers, by the kernel's ethtool interface over generic netlink.

Messages: Documentation/networking/ethtool-netlink.rst (MODULE_EEPROM_GET, Linux 5.13) and
include/uapi/linux/genetlink.h. The kernel holds its RTNL lock during a read, for which readings of
carriers wait: whoever asks for these pays with the precision of the others.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from lightrig.instruments.servers.programs.probe_events import Refused
from lightrig.instruments.servers.programs.server_clock import now

__all__ = ["EthtoolSocket", "ModuleReads", "read_place"]

_NETLINK_GENERIC = 16
_REQUEST, _ERROR = 1, 2
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_EEPROM_GET = 31
_HEADER, _OFFSET, _LENGTH, _PAGE, _BANK, _ADDRESS, _DATA = range(1, 8)
_DEVICE_NAME = 2
_NESTED = 0x8000
_TIMEOUT_S = 10
_MOST_READINGS = 1 << 17


def _attribute(kind: int, data: bytes) -> bytes:
    padding = b"\0" * (-len(data) % 4)
    return struct.pack("=HH", 4 + len(data), kind) + data + padding


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += max(4, (length + 3) & ~3)


class EthtoolSocket:
    """A socket to the kernel's ethtool interface; raises `OSError` where there is none."""

    def __init__(self) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_GENERIC)
        self._socket.settimeout(_TIMEOUT_S)
        self._number = 0
        try:
            self._socket.bind((0, 0))
            name = _attribute(_FAMILY_NAME, b"ethtool\0")
            found = dict(_attributes(self._ask(_CONTROL, _GET_FAMILY, name)))
            (self._family,) = struct.unpack("=H", found[_FAMILY_ID])
        except BaseException:
            self._socket.close()
            raise

    def read(self, netdev: str, address: int, page: int, offset: int, length: int) -> bytes:
        """Return a part of the memory of a port's module; raises `OSError` as the kernel does."""
        body = _attribute(_HEADER | _NESTED, _attribute(_DEVICE_NAME, netdev.encode() + b"\0"))
        body += _attribute(_OFFSET, struct.pack("=I", offset))
        body += _attribute(_LENGTH, struct.pack("=I", length))
        for kind, value in ((_PAGE, page), (_BANK, 0), (_ADDRESS, address)):
            body += _attribute(kind, struct.pack("=B", value))
        return dict(_attributes(self._ask(self._family, _EEPROM_GET, body))).get(_DATA, b"")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(self, family: int, command: int, body: bytes) -> bytes:
        """Return the attributes of the answer."""
        self._number += 1
        body = struct.pack("=BBH", command, 1, 0) + body
        header = struct.pack("=IHHII", 16 + len(body), family, _REQUEST, self._number, 0)
        self._socket.send(header + body)
        while True:
            data = self._socket.recv(65536)
            length, kind, _, number, _ = struct.unpack_from("=IHHII", data)
            if number != self._number:
                continue  # an answer that came after its time
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", data, 16)
                raise OSError(-code, os.strerror(-code))
            return data[20:length]


def read_place(ethtool: EthtoolSocket, netdev: str, place: tuple[int, ...]) -> list[Any]:
    """Return [netdev, address, page, offset, length, start, end, hex or null, problem]."""
    begun = now()
    text, problem = None, ""
    try:
        text = ethtool.read(netdev, *place).hex()
    except OSError as error:
        problem = error.strerror or str(error)
    return [netdev, *place, begun, now(), text, problem]


class ModuleReads:
    """A thread that reads places of modules, a round every `period_ns`, or as fast as it can."""

    def __init__(self, places: list[tuple[str, tuple[int, ...]]], period_ns: int) -> None:
        try:
            self._ethtool = EthtoolSocket()
        except OSError as error:
            raise Refused("no_modules", f"no ethtool interface: {error}") from None
        self._places, self._period_ns = places, period_ns
        self._readings: list[list[Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = now()
            for netdev, place in self._places:
                if self._stop.is_set() or len(self._readings) >= _MOST_READINGS:
                    return
                self._readings.append(read_place(self._ethtool, netdev, place))
            self._stop.wait(max(0, begun + self._period_ns - now()) / 1e9)

    def end(self) -> list[list[Any]]:
        """Read no more; return what was read, oldest first."""
        self._stop.set()
        self._thread.join()
        self._ethtool.close()
        return self._readings
