"""Deterministic minimal routing on 2D-HyperX with three virtual channels (Algorithm 1).

At the destination node a packet goes over the mesh on channel 2. Before, in another column, it goes
over the mesh on channel 0 to the nearest chip with a link to the destination's column and crosses
the X-rail on channel 1; in the right column it goes on channel 1 to the nearest chip with a link
to the destination node and crosses the Y-rail on channel 2.

The paper leaves open which of two nearest chips is taken: here the one on the rail with the lower
number, plus before minus. The choice cannot change on the path: one step towards the nearest
brings no chip closer by more than one. On the mesh: x first, then y (dimension order).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from lightrig.harness.systems.railx.planning.cross_connects import DARK, Settings
from lightrig.harness.systems.railx.planning.physical import Dimension, RailxError
from lightrig.suites.claims.railx.chip_graph import (
    ABSENT,
    MESH_PORTS,
    ChipGraph,
    edge_port,
)

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
ARRIVED = -1
CHANNELS = 3
_FAR = np.iinfo(np.int64).max // 2


class NoDirectLinkError(RailxError):
    """Two nodes of a line have no link, as Algorithm 1 needs."""


class Walk(NamedTuple):
    """The most mesh hops of any path, and the pairs of chips that cross each link of each chip."""

    mesh: int
    loads: Indices


class Exits(NamedTuple):
    """The nearest chip with a link from each node of a line to each other, and its port.

    Attributes:
        kinds: by line, its number among the different lines, as many are alike.
        chip: by number, node, next node and chip of the mesh.
        port: likewise.
    """

    kinds: Indices
    chip: Indices
    port: Indices


@dataclass(frozen=True)
class Routes:
    """The next port and channel of a packet, from the links of the lines of nodes.

    There is no table of all pairs, so that memory grows with the chips and not with their square.
    """

    graph: ChipGraph
    x: Exits
    y: Exits
    channels: int = CHANNELS

    def next_hops(self, chip: Indices, sink: Indices) -> tuple[Indices, Indices]:
        """Return port and channel of packets at `chip` for `sink`; port -1 where it is there."""
        fabric, inside = self.graph.fabric, self.graph.fabric.mesh**2
        node, place = np.divmod(chip, inside)
        to_node, to_place = np.divmod(sink, inside)
        j, i = np.divmod(node, fabric.columns)
        to_j, to_i = np.divmod(to_node, fabric.columns)
        across, along = to_i != i, to_j != j
        row, column = (self.x.kinds[j], i, to_i, place), (self.y.kinds[i], j, to_j, place)
        target, port = (
            np.where(across, x[row], np.where(along, y[column], otherwise))
            for x, y, otherwise in (
                (self.x.chip, self.y.chip, to_place),
                (self.x.port, self.y.port, ARRIVED),
            )
        )
        at_exit = target == place
        mesh_channel = np.where(across, 0, np.where(along, 1, 2))
        return (
            np.where(at_exit, port, _mesh_step(place, target, fabric.mesh)),
            np.where(at_exit & across, 1, np.where(at_exit, 2, mesh_channel)),
        )

    def table(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
        """Return ports and channels of all pairs, chips x chips, for a fabric of few chips."""
        chips = np.arange(self.graph.fabric.chips)
        port, channel = self.next_hops(chips[:, None], chips)
        return port.astype(np.int8), channel.astype(np.int8)

    def path(self, source: int, sink: int) -> list[tuple[int, int, int]]:
        """Return the hops from chip `source` to `sink` as chip, port and channel.

        Raises `RailxError` for a path that is longer than there are chips.
        """
        hops: list[tuple[int, int, int]] = []
        here = source
        while here != sink:
            (port,), (channel,) = (
                each.tolist() for each in self.next_hops(*np.array([[here], [sink]]))
            )
            hops.append((here, port, channel))
            here = int(self.graph.peer_chip[here, port])
            if len(hops) > self.graph.fabric.chips:
                raise RailxError(f"the path from chip {source} to {sink} does not end")
        return hops

    def dependencies(self) -> Indices:
        """Return pairs of channels of which a packet can have the first and wait for the second.

        A channel is (chip ports + port) `channels` + virtual channel. The pairs are those of all
        chips and sinks: before a rail, only the sink's column or row decides, and after it the
        sink's row or chip, so that one sink of each is enough.
        """
        fabric, inside = self.graph.fabric, self.graph.fabric.mesh**2
        columns, rows, places = (np.arange(n) for n in (fabric.columns, fabric.rows, inside))
        found: list[Indices] = []
        for node in range(fabric.nodes):
            j, i = divmod(node, fabric.columns)
            row, column = (
                (j * fabric.columns + columns) * inside,
                (rows * fabric.columns + i) * inside,
            )
            sinks = np.unique(np.concatenate([row, column, node * inside + places]))
            chip, sink = (each.ravel() for each in np.meshgrid(node * inside + places, sinks))
            leaving = self.next_hops(chip, sink)[0] >= MESH_PORTS
            along_row = leaving & (sink // inside // fabric.columns == j)
            within = (chip[leaving, None], sink[leaving, None] + places)
            beyond = (
                chip[along_row, None],
                sink[along_row, None] % (fabric.columns * inside) + column - i * inside,
            )
            pairs = [np.broadcast_arrays(*each) for each in ((chip, sink), within, beyond)]
            found.append(
                self._waits(*(np.concatenate([p[n].ravel() for p in pairs]) for n in (0, 1)))
            )
        both = np.unique(np.concatenate(found))
        count = self.graph.peer_chip.size * self.channels
        return np.column_stack([both // count, both % count])

    def _waits(self, chip: Indices, sink: Indices) -> Indices:
        """Return pairs of channels as numbers: of a packet at `chip`, and of its next hop."""
        chip, sink = chip[chip != sink], sink[chip != sink]
        ports = self.graph.peer_chip.shape[1]
        port, channel = self.next_hops(chip, sink)
        following = self.graph.peer_chip[chip, port]
        next_port, next_channel = self.next_hops(following, sink)
        first = (chip * ports + port) * self.channels + channel
        second = (following * ports + next_port) * self.channels + next_channel
        numbers = first * self.graph.peer_chip.size * self.channels + second
        return np.unique(numbers[following != sink])

    def walk(self) -> Walk:
        """Add up the paths of all ordered pairs of chips.

        Packets are counted where they enter a node, so that pairs are not followed one by one: an
        X-rail may be followed by any Y-rail, and this by any chip.
        """
        fabric, inside = self.graph.fabric, self.graph.fabric.mesh**2
        places, ports = np.arange(inside), self.graph.peer_chip.shape[1]
        apart = _apart(fabric.mesh)
        sources = np.ones(fabric.chips, dtype=np.int64)
        hops = np.zeros(fabric.chips, dtype=np.int64)
        legs = np.zeros((fabric.chips, inside), dtype=np.int64)
        loads = np.zeros(self.graph.peer_chip.shape, dtype=np.int64)
        nodes = np.arange(fabric.nodes).reshape(fabric.rows, fabric.columns)
        for exits, lines, sinks in (
            (self.x, nodes, fabric.rows * inside),
            (self.y, nodes.T, inside),
        ):
            arrived, most = np.zeros_like(sources), np.zeros_like(hops)
            for kind, line in zip(exits.kinds, lines, strict=True):
                here, there = np.nonzero(~np.eye(len(line), dtype=bool))
                chip = (line[here, None] * inside + places).ravel()
                target, port = (each[kind, here, there].ravel() for each in exits[1:])
                leaving = chip // inside * inside + target
                peer = self.graph.peer_chip[leaving, port]
                # Indices of one dimension, with which NumPy's `at` takes its quick way.
                np.add.at(legs.ravel(), chip * inside + target, sources[chip] * sinks)
                np.add.at(loads.ravel(), leaving * ports + port, sources[chip] * sinks)
                np.add.at(arrived, peer, sources[chip])
                np.maximum.at(most, peer, hops[chip] + apart[chip % inside, target])
            sources, hops = sources + arrived, np.maximum(hops, most)
        legs += sources[:, None]
        crossed = legs.reshape(fabric.nodes, -1) @ _mesh_links(fabric.mesh)
        loads[:, :MESH_PORTS] += crossed.reshape(-1, MESH_PORTS)
        return Walk(int((hops.reshape(-1, inside) + apart.max(axis=1)).max()), loads)


def minimal_routes(settings: Settings) -> Routes:
    """Return Algorithm 1 for a setting in which the nodes of each line are all joined.

    Raises `NoDirectLinkError` for two nodes of a line without a link.
    """
    return Routes(ChipGraph.of(settings), _exits(settings, "x"), _exits(settings, "y"))


def throughput_bound(graph: ChipGraph, loads: Indices, multiple: float) -> float:
    """Return the largest rate of uniform all-to-all traffic, flits a cycle and chip.

    loads: of `Routes.walk`. multiple: k, of the bandwidth of the n interfaces between two chips of
    a mesh over that of one optical port, which carries one flit a cycle; a mesh link thus carries
    k n (equation 5 counts so). The most loaded link decides.
    """
    limits = np.where(graph.optical, 1.0, multiple * graph.fabric.ports)
    return float((len(loads) - 1) / (loads / limits).max())


def _mesh_step(place: Indices, target: Indices, m: int) -> Indices:
    """Return the port of the next mesh hop by dimension order; any where place is target."""
    dx, dy = target % m - place % m, target // m - place // m
    along_y = np.where(dy > 0, 2, 3)
    return np.where(dx > 0, 0, np.where(dx < 0, 1, along_y))


def _apart(m: int) -> Indices:
    """Return the mesh hops between each two chips of a node."""
    chips = np.arange(m * m)
    return abs(chips[:, None] % m - chips % m) + abs(chips[:, None] // m - chips // m)


def _mesh_links(m: int) -> scipy.sparse.csr_array:
    """Return the links that a path from chip to chip of a mesh crosses, m^4 paths x m^2 4 links."""
    chips = np.arange(m * m)
    path, here, target = np.arange(m**4), np.repeat(chips, m * m), np.tile(chips, m * m)
    paths, links = [path[:0]], [path[:0]]
    while (moving := here != target).any():
        path, here, target = path[moving], here[moving], target[moving]
        port = _mesh_step(here, target, m)
        paths.append(path)
        links.append(here * MESH_PORTS + port)
        here = here + np.array([1, -1, m, -m])[port]
    ends = np.concatenate(paths), np.concatenate(links)
    each = np.ones(ends[0].size, dtype=np.int64)
    return scipy.sparse.csr_array((each, ends), shape=(m**4, m * m * MESH_PORTS))


def _exits(settings: Settings, dimension: Dimension) -> Exits:
    """Return the nearest exits of the lines of a dimension."""
    fabric = settings.fabric
    m, length = fabric.mesh, fabric.length(dimension)
    array, kinds = np.unique(settings.of(dimension), axis=0, return_inverse=True)
    kinds, apart = kinds.ravel(), _apart(m)
    shape = (len(array), length, length, m * m)
    nearest, chosen, ports = np.full(shape, _FAR), np.full(shape, ABSENT), np.full(shape, ABSENT)
    for rail in range(fabric.rails):
        line, place = np.nonzero(array[:, rail] != DARK)
        following = array[line, rail, place].astype(np.int64)
        rails = np.full(line.size, rail)
        for plus, here, there in ((True, place, following), (False, following, place)):
            chip, port = edge_port(fabric, dimension, line, rails, here, plus=plus)
            within = chip[:, None] % (m * m)
            away = apart[within[:, 0]]
            closer = away < nearest[line, here, there]
            for table, value in ((nearest, away), (chosen, within), (ports, port[:, None])):
                table[line, here, there] = np.where(closer, value, table[line, here, there])
    missing = np.argwhere((chosen[..., 0] == ABSENT) & ~np.eye(length, dtype=bool))
    if missing.size:
        kind, a, b = missing[0]
        raise NoDirectLinkError(
            f"{dimension}: nodes {a} and {b} of line {np.argmax(kinds == kind)} have no link; "
            "Algorithm 1 routes between nodes of a line in one optical hop"
        )
    return Exits(kinds, chosen, ports)
