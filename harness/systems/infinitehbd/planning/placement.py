"""Placement of a job's groups: with the line alone, and with a fat-tree behind it."""

from dataclasses import dataclass

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.rings import joinable
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Mask,
    Nodes,
    RowWiring,
)


@dataclass(frozen=True, slots=True)
class Placement:
    """Groups of nodes, one a row, in the order of the line; each makes one ring of GPUs.

    constraints: how many of the fat-tree's constraints were kept.
    """

    groups: Nodes
    constraints: int


def place(faulty: Mask, size: int, reach: int, *, closed: bool = False) -> Nodes:
    """The most groups of `size` healthy nodes that a K-hop line can join, one a row.

    A run of `reach` or more faulty nodes parts the line (Algorithm 2). No other way of grouping
    makes more groups: a group lies within one part, and of each part less than one group is left.

    faulty: by position in the line. closed: the ends are neighbours.
    """
    _check(size, reach)
    return _cut(*_components(faulty, reach, closed=closed), size)


def most_groups(wiring: RowWiring, usable: Mask, size: int) -> Nodes:
    """The most groups that Algorithm 2 makes of which `rings.paths` joins each, one a row.

    With an odd number of hops a group may need the farthest links on both sides of a node, which
    one bundle has; then groups begin one node later.
    """
    _check(size, wiring.reach)
    healthy, breaks = _components(~usable, wiring.reach, closed=wiring.closed)
    groups = _cut(healthy, breaks, size)
    if joinable(wiring, groups).all():
        return groups
    found = []
    for part in np.split(healthy, breaks):
        if part.size >= size:
            windows = np.lib.stride_tricks.sliding_window_view(part, size)
            begin = 0
            for first, joins in enumerate(joinable(wiring, windows).tolist()):
                if joins and first >= begin:
                    found.append(windows[first])
                    begin = first + size
    return np.array(found, dtype=np.int64).reshape(-1, size)


def most_possible(wiring: RowWiring, usable: Mask, size: int) -> int:
    """Return how many groups no placement has more of: none goes over a gap that no link does."""
    _check(size, wiring.reach)
    healthy, breaks = _components(~usable, wiring.reach, closed=wiring.closed)
    return sum(part.size // size for part in np.split(healthy, breaks))


def place_on(tree: FatTree, faulty: Mask, size: int, reach: int, constraints: int) -> Placement:
    """Groups that keep the first `constraints` constraints of a fat-tree (Algorithm 4).

    The first ones keep groups within sub-lines, one sub-line each; then those that align the
    groups of a domain follow, one domain each, by giving up every ToR with a faulty node.

    As printed, the nodes given up are never kept, a set is defined by itself, and the rest of
    the line is placed once for each sub-line; this is what is meant.

    faulty: by node, in the network's order. Raises `InfiniteHbdError`.
    """
    _check(size, reach)
    if not 0 <= constraints <= tree.constraints:
        raise InfiniteHbdError(f"found {constraints} constraints, expected 0 to {tree.constraints}")
    line, order = _Line(tree, faulty, reach), tree.order()
    healthy, breaks = line.parts(constraints)
    return Placement(order[_cut(healthy, breaks, size)], constraints)


def orchestrate(
    tree: FatTree, faulty: Mask, size: int, reach: int, groups: int
) -> Placement | None:
    """The placement of at least `groups` groups that keeps the most constraints (Algorithm 5).

    None where even without constraints there are too few. Each constraint takes nodes or links
    away, so the count of groups never grows with them, and the search may halve. It takes
    O(n log n) time for n nodes.

    As printed, the search forgets the best placement and tests the last, which may have failed
    though an earlier one did not.
    """
    _check(size, reach)
    line = _Line(tree, faulty, reach)
    low, high, best = 0, tree.constraints, None
    while low <= high:
        middle = (low + high) // 2
        if line.count(middle, size) >= groups:
            best, low = middle, middle + 1
        else:
            high = middle - 1
    return None if best is None else place_on(tree, faulty, size, reach, best)


def aligned(tree: FatTree, groups: Nodes) -> Nodes:
    """Return groups in the order in which a job gets them: those under the same ToRs together.

    Context-parallel traffic between as many consecutive groups as a ToR has nodes then stays
    under ToRs (Appendix D). Groups that fill all places of their ToRs go first, so that a job
    smaller than the placement leaves out what is aligned worst.
    """
    _, which, counts = np.unique(tree.tor(groups), axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    incomplete = counts[which] < tree.per_tor
    order = np.lexsort((np.arange(len(which)), which, incomplete))
    return np.asarray(groups[order])


class _Line:
    """The deployed line of a fat-tree, and where constraints part it."""

    def __init__(self, tree: FatTree, faulty: Mask, reach: int) -> None:
        if faulty.shape != (tree.nodes,):
            raise InfiniteHbdError(f"found {faulty.size} states of {tree.nodes} nodes")
        self._tree, self._reach = tree, reach
        # One row a place under a ToR: read row by row, it is the line.
        self._faulty = np.ascontiguousarray(faulty.reshape(-1, tree.per_tor).T)
        self._hit: Mask = np.asarray(self._faulty.any(axis=0))

    def parts(self, constraints: int) -> tuple[Nodes, Nodes]:
        """Healthy positions in order, and before which of them the line is parted."""
        tree = self._tree
        sublines = min(tree.sublines, constraints)
        aligned = (constraints - sublines) * tree.subline_length
        given_up = self._faulty.copy()
        given_up[:, :aligned] |= self._hit[:aligned]
        healthy = np.flatnonzero(~given_up)
        ends = np.arange(1, sublines + 1) * tree.subline_length
        gaps = np.flatnonzero(np.diff(healthy) > self._reach) + 1
        return healthy, np.union1d(gaps, np.searchsorted(healthy, ends))

    def count(self, constraints: int, size: int) -> int:
        """Number of groups."""
        healthy, breaks = self.parts(constraints)
        return int((_lengths(healthy, breaks) // size).sum())


def _components(faulty: Mask, reach: int, *, closed: bool) -> tuple[Nodes, Nodes]:
    """Return the healthy places in order, and before which of them the row is parted."""
    healthy = np.flatnonzero(~faulty)
    breaks = np.flatnonzero(np.diff(healthy) > reach) + 1
    if closed and breaks.size and healthy[0] + faulty.size - healthy[-1] <= reach:
        # Begin after a break, so that the part across the ends is one.
        healthy = np.roll(healthy, -breaks[0])
        breaks = breaks[1:] - breaks[0]
    return healthy, breaks


def _lengths(healthy: Nodes, breaks: Nodes) -> Nodes:
    return np.diff(breaks, prepend=0, append=healthy.size)


def _cut(healthy: Nodes, breaks: Nodes, size: int) -> Nodes:
    """Groups of `size` from the start of each part on; what is left of a part is left out."""
    lengths = _lengths(healthy, breaks)
    within = np.arange(healthy.size) - np.repeat(np.append(0, breaks), lengths)
    whole: Mask = within < np.repeat(lengths // size * size, lengths)
    return healthy[whole].reshape(-1, size)


def _check(size: int, reach: int) -> None:
    if size < 1 or reach < 1:
        raise InfiniteHbdError(f"found groups of {size} and a reach of {reach}, expected 1 or more")
