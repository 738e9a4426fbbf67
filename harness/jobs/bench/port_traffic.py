"""What the kernels of servers have counted: bytes and packets at NIC ports, segments of TCP."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from lightrig.instruments.clock import Clock
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Port, Testbed

TCP_HEADERS = 66
"""Bytes of a frame of TCP that carry no data: Ethernet 14, IPv4 20, TCP 20, time stamps 12.

Without the check sequence, which no kernel counts (IEEE 802.3, RFC 791, RFC 9293, RFC 7323).
"""


class PortTraffic(NamedTuple):
    """What a port has sent and received, in bytes and in packets of the kernel."""

    sent: int
    received: int
    packets_sent: int
    packets_received: int

    def since(self, before: "PortTraffic") -> "PortTraffic":
        """Return what has come to it since an earlier reading."""
        return PortTraffic(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def data_sent(self) -> int:
        """Bytes of data, where all of the traffic was TCP: a large packet has one header."""
        return self.sent - TCP_HEADERS * self.packets_sent

    @property
    def data_received(self) -> int:
        """The same of what was received."""
        return self.received - TCP_HEADERS * self.packets_received


def port_traffic(
    testbed: Testbed, servers: Mapping[str, LinuxServer], clock: Clock
) -> dict[Port, PortTraffic]:
    """Return the traffic of each NIC port of `servers`; raises `InstrumentError`."""
    found: dict[Port, PortTraffic] = {}
    answers = clock.parallel(
        *(partial(server.commands.run, ["cat", "/proc/net/dev"]) for server in servers.values())
    )
    for name, answer in zip(servers, answers, strict=True):
        counted = {}
        for line in answer.stdout.splitlines()[2:]:
            netdev, _, fields = line.partition(":")
            received, packets_received, *_, sent, packets_sent = map(int, fields.split()[:10])
            counted[netdev.strip()] = PortTraffic(sent, received, packets_sent, packets_received)
        found |= {
            spec.port: counted[spec.netdev]
            for spec in testbed.nic_ports
            if spec.port.owner == name and spec.netdev in counted
        }
    return found


def segments_sent_again(servers: Mapping[str, LinuxServer], clock: Clock) -> dict[str, int]:
    """Return the segments of TCP that each server's kernel has sent again; `InstrumentError`.

    The port that sent them has counted them twice, though a queue may have dropped the first.
    """
    answers = clock.parallel(
        *(partial(server.commands.run, ["cat", "/proc/net/snmp"]) for server in servers.values())
    )
    found = {}
    for name, answer in zip(servers, answers, strict=True):
        names, values = (
            line.split() for line in answer.stdout.splitlines() if line.startswith("Tcp:")
        )
        found[name] = int(values[names.index("RetransSegs")])
    return found
