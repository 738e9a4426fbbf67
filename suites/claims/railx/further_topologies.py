"""Topologies of RailX that its claims need beyond torus and HyperX, and graphs to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from lightrig.harness.systems.railx.planning.cross_connects import (
    DARK,
    Settings,
)
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import (
    Axis,
    Kind,
    configure,
    global_rails,
    line_setting,
)

if TYPE_CHECKING:
    import networkx as nx


def balanced(fabric: RailFabric, shares: Sequence[int]) -> list[tuple[int, ...]]:
    """Split the rails so that each chip row or column gives `shares` of its n ports to each part.

    All chips of a node then have the same bandwidth in each part. Raises `RailxError` unless the
    shares are positive and add up to n.
    """
    if sum(shares) != fabric.ports or min(shares) < 1:
        raise RailxError(f"found shares {tuple(shares)}, expected {fabric.ports} ports in all")
    ends = np.cumsum([0, *shares])
    return [
        tuple(
            row * fabric.ports + port
            for row in range(fabric.mesh)
            for port in range(int(first), int(last))
        )
        for first, last in pairwise(ends)
    ]


def uneven(fabric: RailFabric, shares: Sequence[int]) -> list[tuple[int, ...]]:
    """Split a node's rails by number, such as 3 : 1 of four; chips may differ in bandwidth."""
    if sum(shares) != fabric.rails or min(shares) < 1:
        raise RailxError(f"found shares {tuple(shares)}, expected {fabric.rails} rails in all")
    ends = np.cumsum([0, *shares])
    return [tuple(range(int(a), int(b))) for a, b in pairwise(ends)]


def rail_rings(fabric: RailFabric, size: int) -> Settings:
    """Return the all-to-all of `size` nodes in each row alone; Y-rails stay dark (Fig. 5)."""
    return configure(fabric, [Axis(size, "all-to-all", tuple(range(fabric.rails)))], [])


def split_hyperx(fabric: RailFabric, groups: int) -> Settings:
    """Return a HyperX of 2 x `groups` dimensions, rails split evenly in `groups` (section 3.1).

    Each physical dimension has (r / groups + 1)^groups nodes. Raises `RailxError` unless the rails
    can be split evenly.
    """
    if fabric.rails % groups:
        raise RailxError(f"{fabric.rails} rails cannot be split in {groups} equal groups")
    each = fabric.rails // groups
    parts = (
        balanced(fabric, [fabric.ports // groups] * groups)
        if fabric.ports % groups == 0
        else uneven(fabric, [each] * groups)
    )
    axes = [Axis(each + 1, "all-to-all", part) for part in parts]
    return configure(fabric, axes, axes)


def switched_phases(
    fabric: RailFabric, x: Sequence[tuple[int, Kind]], y: Sequence[Axis]
) -> list[Settings]:
    """Return a setting for each logical x dimension, in which it has all X-rails (section 5.2).

    `x` are sizes and kinds, such as rings of context and all-to-alls of expert parallelism. The
    settings differ on X-switches only, so that Y-rails carry traffic while X-rails are switched.
    """
    rails = tuple(range(fabric.rails))
    phases = []
    for active in range(len(x)):
        axes = [
            Axis(size, kind if n == active else "ring", rails if n == active else ())
            for n, (size, kind) in enumerate(x)
        ]
        phases.append(configure(fabric, axes, y))
    return phases


def dragonfly_groups(fabric: RailFabric) -> int:
    """Number of groups of a Dragonfly: min(r^2 + r + 1, columns)."""
    return min(fabric.rails**2 + fabric.rails + 1, fabric.columns)


def dragonfly(fabric: RailFabric, groups: int | None = None) -> Settings:
    """Return Dragonflies of r + 1 nodes a group (section 3.3.3).

    A group is r + 1 nodes of a column, joined all-to-all by their Y-rails; their r (r + 1) X-rails
    join the groups. Each X-rail of a group is a ring of its own, on the switch of its row and
    rail; with fewer groups than rails allow, rings are repeated on whole multiples of rails and
    the others stay dark. Rows beyond the last whole group are dark. Raises `RailxError` for rows
    fewer than r + 1 and for a number of groups without decomposition.
    """
    size, rails = fabric.rails + 1, fabric.rails
    count = dragonfly_groups(fabric) if groups is None else groups
    if count > dragonfly_groups(fabric):
        raise RailxError(f"{count} groups are too many, at most {dragonfly_groups(fabric)} fit")
    stacked = fabric.rows // size
    if not stacked:
        raise RailxError(f"a group of {size} nodes needs as many rows, found {fabric.rows}")
    x = np.full((fabric.rows, rails, fabric.columns), DARK, dtype=np.int16)
    copies = fabric.columns // count
    first = np.repeat(np.arange(copies) * count, count)
    patterns = np.tile(global_rails(count, size, rails), copies)
    joined = np.where(patterns == DARK, DARK, patterns + first)
    x[: stacked * size, :, : copies * count] = np.tile(joined, (stacked, 1, 1))
    local = line_setting(fabric, "y", [Axis(size, "all-to-all", tuple(range(rails)))])
    y = np.broadcast_to(local, (fabric.columns, *local.shape)).copy()
    return Settings(fabric, x, y)


def hyperx_graph(sizes: Sequence[int], links: int = 2) -> nx.MultiGraph:
    """Return a HyperX of `sizes` with `links` links a pair and dimension, to compare with."""
    import networkx as nx  # loads slowly, and few commands need it

    graph = nx.MultiGraph()
    graph.add_nodes_from(product(*map(range, sizes)))
    for node in list(graph):
        for axis, size in enumerate(sizes):
            for place in range(node[axis] + 1, size):
                peer = (*node[:axis], place, *node[axis + 1 :])
                graph.add_edges_from([(node, peer)] * links)
    return graph


def torus_graph(sizes: Sequence[int], links: int) -> nx.MultiGraph:
    """Return a torus of `sizes` with `links` parallel links, to compare with."""
    import networkx as nx  # loads slowly, and few commands need it

    graph = nx.MultiGraph()
    graph.add_nodes_from(product(*map(range, sizes)))
    for node in list(graph):
        for axis, size in enumerate(sizes):
            peer = (*node[:axis], (node[axis] + 1) % size, *node[axis + 1 :])
            graph.add_edges_from([(node, peer)] * links)
    return graph


def same_graph(one: nx.MultiGraph, two: nx.MultiGraph) -> bool:
    """Whether two multigraphs are isomorphic, counting parallel edges."""
    import networkx as nx  # loads slowly, and few commands need it

    simple = [nx.Graph(), nx.Graph()]
    for graph, counted in zip((one, two), simple, strict=True):
        counted.add_nodes_from(graph)
        for a, b in set(graph.edges()):
            counted.add_edge(a, b, links=graph.number_of_edges(a, b))
    return bool(
        nx.is_isomorphic(
            *simple, edge_match=nx.algorithms.isomorphism.numerical_edge_match("links", 1)
        )
    )
