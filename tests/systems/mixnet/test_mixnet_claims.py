"""The paper's figures, by arithmetic."""

from lightrig.harness.systems.mixnet.planning.costs import PRICES, fat_tree_cost, mixnet_cost


def test_costs_by_hand():
    prices = PRICES[100]
    assert fat_tree_cost(prices, nics=1) == 659 + 99 + 5 * (187 + 99)
    assert mixnet_cost(prices, optical=1, packet=0) == 659 + 99 + 520
