"""The two managers of the control plane as state machines: events in, orders out, no clock.

The cluster manager decides which nodes make which ring and tells each node, in one order, which
paths its bundles take. A node's fabric manager turns an order into changes of its own modules.
The paper names both and leaves their mechanisms out (§5.2): these are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.placement import place
from lightrig.harness.systems.infinitehbd.planning.rings import Path, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    InfiniteHbdError,
    Mask,
    Nodes,
    Wiring,
)

Paths: TypeAlias = tuple[Path, ...]
"""One for each bundle of a node."""

Orders: TypeAlias = Mapping[int, Paths]
"""Paths for each node that has to change any."""


@dataclass(frozen=True, slots=True)
class PathChange:
    """A bundle of a node leaves one path for another."""

    node: int
    bundle: int
    before: Path
    after: Path


@dataclass(frozen=True, slots=True)
class NodeFabricManager:
    """State of a node's bundles: the present `paths`, and those last ordered (`wanted`)."""

    node: int
    paths: Paths
    wanted: Paths

    @classmethod
    def idle(cls, node: int, bundles: int) -> "NodeFabricManager":
        """A node that has just started: every bundle in loopback."""
        rest = (Path.LOOPBACK,) * bundles
        return cls(node, rest, rest)

    @property
    def settled(self) -> bool:
        """Do the bundles do what they were told?"""
        return self.paths == self.wanted

    def ordered(self, wanted: Paths) -> tuple["NodeFabricManager", list[PathChange]]:
        """Take an order; what is to change. The same order twice changes nothing twice."""
        if len(wanted) != len(self.paths):
            raise InfiniteHbdError(
                f"node {self.node} was told {len(wanted)} paths and has {len(self.paths)} bundles"
            )
        moves = [
            PathChange(self.node, bundle, before, after)
            for bundle, (before, after) in enumerate(zip(self.wanted, wanted, strict=True))
            if before != after
        ]
        return replace(self, wanted=wanted), moves

    def switched(self, bundle: int) -> "NodeFabricManager":
        """The modules of a bundle have taken the path that they were told last."""
        done = list(self.paths)
        done[bundle] = self.wanted[bundle]
        return replace(self, paths=tuple(done))


@dataclass(frozen=True, eq=False)
class ClusterManager:
    """State of the managers: faulty nodes, rings up or in progress, and awaited replies.

    wiring: a K-hop line or ring. size: nodes of a group. groups: one a row, in the line's order.
    paths: nodes x bundles. awaiting: nodes that were told something and have not answered.

    A failure touches the rings of the nodes that failed, and nodes that were in none: the others
    carry traffic. `repack` groups all nodes anew, for when no job runs.
    """

    wiring: Wiring
    size: int
    faulty: Mask
    groups: Nodes
    paths: Nodes
    awaiting: frozenset[int] = frozenset()

    @classmethod
    def start(cls, wiring: Wiring, size: int) -> tuple["ClusterManager", Orders]:
        """All nodes healthy and in loopback; the orders that make the first rings.

        Raises `InfiniteHbdError` for a wiring that is not to all of the K nearest nodes.
        """
        if wiring.hops != tuple(range(1, wiring.reach + 1)):
            raise InfiniteHbdError(
                f"found hops {wiring.hops}, expected all from 1 to {wiring.reach}: rings pass "
                "faulty nodes one by one"
            )
        none = np.empty((0, size), dtype=np.int64)
        idle, _ = paths(wiring, none)
        fresh = cls(wiring, size, np.zeros(wiring.nodes, dtype=bool), none, idle)
        return fresh.repack()

    @property
    def ready(self) -> bool:
        """Has every node done what it was told?"""
        return not self.awaiting

    @property
    def most(self) -> int:
        """Number of groups that `repack` would find."""
        return len(place(self.faulty, self.size, self.wiring.reach, closed=self.wiring.closed))

    def failed(self, *nodes: int) -> tuple["ClusterManager", Orders]:
        """Nodes have failed: their rings are dropped, and what is free is grouped again."""
        return self._regrouped(self._marked(nodes, faulty=True), self.groups, self.paths)

    def repaired(self, *nodes: int) -> tuple["ClusterManager", Orders]:
        """Nodes are back, with every bundle in loopback."""
        current = self.paths.copy()
        current[list(nodes)] = Path.LOOPBACK
        return self._regrouped(self._marked(nodes, faulty=False), self.groups, current)

    def repack(self) -> tuple["ClusterManager", Orders]:
        """Group all healthy nodes anew, whatever runs on them."""
        return self._regrouped(self.faulty, self.groups[:0], self.paths)

    def acknowledged(self, node: int) -> "ClusterManager":
        """A node has done what it was told last."""
        return replace(self, awaiting=self.awaiting - {node})

    def silent(self) -> tuple["ClusterManager", Orders]:
        """Mark the nodes that have not acknowledged as failed."""
        return self.failed(*self.awaiting)

    def _marked(self, nodes: tuple[int, ...], *, faulty: bool) -> Mask:
        unknown = [node for node in nodes if not 0 <= node < self.wiring.nodes]
        if unknown:
            raise InfiniteHbdError(
                f"found node {unknown[0]}, expected 0 to {self.wiring.nodes - 1}"
            )
        marked = self.faulty.copy()
        marked[list(nodes)] = faulty
        return marked

    def _regrouped(
        self, faulty: Mask, groups: Nodes, current: Nodes
    ) -> tuple["ClusterManager", Orders]:
        """Keep those of `groups` that are whole, add what fits; `current` is what nodes do now."""
        whole = groups[~faulty[groups].any(axis=1)]
        taken = faulty.copy()
        taken[whole] = True
        fresh = place(taken, self.size, self.wiring.reach, closed=self.wiring.closed)
        _, joined = paths(self.wiring, fresh)
        groups = np.concatenate([whole, fresh[joined]])
        wanted, _ = paths(self.wiring, groups)
        # Nobody can tell a faulty node anything; what it did last is forgotten when it is back.
        wanted[faulty] = current[faulty]
        moved = np.flatnonzero((wanted != current).any(axis=1)).tolist()
        orders = {node: tuple(map(Path, wanted[node].tolist())) for node in moved}
        awaiting = (self.awaiting | {*moved}) - {*np.flatnonzero(faulty).tolist()}
        after = replace(self, faulty=faulty, groups=groups, paths=wanted, awaiting=awaiting)
        return after, orders
