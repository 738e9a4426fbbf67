"""Cost of networks by size, from the paper's prices (MixNet Table 4), without fibers."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars, each for one: a transceiver, a NIC, a port of either switch."""

    transceiver: float
    nic: float
    packet_port: float
    optical_port: float = 520


PRICES = {
    100: Prices(99, 659, 187),
    200: Prices(239, 1079, 374),
    400: Prices(659, 1499, 1090),
    800: Prices(1399, 2248, 1400),
}
"""By link rate in Gbit/s. The patch panel's port, 100 dollars, is TopoOpt's alone."""

PANEL_PORT = 100
"""US dollars for a port of TopoOpt's patch panel."""

FAT_TREE_PORTS = 5
"""Switch ports for each NIC of a three-tier fat tree without oversubscription.

One at the leaf, and for each of the two links further up a port at either end.
"""


OVERSUBSCRIBED_PORTS = 1 + 4 / 3
"""The same where leaves have a third of the links upwards."""


def prices_at(rate: float) -> Prices:
    """Return prices at a rate in Gbit/s: on the line through those of the rates beside it.

    Beyond 800 Gbit/s, and below 100, on the line of the two nearest ones.
    """
    rates = sorted(PRICES)
    above = min(max(bisect_left(rates, rate), 1), len(rates) - 1)
    low, high = rates[above - 1], rates[above]
    part = (rate - low) / (high - low)

    def between(of: Callable[[Prices], float]) -> float:
        return of(PRICES[low]) + part * (of(PRICES[high]) - of(PRICES[low]))

    return Prices(
        between(lambda each: each.transceiver),
        between(lambda each: each.nic),
        between(lambda each: each.packet_port),
    )


def rate_at_cost(cost: float, cost_at: Callable[[float], float]) -> float:
    """Return the rate in Gbit/s at which what costs more the faster it is has a cost.

    Raises `ValueError` where it has not between 1 Gbit/s and 10 Tbit/s.
    """
    low, high = 1.0, 10_000.0
    if not cost_at(low) <= cost <= cost_at(high):
        raise ValueError(f"nothing between 1 Gbit/s and 10 Tbit/s costs {cost:.0f} dollars")
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if cost_at(middle) < cost else (low, middle)
    return (low + high) / 2


def fat_tree_cost(prices: Prices, nics: int = 8, ports: float = FAT_TREE_PORTS) -> float:
    """A server's share of a three-tier fat tree: NICs, used switch ports, their transceivers."""
    each = prices.nic + prices.transceiver + ports * (prices.packet_port + prices.transceiver)
    return nics * each


def mixnet_cost(prices: Prices, optical: int = 6, packet: int = 2) -> float:
    """A server's share of MixNet: `packet` NICs on a fat tree, `optical` on circuit switches."""
    each = prices.nic + prices.transceiver + prices.optical_port
    return fat_tree_cost(prices, packet) + optical * each


def topoopt_cost(prices: Prices, optical: int, packet: Prices, packets: int) -> float:
    """A server's share where `optical` NICs are on a patch panel, and `packets` on a fat tree.

    packet: prices at the rate of these, which may be another.
    """
    each = prices.nic + prices.transceiver + PANEL_PORT
    return fat_tree_cost(packet, packets) + optical * each
