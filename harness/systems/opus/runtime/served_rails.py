"""The rails of a job whose circuits a service moves, which other jobs share with it.

`lightrig orchestrate` has the switches; this process has the job's ranks and their servers. It
submits the job, is given servers, and asks for the topologies of its rails by further submits. A
service that was killed and started again goes on: circuits stay meanwhile, and requests wait.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lightrig.harness.bench import Fabric
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.fabric import Applied
from lightrig.harness.jobs.training import TrainingRequest, TrainingRequestError
from lightrig.harness.orchestration.served_job import ServedJob, job_name, placed
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.topology import (
    GIANT_RING,
    Topology,
)
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails
from lightrig.harness.systems.opus.runtime.rail_layout import changed_topology, topology_text
from lightrig.instruments.clock import Span
from lightrig.testbeds import Circuit, Testbed


class RailsOfService(ServedJob):
    """A job on rails that a service moves; see `ServedJob`."""

    def set(self, topologies: Sequence[Topology]) -> None:
        """Bring each rail to its topology; raises `ServiceError`."""
        self.change({"topologies": [topology_text(each) for each in topologies]})


class ServedRails(FabricRails):
    """The rails of a job that a service moves."""

    def __init__(
        self, fabric: Fabric, job: RailJob, served: RailsOfService, without: Collection[int] = ()
    ) -> None:
        super().__init__(fabric, job, without=without)
        self._served = served
        self._topologies: list[Topology] = [GIANT_RING] * job.rails
        self._turn = threading.Lock()

    def make(self, topology: Topology) -> Mapping[str, frozenset[Circuit]]:
        """See `FabricRails`; raises `ServiceError`."""
        with self._turn:
            return self._bring([topology] * len(self._topologies))

    def apply(self, rewires: Sequence[Rewire]) -> Applied:
        """See `FabricRails`; raises `ServiceError`. Changes of several switches take turns.

        The service's own request and answer lie within: when its switch was told is not known.
        """
        switch, wanted = self._wanted(rewires)
        asked = self._fabric.bench.clock.now()
        with self._turn:
            topologies = list(self._topologies)
            for rewire in rewires:
                before = topologies[rewire.rail]
                topologies[rewire.rail] = changed_topology(before, rewire.topology, rewire.stages)
            self._moving[switch] = self._circuits[switch] ^ wanted
            try:
                self._bring(topologies)
            finally:
                self._moving[switch] = frozenset()
        answered = Span(asked, self._fabric.bench.clock.now())
        return Applied(answered, answered)

    def commands(self, rewires: Sequence[Rewire]) -> int:
        """Return 1: the service alone knows how its switches are told."""
        return 1

    def _bring(self, topologies: list[Topology]) -> Mapping[str, frozenset[Circuit]]:
        self._topologies = topologies
        self._served.set(topologies)
        before, self._circuits = self._circuits, dict(self.plan(topologies).circuits)
        return {name: each - before.get(name, frozenset()) for name, each in self._circuits.items()}


class ServedFabric(Fabric):
    """The servers of a job that a service has placed, and their circuits through it.

    Args:
        bench: with these servers alone, in the order of ranks.
        served: the job.
    """

    def __init__(self, bench: Bench, served: RailsOfService) -> None:
        super().__init__(bench)
        self._served = served

    def rails(self, job: RailJob, without: Collection[int] = ()) -> ServedRails:
        """Return the rails of the job; `without` as for `FabricRails`."""
        return ServedRails(self, job, self._served, without)


def rails_of(
    fabric: Fabric, job: RailJob, servers: Sequence[str] = (), without: Collection[int] = ()
) -> FabricRails:
    """Return the rails of a job, on switches of this process or of a service.

    servers, without: as for `FabricRails`; a service decides about servers by itself.
    """
    if isinstance(fabric, ServedFabric):
        return fabric.rails(job, without)
    return FabricRails(fabric, job, servers, without)


@contextmanager
def served_fabric(
    testbed: Testbed, request: TrainingRequest, path: Path, about: str
) -> Iterator[Fabric]:
    """Give the fabric of a training job that a service places, and withdraw it afterwards.

    Raises `TrainingRequestError` where the request does not state its size, `ServiceError`, and as
    `bind_only`.
    """
    if not request.parallel or request.also or request.faults or request.spares:
        raise TrainingRequestError(
            "on circuits of a service a job states --parallel, and none of --also, --fault, --spare"
        )
    widths = [degree for name, degree in request.parallel.items() if name != "pp"] or [1]
    shape = {"stages": request.parallel.get("pp", 1), "widths": widths}
    job = partial(RailsOfService, path, job_name(request.name), shape)
    with placed(job, testbed, about) as (bench, served):
        yield ServedFabric(bench, served)
