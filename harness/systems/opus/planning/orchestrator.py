"""The orchestrator: one a rail, it turns topologies into the cross-connects that must move."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lightrig.harness.systems.opus.planning.messages import (
    FromSwitch,
    Message,
    NotProgrammed,
    NotRewired,
    Program,
    Programmed,
    Rewire,
)
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.topology import Topology
from lightrig.harness.systems.opus.planning.wiring import RailWiring
from lightrig.testbeds import Circuit


@dataclass(frozen=True, slots=True)
class Ordered:
    """A change of some stages as it was last sent to the switch.

    Attributes:
        version: of the change; `attempt`: the last one that was sent.
        stages: those that change.
        touched: all cross-connects that these stages have in any topology; of those, `wanted`.
        confirmed: whether the switch has made it.
    """

    version: int
    attempt: int
    stages: frozenset[int]
    touched: frozenset[Circuit]
    wanted: frozenset[Circuit]
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Tenant:
    """One job on a rail's switch.

    Attributes:
        wiring: its sub-mappings.
        surely: cross-connects that are there whatever has become of what was sent.
        perhaps: those that may be there; the same ones once the switch has confirmed.
        latest: version of the last change of each stage: what is older comes late.
        changes: the changes of which one is the last of all its stages.
    """

    wiring: RailWiring = field(hash=False)
    surely: frozenset[Circuit]
    perhaps: frozenset[Circuit]
    latest: tuple[int, ...]
    changes: tuple[Ordered, ...] = ()

    def change(self, version: int) -> Ordered | None:
        """The change of that version, unless a later one has replaced it."""
        return next((each for each in self.changes if each.version == version), None)

    def with_change(self, change: Ordered) -> "Tenant":
        """Note a change, which replaces those that have a stage in common with it."""
        left = tuple(each for each in self.changes if each.stages.isdisjoint(change.stages))
        latest = tuple(
            change.version if stage in change.stages else version
            for stage, version in enumerate(self.latest)
        )
        return replace(self, changes=(*left, change), latest=latest)


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """State of a rail's orchestrator; every message gives the next one and the messages to send.

    Only cross-connects that differ are moved, and only the job's own: other jobs on the switch,
    and stages of the same job that keep their digit and neighbours, are not disturbed.
    """

    rail: int
    tenants: tuple[tuple[str, Tenant], ...] = ()

    @classmethod
    def of(cls, rail: int, jobs: Mapping[str, tuple[RailWiring, Topology]]) -> "Orchestrator":
        """The orchestrator of jobs whose topologies are set; raises `OpusError` if they overlap."""
        taken: dict[tuple[str, int], str] = {}
        for name, (wiring, _) in sorted(jobs.items()):
            for side, ports in zip(("ingress", "egress"), wiring.ports(), strict=True):
                for port in sorted(ports):
                    owner = taken.setdefault((side, port), name)
                    if owner != name:
                        raise OpusError(f"{side} {port} of rail {rail} is {name}'s and {owner}'s")
        tenants = []
        for name, (wiring, topology) in sorted(jobs.items()):
            circuits = wiring.circuits(topology)
            tenants.append((name, Tenant(wiring, circuits, circuits, (0,) * wiring.job.stages)))
        return cls(rail, tuple(tenants))

    def circuits(self) -> frozenset[Circuit]:
        """All cross-connects of all jobs, as they are when nothing is under way."""
        return frozenset(c for _, tenant in self.tenants for c in tenant.perhaps)

    def receive(self, message: Program | FromSwitch) -> tuple["Orchestrator", tuple[Message, ...]]:
        """Take a message of a controller or of the switch; late and repeated ones do no harm."""
        tenant = dict(self.tenants)[message.job]
        change = tenant.change(message.version)
        if isinstance(message, Program):
            if max(tenant.latest[stage] for stage in message.stages) > message.version:
                return self, ()
            return self._program(message, tenant, change)
        if change is None:
            return self, ()
        if isinstance(message, NotRewired):
            failed = NotProgrammed(
                self.rail, message.job, message.version, message.attempt, message.reason
            )
            return self, (failed,)
        return self._confirmed(message.job, tenant, change)

    def _program(
        self, message: Program, tenant: Tenant, known: Ordered | None
    ) -> tuple["Orchestrator", tuple[Message, ...]]:
        if known is not None:
            if known.confirmed:
                return self, (Programmed(self.rail, message.job, message.version),)
            if message.attempt <= known.attempt:
                return self, ()
        touched = tenant.wiring.touching(message.stages)
        wanted = tenant.wiring.circuits(message.topology) & touched
        remove, add = (tenant.perhaps & touched) - wanted, wanted - tenant.surely
        change = Ordered(message.version, message.attempt, message.stages, touched, wanted)
        sent = replace(
            tenant.with_change(change),
            surely=tenant.surely - remove,
            perhaps=tenant.perhaps | add,
        )
        if not remove and not add:
            return self._confirmed(message.job, sent, change)
        about = (self.rail, message.job, message.version, message.attempt)
        rewire = Rewire(*about, remove, add, message.topology, message.stages)
        return self._with(message.job, sent), (rewire,)

    def _confirmed(
        self, job: str, tenant: Tenant, change: Ordered
    ) -> tuple["Orchestrator", tuple[Message, ...]]:
        programmed = (Programmed(self.rail, job, change.version),)
        if change.confirmed:  # its links may have changed since, with a neighbouring stage
            return self, programmed
        done = replace(
            tenant.with_change(replace(change, confirmed=True)),
            surely=(tenant.surely - change.touched) | change.wanted,
            perhaps=(tenant.perhaps - change.touched) | change.wanted,
        )
        return self._with(job, done), programmed

    def _with(self, job: str, tenant: Tenant) -> "Orchestrator":
        return replace(self, tenants=tuple((j, tenant if j == job else t) for j, t in self.tenants))
