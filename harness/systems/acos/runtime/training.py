"""A training script whose servers select the topology of each of its operations by themselves.

Every operation of a script is held until the switches at its server's ports lead to the topology of
its group (§4.4). No message passes between servers for that, and no controller knows the script.

An operation that has ended on one rank may have bytes on their way, and their acknowledgements: so
a server drains its connections before it turns its light away, which the paper leaves to the
transport.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.jobs.planning.routes import Hop, shortest_routes
from lightrig.harness.measure.links import await_packets
from lightrig.harness.systems.acos.runtime.gates import Gatekeeper, Gates, RankGroup, TopologyChange
from lightrig.harness.systems.acos.runtime.selection import TopologySelector
from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.traffic.rank_session import RankSession, ScriptRun
from lightrig.instruments.jobs.traffic.server_routes import DEVICE
from lightrig.instruments.jobs.traffic.tcp_queues import unacknowledged
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script
from lightrig.instruments.servers.host.linux import LinuxServer

MEETING = "both"
"""The plan that connects all ranks, over which they find each other."""


@dataclass
class RingTrained(ScriptRun):
    """A script that has run on all ranks, and the changes of each server."""

    changes: Sequence[TopologyChange] = ()


class RingTraining:
    """One rank on each server of a fabric, ready to run scripts until closed.

    Args:
        fabric: of namespaces, with the plan `MEETING` and one for each topology.
        groups: the groups whose operations the fabric carries, by name.
        open_overlay: opens the servers' addresses on the fabric's bench.
        open_session: starts the ranks' programs.
        open_selector: opens the switches and ports of a server.

    Raises:
        NoPyTorchError: a server has none.
        NotRoutedError: a server is simulated.
    """

    def __init__(
        self,
        fabric: Fabric,
        groups: Mapping[str, RankGroup],
        open_overlay: Callable[[Bench], Overlay] = Overlay,
        open_session: Callable[
            [Clock, Sequence[LinuxServer], Sequence[str], str], RankSession
        ] = RankSession,
        open_selector: Callable[[Fabric, str], TopologySelector] = TopologySelector,
    ) -> None:
        self.fabric, self.groups = fabric, groups
        self._clock = fabric.bench.clock
        self._overlay, self._open_selector = open_overlay(fabric.bench), open_selector
        servers = list(self._overlay.servers.values())
        address = self._overlay.addresses[servers[0].name]
        try:
            self._session = open_session(self._clock, servers, [DEVICE] * len(servers), address)
        except BaseException:
            self._overlay.close()
            raise
        self.pytorch = self._session.pytorch

    def on_one_plan(self, script: Script) -> RingTrained:
        """Run `script` over the plan `MEETING`, and no switch moves."""
        self._meet()
        return self._run(script, PrintedLines())

    def selecting(self, script: Script) -> RingTrained:
        """Run `script` while every server selects the topology of each operation of its rank.

        Raises what a rank raises: a server whose links do not come refuses its operation.
        """
        self._meet()
        servers = list(self._overlay.servers.items())
        met = self._clock.event()
        keepers = [
            Gatekeeper(
                self._open_selector(self.fabric, name),
                rank,
                self.groups,
                self._clock,
                met,
                partial(unacknowledged, server.commands, [self._overlay.addresses[name]]),
                partial(self._all_lit, server),
            )
            for rank, (name, server) in zip(self._session.ranks, servers, strict=True)
        ]
        gates = Gates(keepers, self._clock.event(), met)
        try:
            return self._run(script, gates, gates)
        finally:
            for keeper in keepers:
                keeper.selector.close()

    def close(self) -> None:
        """End all programs, and leave the servers as they were found."""
        self._session.close()
        self._overlay.close()

    def _all_lit(self, server: LinuxServer) -> bool:
        """Return whether every port of a server has a carrier."""
        ports = self.fabric.testbed.nic_ports
        netdevs = [spec.netdev for spec in ports if spec.port.owner == server.name]
        return len(server.lit(netdevs)) == len(netdevs)

    def _meet(self) -> None:
        plan = self.fabric.plans[MEETING]
        links = self.fabric.links(plan)
        self.fabric.apply(plan)
        await_packets(self.fabric.bench, links)
        self._overlay.route(links)

    def _lead_apart(self) -> None:
        """Lead packets over the links of all topologies: no two have a neighbour in common."""
        servers = list(self._overlay.servers)
        hops: dict[str, dict[str, Hop]] = {server: {} for server in servers}
        for topology in {group.topology for group in self.groups.values()}:
            links = self.fabric.links(self.fabric.plans[topology])
            for source, found in shortest_routes(servers, links).items():
                hops[source] |= found
        self._overlay.follow(hops)

    def _run(
        self, script: Script, listener: PrintedLines, gates: Gates | None = None
    ) -> RingTrained:
        groups = {name: group.ranks for name, group in self.groups.items()}
        if gates is None:
            run = self._session.run(script, listener, "none", groups)
            return RingTrained(run.operations, run.printed)

        def begin() -> None:
            gates.all_waiting.wait()
            try:
                self._lead_apart()
            finally:
                gates.met.set()

        run = self._session.run(
            script,
            listener,
            control="gated",
            groups=groups,
            beside=[begin, *(keeper.work for keeper in gates.keepers)],
            ended=lambda rank: gates.keepers[rank].finish(),
            lost=gates.all_waiting.set,
        )
        changes = [change for keeper in gates.keepers for change in keeper.changes]
        return RingTrained(run.operations, run.printed, changes=changes)
