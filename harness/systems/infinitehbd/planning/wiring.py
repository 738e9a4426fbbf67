"""Links of a K-hop line or ring, and the order in which its nodes are deployed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.testbeds import LightrigError

Nodes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class InfiniteHbdError(LightrigError, ValueError):
    """A request that the control plane cannot meet."""


@dataclass(frozen=True, slots=True)
class RowWiring:
    """Nodes in a row, each joined to those at certain distances on both sides.

    hops: the distances, ascending; the first is the main link, the others are backups.
    closed: whether the row's two ends are joined as neighbours are, which makes it a ring.

    Only two of a node's links carry light at a time (InfiniteHBD §4.2).
    """

    nodes: int
    hops: tuple[int, ...]
    closed: bool = False

    def __post_init__(self) -> None:
        if not self.hops or list(self.hops) != sorted({*self.hops}) or self.hops[0] != 1:
            raise InfiniteHbdError(f"found hops {self.hops}, expected 1 and greater ones, in order")
        if self.nodes < 1 or (self.closed and self.nodes <= 2 * self.hops[-1]):
            least = 2 * self.hops[-1] + 1 if self.closed else 1
            raise InfiniteHbdError(f"found {self.nodes} nodes, expected at least {least}")

    @property
    def reach(self) -> int:
        """The greatest distance of a link."""
        return self.hops[-1]

    def neighbour(self, node: int, hop: int) -> int | None:
        """The node at the other end of a link; `hop` is negative to the left; None past an end."""
        at = node + hop
        if self.closed:
            return at % self.nodes
        return at if 0 <= at < self.nodes else None

    def links(self) -> Nodes:
        """All links, one a row: the node on the left and the node on the right."""
        left = np.concatenate([np.arange(self.nodes)] * len(self.hops))
        right = left + np.repeat(self.hops, self.nodes)
        if self.closed:
            return np.column_stack([left, right % self.nodes])
        inside = right < self.nodes
        return np.column_stack([left[inside], right[inside]])


def k_hop(nodes: int, k: int, *, closed: bool = False) -> RowWiring:
    """Each node joined to those at ±1 … ±`k` (§4.2); raises `InfiniteHbdError`."""
    return RowWiring(nodes, tuple(range(1, k + 1)), closed)


def powers_of_two(nodes: int, k: int, *, closed: bool = False) -> RowWiring:
    """Each node joined to those at ±1, ±2, ±4 … ±2^(`k` - 1), for all-to-all (Appendix G.3).

    A run of faulty nodes shorter than `k` can be passed only where a power of two fits it. Raises
    `InfiniteHbdError`.
    """
    return RowWiring(nodes, tuple(1 << bit for bit in range(k)), closed)


@dataclass(frozen=True, slots=True)
class FatTree:
    """A data-centre network: nodes in order, so many under a ToR, so many in a domain.

    per_domain: nodes under one group of aggregation switches. Raises `InfiniteHbdError` where
    ToRs do not fill a domain, or domains do not fill the tree: the paper's floors would then
    cut sub-lines that span two domains.
    """

    nodes: int
    per_tor: int
    per_domain: int

    def __post_init__(self) -> None:
        for whole, part, what in (
            (self.per_domain, self.per_tor, "nodes of a ToR"),
            (self.nodes, self.per_domain, "nodes of a domain"),
        ):
            if part < 1 or whole < 1 or whole % part:
                raise InfiniteHbdError(f"found {whole} nodes, expected a multiple of {part} {what}")

    @property
    def domains(self) -> int:
        """Number of groups of aggregation switches."""
        return self.nodes // self.per_domain

    @property
    def sublines(self) -> int:
        """Number of sub-lines: one for each domain and place under a ToR.

        As printed it is floor(n d / p), more than there are nodes; n / l is meant.
        """
        return self.domains * self.per_tor

    @property
    def subline_length(self) -> int:
        """Nodes of a sub-line, l = d / p: one of each ToR of a domain."""
        return self.per_domain // self.per_tor

    @property
    def constraints(self) -> int:
        """Number of constraints that a placement can meet: a sub-line each, then a domain each."""
        return self.sublines + self.domains

    def order(self) -> Nodes:
        """The nodes as they are deployed in the line: the first of each ToR, then the seconds.

        Algorithm 3 as printed has one loop too many and names a node several times; this is
        what its text and Fig. 7 say (of 16 nodes, four a ToR, the third follows the fourteenth,
        counted from one).
        """
        return np.arange(self.nodes).reshape(-1, self.per_tor).T.ravel()

    def tor(self, nodes: Nodes) -> Nodes:
        """The ToR that each node is under."""
        return nodes // self.per_tor
