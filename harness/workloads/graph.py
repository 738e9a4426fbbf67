"""Steps of training as graphs: nodes of compute and communication of each rank, by number.

Of the nodes of a rank that could start, the one of the lowest number does
(docs/decisions/0014-order-of-simulated-events.md), so numbers are part of a workload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from lightrig.testbeds import LightrigError


class WorkloadError(LightrigError):
    """A workload cannot be simulated: a cycle, an unmatched send, members that disagree."""


FRONT_END = "front end"
"""The kind of groups whose collectives no fabric carries: only a recorded run has their times."""


class Kind(IntEnum):
    """What a node does. Compute and communication take a slot of the rank, receiving does not."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECEIVE = 3


class Pattern(IntEnum):
    """What a collective exchanges. `amount` of its node is what each member puts in, in bytes."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    ALL_TO_ALL = 3
    BROADCAST = 4


@dataclass(frozen=True, slots=True)
class Device:
    """A processor: `operations` a nanosecond, and bytes a nanosecond of its memory."""

    operations: float
    memory: float

    def nanoseconds(self, operations: int, written: int) -> int:
        """Return the whole nanoseconds of a kernel: the slower of its operations and its result."""
        return int(max(operations / self.operations, written / self.memory))


class Node(NamedTuple):
    """A node. `needs`: nodes that end before it starts.

    nanoseconds: of compute, and of a collective that has been recorded. amount: bytes of
    communication. group: name of a collective's group. peer: of a send or receive, how many
    simulated ranks further it is. tag: pairs them.
    operations, written: of compute, multiplications with their additions, and bytes of the result.
    """

    kind: Kind
    needs: tuple[int, ...]
    nanoseconds: int = 0
    pattern: Pattern = Pattern.ALL_REDUCE
    amount: int = 0
    group: str = ""
    peer: int = 0
    tag: int = 0
    name: str = ""
    operations: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of one rank, or of several that do the same."""

    nodes: tuple[Node, ...]
    followers: tuple[tuple[int, ...], ...]
    needed: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], name: str = "graph") -> Graph:
        """Return the graph of these nodes; raises `WorkloadError` for a need that cannot be met."""
        followers: list[list[int]] = [[] for _ in nodes]
        needed = []
        for number, node in enumerate(nodes):
            needs = set(node.needs)
            if wrong := [need for need in needs if not 0 <= need < len(nodes) or need == number]:
                raise WorkloadError(f"{name}: node {number} needs node {min(wrong)}")
            needed.append(len(needs))
            for need in needs:
                followers[need].append(number)
        graph = cls(tuple(nodes), tuple(tuple(sorted(one)) for one in followers), tuple(needed))
        graph._check_cycles(name)
        return graph

    @property
    def compute(self) -> int:
        """Nanoseconds of all compute."""
        return sum(node.nanoseconds for node in self.nodes if node.kind is Kind.COMPUTE)

    def _check_cycles(self, name: str) -> None:
        left = list(self.needed)
        ready = [number for number, count in enumerate(left) if not count]
        for number in ready:
            for follower in self.followers[number]:
                left[follower] -= 1
                if not left[follower]:
                    ready.append(follower)
        if len(ready) < len(self.nodes):
            stuck = next(number for number, count in enumerate(left) if count)
            raise WorkloadError(f"{name}: node {stuck} needs itself, by way of others")


class Group(NamedTuple):
    """Ranks of a collective. `size`: how many in truth, of which `members` are simulated."""

    kind: str
    members: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A step of training.

    Attributes:
        graphs: the different graphs.
        graph_of: the number of its graph, of each simulated rank.
        groups: for each simulated rank, its groups by the names that nodes use.
        folded: how many true ranks stand behind each simulated one, by dimension.
        stages: the stage of the pipeline, of each simulated rank.
        assumptions: what the answer says of how the workload came about.
    """

    graphs: tuple[Graph, ...]
    graph_of: tuple[int, ...]
    groups: tuple[Mapping[str, Group], ...]
    folded: Mapping[str, int] = field(default_factory=dict)
    stages: tuple[int, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """How many ranks there are in truth."""
        count = len(self.graph_of)
        for factor in self.folded.values():
            count *= factor
        return count

    def traffic(self) -> dict[str, int]:
        """Return the bytes that all ranks send, by kind of group, and "pp" between stages.

        Of collectives what a ring sends, which is the least where each member has its links.
        """
        sums: dict[str, int] = defaultdict(int)
        folded = self.ranks // len(self.graph_of)
        for rank, groups in enumerate(self.groups):
            for node in self.graph(rank).nodes:
                if node.kind is Kind.SEND:
                    sums["pp"] += node.amount * folded
                elif node.kind is Kind.COLLECTIVE:
                    group = groups[node.group]
                    sent = (group.size - 1) * node.amount
                    if node.pattern is not Pattern.ALL_GATHER:
                        sent //= group.size
                    twice = node.pattern is Pattern.ALL_REDUCE
                    sums[group.kind] += sent * folded * (1 + twice)
        return dict(sums)

    def graph(self, rank: int) -> Graph:
        """Return the graph of a simulated rank."""
        return self.graphs[self.graph_of[rank]]


class GraphBuilder:
    """Nodes by keys, in the order of their numbers; a need may be declared later than its user."""

    def __init__(self, name: str = "graph") -> None:
        self._name = name
        self._nodes: list[tuple[Node, tuple[Hashable, ...]]] = []
        self._number: dict[Hashable, int] = {}

    def add(self, key: Hashable, needs: Iterable[Hashable], node: Node) -> None:
        """Add a node with the next number."""
        self._number[key] = len(self._nodes)
        self._nodes.append((node, tuple(needs)))

    def build(self) -> Graph:
        """Return the graph; a need that no node has the key of raises `WorkloadError`."""
        try:
            return Graph.of(
                [
                    node._replace(needs=tuple(self._number[need] for need in needs))
                    for node, needs in self._nodes
                ],
                self._name,
            )
        except KeyError as error:
            raise WorkloadError(f"{self._name}: a node needs {error}, which is no node") from None
