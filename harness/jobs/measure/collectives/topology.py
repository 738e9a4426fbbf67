"""The topology under a collective, as far as its figures depend on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lightrig.harness.record.row import Scalar
from lightrig.instruments.jobs.flows.of_testbed import fabric_links, slowest_rate_bps
from lightrig.testbeds import Plan, Testbed


@dataclass(frozen=True, slots=True)
class Topology:
    """The ring of a collective in the plan that was applied.

    Attributes:
        plan: the name of the plan.
        ranks: the server of each rank, in ring order.
        hops: the most links between two neighbours in the ring; 1 where all are joined, and 0
            among the ranks of one server.
        line_rate_bps: what the slowest pair of neighbours has, its links side by side together.
    """

    plan: str
    ranks: tuple[str, ...]
    hops: int
    line_rate_bps: int

    @property
    def ring(self) -> str:
        """The servers in order, each once."""
        return " - ".join(dict.fromkeys(self.ranks))

    def conditions(self) -> Mapping[str, Scalar]:
        """Conditions of every row."""
        return {
            "plan": self.plan,
            "ring": self.ring,
            "ranks": len(self.ranks),
            "hops": self.hops,
            "line_rate_bps": self.line_rate_bps,
        }


def topology(testbed: Testbed, plan: Plan, ranks: Sequence[str]) -> Topology:
    """The topology of a ring of `ranks` over the links of `plan`.

    Where servers forward for others, or a packet switch does, neighbours in the ring may be
    several links apart. Raises `RanksError` where nothing leads from one rank to the next.
    """
    import networkx as nx  # loads slowly, and most runs look for no ring

    links = fabric_links(testbed, plan)
    rate = slowest_rate_bps(testbed, ranks, links)
    graph = nx.Graph((link.a.owner, link.b.owner) for link in links)
    hops = max(nx.shortest_path_length(graph, a, b) for a, b in pairwise([*ranks, ranks[0]]))
    return Topology(plan.name, tuple(ranks), hops, round(rate))
