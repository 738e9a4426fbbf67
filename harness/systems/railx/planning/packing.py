"""Where a job's rectangle goes among others: what it leaves is divided into the largest jobs.

To find any rectangle of given sides is NP-hard (a biclique). On grids as small as `_MOST_CHOICES`
says all are tried; on larger ones those inside the rectangles of `pack`, and a greedy search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.scheduling import (
    Allocation,
    greedy,
    pack,
    replacements,
)

Grid: TypeAlias = npt.NDArray[np.bool_]
"""Nodes that can be used, rows x columns."""

_MOST_CHOICES = 20_000
"""Choices of rows, or of rows and columns, up to which all are tried."""

_MOST_COMPARED = 24
"""Candidates whose rest is divided, to choose among them."""


def sides_of(nodes: int, rows: int, columns: int) -> list[tuple[int, int]]:
    """Return rows and columns of the rectangles of `nodes` nodes on a grid, the squarest first."""
    found = [
        (height, nodes // height)
        for height in range(1, min(nodes, rows) + 1)
        if nodes % height == 0 and nodes // height <= columns
    ]
    return sorted(found, key=lambda side: (abs(side[0] - side[1]), -side[1]))


def rectangles(
    usable: Grid, sides: Sequence[tuple[int, int]], before: Allocation | None = None
) -> Iterator[Allocation]:
    """Yield rectangles of one of `sides`, all of whose nodes can be used, the best first.

    before: what the job had; what replaces the fewest of its nodes comes first. Else the best is
    one that `pack` itself makes, then what leaves the largest jobs to others: sizes of the rest by
    `pack`, the largest first.
    """
    if before is not None and (len(before.rows), len(before.columns)) in sides:
        yield from replacements(usable, before)
    height, width = usable.shape
    sides = [(rows, columns) for rows, columns in sides if rows <= height and columns <= width]
    pieces = _pieces(usable)
    equal = [each for each in pieces if (len(each.rows), len(each.columns)) in sides]
    near = dict.fromkeys(chain(equal, *(_near(usable, pieces, *side) for side in sides)))
    yield from equal
    compared = list(islice(near, len(equal), len(equal) + _MOST_COMPARED))
    yield from sorted(compared, key=lambda each: _rest(usable, each), reverse=True)
    yield from islice(near, len(equal) + _MOST_COMPARED, None)
    for rows, columns in sides:
        yield from _all(usable, rows, columns)


def _pieces(usable: Grid) -> list[Allocation]:
    rows, columns = usable.shape
    return pack(rows, columns, [(row, column) for row, column in np.argwhere(~usable).tolist()])


def _near(
    usable: Grid, pieces: Sequence[Allocation], rows: int, columns: int
) -> Iterator[Allocation]:
    """Yield rectangles inside those of `pack`, the tightest first, and greedy ones."""
    fitting = [p for p in pieces if len(p.rows) >= rows and len(p.columns) >= columns]
    for piece in sorted(fitting, key=lambda piece: piece.size):
        yield Allocation(piece.rows[:rows], piece.columns[:columns])
        part = usable[np.ix_(piece.rows, range(usable.shape[1]))].sum(axis=1)
        tight_rows = sorted(np.asarray(piece.rows)[np.argsort(part, kind="stable")[:rows]].tolist())
        part = usable[np.ix_(range(usable.shape[0]), piece.columns)].sum(axis=0)
        order = np.argsort(part, kind="stable")[:columns]
        tight_columns = sorted(np.asarray(piece.columns)[order].tolist())
        yield Allocation(tuple(tight_rows), tuple(tight_columns))
    found = greedy(usable, rows, columns)
    if found is not None:
        yield Allocation(*found)
    if (turned := greedy(usable.T, columns, rows)) is not None:
        yield Allocation(*turned[::-1])


def _rest(usable: Grid, taken: Allocation) -> tuple[int, ...]:
    """Return the sizes of the jobs that the nodes beside `taken` are divided into, sorted."""
    left = usable.copy()
    left[np.ix_(taken.rows, taken.columns)] = False
    return tuple(sorted((job.size for job in _pieces(left)), reverse=True))


def _all(usable: Grid, rows: int, columns: int) -> Iterator[Allocation]:
    """Yield all rectangles where they are few, else one for each choice of rows where those are."""
    height, width = usable.shape
    by_rows, by_columns = math.comb(height, rows), math.comb(width, columns)
    if by_rows * by_columns <= _MOST_CHOICES:
        for chosen in combinations(range(height), rows):
            common = np.flatnonzero(usable[list(chosen)].all(axis=0)).tolist()
            yield from (Allocation(chosen, each) for each in combinations(common, columns))
    elif by_rows <= min(by_columns, _MOST_CHOICES):
        for chosen in combinations(range(height), rows):
            common = np.flatnonzero(usable[list(chosen)].all(axis=0)).tolist()
            if len(common) >= columns:
                yield Allocation(chosen, tuple(common[:columns]))
    elif by_columns <= _MOST_CHOICES:
        yield from (Allocation(*each[::-1]) for each in _all(usable.T, columns, rows))
