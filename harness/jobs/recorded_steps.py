"""A step of a training script that has run, as a workload: what ranks did, without their waits.

A rank's computing is the time between its last event and its next wish to communicate; what it
waits for others and for circuits is left out, as the simulator has waits of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.workloads.graph import (
    Graph,
    Group,
    Kind,
    Node,
    Pattern,
    Workload,
    WorkloadError,
)

_PATTERNS = {
    "allreduce": Pattern.ALL_REDUCE,
    "allgather": Pattern.ALL_GATHER,
    "allgather_base": Pattern.ALL_GATHER,
    "all_gather_single": Pattern.ALL_GATHER,
    "allgather_into_tensor": Pattern.ALL_GATHER,
    "reduce_scatter": Pattern.REDUCE_SCATTER,
    "reduce_scatter_base": Pattern.REDUCE_SCATTER,
    "reduce_scatter_single": Pattern.REDUCE_SCATTER,
    "reduce_scatter_tensor": Pattern.REDUCE_SCATTER,
    "alltoall": Pattern.ALL_TO_ALL,
    "alltoall_base": Pattern.ALL_TO_ALL,
    "all_to_all_single": Pattern.ALL_TO_ALL,
    "broadcast": Pattern.BROADCAST,
}
"""Patterns by the methods of PyTorch's process groups, without the ending of coalesced ones."""


@dataclass(frozen=True, slots=True)
class RecordedOperation:
    """An operation of a rank, as it was recorded; `asked` and `ended` in ns.

    members: ranks of its group, the two ends of sends and receives. amount: bytes of its largest
    argument. parts: directions, s or r, of the sends and receives that it joins; empty for others.
    link: the kind of links that carry it. took: ns of data once all ranks are there, of each part,
    where they are known.
    """

    kind: str
    members: tuple[int, ...]
    amount: int
    asked: int
    ended: int
    parts: str = ""
    link: str = "dp"
    took: tuple[int, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes of a step's graph it makes: one of computing before it, and its own."""
        return 1 + max(1, len(self.parts))


def recorded_step(
    ranks: Sequence[Sequence[RecordedOperation]],
    begun: Sequence[int],
    stages: Sequence[int],
) -> Workload:
    """Return the step of each rank's operations, in the order in which they were wanted.

    begun: when each rank's step began, in ns. stages: the stage of the pipeline of each.
    Raises `WorkloadError` for operations that no simulated collective is, unless what they took is
    known.
    """
    groups: list[dict[str, Group]] = [{} for _ in ranks]
    graphs = []
    for rank, operations in enumerate(ranks):
        nodes: list[Node] = []
        tags: dict[tuple[int, int], int] = defaultdict(int)
        running: list[tuple[int, int]] = []  # when each operation ended, and its last node
        last, before = begun[rank], -1
        for operation in operations:
            ended = [one for one in running if one[0] <= operation.asked]
            running = [one for one in running if one[0] > operation.asked]
            since = max([last, *(at for at, _ in ended)])
            needs = {node for _, node in ended} | ({before} if before >= 0 else set())
            before, last = len(nodes), operation.asked
            nodes.append(
                Node(
                    Kind.COMPUTE,
                    tuple(sorted(needs)),
                    nanoseconds=max(operation.asked - since, 0),
                    name="compute",
                )
            )
            for node in _nodes(rank, operation, before, tags, groups[rank]):
                nodes.append(node)
                running.append((operation.ended, len(nodes) - 1))
        graphs.append(Graph.of(nodes, f"rank {rank}"))
    return Workload(
        tuple(graphs),
        tuple(range(len(graphs))),
        tuple(groups),
        stages=tuple(stages),
        assumptions=(
            "a recorded step: computing takes what it took, with all that the rails did not carry",
        ),
    )


def _nodes(
    rank: int,
    operation: RecordedOperation,
    before: int,
    tags: dict[tuple[int, int], int],
    groups: dict[str, Group],
) -> list[Node]:
    """Return an operation's nodes: one of a collective, one of each send and receive."""
    members, size = operation.members, len(operation.members)
    if operation.parts:
        if size != 2 or rank not in members:
            raise WorkloadError(f"rank {rank}: found a send among ranks {members}, expected two")
        (peer,) = (member for member in members if member != rank)
        found = []
        for direction in operation.parts:
            ends = (rank, peer) if direction == "s" else (peer, rank)
            kind = Kind.SEND if direction == "s" else Kind.RECEIVE
            amount = operation.amount // len(operation.parts)
            found.append(
                Node(
                    kind,
                    (before,),
                    amount=amount,
                    peer=peer - rank,
                    tag=tags[ends],
                    name=kind.name.lower(),
                )
            )
            tags[ends] += 1
        return found
    pattern = _PATTERNS.get(operation.kind.strip("_").removesuffix("_coalesced"))
    if pattern is None and operation.took:
        pattern = Pattern.BROADCAST
    if pattern is None:
        raise WorkloadError(f"rank {rank}: {operation.kind} is not simulated")
    # Of an all-gather the largest argument is what all members have put in.
    amount = operation.amount // size if pattern is Pattern.ALL_GATHER else operation.amount
    name = f"{operation.link} {'-'.join(map(str, members))}"
    groups[name] = Group(operation.link, tuple(members), size)
    took = sum(operation.took)
    return [Node(Kind.COLLECTIVE, (before,), took, pattern, amount, name, name=operation.kind)]


def median_step(lengths: Mapping[int, int]) -> int:
    """Return the step of the median length, of an even number the shorter of the middle two."""
    ordered = sorted(lengths, key=lambda step: (lengths[step], step))
    return ordered[(len(ordered) - 1) // 2]
