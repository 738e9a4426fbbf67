"""A training job on photonic rails: its scripts run on servers, its circuits follow them."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.bench.overlay import Overlay
from lightrig.harness.planning.routes import Hop, Routes, shortest_routes
from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import Job, Operation
from lightrig.harness.systems.opus.planning.profiling import Seen, profiled
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, Topology, TopologyId
from lightrig.harness.systems.opus.runtime.carriers import Carriers
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails
from lightrig.harness.systems.opus.runtime.rails import Applier, Rails, RailsLostError
from lightrig.instruments.clock import Span
from lightrig.instruments.servers.traffic.rank_session import RankSession, ScriptRun
from lightrig.instruments.servers.traffic.training import (
    Control,
    LocalBegin,
    LocalEnd,
    LocalPhases,
    PrintedLines,
    Script,
    TrainingRank,
    Wanted,
)
from lightrig.testbeds import Circuit, LightrigError, Plan, Port


@dataclass
class Trained(ScriptRun):
    """A script that has run on all ranks.

    Attributes:
        rails: the control plane, where there was one.
        found: what each switch held when that began.
    """

    rails: Rails | None = None
    found: Mapping[str, frozenset[Circuit]] = field(default_factory=dict)


class TrainingJob:
    """The ranks of a job on the servers of a fabric, ready to run scripts until closed.

    Control messages take the way by which the harness reaches the servers, never the circuits.

    Raises:
        NoPyTorchError: a server has none.
        NotRoutedError: a server is simulated.
        OpusError: the job does not fit the testbed.

    Attributes:
        printed: called with a rank and each line that it prints; it must not wait.
    """

    def __init__(self, fabric: Fabric, job: Job) -> None:
        self.fabric, self.job = fabric, job
        self.on_fabric = FabricRails(fabric, job)
        # A rank's connections use its own rail: each has an address of every server.
        self._overlay = Overlay(fabric.bench, [f"lightrig{rail}" for rail in range(job.rails)])
        self._routes: list[Routes] = []
        self._carriers: Carriers | None = None
        self._rails: Rails | None = None
        self._session: RankSession | None = None
        self.printed: Callable[[int, str], None] = lambda rank, line: None
        try:
            self._carriers = Carriers(fabric.bench)
            servers = list(self._overlay.servers.values())
            ranks = range(len(job.stage_of))
            self._session = RankSession(
                fabric.bench.clock,
                [servers[rank // job.rails] for rank in ranks],
                [self._overlay.devices[rank % job.rails] for rank in ranks],
                next(iter(self._overlay.addresses.values())),
            )
            self.pytorch = self._session.pytorch
        except BaseException:
            self.close()
            raise

    def renew(self) -> None:
        """Start the ranks' programs anew, as if no script had run; raises `NoPyTorchError`."""
        assert self._session is not None
        self._session.renew()

    def on_plan(self, script: Script, plan: Plan, control: Control = "none") -> Trained:
        """Run `script` while the switches stay in `plan`; raises what a rank raises."""
        self._move(plan)
        self._overlay.route(self.fabric.links(plan))
        return self._run(script, PrintedLines(self.printed), control)

    def profile(self, script: Script) -> tuple[tuple[PhaseTable, ...], Trained]:
        """Run a few steps on the giant ring; every rank's phase table, and what was seen.

        Raises `OpusError` for ranks that do not fit together.
        """
        self._ring()
        seen = self._run(script, PrintedLines(self.printed), "watched")
        by_rank = {
            rank: Seen(
                [done.operation.group for done in operations],
                [done.parts for done in operations],
                seen.steps[rank],
            )
            for rank, operations in seen.operations.items()
        }
        return profiled(self.job, by_rank), seen

    def train(
        self, script: Script, tables: Sequence[PhaseTable], mode: Mode, *, retries: int = 2
    ) -> Trained:
        """Run `script` while the circuits follow its phases, after `tables`.

        Ranks find each other over the giant ring. When all have announced their first operation
        the rails take the topology that the first rank wants, and the control plane begins.

        Raises `RailsLostError`, `ScheduleError`, and what a rank raises.
        """
        self._ring()
        count = self.on_fabric.commands
        return self._control(script, tables, mode, self._apply, self._take, retries, count=count)

    def emulate(
        self,
        script: Script,
        tables: Sequence[PhaseTable],
        mode: Mode,
        plan: Plan,
        switching: int = 0,
    ) -> Trained:
        """The same with logical switches: `plan` joins all, and nothing moves (Opus §5.2).

        switching: what a change takes, in ns.
        """
        self._move(plan)
        self._overlay.route(self.fabric.links(plan))

        def apply(_: Sequence[Rewire]) -> None:
            self.fabric.bench.clock.sleep(switching)

        def take(topology: Topology) -> Mapping[str, frozenset[Circuit]]:
            return self._plan(topology).circuits

        return self._control(script, tables, mode, apply, take, commands=self.job.stages)

    def _control(
        self,
        script: Script,
        tables: Sequence[PhaseTable],
        mode: Mode,
        apply: Applier,
        take: Callable[[Topology], Mapping[str, frozenset[Circuit]]],
        retries: int = 2,
        commands: int = 1,
        count: Callable[[Sequence[Rewire]], int] = lambda _: 1,
    ) -> Trained:
        first = tables[0].at(0)
        assert first is not None
        begun = TopologyId.uniform(self.job.stages, first.dimension)
        shims = [
            Shim(rank, self.job.stage_of[rank], table, mode) for rank, table in enumerate(tables)
        ]
        rails = Rails(
            self.fabric.bench.clock,
            self.job,
            shims,
            self.on_fabric.wirings,
            apply,
            self.on_fabric.switches,
            Controller.of(self.job, begun, retries),
            commands=commands,
            count=count,
        )
        self._rails = rails
        assert self._session is not None
        listener = _ControlledRanks(self.printed, rails, self._session.ranks, partial(take, begun))
        phases = [_local_phases(table, listener.ran) for table in tables]
        trained = self._run(script, listener, "gated", listener, phases)
        rails.journal.sort()
        trained.rails, trained.found = rails, listener.found
        return trained

    def outages(self) -> list[tuple[Port, Span]]:
        """Times without carrier of NIC ports, since the job was made."""
        assert self._carriers is not None
        return self._carriers.outages()

    def close(self) -> None:
        """End all programs, and leave the servers as they were found."""
        opened = (self._session, self._carriers, self._overlay)
        # At the same time: a signal leaves five seconds for all of it.
        self.fabric.bench.clock.parallel(*(each.close for each in opened if each is not None))

    def _run(
        self,
        script: Script,
        listener: PrintedLines,
        control: Control,
        controlled: "_ControlledRanks | None" = None,
        phases: Sequence[LocalPhases] = (),
    ) -> Trained:
        assert self._session is not None
        groups = {group.name: group.ranks for group in self.job.groups.values()}
        if controlled is None:
            run = self._session.run(script, listener, control, groups)
        else:
            run = self._session.run(
                *(script, listener, control, groups),
                phases=phases,
                beside=[controlled.begin],
                lost=controlled.lose,
                parallel=controlled.rails.run,
            )
        return Trained(run.operations, run.printed, run.front_end, run.steps)

    # ---------------------------------------------------------------------- circuits

    def _ring(self) -> None:
        self._move(self._plan(GIANT_RING))
        self._routes = [self._rail_routes(rail, GIANT_RING) for rail in range(self.job.rails)]
        self._overlay.follow(*self._routes)
        self.on_fabric.set(GIANT_RING)

    def _take(self, topology: Topology) -> Mapping[str, frozenset[Circuit]]:
        """Leave the giant ring for `topology`; what the switches hold then."""
        self._move(self._plan(topology))
        self.on_fabric.set(topology)
        self._routes = [self._hops_by_server(rail) for rail in range(self.job.rails)]
        self._overlay.follow(*self._routes)
        return self.on_fabric.circuits()

    def _apply(self, rewires: Sequence[Rewire]) -> None:
        clock = self.fabric.bench.clock
        began = clock.now()
        self.on_fabric.apply(rewires)
        made: frozenset[Circuit] = frozenset()
        for rewire in rewires:
            switch = self.on_fabric.switches[rewire.rail]
            made |= rewire.add
            if self.on_fabric.wirings[rewire.rail].giant_ring <= self.on_fabric.circuits()[switch]:
                self._follow_ring(rewire.rail)
        self._await_links(Plan("made", {switch: made}), began)

    def _move(self, plan: Plan) -> None:
        began = self.fabric.bench.clock.now()
        transition = self.fabric.prepare(plan)
        made = {name: change.add for name, change in transition.changes.items()}
        transition.begin()
        transition.acknowledged()
        transition.verify()
        self._await_links(Plan("made", made), began)

    def _await_links(self, made: Plan, began: int) -> None:
        assert self._carriers is not None
        links = self.fabric.links(made)
        self._carriers.await_back({port for link in links for port in (link.a, link.b)}, began)

    def _plan(self, topology: Topology) -> Plan:
        controlled: defaultdict[str, frozenset[Circuit]] = defaultdict(frozenset)
        for switch, wiring in zip(self.on_fabric.switches, self.on_fabric.wirings, strict=True):
            controlled[switch] |= wiring.circuits(topology)
        return Plan(f"topology {topology}", dict(controlled))

    def _follow_ring(self, rail: int) -> None:
        """Lead the traffic of all ranks that `rail` carries over its giant ring."""
        assert self._rails is not None
        ring = self._rail_routes(rail, GIANT_RING)
        for rank, carrier in enumerate(self._rails.controller.carrier):
            if carrier == rail:
                self._routes[self.job.rail_of[rank]] = ring
        self._overlay.follow(*self._routes)

    def _rail_routes(self, rail: int, topology: Topology) -> Routes:
        """Return the shortest ways over the circuits of one rail."""
        switch, wiring = self.on_fabric.switches[rail], self.on_fabric.wirings[rail]
        plan = Plan(f"rail {rail}, {topology}", {switch: wiring.circuits(topology)})
        return shortest_routes(list(self._overlay.servers), self.fabric.links(plan))

    def _hops_by_server(self, rail: int) -> dict[str, dict[str, Hop]]:
        """The ways of all topologies at once: no two lead to the same neighbour by other ports."""
        dimensions = {group.dimension for group in self.job.groups.values()}
        servers = list(self._overlay.servers)
        hops_by_server: dict[str, dict[str, Hop]] = {server: {} for server in servers}
        for dimension in sorted(dimensions):
            topology = TopologyId.uniform(self.job.stages, dimension)
            for source, hops in self._rail_routes(rail, topology).items():
                hops_by_server[source] |= hops
        return hops_by_server


