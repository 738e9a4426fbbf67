"""Rings of rails that join every node with every other: Hamiltonian decompositions.

Lemma 3.1: the complete directed graph of n nodes splits into n - 1 directed Hamiltonian cycles,
n = 4 and 6 excepted. Each cycle is the order of one rail, which joins the plus port of a node with
the minus port of its successor; for each ordered pair exactly one rail does so.

Odd n: the paper's construction (appendix A.1), with its extra vertex, printed "2m+1", as 2m.
Even n: the paper cites Tillson (1980) and gives no construction. Here Walecki's zigzags give
n/2 - 1 undirected cycles and leave a perfect matching; the cycles are used in both directions,
except two. These two and the matching, in both directions, are a digraph of degree five, which
`search_five_cycles` splits into five directed Hamiltonian cycles. Its results for even n to 64 are
package data; whatever the source, a decomposition is verified before it is returned.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.compiling import compiled
from lightrig.harness.systems.railx.planning.physical import RailxError

Rings = npt.NDArray[np.int64]
"""Rings of one length, a row each: node after node in the direction of the plus ports."""

LARGEST_EVEN = 64
_DATA = "five_cycles.json"
_FACTORS = 5
_RESTART = 60_000
_COMPILED_FROM = 24
_HEAT = 0.5
"""Of the annealing; a constant that found all even n to 64, where 0.3 and 0.8 found few."""


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
            f"even numbers of nodes are solved to {LARGEST_EVEN}, found {nodes}; "
            "search_five_cycles may find a larger one"
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


def search_five_cycles(nodes: int, seed: int = 1, steps: int = 2_000_000) -> list[list[int]]:
    """Find the five cycles that `even_decomposition` needs, for even n from 8.

    Simulated annealing on five permutations that partition the digraph: an exchange of the arcs
    of one alternating component keeps both permutations, and the number of cycles is to fall to
    one each. The product of the permutations' signs is invariant under such exchanges, so each
    start is drawn anew until it is that of five Hamiltonian cycles. Raises `DecompositionError`
    after `steps` exchanges.
    """
    if nodes % 2 or nodes < 8:
        raise DecompositionError(f"found {nodes} nodes, expected an even number from 8")
    draw = random.Random(seed)  # noqa: S311 (no secret is drawn)
    # Compiling takes longer than a small search.
    anneal = compiled(_anneal) if nodes > _COMPILED_FROM else _anneal
    for _ in range(max(1, steps // _RESTART)):
        factors = np.array(_start(nodes, draw))
        if anneal(factors, draw.randrange(1, 2147483647), _RESTART, _HEAT):
            return [_cycle(factor) for factor in factors.tolist()]
    raise DecompositionError(f"{nodes} nodes: nothing found in {steps:,} exchanges, seed {seed}")


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


def _start(nodes: int, draw: random.Random) -> list[list[int]]:
    """Draw five permutations that partition the digraph and have five cycles' sign."""
    two = _zigzags(nodes)[:2]
    both = successors(np.vstack([two, two[:, ::-1]]))
    factors = [_mates(nodes).tolist(), *both.tolist()]
    while True:
        for _ in range(4 * _FACTORS):
            _redraw(factors, draw)
        if sum(nodes - _cycles(factor) for factor in factors) % 2:
            return factors


def _redraw(factors: list[list[int]], draw: random.Random) -> None:
    """Partition the arcs of three random factors into three others by random matchings."""
    chosen = draw.sample(range(_FACTORS), 3)
    options = [[factors[k][node] for k in chosen] for node in range(len(factors[0]))]
    for k in chosen:
        factors[k] = _random_factor(options, draw)
        for node, sink in enumerate(factors[k]):
            options[node].remove(sink)


def _random_factor(options: list[list[int]], draw: random.Random) -> list[int]:
    source = [-1] * len(options)

    def augment(node: int, seen: set[int]) -> bool:
        for sink in options[node]:
            if sink not in seen:
                seen.add(sink)
                if source[sink] < 0 or augment(source[sink], seen):
                    source[sink] = node
                    return True
        return False

    order = list(range(len(options)))
    draw.shuffle(order)
    for node in order:
        draw.shuffle(options[node])
        augment(node, set())
    factor = [0] * len(options)
    for sink, node in enumerate(source):
        factor[node] = sink
    return factor


def _anneal(factors: npt.NDArray[np.int64], seed: int, steps: int, heat: float) -> bool:
    """Exchange components until each factor is one cycle; whether that was reached.

    Plain loops with a generator of their own (Lehmer's, multiplier 48271), so that a compiled
    search draws the same numbers.
    """
    count, nodes = factors.shape
    cycles, trial = np.zeros(count, np.int64), np.zeros(2, np.int64)
    seen, source = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    component = np.zeros(nodes, np.int64)
    mark = 0
    for k in range(count):
        mark += 1
        for node in range(nodes):
            here = node
            cycles[k] += seen[here] != mark
            while seen[here] != mark:
                seen[here] = mark
                here = factors[k, here]
    state = seed
    for _ in range(steps):
        if cycles.sum() == count:
            return True
        state = state * 48271 % 2147483647
        a = state % count
        while cycles[a] == 1:
            a = (a + 1) % count
        state = state * 48271 % 2147483647
        b = (a + 1 + state % (count - 1)) % count
        state = state * 48271 % 2147483647
        start = state % nodes
        for node in range(nodes):
            source[factors[a, node]] = node
        size, here = 0, start
        while size == 0 or here != start:
            component[size] = here
            size += 1
            here = source[factors[b, here]]
        for index in range(size):
            node = component[index]
            factors[a, node], factors[b, node] = factors[b, node], factors[a, node]
        for index in range(2):
            k = a if index == 0 else b
            mark += 1
            trial[index] = 0
            for node in range(nodes):
                here = node
                trial[index] += seen[here] != mark
                while seen[here] != mark:
                    seen[here] = mark
                    here = factors[k, here]
        more = trial[0] + trial[1] - cycles[a] - cycles[b]
        state = state * 48271 % 2147483647
        if more <= 0 or state / 2147483647 < math.exp(-more / heat):
            cycles[a], cycles[b] = trial[0], trial[1]
        else:
            for index in range(size):
                node = component[index]
                factors[a, node], factors[b, node] = factors[b, node], factors[a, node]
    return bool(cycles.sum() == count)


def _cycles(factor: list[int]) -> int:
    seen, count = bytearray(len(factor)), 0
    for node in range(len(factor)):
        count += not seen[node]
        while not seen[node]:
            seen[node] = 1
            node = factor[node]  # noqa: PLW2901
    return count


def _cycle(factor: list[int]) -> list[int]:
    ring = [0]
    while factor[ring[-1]]:
        ring.append(factor[ring[-1]])
    return ring
