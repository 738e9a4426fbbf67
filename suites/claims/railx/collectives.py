"""Times of collectives on RailX by formula (section 4.2, appendix A.2, equations 6 to 9, 12, 13).

`size` is V in bytes, `bps` is B or n B in bit/s of one direction, `latency_ns` is alpha of an
optical hop, results are in ns. Where the paper approximates, the exact form and the printed one
have functions of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from lightrig.harness.systems.railx.planning.physical import RailxError


class NodeGroup(NamedTuple):
    """Nodes of `mesh` x `mesh` chips in `side` x `side`, and their links.

    bps: n B, of all ports at a chip edge. multiple: k, of the mesh over that.
    """

    mesh: int
    side: int
    bps: float
    multiple: float
    latency_ns: float


def ring(ranks: int, size: float, bps: float, latency_ns: float) -> float:
    """Reduce-scatter or all-gather on a ring used in both directions (equation 6).

    (p - 1) alpha + (p - 1)/p V/(2 B).
    """
    return (ranks - 1) * latency_ns + (ranks - 1) / ranks * _transfer(size, 2 * bps)


def ring_1d(ranks: int, size: float, bps: float, latency_ns: float) -> float:
    """All-reduce on one ring through all chips: equation 6 twice; the baseline of section 6.4."""
    return 2 * ring(ranks, size, bps, latency_ns)


def ring_2d(group: NodeGroup, size: float) -> float:
    """All-reduce on rings of m p chips in both dimensions at once, first line of equation 7.

    4 (m p - 1) alpha + V/(2 n B) (1 - 1/(m p)^2).
    """
    chips = group.mesh * group.side
    return 2 * (
        ring(chips, size / 2, group.bps, group.latency_ns)
        + ring(chips, size / 2 / chips, group.bps, group.latency_ns)
    )


def ring_2d_printed(group: NodeGroup, size: float) -> float:
    """4 m p alpha + V/(2 n B), second line of equation 7."""
    return 4 * group.mesh * group.side * group.latency_ns + _transfer(size, 2 * group.bps)


def local(group: NodeGroup, size: float) -> float:
    """All-reduce within a node, latency left out: first line of equation 13.

    2 (m^2 - 1)/m^2 V/(2 k n B).
    """
    chips = group.mesh**2
    return 2 * (chips - 1) / chips * _transfer(size, 2 * group.multiple * group.bps)


def hierarchical(group: NodeGroup, size: float) -> float:
    """All-reduce within nodes, then 2D rings among chips of one rank: equation 8, exactly.

    The m chips of a rail share it, so each has n B / m for its V / m^2.
    """
    share, bps = size / group.mesh**2, group.bps / group.mesh
    among = 2 * (
        ring(group.side, share / 2, bps, group.latency_ns)
        + ring(group.side, share / 2 / group.side, bps, group.latency_ns)
    )
    return local(group, size) + among


def hierarchical_printed(group: NodeGroup, size: float) -> float:
    """4 p alpha + (2/k + 1/m) V/(2 n B), as equation 8 is printed."""
    return 4 * group.side * group.latency_ns + _factor(group) * _transfer(size, 2 * group.bps)


def hierarchical_from(mesh: int) -> float:
    """Multiple k from which equation 8 has a lesser bandwidth term than equation 7: 2 m/(m - 1).

    The text says k > 2 (section 4.2), which is the limit for large m. Raises `RailxError` for
    m = 1, where there is no mesh.
    """
    if mesh < 2:
        raise RailxError("a node of one chip has no mesh to reduce on")
    return 2 * mesh / (mesh - 1)


def direct(ranks: int, size: float, bps: float, latency_ns: float) -> float:
    """Alpha + (p - 1)/p V/(2 B): each node sends every other its share at once (equation 12)."""
    return latency_ns + (ranks - 1) / ranks * _transfer(size, 2 * bps)


def hyperx(group: NodeGroup, size: float) -> float:
    """All-reduce on 2D-HyperX by direct exchanges, third line of equation 13.

    (m^2 - 1)/m^2 V/(k n B) + 4 alpha + (p^2 - 1)/p^2 (V/m^2)/(2 n B/m).
    """
    share, bps = size / group.mesh**2 / 2, group.bps / group.mesh
    return local(group, size) + 2 * (
        direct(group.side, share, bps, group.latency_ns)
        + direct(group.side, share / group.side, bps, group.latency_ns)
    )


def hyperx_middle_line(group: NodeGroup, size: float) -> float:
    """The second line of equation 13 as printed: T_AR(m p, ...) in the second dimension.

    Its result, the third line, follows only from T_AR(p, ...).
    """
    share, bps = size / group.mesh**2 / 2, group.bps / group.mesh
    return local(group, size) + 2 * (
        direct(group.side, share, bps, group.latency_ns)
        + direct(group.mesh * group.side, share / group.side, bps, group.latency_ns)
    )


def hyperx_printed(group: NodeGroup, size: float) -> float:
    """4 alpha + (2/k + 1/m) V/(2 n B), last line of equation 13: independent of p."""
    return 4 * group.latency_ns + _factor(group) * _transfer(size, 2 * group.bps)


def node_level(group: NodeGroup, size: float, dimensions: int) -> float:
    """All-reduce among chips of one rank, one or two dimensions, as printed (equation 9).

    2 p alpha + V/(n B/m), or 4 p alpha + V/(2 n B/m).
    """
    if dimensions not in (1, 2):
        raise RailxError(f"found {dimensions} dimensions, equation 9 has one or two")
    hops = 2 * dimensions * group.side
    return hops * group.latency_ns + _transfer(size, dimensions * group.bps / group.mesh)


def all_to_all(ranks: int, size: float, bps: float, latency_ns: float) -> float:
    """Return the time of an all-to-all over the two direct links of each pair.

    Each rank sends V/p to each of the others; p - 1 rails with two ports carry it: alpha +
    V/(2 p B), with B that of one port (table 4 writes alpha + V/(2 n_e/m) with n_e = p - 1 rails a
    chip edge and V as what leaves a chip).
    """
    return latency_ns + _transfer(size / ranks, 2 * bps)


def many_dimensional(
    sides: Sequence[int], shares: Sequence[float], size: float, latency_ns: float
) -> float:
    """Reduce-scatter dimension by dimension, then all-gather backwards: T_hD of section 4.2.

    `shares` are the bandwidths n_i B of the dimensions. The paper names T_hD and gives no formula;
    this runs the dimensions one after another in the given order, without chunks at once.
    """
    time, left = 0.0, size
    for side, bps in zip(sides, shares, strict=True):
        time += 2 * ring(side, left, bps, latency_ns)
        left /= side
    return time


def mesh_ring(mesh: int) -> list[tuple[int, int]]:
    """Return a ring of one-hop neighbours through all chips of a mesh, as (x, y).

    Raises `RailxError` for odd m: a grid of odd size has no Hamiltonian cycle, so the ring of
    Fig. 11a does not exist for the paper's m = 5 and 7.
    """
    if mesh % 2 or mesh < 2:
        raise RailxError(
            f"a mesh of {mesh} x {mesh} chips has no ring through all of them in single hops; "
            "use an even m, or a ring with one hop of two"
        )
    snake = [
        (x, y)
        for x in range(mesh)
        for y in (range(1, mesh) if x % 2 == 0 else range(mesh - 1, 0, -1))
    ]
    found = [*snake, *((x, 0) for x in range(mesh - 1, -1, -1))]
    assert all(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in pairwise([*found, found[0]]))
    return found


def swing_peer(rank: int, step: int, ranks: int) -> int:
    """Return whom a rank exchanges with in `step` (from 0) of Swing, on a ring of a power of two.

    The distance is (1 - (-2)^(s + 1)) / 3, to the right for even ranks and the left for odd ones
    (De Sensi et al., 2024), which section 4.2 names as applicable to rail rings.
    """
    distance = (1 - int((-2) ** (step + 1))) // 3
    return (rank + distance if rank % 2 == 0 else rank - distance) % ranks


def _factor(group: NodeGroup) -> float:
    return 2 / group.multiple + 1 / group.mesh


def _transfer(size: float, bps: float) -> float:
    return 8e9 * size / bps
