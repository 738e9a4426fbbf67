"""Cost of networks by size, from the paper's prices (MixNet Table 4), without fibers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars, each for one: a transceiver, a NIC, a port of either switch."""

    transceiver: int
    nic: int
    packet_port: int
    optical_port: int = 520


PRICES = {
    100: Prices(99, 659, 187),
    200: Prices(239, 1079, 374),
    400: Prices(659, 1499, 1090),
    800: Prices(1399, 2248, 1400),
}
"""By link rate in Gbit/s. The patch panel's port, 100 dollars, is TopoOpt's alone."""

FAT_TREE_PORTS = 5
"""Switch ports for each NIC of a three-tier fat tree without oversubscription.

One at the leaf, and for each of the two links further up a port at either end.
"""


def fat_tree_cost(prices: Prices, nics: int = 8) -> int:
    """A server's share of a three-tier fat tree: NICs, used switch ports, their transceivers."""
    ports = FAT_TREE_PORTS
    each = prices.nic + prices.transceiver + ports * (prices.packet_port + prices.transceiver)
    return nics * each


def mixnet_cost(prices: Prices, optical: int = 6, packet: int = 2) -> int:
    """A server's share of MixNet: `packet` NICs on a fat tree, `optical` on circuit switches."""
    each = prices.nic + prices.transceiver + prices.optical_port
    return fat_tree_cost(prices, packet) + optical * each
