"""How flows share the capacity of the edges that they cross: max-min fairly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from testbeds.flows.network import Bools, Floats, Indices
from testbeds.flows.routing import Route

_SATURATED = 1e-9
"""How near to the least share of capacity an edge's share must be to count as equal to it."""


class Crossings(NamedTuple):
    """Which flow crosses which edge, and with what share of itself; three equal lengths."""

    flows: Indices
    edges: Indices
    shares: Floats

    @classmethod
    def of(cls, routes: Sequence[Route]) -> Crossings:
        """The crossings of one flow a route."""
        counts = [len(route.edges) for route in routes]
        return cls(
            np.repeat(np.arange(len(routes)), counts),
            np.concatenate([np.zeros(0, dtype=np.int64), *(route.edges for route in routes)]),
            np.concatenate([np.zeros(0), *(route.shares for route in routes)]),
        )

    def loads(self, rates: Floats, edge_count: int) -> Floats:
        """What each edge carries where the flows have `rates`."""
        weights = self.shares * rates[self.flows]
        return np.bincount(self.edges, weights, edge_count).astype(np.float64)


def max_min(capacities: Floats, crossings: Crossings, active: Bools) -> Floats:
    """The max-min fair rates of the flows that are `active`, in the unit of `capacities`.

    No flow can have more without taking from one that has no more than it: every flow crosses
    an edge that is full and on which none has more. A flow that crosses nothing is infinitely
    fast, one that is not active has rate 0.

    Source: progressive filling, Bertsekas and Gallager, Data Networks, section 6.5.2.
    """
    count, edge_count = len(active), len(capacities)
    rates = np.where(active, np.inf, 0.0)
    unfixed = np.zeros(count, dtype=bool)
    unfixed[crossings.flows] = True
    unfixed &= active
    taken = np.zeros(edge_count)
    while unfixed.any():
        demand = crossings.loads(unfixed.astype(float), edge_count)
        wanted = demand > 0
        shares = np.full(edge_count, np.inf)
        shares[wanted] = np.maximum(capacities[wanted] - taken[wanted], 0.0) / demand[wanted]
        level = shares.min()
        full = shares <= level * (1 + _SATURATED)
        stopped = np.zeros(count, dtype=bool)
        stopped[crossings.flows[full[crossings.edges]]] = True
        stopped &= unfixed
        rates[stopped] = level
        taken += crossings.loads(np.where(stopped, level, 0.0), edge_count)
        unfixed &= ~stopped
    return rates
