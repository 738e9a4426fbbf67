"""A training script whose servers select the topology of each of its operations by themselves.

Every operation of a script is held until the switches at its server's ports lead to the topology of
its group (§4.4). No message passes between servers for that, and no controller knows the script.

An operation that has ended on one rank may have bytes on their way, and their acknowledgements: so
a server drains its connections before it turns its light away, which the paper leaves to the
transport.
"""

import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.jobs.planning.routes import Hop, shortest_routes
from lightrig.harness.systems.acos.runtime.selection import TopologySelector
from lightrig.instruments.clock import Event, Span
from lightrig.instruments.jobs.traffic.rank_session import RankSession, ScriptRun
from lightrig.instruments.jobs.traffic.server_routes import DEVICE
from lightrig.instruments.jobs.traffic.tcp_queues import unacknowledged
from lightrig.instruments.jobs.traffic.training import (
    PrintedLines,
    Script,
    TrainingRank,
    Wanted,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError

MEETING = "both"
"""The plan that connects all ranks, over which they find each other."""

HOLD_NS = 45_000_000
"""Light stays this long after the last operation: Linux delays acknowledgements by up to 40 ms."""

DRAIN_POLL_NS = 2_000_000
DRAIN_TIMEOUT_NS = 20_000_000_000


class DrainError(LightrigError):
    """Bytes of an operation that had ended were not acknowledged in time."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of ranks, and the plan that its operations need."""

    ranks: tuple[int, ...]
    topology: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change of topology, as one server made it.

    Attributes:
        number: of the operation that it was made for, among those of its rank.
        idle: when the rank's last operation on the old topology had ended.
        drained: when all its bytes were acknowledged, or its neighbours had left.
        sent: between which stamps the commands to its switches were written.
        switched: when the last switch had acknowledged.
        linked: when it had a link on every port.
    """

    server: str
    number: int
    topology: str
    idle: int
    drained: int
    sent: Span
    switched: Span
    linked: int


@dataclass
class RingTrained(ScriptRun):
    """A script that has run on all ranks, and the changes of each server."""

    changes: Sequence[Change] = ()


class RingTraining:
    """One rank on each server of a fabric, ready to run scripts until closed.

    Args:
        fabric: of namespaces, with the plan `MEETING` and one for each topology.
        groups: the groups whose operations the fabric carries, by name.

    Raises:
        NoPyTorchError: a server has none.
        NotRoutedError: a server is simulated.
    """

    def __init__(self, fabric: Fabric, groups: Mapping[str, Group]) -> None:
        self.fabric, self.groups = fabric, groups
        self._clock = fabric.bench.clock
        self._overlay = Overlay(fabric.bench)
        servers = list(self._overlay.servers.values())
        address = self._overlay.addresses[servers[0].name]
        try:
            self._session = RankSession(self._clock, servers, [DEVICE] * len(servers), address)
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
            _Gatekeeper(self, rank, server, self._overlay.addresses[name], met)
            for rank, (name, server) in zip(self._session.ranks, servers, strict=True)
        ]
        gates = _Gates(keepers, self._clock.event(), met)
        try:
            return self._run(script, gates, gates)
        finally:
            for keeper in keepers:
                keeper.selector.close()

    def close(self) -> None:
        """End all programs, and leave the servers as they were found."""
        self._session.close()
        self._overlay.close()

    def _meet(self) -> None:
        plan = self.fabric.plans[MEETING]
        self.fabric.apply(plan)
        self._overlay.route(self.fabric.links(plan))

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
        self, script: Script, listener: PrintedLines, gates: "_Gates | None" = None
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
            *(script, listener, "gated", groups),
            beside=[begin, *(keeper.work for keeper in gates.keepers)],
            ended=lambda rank: gates.keepers[rank].finish(),
            lost=gates.all_waiting.set,
        )
        changes = [change for keeper in gates.keepers for change in keeper.changes]
        return RingTrained(run.operations, run.printed, changes=changes)


class _Gatekeeper:
    """One server: it selects the topology of each operation that its rank announces."""

    def __init__(
        self,
        training: RingTraining,
        rank: TrainingRank,
        server: LinuxServer,
        address: str,
        met: Event,
    ) -> None:
        self.selector = TopologySelector(training.fabric, server.name)
        self.changes: list[Change] = []
        self._training = training
        self._clock = training.fabric.bench.clock
        self._rank, self._server, self._address, self._met = rank, server, address, met
        self._netdevs = [
            spec.netdev
            for spec in training.fabric.testbed.nic_ports
            if spec.port.owner == server.name
        ]
        self._announced: queue.SimpleQueue[tuple[int, Wanted] | None] = queue.SimpleQueue()
        self._running: set[int] = set()
        self._idle = threading.Condition()
        self._present: str | None = None

    def announce(self, number: int, operation: Wanted) -> None:
        """Take an operation that waits."""
        self._announced.put((number, operation))

    def ended(self, number: int) -> None:
        """Note that an operation has ended."""
        with self._idle:
            self._running.discard(number)
            self._idle.notify()

    def finish(self) -> None:
        """End `work`: the rank's script has ended."""
        with self._idle:
            self._running.clear()
            self._idle.notify()
        self._announced.put(None)

    def work(self) -> None:
        """Permit operations in order, each on its topology, until the script has ended."""
        while (announced := self._announced.get()) is not None:
            number, operation = announced
            refused = None
            try:
                self._met.wait()
                self._change(self._training.groups[operation.group].topology, number)
            except LightrigError as error:
                refused = str(error)
            with self._idle:
                self._running.add(number)
            self._rank.go(number, refused)

    def _change(self, topology: str, number: int) -> None:
        if topology == self._present:
            return
        with self._idle:
            self._idle.wait_for(lambda: not self._running)
        idle = self._clock.now()
        if self._present is not None:
            self._clock.sleep(HOLD_NS)
            self._drain(idle, topology)
        drained = self._clock.now()
        sent, switched = self.selector.select(topology, number)
        assert switched is not None
        linked = self._clock.now()
        self.changes.append(
            Change(self._server.name, number, topology, idle, drained, sent, switched, linked)
        )
        self._present = topology

    def _drain(self, since: int, topology: str) -> None:
        """Wait until all bytes are acknowledged.

        A neighbour that has left has had all that it needed, or it would still be there: where a
        port is dark the acknowledgement comes when the topology does.
        """
        while waiting := unacknowledged(self._server.commands, [self._address]):
            if len(self._server.lit(self._netdevs)) < len(self._netdevs):
                return
            if self._clock.now() > since + DRAIN_TIMEOUT_NS:
                raise DrainError(
                    f"{self._server.name} has {waiting} bytes that were not acknowledged "
                    f"{DRAIN_TIMEOUT_NS / 1e9:g} s after its last operation on {self._present}, "
                    f"and would select {topology}: does the neighbour's rank run?"
                )
            self._clock.sleep(DRAIN_POLL_NS)


class _Gates(PrintedLines):
    """Hands what ranks announce to their servers.

    The first operations wait until all ranks have announced one, that is, until they have found
    each other over the plan `MEETING`: the start of a job, which a controller knows (§4.4).
    """

    def __init__(self, keepers: Sequence[_Gatekeeper], all_waiting: Event, met: Event) -> None:
        super().__init__()
        self.keepers, self.all_waiting, self.met = keepers, all_waiting, met
        self._first: set[int] = set()
        self._lock = threading.Lock()

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        """Announce an operation to its rank's server."""
        self.keepers[rank].announce(number, operation)
        with self._lock:
            self._first.add(rank)
            if len(self._first) == len(self.keepers):
                self.all_waiting.set()

    def ended(self, rank: int, number: int) -> None:
        """Tell its server that an operation has ended."""
        self.keepers[rank].ended(number)
