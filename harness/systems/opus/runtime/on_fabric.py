"""Photonic rails on a testbed's switches: where ranks are attached, and what rewires them."""

import math
from collections.abc import Collection, Mapping, Sequence

from lightrig.harness.bench.fabric import Applied, Fabric
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.topology import Topology
from lightrig.harness.systems.opus.planning.wiring import Attachment, RailWiring
from lightrig.instruments.core.capabilities import CommandsInTurn
from lightrig.testbeds import Circuit, Plan, Port, Testbed


def fitting_job(
    testbed: Testbed,
    name: str,
    stages: int = 2,
    widths: Sequence[int] = (),
    ranks: int | None = None,
) -> RailJob:
    """Return a job that has a rank on every NIC of a testbed, each NIC number a rail.

    widths: degrees of the symmetric dimensions; one over all servers of a stage where none is
    given. ranks: how many, on as many of the first servers as that needs; by default on all.
    Raises `OpusError` where the servers are not as many as that, or differ in their NICs.
    """
    servers = list(testbed.servers.values())
    rails = {len(server.nics) for server in servers}
    (each,) = rails if len(rails) == 1 else (0,)
    if ranks is not None:
        if not each or not 0 < ranks <= len(servers) * each or ranks % each:
            raise OpusError(
                f"testbed {testbed.name} has {len(servers)} servers, a rank on each of "
                f"{each or 'differently many'} NICs; {ranks} ranks do not fit"
            )
        servers = servers[: ranks // each]
    if not servers or len(servers) % stages or not each:
        raise OpusError(
            f"testbed {testbed.name} has {len(servers)} servers, expected a multiple of {stages} "
            "with as many NICs each"
        )
    if widths and stages * math.prod(widths) != len(servers):
        raise OpusError(
            f"testbed {testbed.name} has {len(servers)} servers, and {stages} pipeline stages of "
            f"{' x '.join(map(str, widths))} need {stages * math.prod(widths)}"
        )
    return RailJob.grid(name, stages, widths or [len(servers) // stages], each)


class FabricRails:
    """The rails of a job on a fabric: rank r is on server r / rails, with its NIC r mod rails.

    Each rail is one switch; several rails may share one. servers: names, by default the first ones.
    without: rails that have no circuits, since a link of theirs is lost.
    Raises `OpusError` where the job does not fit the testbed.
    """

    def __init__(
        self,
        fabric: Fabric,
        job: RailJob,
        servers: Sequence[str] = (),
        without: Collection[int] = (),
    ) -> None:
        self._fabric, self.without = fabric, frozenset(without)
        rails = range(job.rails)
        attached = [attachments_of(fabric.testbed, job, rail, servers) for rail in rails]
        self.switches = [switch for switch, _ in attached]
        self.wirings = [RailWiring.of(job, rail, ports) for rail, (_, ports) in enumerate(attached)]
        self._circuits: dict[str, frozenset[Circuit]] = {}
        self._moving: dict[str, frozenset[Circuit]] = {}

    def plan(self, topologies: Sequence[Topology]) -> Plan:
        """Return the plan in which each rail has its topology."""
        circuits: dict[str, frozenset[Circuit]] = {}
        for rail, each in enumerate(topologies):
            made = circuits.setdefault(self.switches[rail], frozenset())
            if rail not in self.without:
                circuits[self.switches[rail]] = made | self.wirings[rail].circuits(each)
        names = ", ".join(dict.fromkeys(map(str, topologies)))
        return Plan(f"topology {names}", circuits)

    def carrying(self, rail: int) -> int:
        """Return the rail that carries a rail's traffic: itself, or the next one with circuits."""
        count = len(self.wirings)
        order = ((rail + step) % count for step in range(count))
        return next(each for each in order if each not in self.without)

    def set(self, topology: Topology) -> None:
        """Bring every rail to `topology`; raises as `Fabric.apply` does."""
        plan = self.plan([topology] * len(self.wirings))
        self._fabric.apply(plan)
        self._circuits = dict(plan.circuits)

    def make(self, topology: Topology) -> Mapping[str, frozenset[Circuit]]:
        """Do the same, and return the circuits by switch that were not there before."""
        plan = self.plan([topology] * len(self.wirings))
        transition = self._fabric.prepare(plan)
        transition.apply()
        self._circuits = dict(plan.circuits)
        return {name: change.add for name, change in transition.changes.items()}

    def apply(self, rewires: Sequence[Rewire]) -> Applied:
        """Rewire rails of one switch, and read back that it is; raises as `Fabric.apply` does.

        Its other circuits are left as they are. One thread at a time for each switch.
        """
        switch, wanted = self._wanted(rewires)
        name = ", ".join(f"rail {rewire.rail} v{rewire.version}" for rewire in rewires)
        self._moving[switch] = self._circuits[switch] ^ wanted
        try:
            applied = self._fabric.apply(Plan(name, {switch: wanted}))
            self._circuits[switch] = wanted
        finally:
            self._moving[switch] = frozenset()
        return applied

    def commands(self, rewires: Sequence[Rewire]) -> int:
        """Return how many commands, one after another, `apply` would be; 1 if no switch says it."""
        name, wanted = self._wanted(rewires)
        switch, present = self._fabric.bench.switches[name], self._circuits[name]
        if not isinstance(switch, CommandsInTurn):
            return 1
        return switch.commands(present - wanted, wanted - present)

    def _wanted(self, rewires: Sequence[Rewire]) -> tuple[str, frozenset[Circuit]]:
        """Return the one switch of `rewires`, and its circuits after them."""
        (switch,) = {self.switches[rewire.rail] for rewire in rewires}
        wanted = self._circuits[switch]
        for rewire in rewires:
            wanted = (wanted - rewire.remove) | rewire.add
        return switch, wanted

    def cabled_ports(self) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
        """The ingress and egress ports of each switch that the job may touch."""
        ports: dict[str, tuple[frozenset[int], frozenset[int]]] = {}
        for switch, wiring in zip(self.switches, self.wirings, strict=True):
            ingress, egress = wiring.ports()
            more = ports.get(switch, (frozenset(), frozenset()))
            ports[switch] = ingress | more[0], egress | more[1]
        return ports

    def circuits(self) -> dict[str, frozenset[Circuit]]:
        """Return the job's circuits on each switch, as last read back."""
        return dict(self._circuits)

    def settled(self) -> dict[str, frozenset[Circuit]]:
        """Return those circuits that no command changes now, nor others at their ports."""
        found = {}
        for switch, circuits in list(self._circuits.items()):
            moving = self._moving.get(switch, frozenset[Circuit]())
            ingress, egress = {each.ingress for each in moving}, {each.egress for each in moving}
            found[switch] = frozenset(
                each
                for each in circuits
                if each.ingress not in ingress and each.egress not in egress
            )
        return found


def check_spare(testbed: Testbed, job: RailJob, spare: str) -> None:
    """Raise `OpusError` where ranks of a job on the first servers cannot move to `spare`."""
    placed = list(testbed.servers)[: len(job.stage_of) // job.rails]
    if spare not in testbed.servers:
        free = ", ".join(name for name in testbed.servers if name not in placed) or "none"
        raise OpusError(f"{testbed.name} has no server {spare!r}; not in the job are: {free}")
    if spare in placed:
        first = placed.index(spare) * job.rails
        raise OpusError(
            f"{spare} is in the job, with rank {first}; a spare is a server beyond its first "
            f"{len(placed)}"
        )
    for rail in range(job.rails):
        switch, found = attachments_of(testbed, job, rail)
        try:
            reached, moved = attachments_of(testbed, job, rail, [spare, *placed[1:]])
        except OpusError as error:
            raise OpusError(f"{spare} is not on rail {rail} of the fabric: {error}") from error
        first = min(found)
        if reached != switch or len(moved[first]) != len(found[first]):
            raise OpusError(
                f"{spare} is not on rail {rail} of the fabric: {placed[0]} has {len(found[first])} "
                f"ports on {switch} there, and it {len(moved[first])} on {reached}"
            )


def attachments_of(
    testbed: Testbed, job: RailJob, rail: int, names: Sequence[str] = ()
) -> tuple[str, dict[int, tuple[Attachment, ...]]]:
    """The one switch that a rail is on, and where each rank's NIC ports meet it.

    names: of the job's servers, by default the first ones. Raises `OpusError` where the job does
    not fit the testbed.
    """
    servers = [testbed.servers[name] for name in names] or list(testbed.servers.values())
    found: dict[int, tuple[Attachment, ...]] = {}
    switches: set[str] = set()
    for rank in job.ranks(rail):
        place = rank // job.rails
        if place >= len(servers) or rail >= len(servers[place].nics):
            raise OpusError(f"{testbed.name} has no NIC for rank {rank} of job {job.name}")
        server = servers[place]
        nic = list(server.nics.values())[rail]
        found[rank] = tuple(_attachment(testbed, end.port, switches) for end in nic.ports)
    if len(switches) != 1:
        raise OpusError(f"rail {rail} is on {sorted(switches)}, expected one optical switch")
    return switches.pop(), found


def _attachment(testbed: Testbed, port: Port, switches: set[str]) -> Attachment:
    into, out = testbed.cabling.ingress_of(port), testbed.cabling.egress_of(port)
    if into is None or out is None:
        raise OpusError(f"{port} is on no optical switch")
    switches |= {into[0], out[0]}
    return Attachment(into[1], out[1])
