"""Cost and power of a cluster's network: photonic rails against packet switches.

The arithmetic is that of the released script, for a folded-Clos packet network of 64-port
switches and for one optical port pair a GPU. Prices and powers are the authors', of 2025;
fibers are left out.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from lightrig.harness.systems.opus.planning.operations import OpusError


class Bill(NamedTuple):
    """Dollars and watts."""

    dollars: float
    watts: float


@dataclass(frozen=True, slots=True)
class Parts:
    """Needs of one generation of servers.

    gpus: in a scale-up domain. transceiver: one a GPU, and one a packet switch port where the
    switch has none built in (`in_switch`). packet_port, optical_port: of a switch, each.
    links: NIC ports of a server as the script counts them.
    """

    gpus: int
    links: int
    transceiver: Bill
    packet_port: Bill
    optical_port: Bill
    in_switch: bool


OPTICAL_PORT = Bill(520, 75 / 192)
H200 = Parts(8, 8, Bill(879, 10), Bill(37_299 / 64, 2524 / 64), OPTICAL_PORT, in_switch=False)
GB200 = Parts(32, 32, Bill(879, 16), Bill(149_939 / 144, 7000 / 144), OPTICAL_PORT, in_switch=True)


def packet_switch_ports(parts: Parts, gpus: int) -> int:
    """The switch ports of a packet network for `gpus` GPUs; raises `OpusError`.

    The script rounds the radix k of the fat tree to a whole number, which makes some sizes
    dearer than their neighbours.
    """
    servers, left = divmod(gpus, parts.gpus)
    k = int(math.sqrt(4 * servers) + 0.5)
    if left or k < 2:
        raise OpusError(f"{gpus} GPUs are no whole number of servers, or too few")
    return k * (parts.links * (servers // (k // 2) * 2) + parts.links * servers // k)


def packet_network(parts: Parts, gpus: int) -> Bill:
    """The bill of the packet network."""
    ports = packet_switch_ports(parts, gpus)
    transceivers = gpus + (0 if parts.in_switch else ports)
    return Bill(
        ports * parts.packet_port.dollars + transceivers * parts.transceiver.dollars,
        ports * parts.packet_port.watts + transceivers * parts.transceiver.watts,
    )


def photonic_rails(parts: Parts, gpus: int) -> Bill:
    """The bill of photonic rails: a transceiver and two optical ports a GPU."""
    return Bill(
        gpus * (2 * parts.optical_port.dollars + parts.transceiver.dollars),
        gpus * (2 * parts.optical_port.watts + parts.transceiver.watts),
    )


def advantage(parts: Parts, gpus: int) -> Bill:
    """By how many times the packet network costs and draws more."""
    packet, rails = packet_network(parts, gpus), photonic_rails(parts, gpus)
    return Bill(packet.dollars / rails.dollars, packet.watts / rails.watts)
