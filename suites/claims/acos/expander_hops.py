"""Hops in expanders, whole and after failures of their 2x2 switches."""

from collections.abc import Sequence

import numpy as np
import scipy

from lightrig.harness.systems.acos.planning.expanders import Edge, Splittable
from lightrig.harness.systems.acos.planning.optics import FabricError


def after_switch_failures(expander: Splittable, *, split: bool) -> list[tuple[int, float]]:
    """Return diameter and mean hops for each pair of links whose 2x2 switches have failed.

    Both links are lost in both directions: a NIC has no link with one fiber dark. When split, the
    worse half counts. Raises `FabricError` where GPUs are cut off.
    """
    found = []
    half = expander.nodes // 2
    for pair in expander.pairs:
        edges = list(expander.split if split else expander.merged)
        lost = (
            ((pair.a, pair.c), (pair.b, pair.d)) if split else ((pair.a, pair.b), (pair.c, pair.d))
        )
        for edge in lost:
            edges.remove(edge)
        if not split:
            found.append(diameter_and_mean(expander.nodes, edges))
            continue
        parts = [
            [(u - first, v - first) for u, v in edges if first <= u < first + half]
            for first in (0, half)
        ]
        found.append(max(diameter_and_mean(half, part) for part in parts))
    return found


def diameter_and_mean(nodes: int, edges: Sequence[Edge]) -> tuple[int, float]:
    """Diameter and mean number of hops between two nodes; raise `FabricError` if unconnected."""
    linked = np.zeros((nodes, nodes))
    for a, b in edges:
        linked[a, b] = 1
    hops = scipy.sparse.csgraph.shortest_path(linked, directed=False, unweighted=True)
    if np.isinf(hops).any():
        raise FabricError("the graph is not connected")
    return int(hops.max()), float(hops.sum() / (nodes * (nodes - 1)))
