"""Operations of a training job on its fabric, their groups, and the job's grid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from lightrig.testbeds import LightrigError

ASYMMETRIC: Final = 0
"""The digit of pipeline parallelism; the symmetric dimensions (DP, CP, EP) have 1 to 9."""

Network: TypeAlias = Literal["scale-up", "front end", "rail"]
Purpose: TypeAlias = Literal["data", "management", "scale-up"]


class OpusError(LightrigError):
    """A job, a schedule or a topology that contradicts itself."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective or one Send/Recv as a rank issues it.

    Attributes:
        group: the communication group's name.
        index: how many operations of this group the rank has issued before.
        dimension: the digit of the parallelism that the group belongs to.
        purpose: "data" goes over the rail; a barrier ("management") over the CPU's own network,
            what stays within a server ("scale-up") over its interconnect.
    """

    group: str
    index: int
    dimension: int
    purpose: Purpose = "data"

    @property
    def asymmetric(self) -> bool:
        """Whether stages take part in it at different times, as in a pipeline's Send/Recv."""
        return self.dimension == ASYMMETRIC

    @property
    def network(self) -> Network:
        """The network that carries it (Algorithm 1, lines 3 and 18)."""
        networks: dict[Purpose, Network] = {
            "data": "rail",
            "management": "front end",
            "scale-up": "scale-up",
        }
        return networks[self.purpose]

    def __str__(self) -> str:
        return f"{self.group}#{self.index}"


@dataclass(frozen=True, slots=True)
class CommunicationGroup:
    """Ranks that communicate, in the order of their ring.

    A pipeline's groups are pairs of neighbours: the controller counts two ranks for a Send/Recv.
    """

    name: str
    dimension: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RailJob:
    """The ranks of one training job and the groups that they communicate in.

    Attributes:
        name: of the job.
        stages: of the pipeline.
        stage_of: the pipeline stage of each rank.
        rail_of: the rail that each rank's NIC is on.
        groups: by name.
    """

    name: str
    stages: int
    stage_of: tuple[int, ...]
    rail_of: tuple[int, ...]
    groups: Mapping[str, CommunicationGroup] = field(hash=False)

    def __post_init__(self) -> None:
        for group in self.groups.values():
            if len({self.rail_of[rank] for rank in group.ranks}) > 1:
                raise OpusError(f"group {group.name} of job {self.name} spans several rails")

    @cached_property
    def at_stage(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each stage, on all rails."""
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for rank, stage in enumerate(self.stage_of):
            found[stage].append(rank)
        return tuple(map(tuple, found))

    @property
    def rails(self) -> int:
        """Number of rails."""
        return max(self.rail_of) + 1

    @classmethod
    def grid(cls, name: str, stages: int, widths: Sequence[int], rails: int = 1) -> "RailJob":
        """A job of `stages` stages, each a grid of symmetric dimensions, the same on every rail.

        `widths` are the degrees of the symmetric dimensions 1, 2, ...; rank numbers count rails
        fastest, then the last symmetric dimension, and stages slowest, as a server's GPUs are
        numbered one a rail. Raises `OpusError`.
        """
        if stages < 1 or rails < 1 or len(widths) > 9 or any(width < 1 for width in widths):
            raise OpusError(f"found {stages} stages of {list(widths)}, expected at most 9 degrees")
        columns = 1
        for width in widths:
            columns *= width
        count = stages * columns * rails
        stage_of = tuple(rank // (columns * rails) for rank in range(count))
        rail_of = tuple(rank % rails for rank in range(count))
        groups = {
            group.name: group
            for rail in range(rails)
            for group in _grid_groups(rail, stages, widths, columns, rails)
        }
        return cls(name, stages, stage_of, rail_of, groups)

    def ranks(self, rail: int) -> tuple[int, ...]:
        """The ranks on a rail."""
        return tuple(rank for rank, rail_of_rank in enumerate(self.rail_of) if rail_of_rank == rail)

    def stage_ranks(self, rail: int, stage: int) -> tuple[int, ...]:
        """The ranks of a stage on a rail."""
        return tuple(rank for rank in self.ranks(rail) if self.stage_of[rank] == stage)


def neighbours(stages: int) -> list[tuple[int, int]]:
    """The pairs of stages that a pipeline's links join: a ring, but two stages are one pair."""
    pairs = [(stage, stage + 1) for stage in range(stages - 1)]
    return [*pairs, (stages - 1, 0)] if stages > 2 else pairs


def _grid_groups(
    rail: int, stages: int, widths: Sequence[int], columns: int, rails: int
) -> Iterator[CommunicationGroup]:
    def rank(stage: int, column: int) -> int:
        return (stage * columns + column) * rails + rail

    for stage, following in neighbours(stages):
        for column in range(columns):
            ends = rank(stage, column), rank(following, column)
            yield CommunicationGroup(f"r{rail}.pp{stage}-{following}.{column}", ASYMMETRIC, ends)
    stride = columns
    for dimension, width in enumerate(widths, 1):
        stride //= width
        for stage in range(stages):
            for column in range(columns):
                if column // stride % width == 0:
                    members = tuple(rank(stage, column + k * stride) for k in range(width))
                    yield CommunicationGroup(
                        f"r{rail}.d{dimension}.s{stage}.{column}", dimension, members
                    )
