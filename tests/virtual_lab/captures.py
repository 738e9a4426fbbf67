"""Captures of the probe's datagrams on their way to the virtual machines."""

import contextlib
import json
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .steps import VirtualLabError

_NANOSECOND_PCAP = b"\x4d\x3c\xb2\xa1"
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
    """A datagram of a probe on its way into a server; `at_ns` of CLOCK_MONOTONIC."""

    at_ns: int
    token: int
    number: int


@dataclass(frozen=True, slots=True)
class Capture:
    """A file of packets on all interfaces of the taps' network, and the offset of its clock.

    `indices` are the numbers of the taps in that network, by port ("server0.nic0.p1").
    """

    file: Path
    indices: Mapping[str, int]
    realtime_ahead_ns: int

    def received(self) -> dict[str, list[Datagram]]:
        """Return the datagrams that left the network by the tap of each port, in their order."""
        ports = {index: port for port, index in self.indices.items()}
        found: dict[str, list[Datagram]] = {port: [] for port in self.indices}
        for at, packet in packets(self.file.read_bytes()):
            index, kind = _COOKED.unpack_from(packet)
            if kind == _OUTGOING and index in ports and _MAGIC in packet:
                numbers = _token_and_number(packet)
                found[ports[index]].append(Datagram(at - self.realtime_ahead_ns, *numbers))
        return found

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
    if data[:4] != _NANOSECOND_PCAP:
        raise VirtualLabError("a capture is no pcap file with nanoseconds")
    place = _FILE_HEADER
    while place + _PACKET_HEADER.size <= len(data):
        seconds, nanoseconds, length, _ = _PACKET_HEADER.unpack_from(data, place)
        place += _PACKET_HEADER.size
        if place + length > len(data):
            return
        yield seconds * 1_000_000_000 + nanoseconds, data[place : place + length]
        place += length


def _token_and_number(frame: bytes) -> tuple[int, int]:
    begins = frame.index(_MAGIC)
    (token,) = struct.unpack_from("!I", frame, begins + _TOKEN_AT)
    number, _, _ = _NUMBERS.unpack_from(frame, begins + _NUMBERS_AT)
    return token, number


@contextlib.contextmanager
def capturing(plant_pid: int, file: Path, kind: str = "udp") -> Iterator[Capture]:
    """Capture in the network of the taps within the block; raises `VirtualLabError`.

    kind: of the packets, as tcpdump filters.

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
        yield Capture(file, indices, time.time_ns() - time.monotonic_ns())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
