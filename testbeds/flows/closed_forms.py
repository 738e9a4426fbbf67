"""Times of collectives by formula, each with its source, to hold the flow model against.

`size` is in bytes, `bps` in bit/s, `latency_ns` (alpha) in ns, results in ns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def ring_all_reduce(ranks: int, size: float, bps: float, latency_ns: float = 0.0) -> float:
    """2 (n - 1) (alpha + S / (n B)); the bus bandwidth of it is B.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009; the factor is
    that of nccl-tests, doc/PERFORMANCE.md.
    """
    return 2 * ring_reduce_scatter(ranks, size, bps, latency_ns)


def ring_reduce_scatter(ranks: int, size: float, bps: float, latency_ns: float = 0.0) -> float:
    """(n - 1) (alpha + S / (n B)), and as long for an all-gather."""
    return (ranks - 1) * (latency_ns + _transfer(size / ranks, bps))


def binary_exchange(ranks: int, size: float, bps: float, latency_ns: float = 0.0) -> float:
    """t_s log2 p + (1/2) t_w m p log2 p, with m p the `size` that a rank holds.

    Source: InfiniteHBD, appendix G.2.
    """
    return math.log2(ranks) * (latency_ns + _transfer(size / 2, bps))


def all_to_all_on_ring(ranks: int, size: float, bps: float, *, both_ways: bool = True) -> float:
    """All-to-all on a ring whose ranks forward: distance by distance, n^2/8 shares cross an edge.

    (n^2 - 1)/8 for an odd n; n (n - 1)/2 where edges lead one way only. A share is S / n.

    Source: the sum of distances to all others over the edges of a rank.
    """
    shares = (ranks * ranks - ranks % 2) / 8 if both_ways else ranks * (ranks - 1) / 2
    return _transfer(size / ranks * shares, bps)


def all_to_all_on_torus(side: int, size: float, bps: float) -> float:
    """All-to-all on a square torus of side^2 ranks, dimension by dimension, way evenly shared.

    A rank has two edges a dimension, and side times as many pairs use a line as on a ring.

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
    """S / (n B): a rank has an edge to each other."""
    return _transfer(size / ranks, bps)


def unequal_all_to_all_on_full_mesh(sizes: Sequence[Sequence[float]], bps: float) -> float:
    """S_ij / B of the largest share: each pair has an edge to itself."""
    return max(_transfer(size, bps) for i, row in enumerate(sizes) for size in _others(row, i))


def unequal_all_to_all_at_least(sizes: Sequence[Sequence[float]], bps: float) -> float:
    """The most that a rank sends or receives, over B: through one edge each way a rank.

    No schedule is faster; one that shares a switch's ports fairly may be slower, where a rank
    waits for others that are crowded.
    """
    sent = [sum(_others(row, i)) for i, row in enumerate(sizes)]
    received = [sum(_others(column, j)) for j, column in enumerate(zip(*sizes, strict=True))]
    return _transfer(max(*sent, *received), bps)


def hierarchical_ring(
    groups: int, within: int, size: float, within_bps: float, across_bps: float
) -> float:
    """A reduce-scatter and an all-gather within groups, an all-reduce of a share across them.

    Source: Cho et al., BlueConnect, 2019, with two levels.
    """
    return 2 * ring_reduce_scatter(within, size, within_bps) + ring_all_reduce(
        groups, size / within, across_bps
    )


def railx_ring(ranks: int, size: float, bps: float, latency_ns: float) -> float:
    """T_R = (p - 1) alpha + ((p - 1) / p) V / (2 B): half a ring's traffic goes either way.

    Source: RailX, equation 6.
    """
    return (ranks - 1) * latency_ns + (ranks - 1) / ranks * _transfer(size, 2 * bps)


def railx_2d_ring(side: int, size: float, bps: float, latency_ns: float) -> float:
    """2 [T_R(p, V/2, B) + T_R(p, V/(2 p), B)], p ranks a side, B that of a chip's edge.

    Exactly 4 (p - 1) alpha + V/(2 B) (1 - 1/p^2); the printed 4 p alpha + V/(2 B) leaves
    lower orders out. Source: RailX, equation 7, with its m p written as `side`, its n B as `bps`.
    """
    return 2 * (
        railx_ring(side, size / 2, bps, latency_ns)
        + railx_ring(side, size / 2 / side, bps, latency_ns)
    )


def railx_local(chips: int, size: float, bps: float, multiple: float) -> float:
    """2 ((c - 1) / c) V / (2 k B): the all-reduce within a node of c chips, latency left out.

    Source: RailX, equation 13, first line; equation 8 has it without (c - 1) / c. Its m^2 is
    written as `chips`, k as `multiple`, n B as `bps`.
    """
    return 2 * (chips - 1) / chips * _transfer(size, 2 * multiple * bps)


def railx_hierarchical(
    nodes: int, mesh: int, size: float, bps: float, multiple: float, latency_ns: float
) -> float:
    """4 p alpha + (2/k + 1/m) V/(2 B), as printed: lower orders left out.

    Source: RailX, equation 8; p nodes a side, m chips a side of a node. It has more bandwidth
    than equation 7 only from k > 2 m / (m - 1), where the text says k > 2.
    """
    return 4 * nodes * latency_ns + (2 / multiple + 1 / mesh) * _transfer(size, 2 * bps)


def railx_hierarchical_exact(
    nodes: int, mesh: int, size: float, bps: float, multiple: float, latency_ns: float
) -> float:
    """Equation 8 with its lower orders: `railx_local`, and `railx_2d_ring` of V/m^2 at B/m."""
    return railx_local(mesh * mesh, size, bps, multiple) + railx_2d_ring(
        nodes, size / mesh**2, bps / mesh, latency_ns
    )


def railx_direct(ranks: int, size: float, bps: float, latency_ns: float) -> float:
    """T_AR = alpha + ((p - 1) / p) V / (2 B): each node sends every other its share at once.

    Source: RailX, equation 12.
    """
    return latency_ns + (ranks - 1) / ranks * _transfer(size, 2 * bps)


def railx_hyperx(
    nodes: int, mesh: int, size: float, bps: float, multiple: float, latency_ns: float
) -> float:
    """((m^2 - 1) / m^2) V/(k B) + 4 alpha + ((p^2 - 1) / p^2) (V/m^2) / (2 B/m).

    Source: RailX, equation 13. Its middle line has T_AR(m p, ...) in the second dimension; the
    result, which is this one, needs T_AR(p, ...).
    """
    share, shared = size / mesh**2 / 2, bps / mesh
    return railx_local(mesh * mesh, size, bps, multiple) + 2 * (
        railx_direct(nodes, share, shared, latency_ns)
        + railx_direct(nodes, share / nodes, shared, latency_ns)
    )


def _others(sizes: Sequence[float], own: int) -> list[float]:
    return [size for rank, size in enumerate(sizes) if rank != own]


def _transfer(size: float, bps: float) -> float:
    return 8e9 * size / bps
