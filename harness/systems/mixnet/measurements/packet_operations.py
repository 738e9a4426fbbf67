"""What no circuit carries: operations between servers of a script's other kinds of parallelism."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightrig.instruments.jobs.traffic.training import Done


@dataclass(frozen=True, slots=True)
class PacketOperations:
    """Operations of one kind, in groups of as many ranks: such as of data or pipeline parallelism.

    Attributes:
        kind: such as allreduce, or send.
        members: ranks of a group.
        groups: how many.
        count: operations of all ranks.
        size: their bytes, each rank's own.
    """

    kind: str
    members: int
    groups: int
    count: int
    size: int

    def __str__(self) -> str:
        groups = "a group" if self.groups == 1 else f"{self.groups} groups"
        return f"{self.kind} in {groups} of {self.members}: {self.count} of {self.size:,} bytes"


def packet_operations(
    operations: Mapping[int, Sequence[Done]], ranks: int
) -> list[PacketOperations]:
    """Return the operations of each kind; `ranks` are those of the job.

    Those within a server are none of them.
    """
    count: Counter[tuple[str, int]] = Counter()
    size: Counter[tuple[str, int]] = Counter()
    groups: dict[tuple[str, int], set[str]] = {}
    for of_rank in operations.values():
        for each in of_rank:
            name = each.operation.group
            members = ranks if name == "all" else name.count(",") + 1
            key = each.operation.kind, members
            count[key] += 1
            size[key] += each.operation.size
            groups.setdefault(key, set()).add(name)
    return [
        PacketOperations(*key, len(groups[key]), count[key], size[key]) for key in sorted(count)
    ]
