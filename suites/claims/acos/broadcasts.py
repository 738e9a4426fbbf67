"""Breadth-first broadcast on direct-connect graphs: every node's data goes along shortest paths.

In step t each node receives the data of the nodes at distance t from its neighbours at distance
t - 1 from their source; several such neighbours share a source's data so that the busiest link is
as little loaded as can be. ACOS cites this schedule (Zhao et al., 2025) for all-gathers on its
tori (§4.1, §5.3); a reduce-scatter is the same in reverse.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy  # whose modules are loaded when they are first used

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A schedule for one unit of data of each node.

    Attributes:
        loads: of each step, the units on the busiest link into a node.
        least: units that a link must carry at least, as all data of others enters over `degree`.
    """

    loads: tuple[float, ...]
    least: float

    @property
    def steps(self) -> int:
        """Steps, which is the diameter."""
        return len(self.loads)

    @property
    def relative(self) -> float:
        """Time over that of the bandwidth bound, latency left out; 1 is optimal."""
        return sum(self.loads) / self.least


def torus(sizes: Sequence[int]) -> "nx.MultiGraph":
    """Return a torus; two parallel links join the nodes of a dimension of length 2."""
    import networkx as nx  # loads slowly, and few commands need it

    graph = nx.MultiGraph()
    for node in np.ndindex(*sizes):
        for axis, size in enumerate(sizes):
            if size > 1:
                after = (*node[:axis], (node[axis] + 1) % size, *node[axis + 1 :])
                graph.add_edge(node, after)
    return graph


def breadth_first_broadcast(graph: "nx.MultiGraph") -> Broadcast:
    """Schedule a broadcast on a graph whose nodes look alike, such as a torus.

    One node is scheduled: by symmetry the loads of the others are equal.
    """
    import networkx as nx  # loads slowly, and few commands need it

    sink: Hashable = next(iter(graph))
    degree = graph.degree(sink)
    distance = dict(nx.all_pairs_shortest_path_length(nx.Graph(graph)))
    links = [near for near in graph[sink] for _ in range(graph.number_of_edges(near, sink))]
    loads = []
    for step in range(1, max(distance[sink].values()) + 1):
        sources = [node for node, hops in distance[sink].items() if hops == step]
        loads.append(_least_load(sources, links, distance, step))
    return Broadcast(tuple(loads), (len(graph) - 1) / degree)


def _least_load(
    sources: Sequence[Hashable],
    links: Sequence[Hashable],
    distance: dict[Hashable, dict[Hashable, int]],
    step: int,
) -> float:
    """Return the load of the busiest link if each source's unit is shared out best."""
    ways = [
        (source, link)
        for source in range(len(sources))
        for link, near in enumerate(links)
        if distance[sources[source]][near] == step - 1
    ]
    whole = np.zeros((len(sources), len(ways) + 1))
    carried = np.zeros((len(links), len(ways) + 1))
    carried[:, -1] = -1  # no link carries more than the last variable, which is minimised
    for column, (source, link) in enumerate(ways):
        whole[source, column] = carried[link, column] = 1
    cost = np.zeros(len(ways) + 1)
    cost[-1] = 1
    found = scipy.optimize.linprog(
        cost,
        A_ub=carried,
        b_ub=np.zeros(len(links)),
        A_eq=whole,
        b_eq=np.ones(len(sources)),
        method="highs",
    )
    return float(found.fun)
