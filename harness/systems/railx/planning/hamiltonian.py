"""Rings of rails that join every node with every other: Hamiltonian decompositions.

Lemma 3.1: the complete directed graph of n nodes splits into n - 1 directed Hamiltonian cycles,
n = 4 and 6 excepted. Each cycle is the order of one rail, which joins the plus port of a node with
the minus port of its successor; for each ordered pair exactly one rail does so.

Odd n: the paper's construction (appendix A.1), with its extra vertex, printed "2m+1", as 2m.
Even n: the paper cites Tillson (1980) and gives no construction. Here Walecki's zigzags give
n/2 - 1 undirected cycles and leave a perfect matching; the cycles are used in both directions,
except two. These two and the matching, in both directions, are a digraph of degree five, which a
search (tests/systems/railx/railx_five_cycles.py) splits into five directed Hamiltonian cycles. Its
results for even n to 64 are package data; whatever the source, a decomposition is verified before
it is returned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.physical import RailxError

Rings = npt.NDArray[np.int64]
"""Rings of one length, a row each: node after node in the direction of the plus ports."""

LARGEST_EVEN = 64
_DATA = "five_cycles.json"


class DecompositionError(RailxError):
    """A complete graph that has no Hamiltonian decomposition, or none that is known here."""


@cache
def decomposition(nodes: int) -> Rings:
    """Return the n - 1 directed rings of `nodes` nodes, one row each, verified.

    For odd n, row c and row c + (n - 1) / 2 are the two directions of one cycle. The array is
    shared between callers and cannot be written to. Raises `DecompositionError` for n below 2,
    for 4 and 6, where none exists, and for even n above 64.
    """
    if nodes in (4, 6):
        raise DecompositionError(
            f"the complete directed graph of {nodes} nodes has no Hamiltonian decomposition "
            "(4 and 6 are the only exceptions); use one node less, or two rail groups"
        )
    if nodes < 2:
        raise DecompositionError(f"found {nodes} node, an all-to-all needs at least 2")
    if nodes % 2:
        rings = odd_decomposition(nodes)
    elif nodes == 2:
        rings = np.array([[0, 1]])
    elif nodes <= LARGEST_EVEN:
        rings = even_decomposition(nodes, _stored()[str(nodes)])
    else:
        raise DecompositionError(
            f"even numbers of nodes are solved to {LARGEST_EVEN}, found {nodes}; use one node less"
        )
    verify(rings)
    rings.setflags(write=False)
    return rings


def odd_decomposition(nodes: int) -> Rings:
    """Return the printed construction for odd n, each undirected cycle in both directions."""
    m = nodes // 2
    offsets = np.empty(2 * m, dtype=np.int64)
    offsets[0::2], offsets[1::2] = np.arange(m), -np.arange(1, m + 1)
    paths = (np.arange(m)[:, None] + offsets) % (2 * m)
    cycles = np.column_stack([paths, np.full(m, 2 * m)])
    return np.vstack([cycles, cycles[:, ::-1]])


def even_decomposition(nodes: int, five: Sequence[Sequence[int]]) -> Rings:
    """Return zigzags two and up in both directions, and the `five` cycles of the rest."""
    cycles = _zigzags(nodes)[2:]
    return np.vstack([cycles, cycles[:, ::-1], np.asarray(five, dtype=np.int64)])


def undirected_cycles(nodes: int) -> tuple[Rings, npt.NDArray[np.int64]]:
    """Return cycles that meet each pair once, and the mate of each node where n is even.

    With duplex ports these (n - 1) / 2 cycles, each used once, are an all-to-all with one link a
    pair on half the rails; for even n one more rail carries the matching. The paper does not use
    this. The mates of an odd n are empty.
    """
    if nodes < 3:
        raise DecompositionError(f"found {nodes} nodes, undirected cycles need at least 3")
    if nodes % 2:
        return odd_decomposition(nodes)[: nodes // 2], np.empty(0, dtype=np.int64)
    return _zigzags(nodes), _mates(nodes)


def successors(rings: Rings) -> npt.NDArray[np.int64]:
    """Return the node that each node's plus port is joined to, ring by ring."""
    following = np.empty_like(rings)
    np.put_along_axis(following, rings, np.roll(rings, -1, axis=1), axis=1)
    return following


def verify(rings: Rings) -> None:
    """Raise `DecompositionError` unless `rings` meet each ordered pair exactly once."""
    count, nodes = rings.shape
    if count != nodes - 1 or not (np.sort(rings, axis=1) == np.arange(nodes)).all():
        raise DecompositionError(f"{nodes} nodes need {nodes - 1} rings through all of them")
    met = np.zeros((nodes, nodes), dtype=np.int64)
    np.add.at(met, (rings, np.roll(rings, -1, axis=1)), 1)
    wrong = np.argwhere(met != 1 - np.eye(nodes, dtype=np.int64))
    if wrong.size:
        a, b = wrong[0]
        raise DecompositionError(f"nodes {a} and {b} are joined {met[a, b]} times, expected once")


@cache
def _stored() -> dict[str, list[list[int]]]:
    text = files(__package__).joinpath(_DATA).read_text(encoding="utf-8")
    stored: dict[str, list[list[int]]] = json.loads(text)
    return stored


def _zigzags(nodes: int) -> Rings:
    """Return n/2 - 1 undirected cycles of even n: rotated zigzags on n - 1 nodes, and a hub."""
    circle, half = nodes - 1, nodes // 2
    offsets = np.zeros(circle, dtype=np.int64)
    offsets[1::2], offsets[2::2] = np.arange(1, half), -np.arange(1, half)
    paths = (np.arange(half - 1)[:, None] + offsets) % circle
    return np.column_stack([paths, np.full(half - 1, circle)])


def _mates(nodes: int) -> npt.NDArray[np.int64]:
    """Return the perfect matching that the zigzags leave: sums of n - 2 on the circle."""
    circle, half = nodes - 1, nodes // 2
    mates = np.append((circle - 1 - np.arange(circle)) % circle, half - 1)
    mates[half - 1] = circle
    return mates
