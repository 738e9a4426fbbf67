"""Jobs on photonic rails, for the service that several of them share (Opus §4.1).

A job is pipeline stages of servers, with a rank on each NIC; each NIC number is a rail. What its
controller asks the rails' orchestrators for, the topology of each rail, is part of its shape, which
another `submit` changes. Circuits of a job join ports of its own servers alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar

from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.orchestration.wiring import Wiring
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.topology import (
    GIANT_RING,
    GiantRing,
    Topology,
    TopologyId,
)
from lightrig.harness.systems.opus.planning.wiring import RailWiring
from lightrig.harness.systems.opus.runtime.on_fabric import attachments_of
from lightrig.testbeds import Circuit, Testbed

RING = "ring"
"""The topology of a rail that is one ring through all ranks of a job."""

_FEWEST_SERVERS = 2


class RailShape(Shape):
    """Stages of servers, and the topology of each rail."""

    CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"topologies"})
    UNCHANGED_BY_NULL: ClassVar[frozenset[str]] = CHANGEABLE

    stages: Annotated[int, Field(ge=1, description="Stages of the pipeline")] = 2
    widths: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(
            default_factory=lambda: [2],
            min_length=1,
            max_length=9,
            description="Degrees of the symmetric dimensions 1, 2, ...: servers of a stage",
        ),
    ]
    topologies: Annotated[
        list[str] | None,
        Field(
            description="Of each rail a digit a stage, 0 for the pipeline, or ring; none: all "
            "ring; null: as they are, ring at first",
        ),
    ] = None


class RailLayout:
    """The servers of a testbed on photonic rails.

    rails: how many there are. rail_switches: the switch of each.

    Raises `OrchestrationError` for a testbed whose servers are not all on the same rails.
    """

    shape = RailShape

    def __init__(self, fabric: Testbed | Wiring) -> None:
        if not isinstance(fabric, Testbed):
            raise OrchestrationError("found a file of sizes, expected one with each server")
        self.nodes = tuple(fabric.servers)
        rails = {len(server.nics) for server in fabric.servers.values()}
        if len(rails) != 1 or rails == {0}:
            raise OrchestrationError(
                f"{fabric.path} has servers with {sorted(rails)} NICs, expected as many each, one "
                "a rail"
            )
        (self.rails,) = rails
        everything = RailJob.grid("all", 1, [len(self.nodes)], self.rails)
        try:
            self._attached = [attachments_of(fabric, everything, n) for n in range(self.rails)]
        except OpusError as error:
            raise OrchestrationError(f"{fabric.path}: {error}") from error
        self.rail_switches = tuple(switch for switch, _ in self._attached)
        self._place_of = {node: place for place, node in enumerate(self.nodes)}
        self._wirings = lru_cache(maxsize=256)(self._wired)

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        wanted = RailShape.model_validate(shape)
        needed = _servers(wanted)
        if not _FEWEST_SERVERS <= needed <= len(self.nodes):
            raise OrchestrationError(
                f"{wanted.stages} stages of {' x '.join(map(str, wanted.widths))} are {needed} "
                f"servers, expected {_FEWEST_SERVERS} to {len(self.nodes)}"
            )
        self._topologies(wanted)
        return 1

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        needed = _servers(RailShape.model_validate(job.shape))
        if needed <= len(nodes):
            return None
        return f"it has {needed} servers, and may have {len(nodes)}"

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return nothing: without a rail's switch another rail carries its ranks' traffic."""
        return {}

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; servers that work keep their ranks."""
        if job.groups[0] is not None:
            return job
        needed = _servers(RailShape.model_validate(job.shape))
        before = lost[0].nodes if 0 in lost else (None,) * needed
        spare = iter([node for node in self.nodes if node in free - {*before}])
        nodes = [node if node in free else next(spare, None) for node in before]
        found = tuple(node for node in nodes if node is not None)
        return job if len(found) < needed else replace(job, groups=(Group(found, {}),))

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`."""
        (group,) = job.groups
        if group is None:
            return {}
        wanted = RailShape.model_validate(job.shape)
        if len(group.nodes) != _servers(wanted):
            raise OrchestrationError(f"job {job.name} has {len(group.nodes)} servers")
        found: defaultdict[str, frozenset[Circuit]] = defaultdict(frozenset)
        wirings = self._wirings(wanted.stages, tuple(wanted.widths), group.nodes)
        for (switch, wiring), topology in zip(wirings, self._topologies(wanted), strict=True):
            found[switch] |= wiring.circuits(topology)
        return dict(found)

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return nothing: all places are alike."""
        return {}

    def topologies_of(self, job: Job) -> list[Topology]:
        """Return the topology of each rail of a job."""
        return self._topologies(RailShape.model_validate(job.shape))

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return no circuit: ports of no job are dark."""
        return frozenset()

    def _topologies(self, wanted: RailShape) -> list[Topology]:
        """Return the topology of each rail; raises `OrchestrationError`."""
        texts = wanted.topologies or [RING] * self.rails
        if len(texts) != self.rails:
            raise OrchestrationError(f"found {len(texts)} topologies, expected {self.rails} rails")
        return [_topology(text, wanted) for text in texts]

    def _wired(
        self, stages: int, widths: tuple[int, ...], nodes: tuple[str, ...]
    ) -> list[tuple[str, RailWiring]]:
        job = RailJob.grid("job", stages, widths, self.rails)
        found = []
        for rail, (switch, ports) in enumerate(self._attached):
            places = [self._place_of[nodes[rank // self.rails]] for rank in job.ranks(rail)]
            attached = {
                rank: ports[place * self.rails + rail]
                for rank, place in zip(job.ranks(rail), places, strict=True)
            }
            found.append((switch, RailWiring.of(job, rail, attached)))
        return found


def topology_text(topology: Topology) -> str:
    """Return a topology as a shape has it."""
    return str(topology) if isinstance(topology, TopologyId) else RING


def changed_topology(before: Topology, after: Topology, stages: Collection[int]) -> Topology:
    """Return a rail's topology after a change of some of its stages, or of all to the ring."""
    if isinstance(before, GiantRing) or isinstance(after, GiantRing):
        return after
    return before.with_stages({stage: after[stage] for stage in stages})


def _topology(text: str, wanted: RailShape) -> Topology:
    if text == RING:
        return GIANT_RING
    known = {str(digit) for digit in range(len(wanted.widths) + 1)}
    if len(text) != wanted.stages or not known.issuperset(text):
        raise OrchestrationError(
            f"found topology {text!r}, expected {RING} or {wanted.stages} digits from 0 to "
            f"{len(wanted.widths)}"
        )
    return TopologyId(text)


def _servers(wanted: RailShape) -> int:
    return wanted.stages * math.prod(wanted.widths)
