"""Logical topologies as settings of the circuit switches (RailX, section 3.3).

A physical dimension is split in logical dimensions, each with a size, rails of its nodes, and a
kind: a ring on each rail, an all-to-all with two links a pair (Lemma 3.1), or one with one link a
pair. The position of a node in its line, in mixed radix with the first dimension fastest, gives its
logical coordinates, so that the product of the sizes is limited by the line's length. Nodes beyond
the last whole product repeat the topology: two HyperX share the switches of a line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from lightrig.harness.systems.railx.planning.cross_connects import (
    DARK,
    DIMENSIONS,
    Settings,
    Successors,
)
from lightrig.harness.systems.railx.planning.hamiltonian import (
    decomposition,
    successors,
    undirected_cycles,
)
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError

Kind: TypeAlias = Literal["ring", "all-to-all", "single-link"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One logical dimension: `size` nodes joined as `kind` by `rails` of every node."""

    size: int
    kind: Kind
    rails: tuple[int, ...]

    def patterns(self) -> npt.NDArray[np.int64]:
        """Return what each used rail joins: a row of successors (-1 is dark) for each.

        Rails beyond a whole multiple of what an all-to-all needs stay dark. Raises
        `DecompositionError` for an all-to-all of 4 or 6, `RailxError` for too few rails.
        """
        if self.size < 2:
            raise RailxError(f"found a logical dimension of {self.size} nodes, expected 2 or more")
        if self.kind == "ring":
            ring = (np.arange(self.size) + 1) % self.size
            return np.tile(ring, (len(self.rails), 1))
        one = (
            successors(decomposition(self.size))
            if self.kind == "all-to-all"
            else _single_links(self.size)
        )
        copies = len(self.rails) // len(one)
        if not copies:
            raise RailxError(
                f"an all-to-all ({self.kind}) of {self.size} nodes needs {len(one)} rails, "
                f"found {len(self.rails)}"
            )
        return np.tile(one, (copies, 1))


def configure(fabric: RailFabric, x: Sequence[Axis], y: Sequence[Axis]) -> Settings:
    """Return the settings for the logical dimensions of both physical ones.

    Raises `RailxError` where the sizes of a dimension do not fit its lines or two logical
    dimensions use one rail.
    """
    arrays = []
    for dimension, axes in zip(DIMENSIONS, (x, y), strict=True):
        line = line_setting(fabric, dimension, axes)
        arrays.append(np.broadcast_to(line, (fabric.lines(dimension), *line.shape)).copy())
    return Settings(fabric, *arrays)


def line_setting(fabric: RailFabric, dimension: Dimension, axes: Sequence[Axis]) -> Successors:
    """Return the successors in one line, rails x nodes, for its logical dimensions."""
    length = fabric.length(dimension)
    whole = math.prod(axis.size for axis in axes)
    if whole > length:
        sizes = " x ".join(str(axis.size) for axis in axes)
        raise RailxError(
            f"{dimension}: {sizes} = {whole} nodes do not fit a line of {length} (at most R/2)"
        )
    used = [rail for axis in axes for rail in axis.rails]
    if len(set(used)) != len(used) or not set(used) <= set(range(fabric.rails)):
        raise RailxError(f"{dimension}: each logical dimension has rails of its own, below r")
    line = np.full((fabric.rails, length), DARK, dtype=np.int16)
    nodes = np.arange(length // whole * whole)
    stride = 1
    for axis in axes:
        patterns = axis.patterns()
        coordinate = nodes // stride % axis.size
        following = patterns[:, coordinate]
        joined = np.where(following == DARK, DARK, nodes + (following - coordinate) * stride)
        line[list(axis.rails[: len(patterns)]), : nodes.size] = joined
        stride *= axis.size
    return line


def global_rails(groups: int, rows: int, rails: int, kind: Kind = "all-to-all") -> Successors:
    """Return the successors of a Dragonfly's groups: rows of a group x rails x groups.

    Each rail of each row is a ring of its own over the groups, on the switch of its row and rail
    (section 3.3.3). Rings are repeated on whole multiples of rails, others stay dark. Raises
    `RailxError` for too few rails.
    """
    patterns = Axis(groups, kind, tuple(range(rows * rails))).patterns()
    found = np.full((rows * rails, groups), DARK, dtype=np.int16)
    found[: len(patterns)] = patterns
    return found.reshape(rows, rails, groups)


def torus(fabric: RailFabric) -> Settings:
    """Return parallel rings on all rails: a 2D torus of all nodes (section 3.3.1)."""
    rails = tuple(range(fabric.rails))
    axes = [[Axis(fabric.length(d), "ring", rails)] for d in DIMENSIONS]
    return configure(fabric, *axes)


def hyperx(fabric: RailFabric, size: int | None = None, kind: Kind = "all-to-all") -> Settings:
    """Return 2D-HyperX of `size` x `size` nodes, by default the largest (section 3.3.2).

    With a size of r / a + 1 each pair has 2 a links. Sizes without a decomposition, 4 and 6, are
    refused.
    """
    chosen = min(fabric.rails + 1, fabric.columns, fabric.rows) if size is None else size
    axis = Axis(chosen, kind, tuple(range(fabric.rails)))
    return configure(fabric, [axis], [axis])


def nearest(before: Settings, after: Settings) -> Settings:
    """Return `after` with its rings assigned to rails so that fewest cross-connects change.

    Rails of a chip row or column are interchangeable where they belong to the same logical
    dimension; rings may trade places only among the n rails of one chip row, so that chips keep
    their links. An assignment problem for each chip row of each line, solved exactly.
    """
    fabric = before.fabric
    arrays = []
    for dimension in DIMENSIONS:
        old, new = before.of(dimension), after.of(dimension).copy()
        for line in range(fabric.lines(dimension)):
            for row in range(fabric.mesh):
                rails = slice(row * fabric.ports, (row + 1) * fabric.ports)
                equal = (old[line, rails, None] == new[line, None, rails]) & (
                    old[line, rails, None] != DARK
                )
                _, chosen = scipy.optimize.linear_sum_assignment(equal.sum(axis=2), maximize=True)
                new[line, rails] = new[line, rails][chosen]
        arrays.append(new)
    return Settings(fabric, *arrays)


def _single_links(size: int) -> npt.NDArray[np.int64]:
    """Return rows of successors that join each pair once, duplex; a matching last where even."""
    if size == 2:
        return np.array([[1, DARK]])
    cycles, mates = undirected_cycles(size)
    rows = successors(cycles)
    if mates.size:
        matching = np.where(np.arange(size) < mates, mates, DARK)
        rows = np.vstack([rows, matching])
    return rows
