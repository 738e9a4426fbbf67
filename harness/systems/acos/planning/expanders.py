"""Random expanders, and ones that 2x2 switches split into halves.

Of a GPU's links exactly half cross between the halves. Two crossing links a-b' and c-d' become
a-c and b'-d': in each direction one 2x2 has to take a fiber that leaves the first half and one
that leaves the second, since two fibers of the same direction cannot be turned into links
inside the halves. The paper gives no rule for the pairing; here it is random without double links.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lightrig.harness.systems.acos.planning.optics import FabricError

Edge: TypeAlias = tuple[int, int]
DEGREE = 8
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Pair:
    """Two links inside the halves, a-c and b-d, that become a-b and c-d when merged."""

    a: int
    c: int
    b: int
    d: int


@dataclass(frozen=True, slots=True)
class Splittable:
    """An expander on nodes 0..2n-1 with halves 0..n-1 and n..2n-1.

    Attributes:
        fixed: links inside the halves that no 2x2 touches.
        pairs: links that 2x2 switches convert.
    """

    nodes: int
    fixed: tuple[Edge, ...]
    pairs: tuple[Pair, ...]

    @property
    def merged(self) -> tuple[Edge, ...]:
        """Links of the whole expander."""
        crossing = (edge for p in self.pairs for edge in ((p.a, p.b), (p.c, p.d)))
        return (*self.fixed, *crossing)

    @property
    def split(self) -> tuple[Edge, ...]:
        """Links of the two halves."""
        inside = (edge for p in self.pairs for edge in ((p.a, p.c), (p.b, p.d)))
        return (*self.fixed, *inside)


def random_regular(nodes: int, degree: int, seed: int) -> tuple[Edge, ...]:
    """Connected random regular graph, simple, from `seed` on."""
    import networkx as nx  # loads slowly, and few commands need it

    for attempt in range(_TRIES):
        graph = nx.random_regular_graph(degree, nodes, seed=seed + 7919 * attempt)
        if nx.is_connected(graph):
            return tuple(graph.edges)
    raise FabricError(f"no connected {degree}-regular graph of {nodes} nodes in {_TRIES} tries")


def splittable(half: int, seed: int) -> Splittable:
    """Expander of degree 8 whose halves have `half` nodes each.

    Halves of 8 and 9 become complete graphs. With 8, one lane of each GPU is spare, and four
    links of a half are double.
    """
    random = np.random.default_rng(seed)
    fixed: list[Edge] = []
    inside: list[list[Edge]] = []
    for offset in (0, half):
        fixed_part, converted = _complementary(half, random)
        fixed += [(offset + u, offset + v) for u, v in fixed_part]
        inside.append([(offset + u, offset + v) for u, v in converted])
    return Splittable(2 * half, tuple(fixed), pair_up(inside[0], inside[1], random))


def pair_up(
    left: Sequence[Edge], right: Sequence[Edge], random: np.random.Generator
) -> tuple[Pair, ...]:
    """Pair links of one half with links of the other so that no crossing link is double."""
    for _ in range(_TRIES):
        crossing: set[Edge] = set()
        pairs: list[Pair] = []
        waiting = [right[i] for i in random.permutation(len(right))]
        for a, c in left:
            found = next(
                (
                    (k, Pair(a, c, b, d))
                    for k, ends in enumerate(waiting)
                    for b, d in (ends, ends[::-1])
                    if (a, b) not in crossing and (c, d) not in crossing
                ),
                None,
            )
            if found is None:
                break
            place, pair = found
            waiting.pop(place)
            crossing |= {(pair.a, pair.b), (pair.c, pair.d)}
            pairs.append(pair)
        else:
            return tuple(pairs)
    raise FabricError(f"no pairing of {len(left)} links without double ones in {_TRIES} tries")


def _complementary(nodes: int, random: np.random.Generator) -> tuple[list[Edge], list[Edge]]:
    """Two 4-regular graphs on the same nodes that share as few links as can be."""
    import networkx as nx  # loads slowly, and few commands need it

    if nodes in {8, 9}:
        label = random.permutation(nodes)
        fixed_part = [(i, (i + k) % nodes) for i in range(nodes) for k in (1, 2)]
        converted = [(i, (i + 3) % nodes) for i in range(nodes)]
        # Of nine nodes offset 4 is the rest of the complete graph; of eight it is a perfect
        # matching, which is laid twice so that every lane is used.
        converted += [(i, (i + 4) % nodes) for i in range(nodes)]
        return (
            [(int(label[u]), int(label[v])) for u, v in fixed_part],
            [(int(label[u]), int(label[v])) for u, v in converted],
        )
    for _ in range(_TRIES):
        first, second = (
            random_regular(nodes, DEGREE // 2, int(random.integers(1 << 31))) for _ in range(2)
        )
        if not {frozenset(e) for e in first} & {frozenset(e) for e in second}:
            return list(first), list(second)
    # Few nodes leave no two random graphs apart: take the second from what the first left over.
    whole = nx.random_regular_graph(DEGREE, nodes, seed=int(random.integers(1 << 31)))
    circuit = list(nx.eulerian_circuit(whole))
    # Every second link of an Euler circuit of even length: each node has half of its links.
    return circuit[::2], circuit[1::2]
