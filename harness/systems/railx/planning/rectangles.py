"""Proofs that a grid with failed nodes holds no rectangle of given sides.

To find a rectangle is NP-hard (a biclique of given sides), so some have neither a place that
`scheduling.place_rectangle` finds nor a proof.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

_MOST_TRIED = 20_000
"""Choices of rows, or of columns, up to which all are tried."""


def is_impossible(usable: npt.NDArray[np.bool_], rows: int, columns: int) -> bool:
    """Whether no `rows` x `columns` nodes that are all `usable` are there: proved, not searched.

    A row with fewer usable nodes than `columns` is in no rectangle, nor is a column with fewer than
    `rows`; without them further ones fall. What is left is tried whole where it is small.
    """
    left = usable
    while True:
        whole = left[left.sum(axis=1) >= columns]
        whole = whole[:, whole.sum(axis=0) >= rows]
        if whole.shape == left.shape:
            break
        left = whole
    height, width = left.shape
    if height < rows or width < columns:
        return True
    if comb(width, columns) < comb(height, rows):
        left, height, rows, columns = left.T, width, columns, rows
    if comb(height, rows) > _MOST_TRIED:
        return False
    return not any(
        int(left[list(chosen)].all(axis=0).sum()) >= columns
        for chosen in combinations(range(height), rows)
    )