class _ControlledRanks(PrintedLines):
    """Hands what ranks announce to the control plane, and its word back to them.

    Args:
        printed: called with a rank and each line that it prints.
        rails: the control plane.
        ranks: who announce.
        take: sets the first topology; returns what each switch holds then.
    """

    def __init__(
        self,
        printed: Callable[[int, str], None],
        rails: Rails,
        ranks: Sequence[TrainingRank],
        take: Callable[[], Mapping[str, frozenset[Circuit]]],
    ) -> None:
        super().__init__(printed)
        self.rails, self._ranks, self._take = rails, ranks, take
        self.found: Mapping[str, frozenset[Circuit]] = {}
        self._running: dict[tuple[int, int], Operation] = {}
        self._granted: dict[int, int] = {}
        self._first: list[tuple[int, int, Wanted]] = []
        self._all_waiting = rails.clock.event()
        self._lost = self._begun = False
        self._turn = threading.Lock()

    def begin(self) -> None:
        """Wait for everybody's first operation, set the topology, and let the rails decide."""
        self._all_waiting.wait()
        if self._lost:
            return
        self.found = self._take()
        with self._turn:
            self._begun = True
            for rank, number, operation in self._first:
                self._announce(rank, number, operation)

    def lose(self) -> None:
        """A rank is lost: those that have not begun never will."""
        self._lost = True
        self._all_waiting.set()

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        """Announce the operation, or hold it until all ranks wait."""
        with self._turn:
            if not self._begun:
                self._first.append((rank, number, operation))
                if len(self._first) == len(self._ranks):
                    self._all_waiting.set()
                return
        self._announce(rank, number, operation)

    def ended(self, rank: int, number: int) -> None:
        """Report the end of an operation to the rails."""
        self.rails.after(rank, self._running.pop((rank, number)))

    def ran(self, rank: int, entries: Sequence[LocalBegin | LocalEnd]) -> None:
        """Tell the rails what a rank has begun and ended by itself.

        Clocks of servers are mapped with a width; no stamp is before the grant, nor after now.
        """
        for entry in entries:
            if isinstance(entry, LocalBegin):
                operation = self._operation(entry.operation)
                self._running[rank, entry.number] = operation
                granted = self._granted[rank]
                times = max(entry.asked.earliest, granted), max(entry.began.earliest, granted)
                self.rails.began(rank, operation, *times)
            else:
                ended = min(entry.at.latest, self.rails.clock.now())
                self.rails.after(rank, self._running.pop((rank, entry.number)), ended)

    def _operation(self, wanted: Wanted) -> Operation:
        dimension = self.rails.job.groups[wanted.group].dimension
        return Operation(wanted.group, wanted.index, dimension)

    def _announce(self, rank: int, number: int, wanted: Wanted) -> None:
        operation = self._operation(wanted)
        self._running[rank, number] = operation
        try:
            self.rails.announce(rank, operation, partial(self._begin, rank, number))
        except LightrigError as error:
            self._ranks[rank].go(number, str(error))

    def _begin(self, rank: int, number: int) -> None:
        refused, self._granted[rank] = None, self.rails.clock.now()
        try:
            self.rails.begin(rank, self._running[rank, number])
        except RailsLostError as error:
            refused = str(error)
        self._ranks[rank].go(number, refused)


def _local_phases(
    table: PhaseTable, ran: Callable[[int, Sequence[LocalBegin | LocalEnd]], None]
) -> LocalPhases:
    """Return by which a rank's program decides: the group at each position, and who asks."""

    def at(position: int) -> tuple[str, bool, int]:
        operation = table.at(position)
        assert operation is not None
        return operation.group, table.asks(position), table.joined_at(position)

    if table.whole:
        return LocalPhases([*map(at, range(len(table.whole)))], [], ran)
    first, step = len(table.before) + len(table.operations), len(table.operations)
    return LocalPhases([*map(at, range(first))], [*map(at, range(first, first + step))], ran)
