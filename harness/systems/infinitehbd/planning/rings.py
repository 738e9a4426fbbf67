"""From groups of nodes to rings of GPUs: the path that every bundle of modules takes.

A bundle is the modules that join one pair of a node's GPUs to the outside; all of them take the
same path. An idle bundle is in loopback, so the two ends of a group close its ring by themselves
(InfiniteHBD §4.2).
"""

from enum import IntEnum

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.wiring import (
    InfiniteHbdError,
    Mask,
    Nodes,
    RowWiring,
)
from lightrig.testbeds import Circuit


class Path(IntEnum):
    """Path of a module's light; exactly one path carries all of it."""

    EXTERNAL_1 = 1
    EXTERNAL_2 = 2
    LOOPBACK = 3


LEAST_WITH_BOTH_SIDES = 3
"""Nodes of a group in which one has links on both sides."""


def bundles(wiring: RowWiring) -> tuple[tuple[int, int], ...]:
    """The distances, with sign, that external paths 1 and 2 of each bundle of a node reach.

    Two hops take a bundle to the right and one to the left. How a third is cabled is not
    published; here its bundle has one path to either side (a guess), which leaves one case that
    no cabling with a bundle for each hop avoids: a node cannot use its farthest links on both
    sides at once. In the replay of the production trace it never has to.
    """
    pairs = list(zip(wiring.hops[::2], wiring.hops[1::2], strict=False))
    sides = [*pairs, *((-near, -far) for near, far in pairs)]
    if len(wiring.hops) % 2:
        sides.append((wiring.reach, -wiring.reach))
    return tuple(sides)


def paths(wiring: RowWiring, groups: Nodes, *, closed: bool = False) -> tuple[Nodes, Mask]:
    """The `Path` of every bundle, nodes x bundles, and which of the groups can be joined so.

    groups: one a row, in the order of the line. closed: whether the last of a group is joined to
    its first as well. A group that needs one bundle for both sides of a node cannot be joined,
    and its nodes stay in loopback. Raises `InfiniteHbdError` for neighbours in a group that no
    link joins, and for a node in two groups.
    """
    if np.unique(groups).size != groups.size:
        raise InfiniteHbdError("a node is in two groups, expected one at most")
    sides = bundles(wiring)
    # By hop, where reach + hop is the place of a hop: the bundle that has it, and by which path.
    of, by = np.zeros((2, 2 * wiring.reach + 1), dtype=np.int64)
    for bundle, pair in enumerate(sides):
        for path, hop in zip((Path.EXTERNAL_1, Path.EXTERNAL_2), pair, strict=True):
            of[wiring.reach + hop], by[wiring.reach + hop] = bundle, path
    row = np.concatenate([groups, groups[:, :1]], axis=1) if closed else groups
    hops = np.diff(row, axis=1)
    if wiring.closed:
        hops %= wiring.nodes
    if not np.isin(hops, wiring.hops).all():
        raise InfiniteHbdError("neighbours in a group have no link between them")
    right, left = wiring.reach + hops, wiring.reach - hops
    entered = np.roll(left, 1, axis=1) if closed else left[:, :-1]
    joined = ~(of[right if closed else right[:, 1:]] == of[entered]).any(axis=1)
    taken = np.full((wiring.nodes, len(sides)), Path.LOOPBACK, dtype=np.int64)
    for ends, side in ((row[:, :-1], right), (row[:, 1:], left)):
        taken[ends[joined], of[side[joined]]] = by[side[joined]]
    return taken, joined


def joinable(wiring: RowWiring, groups: Nodes) -> Mask:
    """Return which of the groups `paths` joins, by the rule that `bundles` states."""
    if not len(wiring.hops) % 2 or groups.shape[1] < LEAST_WITH_BOTH_SIDES:
        return np.ones(len(groups), dtype=bool)
    far = np.diff(groups, axis=1) % wiring.nodes == wiring.reach
    return np.asarray(~(far[:, 1:] & far[:, :-1]).any(axis=1))


def circuits(path: Path, modules: int) -> frozenset[Circuit]:
    """A bundle's cross-connects on a path, as the switch model `ocstrx` numbers its ports.

    Module m of k, from 1, is ingress m; its paths lead to egress k + 3 (m - 1) + 1 … 3.
    """
    return frozenset(Circuit(module + 1, modules + 3 * module + path) for module in range(modules))
