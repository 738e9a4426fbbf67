"""The paper's figures, by arithmetic."""

import pytest

from lightrig.harness.systems.mixnet.planning.costs import (
    OVERSUBSCRIBED_PORTS,
    PRICES,
    fat_tree_cost,
    mixnet_cost,
    prices_at,
    rate_at_cost,
    topoopt_cost,
)


def test_costs_by_hand():
    prices = PRICES[100]
    assert fat_tree_cost(prices, nics=1) == 659 + 99 + 5 * (187 + 99)
    assert mixnet_cost(prices, optical=1, packet=0) == 659 + 99 + 520


def test_prices_between_two_rates_are_on_the_line_through_them() -> None:
    """At 300 Gbit/s halfway between 200 and 400; beyond 800 as from 400 to 800."""
    assert prices_at(300).transceiver == pytest.approx((239 + 659) / 2)
    assert prices_at(300).nic == pytest.approx((1079 + 1499) / 2)
    assert prices_at(300).packet_port == pytest.approx((374 + 1090) / 2)
    assert prices_at(1000).packet_port == pytest.approx(1400 + (1400 - 1090) / 2)
    assert prices_at(300).optical_port == 520
    for rate, prices in PRICES.items():
        assert prices_at(rate) == prices


def test_networks_of_one_cost_have_packets_of_other_rates() -> None:
    """Two NICs on circuits and one on packets at 400 Gbit/s cost 16,259 $ a server, by hand.

    Three NICs of a fat tree at 200 Gbit/s cost 3 x 4,383, at 400 3 x 10,903; with a third of the
    links upwards 3 x 2,748.33 and 3 x 6,239. With a patch panel 840 $ are left for the packet NIC,
    which costs 10,903 at 400 Gbit/s and 17,642 at 800.
    """
    prices = PRICES[400]
    cost = 2 * (1499 + 659 + 520) + 1499 + 659 + 5 * (1090 + 659)
    assert mixnet_cost(prices, 2, 1) == cost == 16_259
    tree = rate_at_cost(cost, lambda rate: fat_tree_cost(prices_at(rate), 3))
    assert tree == pytest.approx(200 + 200 * (cost / 3 - 4383) / (10_903 - 4383), rel=1e-6)
    third = rate_at_cost(cost, lambda rate: fat_tree_cost(prices_at(rate), 3, OVERSUBSCRIBED_PORTS))
    assert third == pytest.approx(200 + 200 * (cost / 3 - 2748.333) / 3490.667, rel=1e-5)
    panel = rate_at_cost(cost, lambda rate: topoopt_cost(prices, 2, prices_at(rate), 1))
    assert panel == pytest.approx(400 + 400 * 2 * 420 / (17_642 - 10_903), rel=1e-6)
    with pytest.raises(ValueError, match="costs 12 dollars"):
        rate_at_cost(12, lambda rate: fat_tree_cost(prices_at(rate), 3))
