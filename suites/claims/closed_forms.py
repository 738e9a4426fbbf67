"""Times of collectives by formula, each with its source, to check the flow model with.

`size` is in bytes, `bps` in bit/s, `latency_ns` (alpha) in ns, results in ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lightrig.instruments.jobs.flows.network import ring_pairs


def ring_all_reduce(ranks: int, size: float, bps: float, latency_ns: float = 0.0) -> float:
    """2 (n - 1) (alpha + S / (n B)); the bus bandwidth of it is B.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009; the factor is
    that of nccl-tests, doc/PERFORMANCE.md.
    """
    return 2 * ring_reduce_scatter(ranks, size, bps, latency_ns)


def ring_reduce_scatter(ranks: int, size: float, bps: float, latency_ns: float = 0.0) -> float:
    """(n - 1) (alpha + S / (n B)), and as long for an all-gather."""
    return (ranks - 1) * (latency_ns + _transfer(size / ranks, bps))


def all_to_all_on_ring(ranks: int, size: float, bps: float, *, both_ways: bool = True) -> float:
    """All-to-all on a ring whose ranks forward: n^2/8 shares cross an edge.

    (n^2 - 1)/8 for an odd n; n (n - 1)/2 on a unidirectional ring. A share is S / n.

    Source: the sum of distances to all ranks, over the edges of a rank.
    """
    shares = (ranks * ranks - ranks % 2) / 8 if both_ways else ranks * (ranks - 1) / 2
    return _transfer(size / ranks * shares, bps)


def all_to_all_on_torus(side: int, size: float, bps: float) -> float:
    """All-to-all on a square torus of side^2 ranks, with traffic shared evenly.

    A rank has two edges per dimension, and side times as many pairs use a line as on a ring.

    Source: as `all_to_all_on_ring`.
    """
    shares = side * (side * side - side % 2) / 8
    return _transfer(size / side**2 * shares, bps)


def all_to_all_on_line(ranks: int, size: float, bps: float) -> float:
    """All-to-all on a ring that lacks one link: n^2/4 shares cross the edge in the middle.

    (n^2 - 1)/4 for an odd n. Source: pairs on either side of a line's middle.
    """
    return _transfer(size / ranks * (ranks * ranks - ranks % 2) / 4, bps)


def all_to_all_on_full_mesh(ranks: int, size: float, bps: float) -> float:
    """S / (n B): each pair of ranks has an edge."""
    return _transfer(size / ranks, bps)


def unequal_all_to_all_on_full_mesh(sizes: Sequence[Sequence[float]], bps: float) -> float:
    """S_ij / B of the largest share: each pair of ranks has an edge."""
    return max(_transfer(size, bps) for i, row in enumerate(sizes) for size in _without(row, i))


def unequal_all_to_all_at_least(sizes: Sequence[Sequence[float]], bps: float) -> float:
    """Lower bound: the most that a rank sends or receives, over B, with one edge per direction.

    No schedule is faster. One that shares a switch's ports fairly may be slower, if a rank waits
    for congested ones.
    """
    sent = [sum(_without(row, i)) for i, row in enumerate(sizes)]
    received = [sum(_without(column, j)) for j, column in enumerate(zip(*sizes, strict=True))]
    return _transfer(max(*sent, *received), bps)


def _without(sizes: Sequence[float], rank: int) -> list[float]:
    return [size for index, size in enumerate(sizes) if index != rank]


def _transfer(size: float, bps: float) -> float:
    return 8e9 * size / bps


def full_mesh_pairs(ranks: Sequence[str]) -> list[tuple[str, str]]:
    """Return all pairs of ranks."""
    return [(a, b) for index, a in enumerate(ranks) for b in ranks[index + 1 :]]


def grid_pairs(rows: Sequence[Sequence[str]], *, wrapped: bool) -> list[tuple[str, str]]:
    """Return the neighbours in a mesh, or in a torus if `wrapped`."""
    lines = [list(row) for row in rows] + [list(column) for column in zip(*rows, strict=True)]
    if wrapped:
        return [pair for line in lines for pair in ring_pairs(line)]
    return [pair for line in lines for pair in pairwise(line)]
