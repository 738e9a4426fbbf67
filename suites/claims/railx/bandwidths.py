"""Bisection and all-to-all bounds of generated settings (RailX, table 2, equations 2 to 5)."""

from __future__ import annotations

import numpy as np

from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS, Settings
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric


def bisection(settings: Settings, dimension: Dimension, cut: int | None = None) -> int:
    """Return B_c in ports, both directions: links between the first `cut` places and the others.

    By default the cut halves the lines of `dimension`. Each cross-connect is a duplex link, so it
    counts two.
    """
    array = settings.of(dimension)
    length = settings.fabric.length(dimension)
    first = np.arange(length) < (length // 2 if cut is None else cut)
    following = np.where(array == DARK, np.arange(length), array)
    return 2 * int((first[following] != first).sum())


def all_to_all_bound(settings: Settings) -> float:
    """Return 2 B_c / N in ports a chip, over the narrower dimension (equation 2).

    Table 2 calls it the bisection bandwidth. For an odd line the halves are unequal, and the bound
    is that of traffic between them: N^2 / (2 a b) B_c / N, with parts of a and b chips.
    """
    bounds = []
    for dimension in DIMENSIONS:
        length = settings.fabric.length(dimension)
        share = (length // 2) / length
        balance = 1 / (4 * share * (1 - share))
        bounds.append(2 * balance * bisection(settings, dimension) / settings.fabric.chips)
    return min(bounds)


def torus_printed(fabric: RailFabric) -> float:
    """16 n / (R m) (equation 2)."""
    return 16 * fabric.ports / (fabric.radix * fabric.mesh)


def hyperx_exact(fabric: RailFabric) -> float:
    """2 (r + 1) / m^2, exactly (equation 3); the printed 2 n / m leaves out 2 / m^2."""
    return 2 * (fabric.rails + 1) / fabric.mesh**2


def low_diameter_printed(fabric: RailFabric) -> float:
    """2 n / m, of HyperX (approximately) and Dragonfly (exactly) (equations 3 and 4)."""
    return 2 * fabric.ports / fabric.mesh


def dragonfly_exact(fabric: RailFabric) -> float:
    """Equation 4: 2 (r + 1) (R/2) r over (r + 1) (R/2) m^2 chips."""
    groups = fabric.radix // 2
    return (
        2
        * (fabric.rails + 1)
        * groups
        * fabric.rails
        / ((fabric.rails + 1) * groups * fabric.mesh**2)
    )


def dragonfly_minimal_bound(settings: Settings, groups: int) -> tuple[float, float]:
    """Return all-to-all bounds of global and of local links, in flits a cycle and chip.

    Minimal routing: within a group to a row with a link to the destination's group, over it, and
    within that group; links of two groups share their traffic evenly. Equation 4 is about the cut
    between groups alone. `settings` are one Dragonfly of `groups` columns and r + 1 rows.
    """
    fabric = settings.fabric
    size, mesh = fabric.rails + 1, fabric.mesh
    joined = np.zeros((size, groups, groups))
    for row in range(size):
        for following in settings.x[row]:
            for here in np.flatnonzero(following[:groups] != DARK).tolist():
                joined[row, here, following[here]] += 1
                joined[row, following[here], here] += 1
    links = joined.sum(axis=0)
    shares = np.divide(joined, links, out=np.zeros_like(joined), where=links > 0)
    # Node pairs of two groups over each link, in one direction; every group pair has links.
    global_load = size**2 / links[links > 0].min()
    # What leaves row a for row j, plus what enters at row j for row b, beside direct traffic.
    local_load = 1 + 2 * size * shares.sum(axis=2).max()
    unit = groups * size * mesh**2 / mesh**4
    # Two nodes of a group have two links.
    return float(unit / global_load), float(unit / (local_load / 2))


def twisted_torus_gain(side: int) -> float:
    """Return all-to-all throughput of the twisted 2n x n torus over the regular one (Fig. 3).

    (2 n - 1, y) is joined to (0, y) and (x, n - 1) to ((x + n) mod 2 n, 0). All shortest paths
    share the traffic evenly; the most loaded link decides.
    """
    import networkx as nx  # loads slowly, and few commands need it

    loads = []
    for shift in (0, side):
        graph = nx.Graph()
        for x in range(2 * side):
            for y in range(side):
                graph.add_edge((x, y), ((x + 1) % (2 * side), y))
                above = (x, y + 1) if y + 1 < side else ((x + shift) % (2 * side), 0)
                graph.add_edge((x, y), above)
        loads.append(max(nx.edge_betweenness_centrality(graph, normalized=False).values()))
    return float(loads[0] / loads[1])


def mesh_bisection_per_port(fabric: RailFabric, multiple: float) -> float:
    """2 k m n / (4 m n): the mesh's bisection, both directions, for each optical port (eq. 5)."""
    return 2 * multiple * fabric.rails / (4 * fabric.rails)
