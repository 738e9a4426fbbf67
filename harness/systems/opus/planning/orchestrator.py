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
from lightrig.harness.systems.opus.planning.wiring import Wiring
from lightrig.testbeds import Circuit


@dataclass(frozen=True, slots=True)
class Tenant:
    """One job on a rail's switch.

    Attributes:
        wiring: its sub-mappings.
        surely: cross-connects that are there whatever has become of what was sent.
        perhaps: those that may be there; the same ones once the switch has confirmed.
        version: of the last topology asked for; `confirmed`: whether the switch is in it.
        attempt: the last one that was sent to the switch.
    """

    wiring: Wiring = field(hash=False)
    surely: frozenset[Circuit]
    perhaps: frozenset[Circuit]
    version: int = 0
    attempt: int = 0
    confirmed: bool = True
    wanted: frozenset[Circuit] = frozenset()


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """State of a rail's orchestrator; every message gives the next one and the messages to send.

    Only cross-connects that differ are moved, and only the job's own: other jobs on the switch,
    and stages of the same job that keep their digit and neighbours, are not disturbed.
    """

    rail: int
    tenants: tuple[tuple[str, Tenant], ...] = ()

    @classmethod
    def of(cls, rail: int, jobs: Mapping[str, tuple[Wiring, Topology]]) -> "Orchestrator":
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
            tenants.append((name, Tenant(wiring, circuits, circuits, wanted=circuits)))
        return cls(rail, tuple(tenants))

    def circuits(self) -> frozenset[Circuit]:
        """All cross-connects of all jobs, as they should be when nothing is under way."""
        return frozenset(c for _, tenant in self.tenants for c in tenant.wanted)

    def receive(self, message: Program | FromSwitch) -> tuple["Orchestrator", tuple[Message, ...]]:
        """Take a message of a controller or of the switch; late and repeated ones do no harm."""
        tenant = dict(self.tenants)[message.job]
        if message.version < tenant.version:
            return self, ()
        if isinstance(message, Program):
            return self._program(message, tenant)
        if isinstance(message, NotRewired):
            failed = NotProgrammed(
                self.rail, message.job, message.version, message.attempt, message.reason
            )
            return self, (failed,)
        return self._confirmed(message.job, tenant)

    def _program(
        self, message: Program, tenant: Tenant
    ) -> tuple["Orchestrator", tuple[Message, ...]]:
        if message.version == tenant.version:
            if tenant.confirmed:
                return self, (Programmed(self.rail, message.job, message.version),)
            if message.attempt <= tenant.attempt:
                return self, ()
        wanted = tenant.wiring.circuits(message.topology)
        remove, add = tenant.perhaps - wanted, wanted - tenant.surely
        sent = replace(
            tenant,
            surely=tenant.surely - remove,
            perhaps=tenant.perhaps | add,
            version=message.version,
            attempt=message.attempt,
            confirmed=False,
            wanted=wanted,
        )
        if not remove and not add:
            return self._confirmed(message.job, sent)
        rewire = Rewire(self.rail, message.job, message.version, message.attempt, remove, add)
        return self._with(message.job, sent), (rewire,)

    def _confirmed(self, job: str, tenant: Tenant) -> tuple["Orchestrator", tuple[Message, ...]]:
        done = replace(tenant, surely=tenant.wanted, perhaps=tenant.wanted, confirmed=True)
        return self._with(job, done), (Programmed(self.rail, job, tenant.version),)

    def _with(self, job: str, tenant: Tenant) -> "Orchestrator":
        return replace(self, tenants=tuple((j, tenant if j == job else t) for j, t in self.tenants))
