"""Captures of the probe's datagrams on their way to the virtual machines.

tcpdump sees what comes to a machine's tap. QEMU's filter-dump sees what it gave to the machine's
NIC, which it does while the link is up: that tells which datagrams were received.
"""

import contextlib
import json
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .steps import VirtualLabError

_TICK_NS = {b"\x4d\x3c\xb2\xa1": 1, b"\xd4\xc3\xb2\xa1": 1_000}
"""Unit of the times in a pcap file, by its magic number."""

_FILE_HEADER, _PACKET_HEADER = 24, struct.Struct("<IIII")
_COOKED = struct.Struct("!4xIxxB")  # LINKTYPE_LINUX_SLL2: number of the interface, kind
_OUTGOING = 4
_COOKED_BYTES, _ARP = 20, struct.Struct("!6xH6s4s")  # operation, hardware and protocol address
_REPLY = 2
_MAGIC, _NUMBERS = b"LRP1", struct.Struct("!QQQ")
_TOKEN_AT, _NUMBERS_AT = 4, 24
_STARTS_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram of a probe on its way into a server.

    Attributes:
        at_ns: when it came to the tap, of CLOCK_MONOTONIC.
        token: of the port that sent it.
        number: as its sender counts.
        taken_ns: when QEMU gave it to the server's NIC; None: never.
    """

    at_ns: int
    token: int
    number: int
    taken_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """A file of packets on all interfaces of the taps' network, and the offset of its clock.

    Attributes:
        indices: numbers of the taps in that network, by port ("server0.nic0.p1").
        dumps: files of filter-dump by port, and their length as the capture began.
    """

    file: Path
    indices: Mapping[str, int]
    realtime_ahead_ns: int
    dumps: Mapping[str, tuple[Path, int]] = field(default_factory=dict)

    def received(self) -> dict[str, list[Datagram]]:
        """Return the datagrams that left the network by the tap of each port, in their order."""
        ports = {index: port for port, index in self.indices.items()}
        found: dict[str, list[Datagram]] = {port: [] for port in self.indices}
        for at, packet in packets(self.file.read_bytes()):
            index, kind = _COOKED.unpack_from(packet)
            if kind == _OUTGOING and index in ports and _MAGIC in packet:
                numbers = _token_and_number(packet)
                found[ports[index]].append(Datagram(at - self.realtime_ahead_ns, *numbers))
        return {port: self._with_taken(port, datagrams) for port, datagrams in found.items()}

    def _with_taken(self, port: str, datagrams: Sequence[Datagram]) -> list[Datagram]:
        """Return datagrams with the times at which QEMU gave them to the NIC.

        Those are of a clock that begins at an unknown whole second: the quickest datagram of all
        is taken to have waited for nothing.
        """
        if port not in self.dumps:
            return list(datagrams)
        file, begins = self.dumps[port]
        data = file.read_bytes()
        taken = {
            _token_and_number(packet): at
            for at, packet in packets(data[:_FILE_HEADER] + data[max(begins, _FILE_HEADER) :])
            if _MAGIC in packet
        }
        waits = [
            taken[key] - one.at_ns for one in datagrams if (key := (one.token, one.number)) in taken
        ]
        offset = min(waits, default=0)
        return [
            replace(one, taken_ns=None if at is None else at - offset)
            for one in datagrams
            for at in [taken.get((one.token, one.number))]
        ]

    def arp_replies(self) -> set[tuple[str, str]]:
        """Return IPv4 address and hardware address of each reply to ARP."""
        replies = set()
        for _, packet in packets(self.file.read_bytes()):
            operation, mac, address = _ARP.unpack_from(packet, _COOKED_BYTES)
            if operation == _REPLY:
                replies.add((socket.inet_ntoa(address), mac.hex(":")))
        return replies


def packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield time in ns and bytes of each packet of a pcap file; a torn last one is left out."""
    if (tick_ns := _TICK_NS.get(data[:4])) is None:
        raise VirtualLabError("a capture is no pcap file")
    place = _FILE_HEADER
    while place + _PACKET_HEADER.size <= len(data):
        seconds, ticks, length, _ = _PACKET_HEADER.unpack_from(data, place)
        place += _PACKET_HEADER.size
        if place + length > len(data):
            return
        yield seconds * 1_000_000_000 + ticks * tick_ns, data[place : place + length]
        place += length


def _token_and_number(frame: bytes) -> tuple[int, int]:
    begins = frame.index(_MAGIC)
    (token,) = struct.unpack_from("!I", frame, begins + _TOKEN_AT)
    number, _, _ = _NUMBERS.unpack_from(frame, begins + _NUMBERS_AT)
    return token, number


@contextlib.contextmanager
def capturing(
    plant_pid: int, file: Path, kind: str = "udp", dumps: Mapping[str, Path] | None = None
) -> Iterator[Capture]:
    """Capture in the network of the taps within the block; raises `VirtualLabError`.

    kind: of the packets, as tcpdump filters.
    dumps: files that filter-dump goes on writing, by port.

    A capture on one tap would end when that goes dark, which takes it down.
    """
    file.unlink(missing_ok=True)
    enter = ("nsenter", f"--net=/proc/{plant_pid}/ns/net")
    links = subprocess.run([*enter, "ip", "-j", "link"], capture_output=True, check=True).stdout
    named = {link["ifname"]: int(link["ifindex"]) for link in json.loads(links)}
    indices = {
        f"server{server}.nic0.p{port}": named[f"vlab{server}{port}"]
        for server in (0, 1)
        for port in (0, 1)
    }
    argv = [
        *(*enter, "tcpdump", "-i", "any", "-y", "LINUX_SLL2", "--time-stamp-precision=nano"),
        *("-U", "-w", str(file), "-Z", "root", kind),
    ]
    log = file.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _STARTS_SECONDS
        while not file.exists() or file.stat().st_size < _FILE_HEADER:
            if process.poll() is not None or time.monotonic() > deadline:
                raise VirtualLabError(f"tcpdump did not begin: {log.read_text()}")
            time.sleep(0.05)
        begins = {port: (dump, dump.stat().st_size) for port, dump in (dumps or {}).items()}
        yield Capture(file, indices, time.time_ns() - time.monotonic_ns(), begins)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
