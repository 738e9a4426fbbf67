"""Settings of all circuit switches of a fabric as two arrays, and the difference of two settings.

A cross-connect joins the plus port of a node with the minus port of its successor on the rail, in
both directions of light. `Settings.x[j, a, i]` is the column of the node whose minus port is joined
to X+ of rail a of node (i, j), `Settings.y[i, b, j]` the row; -1 is a dark port. The arrays are
indexed like the switches, so that 200,000 chips take a megabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError

if TYPE_CHECKING:
    import networkx as nx


DARK = -1
Successors = npt.NDArray[np.int16]
DIMENSIONS: tuple[Dimension, Dimension] = ("x", "y")


class CrossConnect(NamedTuple):
    """Two duplex ports of one switch: the plus port of a node, the minus port of the next."""

    dimension: Dimension
    line: int
    rail: int
    plus: int
    minus: int


@dataclass(frozen=True)
class Settings:
    """One setting of every circuit switch of `fabric`.

    Raises `RailxError` where an array has another shape than the fabric, names a node that does
    not exist, or joins a minus port twice: each switch's setting is a matching of its ports.
    """

    fabric: RailFabric
    x: Successors
    y: Successors

    def __post_init__(self) -> None:
        for dimension in DIMENSIONS:
            array, fabric = self.of(dimension), self.fabric
            length = fabric.length(dimension)
            expected = (fabric.lines(dimension), fabric.rails, length)
            if array.shape != expected:
                raise RailxError(f"{dimension}: found shape {array.shape}, expected {expected}")
            if array.min(initial=0) < DARK or array.max(initial=0) >= length:
                raise RailxError(
                    f"{dimension}: a successor is a node from 0 to {length - 1}, or -1"
                )
            # Dark ports become distinct values beyond the nodes, so that a repeat is a conflict.
            distinct = np.where(array == DARK, length + np.arange(length, dtype=np.int16), array)
            ordered = np.sort(distinct, axis=2)
            twice = np.argwhere(ordered[..., 1:] == ordered[..., :-1])
            if twice.size:
                line, rail, _ = twice[0]
                raise RailxError(
                    f"{dimension.upper()}-OCS ({line}, {rail}): a minus port is joined twice"
                )

    def of(self, dimension: Dimension) -> Successors:
        """Return the successors along `dimension`: lines x rails x nodes of the line."""
        return self.x if dimension == "x" else self.y

    def __len__(self) -> int:
        """Number of cross-connects, each a pair of duplex ports."""
        return sum(int((self.of(dimension) != DARK).sum()) for dimension in DIMENSIONS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings):
            return NotImplemented
        same = np.array_equal(self.x, other.x) and np.array_equal(self.y, other.y)
        return self.fabric == other.fabric and same

    def __hash__(self) -> int:
        return hash((self.fabric, self.x.tobytes(), self.y.tobytes()))

    def cross_connects(self, dimension: Dimension, line: int, rail: int) -> list[CrossConnect]:
        """Return the cross-connects of one switch, by plus port."""
        row = self.of(dimension)[line, rail].tolist()
        return [
            CrossConnect(dimension, line, rail, 2 * node + 1, 2 * following + 2)
            for node, following in enumerate(row)
            if following != DARK
        ]

    def switches(self) -> Iterator[tuple[Dimension, int, int]]:
        """Yield every switch as dimension, line and rail."""
        for dimension in DIMENSIONS:
            for line in range(self.fabric.lines(dimension)):
                for rail in range(self.fabric.rails):
                    yield dimension, line, rail

    def write(self, stream: TextIO) -> int:
        """Write a line for each switch, such as ``x-ocs[0,3]: 1<>4 3<>6``; return their count."""
        count = 0
        for dimension in DIMENSIONS:
            array = self.of(dimension)
            plus = [str(2 * node + 1) + "<>" for node in range(array.shape[2])]
            minus = [str(2 * node + 2) for node in range(array.shape[2])]
            for line, rails in enumerate(array.tolist()):
                for rail, row in enumerate(rails):
                    pairs = " ".join(
                        plus[node] + minus[following]
                        for node, following in enumerate(row)
                        if following != DARK
                    )
                    stream.write(f"{dimension}-ocs[{line},{rail}]: {pairs}\n")
                    count += 1
        return count

    def node_graph(self) -> nx.MultiGraph:
        """Return the nodes (i, j), and an edge for each cross-connect.

        Edges have the attributes `dimension` and `rail`.
        """
        import networkx as nx  # loads slowly, and few commands need it

        graph = nx.MultiGraph()
        fabric = self.fabric
        graph.add_nodes_from((i, j) for i in range(fabric.columns) for j in range(fabric.rows))
        for dimension in DIMENSIONS:
            array = self.of(dimension)
            for line, rail, node in np.argwhere(array != DARK).tolist():
                following = int(array[line, rail, node])
                ends = [(node, line), (following, line)]
                if dimension == "y":
                    ends = [(line, node), (line, following)]
                graph.add_edge(*ends, dimension=dimension, rail=rail)
        return graph


def dark(fabric: RailFabric) -> Settings:
    """Return the setting without any cross-connect."""
    x, y = (
        np.full((fabric.lines(d), fabric.rails, fabric.length(d)), DARK, dtype=np.int16)
        for d in DIMENSIONS
    )
    return Settings(fabric, x, y)
