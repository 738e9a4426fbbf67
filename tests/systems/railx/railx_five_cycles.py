"""Search of the five cycles that RailX's even all-to-alls need: how the package data was found."""

import math
import random

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.railx.planning.hamiltonian import (
    DecompositionError,
    successors,
    undirected_cycles,
)
from lightrig.suites.claims.railx.compiling import compiled

_FACTORS = 5
_RESTART = 60_000
_COMPILED_FROM = 24
_HEAT = 0.5
"""Of the annealing; a constant that found all even n to 64, where 0.3 and 0.8 found few."""


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
    draw = random.Random(seed)
    # Compiling takes longer than a small search.
    anneal = compiled(_anneal) if nodes > _COMPILED_FROM else _anneal
    for _ in range(max(1, steps // _RESTART)):
        factors = np.array(_start(nodes, draw))
        if anneal(factors, draw.randrange(1, 2147483647), _RESTART, _HEAT):
            return [_cycle(factor) for factor in factors.tolist()]
    raise DecompositionError(f"{nodes} nodes: nothing found in {steps:,} exchanges, seed {seed}")


def _start(nodes: int, draw: random.Random) -> list[list[int]]:
    """Draw five permutations that partition the digraph and have five cycles' sign."""
    cycles, mates = undirected_cycles(nodes)
    both = successors(np.vstack([cycles[:2], cycles[:2, ::-1]]))
    factors = [mates.tolist(), *both.tolist()]
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
