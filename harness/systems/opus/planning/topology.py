"""Topology identifiers: which parallelism owns the connectivity of each pipeline stage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC, OpusError


@dataclass(frozen=True, slots=True)
class TopologyId:
    """One decimal digit a pipeline stage, the leftmost for stage 0 (Opus §4.1).

    0 is the pipeline, 1 to 9 are the symmetric parallelisms. It is a text, since the printed
    "decimal integer" would lose leading zeros: 001 says that stages 0 and 1 talk to each other.
    (The released code has a bit mask of the opposite polarity, which cannot tell symmetric
    parallelisms apart.) Raises `OpusError` for anything but digits.
    """

    digits: str

    def __post_init__(self) -> None:
        if not self.digits.isdecimal() or not self.digits.isascii():
            raise OpusError(f"found topology {self.digits!r}, expected one digit a stage")

    @classmethod
    def uniform(cls, stages: int, dimension: int) -> "TopologyId":
        """All stages owned by one parallelism."""
        return cls(str(dimension) * stages)

    def __getitem__(self, stage: int) -> int:
        return int(self.digits[stage])

    def __len__(self) -> int:
        return len(self.digits)

    def __str__(self) -> str:
        return self.digits

    def with_stages(self, digits: Mapping[int, int]) -> "TopologyId":
        """The identifier with the digits of some stages replaced."""
        return TopologyId(
            "".join(str(digits.get(stage, self[stage])) for stage in range(len(self)))
        )

    def changed(self, target: "TopologyId") -> frozenset[int]:
        """The stages whose digits differ; raises `OpusError` for another number of stages."""
        if len(self) != len(target):
            raise OpusError(f"topologies {self} and {target} are of different jobs")
        return frozenset(stage for stage in range(len(self)) if self[stage] != target[stage])

    def joins(self, stage: int, neighbour: int) -> bool:
        """Whether two neighbouring stages have links with each other."""
        return self[stage] == self[neighbour] == ASYMMETRIC

    def beside(self, stages: frozenset[int]) -> frozenset[int]:
        """These stages and their neighbours."""
        count = len(self)
        return frozenset((stage + step) % count for stage in stages for step in (-1, 0, 1))

    def rewired(self, target: "TopologyId") -> frozenset[int]:
        """The stages whose sub-mappings change on the way to `target`.

        Those whose digit changes, and the pipeline stages that were connected to one of them.
        """
        changed = self.changed(target)
        count = len(self)
        left = {
            near
            for stage in changed
            if self[stage] == ASYMMETRIC
            for near in ((stage - 1) % count, (stage + 1) % count)
            if self[near] == ASYMMETRIC and (abs(near - stage) == 1 or count > 2)
        }
        return changed | left


@dataclass(frozen=True, slots=True)
class GiantRing:
    """One static ring through all ranks of a job on a rail: the fallback."""

    def __str__(self) -> str:
        return "giant ring"


GIANT_RING: Final = GiantRing()

Topology: TypeAlias = TopologyId | GiantRing
