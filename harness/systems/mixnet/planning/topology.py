"""Number of links of each pair of servers: MixNet's greedy algorithm, as meant and as printed."""

import heapq
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.mixnet.planning.demand import DemandError, Matrix

_AT_ONCE = 256

LinkCounts: TypeAlias = npt.NDArray[np.int64]
"""Links of each pair of servers, symmetric, nothing on the diagonal."""


def plan_links(
    demand: npt.ArrayLike, degree: int | Sequence[int], lifelines: LinkCounts | None = None
) -> LinkCounts:
    """Links that shorten the longest transfer first (MixNet Alg. 1, as intended).

    The printed algorithm stops at the first pair that has no free port; this one passes over
    it, as the paper's own example of 24 circuits requires. A pair without a link takes
    forever, so every pair that can have one gets it before any gets a second; among those the
    larger demand comes first, then the lower numbers. A pair without demand gets none.

    Args:
        demand: of each pair, above the diagonal, as `server_demand` gives it.
        degree: optical ports of every server, or of each.
        lifelines: links that there are to be in any case, None for none.

    Raises `DemandError`.
    """
    wanted = checked_demand(demand)
    links = np.zeros(wanted.shape, dtype=np.int64) if lifelines is None else lifelines.copy()
    degrees = np.array(free_ports(degree, len(wanted)))
    free = free_ports((degrees - links.sum(axis=1)).tolist(), len(wanted))
    served = [
        (-float(wanted[a, b] / links[a, b]), -float(wanted[a, b]), int(a), int(b))
        for a, b in np.argwhere((wanted > 0) & (links > 0))
    ]
    served += _serve_once(np.where(links > 0, 0.0, wanted), links, free)
    heapq.heapify(served)
    while served:
        _, size, a, b = heapq.heappop(served)
        if free[a] and free[b]:  # or else they will never be free again
            add_link(links, free, a, b)
            heapq.heappush(served, (size / float(links[a, b]), size, a, b))
    return links


def free_ports(degree: int | Sequence[int], servers: int) -> list[int]:
    """The optical ports of each server; raises `DemandError`."""
    free = [degree] * servers if isinstance(degree, int) else [int(each) for each in degree]
    if len(free) != servers or min(free, default=0) < 0:
        raise DemandError(f"found degrees {free}, expected {servers} of them, none below zero")
    return free


def completion(
    demand: npt.ArrayLike, links: LinkCounts, packet: float | Sequence[float] = 1.0
) -> float:
    """Return the duration of the exchange, in the time of one unit of demand over one link.

    A pair with links takes its demand over their number, as in the algorithm. What has none
    goes over the packet switch, where a server sends and receives for all its pairs at once
    through NICs worth `packet` links; with none it never ends. That is our measure, since the
    paper leaves out of the algorithm what the packet side has to carry.
    """
    wanted = checked_demand(demand)
    rates = np.broadcast_to(np.asarray(packet, dtype=float), len(wanted))
    lit = links > 0
    optical = np.max(wanted / np.where(lit, links, 1), where=lit, initial=0.0)
    rest = np.where(lit, 0.0, wanted)
    left = rest.sum(axis=0) + rest.sum(axis=1)
    busy = left > 0
    if (busy & (rates <= 0)).any():
        return float("inf")
    return float(max(optical, np.max(left[busy] / rates[busy], initial=0.0)))


def checked_demand(demand: npt.ArrayLike) -> Matrix:
    """Return the demand above the diagonal of a square; raise `DemandError` for another."""
    wanted = np.asarray(demand, dtype=float)
    if wanted.ndim != 2 or wanted.shape[0] != wanted.shape[1]:
        raise DemandError(f"found a demand of shape {wanted.shape}, expected servers x servers")
    if not (np.isfinite(wanted) & (wanted >= 0)).all() or np.tril(wanted).any():
        raise DemandError(
            "found a demand below zero, not finite or not above the diagonal, expected what "
            "server_demand gives"
        )
    return wanted


def _serve_once(
    demand: Matrix, links: LinkCounts, free: list[int]
) -> list[tuple[float, float, int, int]]:
    """Give each pair its first link while both ends have ports, the largest demand first.

    Returns minus the finish time, minus the demand and the numbers of each pair that has one.
    """
    a, b = np.nonzero(demand)
    order = np.argsort(-demand[a, b], kind="stable")
    a, b = a[order], b[order]
    served = []
    while a.size:
        # Most pairs never get a link: those whose ports are gone are dropped many at once.
        for first, second in zip(a[:_AT_ONCE].tolist(), b[:_AT_ONCE].tolist(), strict=True):
            if free[first] and free[second]:
                add_link(links, free, first, second)
                size = -float(demand[first, second])
                served.append((size, size, first, second))
        has_ports = np.asarray(free) > 0
        a, b = a[_AT_ONCE:], b[_AT_ONCE:]
        left = has_ports[a] & has_ports[b]
        a, b = a[left], b[left]
    return served


def add_link(links: LinkCounts, free: list[int], a: int, b: int) -> None:
    """Add a link of a pair, in place, and take its ports."""
    links[a, b] += 1
    links[b, a] += 1
    free[a] -= 1
    free[b] -= 1
