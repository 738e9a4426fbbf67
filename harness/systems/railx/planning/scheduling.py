"""Jobs on a grid with failed nodes: the largest one, several at once, and availability.

A job is a set of rows and a set of columns; a failed node must be in a disabled row or column, as
the rings of a row or column are closed without it (RailX, section 6.6, appendix A.5). Rows and
columns need not be neighbours: a circuit switch joins any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.jobs.sweeps import sweep
from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS, Settings
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import Axis, line_setting

Node: TypeAlias = tuple[int, int]

_MOST_ROWS = 12
"""Rows of one group of faults up to which all covers are tried, 2^12 of them."""


class Allocation(NamedTuple):
    """Rows and columns of a single job."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.rows) * len(self.columns)


def algorithm_2(side: int, faults: Iterable[Node]) -> int:
    """Return the size of the largest single job on `side` x `side` nodes (appendix A.5).

    Isolated faults share no row and no column with another. Of the others, every choice of a row
    or a column to disable is tried, 2^c in all, and the isolated ones are divided best. Two
    corrections to the print: rows and columns that are disabled by several faults count once, and
    sizes are at least 0.
    """
    failed = _checked(side, faults)
    isolated, crowded = _isolated(failed)
    largest = 0
    for choice in product((True, False), repeat=len(crowded)):
        rows = {row for (row, _), by_row in zip(crowded, choice, strict=True) if by_row}
        columns = {
            column for (_, column), by_row in zip(crowded, choice, strict=True) if not by_row
        }
        for extra in range(isolated + 1):
            height = max(0, side - len(rows) - extra)
            width = max(0, side - len(columns) - (isolated - extra))
            largest = max(largest, height * width)
    return largest


def largest_job(side: int, faults: Iterable[Node]) -> Allocation:
    """Return a largest single job on `side` x `side` nodes with its rows and columns, exactly.

    Faults that share rows or columns form groups; each group's smallest covers are
    combined over all groups. Exponential in the rows of one group only, where Algorithm 2 is in all
    faults that are not isolated.
    """
    return _largest(side, side, _checked(side, faults))


def _largest(height: int, width: int, failed: Sequence[Node]) -> Allocation:
    best: dict[int, tuple[frozenset[int], frozenset[int]]] = {0: (frozenset(), frozenset())}
    for group in _groups(failed):
        combined: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        for (rows, columns), (more_rows, more_columns) in product(best.values(), _covers(group)):
            both = rows | more_rows, columns | more_columns
            found = combined.get(len(both[0]))
            if found is None or len(both[1]) < len(found[1]):
                combined[len(both[0])] = both
        best = combined
    rows, columns = max(
        best.values(), key=lambda cover: (height - len(cover[0])) * (width - len(cover[1]))
    )
    return Allocation(
        tuple(row for row in range(height) if row not in rows),
        tuple(column for column in range(width) if column not in columns),
    )


def largest_allocation(usable: npt.NDArray[np.bool_]) -> Allocation | None:
    """Return a largest job on the `usable` nodes, rows x columns; None where there is no node.

    Exact where few nodes are not usable, as `largest_job`, else the largest that `pack` finds.
    """
    rows, columns = usable.shape
    faults = [(int(row), int(column)) for row, column in np.argwhere(~usable)]
    if all(len({row for row, _ in group}) <= _MOST_ROWS for group in _groups(faults)):
        found = _largest(rows, columns, faults)
        return found if found.size else None
    return max(pack(rows, columns, faults), key=lambda each: each.size, default=None)


def replacements(usable: npt.NDArray[np.bool_], before: Allocation) -> list[Allocation]:
    """Return `before` with other columns, or rows, for those with nodes that are not usable.

    What replaces the fewest nodes comes first; the others keep their places in its order.
    """
    options = [_replaced(usable, before, by_rows=by_rows) for by_rows in (False, True)]
    found = [each for each in options if each is not None]
    return sorted(found, key=lambda each: _moved(before, each))


