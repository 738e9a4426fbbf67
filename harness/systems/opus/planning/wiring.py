"""Sub-mappings: which cross-connects make each stage of each topology."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lightrig.harness.systems.opus.planning.operations import (
    ASYMMETRIC,
    CommunicationGroup,
    OpusError,
    RailJob,
    neighbours,
)
from lightrig.harness.systems.opus.planning.topology import GiantRing, Topology
from lightrig.testbeds import Circuit


class Attachment(NamedTuple):
    """Switch ports of one port of a NIC: of its transmit and its receive fiber."""

    ingress: int
    egress: int


Attachments = Mapping[int, Sequence[Attachment]]
"""The two ports of each rank's NIC on the rail's switch, by rank."""


class _Join(NamedTuple):
    """A link from `port` of member `a` to `b_port` of member `b` of a ring."""

    a: int
    port: int
    b: int
    b_port: int


@dataclass(frozen=True, slots=True)
class RailWiring:
    """The cross-connects of one job on one rail, stored a stage at a time.

    A symmetric digit makes the rings of that stage's groups. Between two neighbouring stages
    there are links exactly while both digits are 0, so a stage that joins a pipeline moves no
    circuit of those that are in it already. The storage grows with dimensions times ranks, not
    with all topologies.
    """

    job: RailJob
    rail: int
    of_group: Mapping[str, frozenset[Circuit]] = field(hash=False)
    giant_ring: frozenset[Circuit]

    @classmethod
    def of(cls, job: RailJob, rail: int, attachments: Attachments) -> "RailWiring":
        """The wiring of `job` whose NIC ports are attached so; raises `OpusError`."""
        if missing := [r for r in job.ranks(rail) if len(attachments.get(r, ())) < 2]:
            raise OpusError(f"rank {missing[0]} of job {job.name} has fewer than two ports")
        groups = {
            group.name: frozenset(
                circuit
                for join in _joins(job, group)
                for circuit in _circuits(join, _members(job, group), attachments)
            )
            for group in job.groups.values()
            if job.rail_of[group.ranks[0]] == rail
        }
        ranks = _round_trip(job, rail)
        ring = frozenset(
            c for join in _ring(len(ranks)) for c in _circuits(join, ranks, attachments)
        )
        return cls(job, rail, groups, ring)

    def circuits(self, topology: Topology) -> frozenset[Circuit]:
        """All cross-connects that `topology` wants."""
        if isinstance(topology, GiantRing):
            return self.giant_ring
        return frozenset(
            circuit
            for name, circuits in self.of_group.items()
            if self._wanted(self.job.groups[name], topology)
            for circuit in circuits
        )

    def touching(self, stages: frozenset[int]) -> frozenset[Circuit]:
        """All cross-connects with an end in one of `stages`, of any topology.

        The giant ring's are among them where all stages are asked for.
        """
        circuits = frozenset(
            circuit
            for name, some in self.of_group.items()
            if any(self.job.stage_of[rank] in stages for rank in self.job.groups[name].ranks)
            for circuit in some
        )
        return circuits | self.giant_ring if len(stages) == self.job.stages else circuits

    def _wanted(self, group: CommunicationGroup, topology: Topology) -> bool:
        assert not isinstance(topology, GiantRing)
        return all(topology[self.job.stage_of[rank]] == group.dimension for rank in group.ranks)

    def carrying(self, group: str, topology: Topology) -> frozenset[Circuit]:
        """The cross-connects that carry an operation of `group` while `topology` is set."""
        return self.giant_ring if isinstance(topology, GiantRing) else self.of_group[group]

    def ports(self) -> tuple[frozenset[int], frozenset[int]]:
        """The ingress and egress ports that the job owns on this rail."""
        circuits = [*self.giant_ring, *(c for some in self.of_group.values() for c in some)]
        return frozenset(c.ingress for c in circuits), frozenset(c.egress for c in circuits)


def _round_trip(job: RailJob, rail: int) -> tuple[int, ...]:
    """All ranks, down the stages of one column and up those of the next.

    Half of the circuits of such a ring are the pipeline's own, as in the published map.
    """
    columns = zip(*(job.stage_ranks(rail, stage) for stage in range(job.stages)), strict=True)
    return tuple(
        rank
        for place, column in enumerate(columns)
        for rank in (column if place % 2 == 0 else column[::-1])
    )


def _members(job: RailJob, group: CommunicationGroup) -> tuple[int, ...]:
    """The ring that a group's links are a part of: its own, or its pipeline's, stage by stage."""
    if group.dimension != ASYMMETRIC or job.stages <= 2:
        return group.ranks
    column = {job.stage_of[rank]: rank for rank in group.ranks}
    return tuple(column.get(stage, -1) for stage in range(job.stages))


def _joins(job: RailJob, group: CommunicationGroup) -> Iterator[_Join]:
    if group.dimension != ASYMMETRIC or job.stages <= 2:
        yield from _ring(len(group.ranks))
        return
    pair = tuple(job.stage_of[rank] for rank in group.ranks)
    assert pair in neighbours(job.stages)
    yield from (join for join in _ring(job.stages) if (join.a, join.b) == pair)


def _ring(count: int) -> Iterator[_Join]:
    """The links of a ring; two members are joined by both of their ports.

    In an even ring both ends of a link are ports of the same number, as in the published
    cross-connect maps; in an odd one that cannot be.
    """
    for member in range(count if count > 1 else 0):
        even = count % 2 == 0
        port = member % 2 if even else 1
        yield _Join(member, port, (member + 1) % count, port if even else 0)


def _circuits(
    join: _Join, members: Sequence[int], attachments: Attachments
) -> tuple[Circuit, Circuit]:
    a = attachments[members[join.a]][join.port]
    b = attachments[members[join.b]][join.b_port]
    return Circuit(a.ingress, b.egress), Circuit(b.ingress, a.egress)
