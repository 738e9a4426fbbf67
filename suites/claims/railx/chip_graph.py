"""Chips, their ports and what each port is joined to, under one setting of the switches.

Chip ((j columns + i) m + y) m + x is at column x and row y of the mesh of node (i, j). Its ports
are 0 to 3 on the mesh (towards greater x, lesser x, greater y, lesser y) and n each at the edges
X+, X-, Y+ and Y-, which only chips at that edge have. A router is an array indexed by chip and
port.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS, Settings
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric

Indices = npt.NDArray[np.int64]
MESH_PORTS = 4
ABSENT = -1
_STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class ChipGraph:
    """The chips of `settings`; `peer_chip` and `peer_port` are chips x ports, -1 where absent."""

    settings: Settings
    peer_chip: Indices
    peer_port: Indices

    @classmethod
    def of(cls, settings: Settings) -> ChipGraph:
        """Join the chips of every node by its mesh and by the optical links of `settings`."""
        fabric = settings.fabric
        shape = (fabric.chips, MESH_PORTS + 4 * fabric.ports)
        graph = cls(settings, np.full(shape, ABSENT), np.full(shape, ABSENT))
        graph._join_meshes()
        for dimension in DIMENSIONS:
            graph._join_rails(dimension)
        return graph

    @property
    def fabric(self) -> RailFabric:
        """The fabric of the settings."""
        return self.settings.fabric

    @property
    def optical(self) -> npt.NDArray[np.bool_]:
        """Whether each port is an optical one; one value for each port number."""
        return np.arange(self.peer_chip.shape[1]) >= MESH_PORTS

    def _join_meshes(self) -> None:
        m = self.fabric.mesh
        chips = np.arange(self.fabric.chips)
        x, y = chips % m, chips // m % m
        for port, (dx, dy) in enumerate(_STEPS):
            inside = (x + dx >= 0) & (x + dx < m) & (y + dy >= 0) & (y + dy < m)
            self.peer_chip[inside, port] = chips[inside] + dx + m * dy
            self.peer_port[inside, port] = port ^ 1

    def _join_rails(self, dimension: Dimension) -> None:
        array = self.settings.of(dimension)
        line, rail, place = np.nonzero(array != DARK)
        following = array[line, rail, place].astype(np.int64)
        plus, plus_port = edge_port(self.fabric, dimension, line, rail, place, plus=True)
        minus, minus_port = edge_port(self.fabric, dimension, line, rail, following, plus=False)
        self.peer_chip[plus, plus_port], self.peer_port[plus, plus_port] = minus, minus_port
        self.peer_chip[minus, minus_port], self.peer_port[minus, minus_port] = plus, plus_port

    def adjacency(
        self, mesh_cost: float = 1.0, optical_cost: float = 1.0
    ) -> scipy.sparse.csr_array:
        """Return the cost of the cheapest link between each two chips, sparse."""
        chip, port = np.nonzero(self.peer_chip != ABSENT)
        cost = np.where(port >= MESH_PORTS, optical_cost, mesh_cost)
        order = np.argsort(-cost, kind="stable")
        dense = {
            (int(a), int(b)): float(c)
            for a, b, c in zip(
                chip[order], self.peer_chip[chip, port][order], cost[order], strict=True
            )
        }
        ends = np.array(list(dense), dtype=np.int64).reshape(-1, 2)
        count = self.fabric.chips
        return scipy.sparse.csr_array(
            (list(dense.values()), (ends[:, 0], ends[:, 1])), shape=(count, count)
        )

    def diameter(self, mesh_cost: float = 1.0, optical_cost: float = 1.0) -> float:
        """Return the largest of all cheapest distances between chips; infinite if parted."""
        costs = self.adjacency(mesh_cost, optical_cost)
        return float(scipy.sparse.csgraph.shortest_path(costs, method="D").max())


def edge_port(
    fabric: RailFabric,
    dimension: Dimension,
    line: Indices,
    rail: Indices,
    place: Indices,
    *,
    plus: bool,
) -> tuple[Indices, Indices]:
    """Return chip and port number of the ends of rails in nodes at `place` of `line`."""
    m, n = fabric.mesh, fabric.ports
    node = line * fabric.columns + place if dimension == "x" else place * fabric.columns + line
    edge = m - 1 if plus else 0
    within = rail // n * m + edge if dimension == "x" else edge * m + rail // n
    side = (0 if plus else 1) + (0 if dimension == "x" else 2)
    return node * m * m + within, MESH_PORTS + side * n + rail % n


def node_diameter(settings: Settings) -> int:
    """Return the diameter between nodes in optical hops, a node's mesh being free.

    Raises `ValueError` where some node cannot be reached.
    """
    fabric = settings.fabric
    pairs = []
    for dimension in DIMENSIONS:
        array = settings.of(dimension)
        line, rail, place = np.nonzero(array != DARK)
        following = array[line, rail, place].astype(np.int64)
        for one, two in ((place, following), (following, place)):
            ends = (
                (line * fabric.columns + one, line * fabric.columns + two)
                if dimension == "x"
                else (one * fabric.columns + line, two * fabric.columns + line)
            )
            pairs.append(np.stack(ends))
    sources, sinks = np.concatenate(pairs, axis=1)
    hops = scipy.sparse.csr_array(
        (np.ones(sources.size), (sources, sinks)), shape=(fabric.nodes, fabric.nodes)
    )
    largest = float(scipy.sparse.csgraph.shortest_path(hops, method="D", unweighted=True).max())
    if not np.isfinite(largest):
        raise ValueError("some nodes are not joined, the graph has no diameter")
    return int(largest)
