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

from lightrig.harness.systems.railx.planning.cross_connects import DARK, Settings
from lightrig.harness.systems.railx.planning.physical import Dimension, Fabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import Axis, configure
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
    """Mesh hops and optical hops of all pairs, chips x chips, and the pairs that cross each link.

    The loads are chips x ports.
    """

    mesh: Indices
    optical: Indices
    loads: Indices


@dataclass(frozen=True)
class Routes:
    """The next port and channel of a packet at each chip for each destination chip.

    `port` and `channel` are chips x chips; the port is -1 at the destination.
    """

    graph: ChipGraph
    port: npt.NDArray[np.int8]
    channel: npt.NDArray[np.int8]
    channels: int = CHANNELS

    def path(self, source: int, sink: int) -> list[tuple[int, int, int]]:
        """Return the hops from chip `source` to `sink` as chip, port and channel.

        Raises `RailxError` for a path that is longer than there are chips.
        """
        hops: list[tuple[int, int, int]] = []
        here = source
        while here != sink:
            port = int(self.port[here, sink])
            hops.append((here, port, int(self.channel[here, sink])))
            here = int(self.graph.peer_chip[here, port])
            if len(hops) > len(self.port):
                raise RailxError(f"the path from chip {source} to {sink} does not end")
        return hops

    def dependencies(self) -> npt.NDArray[np.int64]:
        """Return pairs of channels of which a packet can have the first and wait for the second.

        A channel is (chip ports + port) `channels` + virtual channel. All pairs of chips are
        taken, so that every state of the table occurs.
        """
        chip, sink = np.nonzero(self.port != ARRIVED)
        first = self._channel(chip, sink)
        following = self.graph.peer_chip[chip, self.port[chip, sink]]
        onward = following != sink
        second = self._channel(following[onward], sink[onward])
        count = self.graph.peer_chip.size * self.channels
        both = np.unique(first[onward] * count + second)
        pairs: Indices = np.column_stack([both // count, both % count])
        return pairs

    def _channel(self, chip: Indices, sink: Indices) -> Indices:
        ports = self.graph.peer_chip.shape[1]
        port = self.port[chip, sink].astype(np.int64)
        numbers: Indices = (chip * ports + port) * self.channels + self.channel[chip, sink]
        return numbers

    def walk(self) -> Walk:
        """Follow the paths of all ordered pairs of chips."""
        count, ports = self.graph.peer_chip.shape
        here = np.repeat(np.arange(count), count)
        sink = np.tile(np.arange(count), count)
        mesh, optical = np.zeros(count * count, np.int64), np.zeros(count * count, np.int64)
        loads = np.zeros(count * ports, dtype=np.int64)
        moving = np.flatnonzero(here != sink)
        while moving.size:
            chip = here[moving]
            port = self.port[chip, sink[moving]].astype(np.int64)
            loads += np.bincount(chip * ports + port, minlength=count * ports)
            mesh[moving] += port < MESH_PORTS
            optical[moving] += port >= MESH_PORTS
            here[moving] = self.graph.peer_chip[chip, port]
            moving = moving[here[moving] != sink[moving]]
        shape = (count, count)
        return Walk(mesh.reshape(shape), optical.reshape(shape), loads.reshape(count, ports))


def minimal_routes(settings: Settings) -> Routes:
    """Return Algorithm 1 as tables for a setting in which the nodes of each line are all joined.

    Raises `NoDirectLinkError` for two nodes of a line without a link.
    """
    graph = ChipGraph.of(settings)
    fabric = settings.fabric
    exits = {dimension: _exits(settings, dimension) for dimension in ("x", "y")}
    count, m = fabric.chips, fabric.mesh
    ports = np.full((count, count), ARRIVED, dtype=np.int8)
    channels = np.zeros((count, count), dtype=np.int8)
    sink = np.arange(count)
    to_node, to_chip = np.divmod(sink, m * m)
    to_i, to_j = to_node % fabric.columns, to_node // fabric.columns
    for chip in range(count):
        node, place = divmod(chip, m * m)
        i, j = node % fabric.columns, node // fabric.columns
        target, exit_port = to_chip.copy(), np.full(count, ARRIVED)
        mesh_channel, rail_channel = np.full(count, 2), np.full(count, 2)
        across, along = to_i != i, (to_i == i) & (to_j != j)
        chosen, port = exits["x"]
        target[across], exit_port[across] = (
            table[j, i, to_i[across], place] for table in (chosen, port)
        )
        mesh_channel[across], rail_channel[across] = 0, 1
        chosen, port = exits["y"]
        target[along], exit_port[along] = (
            table[i, j, to_j[along], place] for table in (chosen, port)
        )
        mesh_channel[along] = 1
        step = _mesh_step(place, target, m)
        at_exit = target == place
        ports[chip] = np.where(at_exit, exit_port, step)
        channels[chip] = np.where(at_exit, rail_channel, mesh_channel)
    return Routes(graph, ports, channels)


def worst_mesh_hops(mesh: int, ports: int, size: int) -> int:
    """Return the largest number of mesh hops of any path by Algorithm 1 on `size` x `size` nodes.

    Exact without following all pairs: an X-rail may be followed by any Y-rail, so that the worst
    of each, for every chip at which a packet arrives in between, are combined.
    """
    rails = tuple(range(mesh * ports))
    axis = [Axis(size, "all-to-all", rails)]
    row = configure(Fabric(mesh, ports, size, 1, 2 * size), axis, [])
    column = configure(Fabric(mesh, ports, 1, size, 2 * size), [], axis)
    chips = np.arange(mesh * mesh)
    apart = abs(chips[:, None] % mesh - chips % mesh) + abs(chips[:, None] // mesh - chips // mesh)
    # Hops from each chip to its exit, and the chip at the far end: the opposite edge.
    x_exit, y_exit = _exits(row, "x")[0][0], _exits(column, "y")[0][0]
    used = x_exit != ABSENT
    arrival_x = x_exit + np.where(x_exit % mesh == mesh - 1, 1 - mesh, mesh - 1)
    arrival_y = y_exit + np.where(y_exit // mesh == mesh - 1, 1 - mesh, mesh - 1) * mesh
    until_x = np.zeros(mesh * mesh, dtype=np.int64)
    np.maximum.at(until_x, arrival_x[used], apart[chips, x_exit][used])
    after = np.where(y_exit == ABSENT, 0, apart[chips, y_exit] + apart.max(axis=1)[arrival_y])
    return int((until_x + after.max(axis=(0, 1))).max())


def throughput_bound(graph: ChipGraph, loads: Indices, multiple: float) -> float:
    """Return the largest rate of uniform all-to-all traffic, flits a cycle and chip.

    loads: of `Routes.walk`. multiple: k, of the bandwidth of the n interfaces between two chips of
    a mesh over that of one optical port, which carries one flit a cycle; a mesh link thus carries
    k n (equation 5 counts so). The most loaded link decides.
    """
    limits = np.where(graph.optical, 1.0, multiple * graph.fabric.ports)
    return float((len(loads) - 1) / (loads / limits).max())


def _mesh_step(place: int, target: Indices, m: int) -> Indices:
    """Return the port of the next mesh hop by dimension order; any where place is target."""
    dx, dy = target % m - place % m, target // m - place // m
    along_y = np.where(dy > 0, 2, 3)
    return np.where(dx > 0, 0, np.where(dx < 0, 1, along_y))


def _exits(settings: Settings, dimension: Dimension) -> tuple[Indices, Indices]:
    """Return, by line, node, next node and chip, the nearest chip with a link, and its port."""
    fabric, array = settings.fabric, settings.of(dimension)
    m, lines, length = fabric.mesh, fabric.lines(dimension), fabric.length(dimension)
    chips = np.arange(m * m)
    shape = (lines, length, length, m * m)
    nearest, chosen, ports = np.full(shape, _FAR), np.full(shape, ABSENT), np.full(shape, ABSENT)
    for rail in range(fabric.rails):
        line, place = np.nonzero(array[:, rail] != DARK)
        following = array[line, rail, place].astype(np.int64)
        rails = np.full(line.size, rail)
        for plus, here, there in ((True, place, following), (False, following, place)):
            chip, port = edge_port(fabric, dimension, line, rails, here, plus=plus)
            within = chip[:, None] % (m * m)
            away = abs(within % m - chips % m) + abs(within // m - chips // m)
            closer = away < nearest[line, here, there]
            for table, value in ((nearest, away), (chosen, within), (ports, port[:, None])):
                table[line, here, there] = np.where(closer, value, table[line, here, there])
    different = ~np.eye(length, dtype=bool)
    missing = np.argwhere((chosen[..., 0] == ABSENT) & different)
    if missing.size:
        line_, a, b = missing[0]
        raise NoDirectLinkError(
            f"{dimension}: nodes {a} and {b} of line {line_} have no link; Algorithm 1 routes "
            "between nodes of a line in one optical hop"
        )
    return chosen, ports
