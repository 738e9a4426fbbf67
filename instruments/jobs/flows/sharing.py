"""Max-min fair sharing of the capacity of edges by the flows that cross them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lightrig.instruments.jobs.flows.network import Bools, Floats, Indices
from lightrig.instruments.jobs.flows.routing import Route

_SATURATED = 1e-9
"""Relative difference within which an edge counts as saturated with the tightest one."""


class Crossings(NamedTuple):
    """Pairs of flow and crossed edge, with the share of the flow; three arrays of one length."""

    flows: Indices
    edges: Indices
    shares: Floats

    @classmethod
    def of(cls, routes: Sequence[Route]) -> Crossings:
        """Return the crossings of one flow per route."""
        counts = [len(route.edges) for route in routes]
        return cls(
            np.repeat(np.arange(len(routes)), counts),
            np.concatenate([np.zeros(0, dtype=np.int64), *(route.edges for route in routes)]),
            np.concatenate([np.zeros(0), *(route.shares for route in routes)]),
        )

    def loads(self, rates: Floats, edge_count: int) -> Floats:
        """Return the load of each edge for flows with `rates`."""
        weights = self.shares * rates[self.flows]
        return np.bincount(self.edges, weights, edge_count).astype(np.float64)


def max_min(capacities: Floats, crossings: Crossings, active: Bools) -> Floats:
    """Return the max-min fair rates of the `active` flows, in the unit of `capacities`.

    No flow can gain without taking from one that has no more than it: every flow crosses a
    saturated edge on which no flow has more. A flow without edges is infinitely fast, one that is
    not active has rate 0.

    Source: progressive filling, Bertsekas and Gallager, Data Networks, section 6.5.2.
    """
    count, edge_count = len(active), len(capacities)
    rates = np.where(active, np.inf, 0.0)
    unfixed = np.zeros(count, dtype=bool)
    unfixed[crossings.flows] = True
    unfixed &= active
    taken = np.zeros(edge_count)
    # Progressive filling: raise the rates of all unfixed flows together until the first edge is
    # saturated, fix the flows on it, and go on with the rest.
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