def _replaced(
    usable: npt.NDArray[np.bool_], before: Allocation, *, by_rows: bool
) -> Allocation | None:
    """Return `before` with its columns, or rows, that hold a node that is not usable replaced."""
    grid = usable.T if by_rows else usable
    lines, places = before[::-1] if by_rows else before
    whole: npt.NDArray[np.bool_] = np.asarray(grid[list(lines)].all(axis=0))
    spare = iter([place for place in np.flatnonzero(whole).tolist() if place not in places])
    found = [place if whole[place] else next(spare, None) for place in places]
    if None in found:
        return None
    chosen = tuple(place for place in found if place is not None)
    return Allocation(chosen, lines) if by_rows else Allocation(lines, chosen)


def _moved(before: Allocation, after: Allocation) -> int:
    """Return the number of nodes that `after` has and `before` has not."""
    return len(set(product(*after)) - set(product(*before)))


def greedy(
    usable: npt.NDArray[np.bool_], rows: int, columns: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return rows and columns: from each row on, the next row leaves the most columns in common.

    The search may miss one that there is: to find any is NP-hard (a biclique of given sides).
    """
    best: tuple[int, tuple[int, ...], tuple[int, ...]] | None = None
    for seed in np.flatnonzero(usable.sum(axis=1) >= columns).tolist():
        chosen, common = [seed], usable[[seed]].all(axis=0)
        while len(chosen) < rows and common.sum() >= columns:
            shared = (usable & common).sum(axis=1)
            shared[chosen] = -1
            chosen.append(int(np.argmax(shared)))
            common = usable[chosen].all(axis=0)
        if len(chosen) == rows and common.sum() >= columns:
            # The tightest one leaves the largest rectangles to others.
            left = int(usable[chosen].sum()) - rows * columns
            if best is None or left < best[0]:
                best = left, tuple(sorted(chosen)), tuple(np.flatnonzero(common)[:columns].tolist())
    return best and best[1:]


def brute_force(side: int, faults: Iterable[Node]) -> int:
    """Return the size of the largest job by trying every set of rows that have a fault."""
    failed = _checked(side, faults)
    rows = sorted({row for row, _ in failed})
    subsets = chain.from_iterable(combinations(rows, count) for count in range(len(rows) + 1))
    return max(
        (side - len(chosen)) * (side - len({column for row, column in failed if row not in chosen}))
        for chosen in map(set, subsets)
    )


def availability(side: int, fault_rate: float, draws: int, seed: int) -> npt.NDArray[np.float64]:
    """Draw failed nodes and return the share of all nodes that one job can have, for each draw.

    Each node fails independently with `fault_rate`; the paper (section 6.6) does not state how its
    100 samples a rate were drawn.
    """
    draw = np.random.default_rng(seed)
    failed = [np.argwhere(draw.random((side, side)) < fault_rate) for _ in range(draws)]
    drawn = [(side, [(int(row), int(column)) for row, column in one]) for one in failed]
    return np.array(sweep(_share_of_one_job, drawn, batch=25))


def _share_of_one_job(drawn: tuple[int, list[Node]], _random: np.random.Generator) -> float:
    side, faults = drawn
    return largest_job(side, faults).size / side**2


def pack(rows: int, columns: int, faults: Iterable[Node]) -> list[Allocation]:
    """Divide all nodes that work among jobs, greedily the largest first.

    A candidate is the columns that are free in some row, or in two rows both, with every row in
    which they are free. Each working node is in exactly one job at the end. Of a division by single
    rows' columns and one that also uses pairs, the one with fewer jobs is returned; not the fewest.
    """
    free = np.ones((rows, columns), dtype=bool)
    for row, column in faults:
        free[row, column] = False
    return min((_pack_greedily(free.copy(), pairs) for pairs in (False, True)), key=len)


def _pack_greedily(free: npt.NDArray[np.bool_], pairs: bool) -> list[Allocation]:
    jobs = []
    while free.any():
        patterns = list(np.unique(free[free.any(axis=1)], axis=0))
        if pairs:
            patterns += [both for a, b in combinations(patterns, 2) if (both := a & b).any()]
        sizes = [int(free[:, pattern].all(axis=1).sum() * pattern.sum()) for pattern in patterns]
        pattern = patterns[int(np.argmax(sizes))]
        chosen = np.flatnonzero(free[:, pattern].all(axis=1))
        job = Allocation(tuple(chosen.tolist()), tuple(np.flatnonzero(pattern).tolist()))
        free[np.ix_(job.rows, job.columns)] = False
        jobs.append(job)
    return jobs


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job's nodes and its logical dimensions on both physical ones."""

    allocation: Allocation
    x: tuple[Axis, ...]
    y: tuple[Axis, ...]


def place_jobs(fabric: RailFabric, jobs: Sequence[PlacedJob]) -> Settings:
    """Return the settings of several jobs at once.

    Jobs that share a row share its switches, on ports of different nodes; to start or stop one
    changes no cross-connect of another. Raises `RailxError` where two jobs use one node.
    """
    used = np.zeros((fabric.rows, fabric.columns), dtype=bool)
    arrays = [
        np.full((fabric.lines(d), fabric.rails, fabric.length(d)), DARK, dtype=np.int16)
        for d in DIMENSIONS
    ]
    for job in jobs:
        rows, columns = job.allocation
        region = np.ix_(rows, columns)
        if used[region].any():
            raise RailxError("two jobs use one node, each node belongs to one job")
        used[region] = True
        part = RailFabric(fabric.mesh, fabric.ports, len(columns), len(rows), fabric.radix)
        parts: tuple[tuple[Dimension, Sequence[Axis], Sequence[int], Sequence[int]], ...] = (
            ("x", job.x, rows, columns),
            ("y", job.y, columns, rows),
        )
        for array, (dimension, axes, lines, places) in zip(arrays, parts, strict=True):
            line = line_setting(part, dimension, axes)
            joined = np.where(line == DARK, DARK, np.asarray(places)[line])
            for index in lines:
                array[index][:, list(places)] = joined
    return Settings(fabric, *arrays)


def _checked(side: int, faults: Iterable[Node]) -> list[Node]:
    failed = sorted(set(faults))
    if any(not (0 <= row < side and 0 <= column < side) for row, column in failed):
        raise RailxError(f"found a fault outside the grid of {side} x {side} nodes")
    return failed


def _isolated(failed: Sequence[Node]) -> tuple[int, list[Node]]:
    """Return the number of isolated faults and the others."""
    in_row: defaultdict[int, int] = defaultdict(int)
    in_column: defaultdict[int, int] = defaultdict(int)
    for row, column in failed:
        in_row[row] += 1
        in_column[column] += 1
    crowded = [node for node in failed if in_row[node[0]] > 1 or in_column[node[1]] > 1]
    return len(failed) - len(crowded), crowded


def _groups(failed: Sequence[Node]) -> list[list[Node]]:
    """Return the faults in groups that are joined by shared rows and columns."""
    groups: list[list[Node]] = []
    for node in failed:
        touching = [g for g in groups if any(node[0] == r or node[1] == c for r, c in g)]
        groups = [g for g in groups if g not in touching]
        groups.append([node, *chain.from_iterable(touching)])
    return groups


def _covers(group: Sequence[Node]) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Return rows and columns that disable a group: for each number of rows the fewest columns."""
    rows = sorted({row for row, _ in group})
    covers = []
    for count in range(len(rows) + 1):
        options = (
            (frozenset(chosen), frozenset(column for row, column in group if row not in chosen))
            for chosen in combinations(rows, count)
        )
        covers.append(min(options, key=lambda cover: len(cover[1])))
    return covers
