"""A training job on photonic rails: its scripts run on servers, its circuits follow them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.jobs.bench.port_traffic import port_traffic
from lightrig.harness.jobs.first_step import check_first_step
from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.profiling import SeenOperations, profiled
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, Topology, TopologyId
from lightrig.harness.systems.opus.runtime.carriers import Carriers
from lightrig.harness.systems.opus.runtime.controlled_ranks import ControlledRanks, local_phases
from lightrig.harness.systems.opus.runtime.job_circuits import JobCircuits
from lightrig.harness.systems.opus.runtime.link_watch import LinkWatch
from lightrig.harness.systems.opus.runtime.rails import Applier, Rails
from lightrig.harness.systems.opus.runtime.served_rails import rails_of
from lightrig.instruments.clock import Event, Span
from lightrig.instruments.clock.workers import Task
from lightrig.instruments.jobs.traffic.idle import HostLateness, IdleRanks, IdleTask
from lightrig.instruments.jobs.traffic.rank_session import RankSession, ScriptRun
from lightrig.instruments.jobs.traffic.training import (
    Control,
    LocalPhases,
    PrintedLines,
    Script,
    TrainingRank,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Circuit, Plan, Port

_LATELY = 10_000_000_000
"""Time, in ns, in which a delay of simulated light counts."""


@dataclass
class Attempt:
    """A run of a script, from its begin to its end or failure.

    Attributes:
        listener: what its ranks print, when their steps end, and what they announce.
        over: set once all ranks have ended, or one has failed.
        fault: when a fault was made in it, on the bench's clock; None without one.
        failed: when the first failure was noticed, on the bench's clock; None without one.
        unfinished: the operation that each rank waited for then.
    """

    listener: ControlledRanks
    over: Event
    fault: int | None = None
    failed: int | None = None
    unfinished: Mapping[int, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Number of steps that all ranks have ended."""
        ends = self.listener.steps
        return min((len(ends.get(rank, ())) for rank in range(self.listener.count)), default=0)

    def end_of(self, steps: int) -> Span | None:
        """Return when all ranks had ended that many steps, 0 for their begin; None before."""
        if not steps:
            began = self.listener.began
            return None if began is None else Span(began, began)
        if steps > self.steps:
            return None
        ends = [each[steps - 1] for each in self.listener.steps.values()]
        return Span(max(at.earliest for at in ends), max(at.latest for at in ends))


@dataclass
class Trained(ScriptRun):
    """A script that has run on all ranks.

    Attributes:
        rails: the control plane, where there was one.
        found: what each switch held when that began.
        traffic: bytes that the kernel sent and received at each NIC port meanwhile.
    """

    rails: Rails | None = None
    found: Mapping[str, frozenset[Circuit]] = field(default_factory=dict)
    traffic: Mapping[Port, tuple[int, int]] = field(default_factory=dict)


class TrainingJob:
    """The ranks of a job on the servers of a fabric, ready to run scripts until closed.

    Control messages take the way by which the harness reaches the servers, never the circuits.

    Raises:
        NoPyTorchError: a server has none.
        NotRoutedError: a server is simulated.
        OpusError: the job does not fit the testbed.

    Attributes:
        circuits: of all rails, and the ways of packets.
        placement: names of the servers, in the order of their ranks.
        spares: names of the servers to which ranks may move, in the order of their use.
        without: rails that are left, since a link of theirs stays dark.
        printed: called with a rank and each line that it prints; it must not wait.
        environment: further variables of the scripts.
        attempt: the last run on circuits that follow it; None before.
        profiled: the lines that ranks printed in each run of `profile`, also of those that failed.
        beside: called with it, returns tasks that run beside its ranks.
    """

    def __init__(self, fabric: Fabric, job: RailJob, spares: Sequence[str] = ()) -> None:
        self.fabric, self.job, self.spares = fabric, job, list(spares)
        self.placement = list(fabric.testbed.servers)[: len(job.stage_of) // job.rails]
        self.without: frozenset[int] = frozenset()
        self.on_fabric = rails_of(fabric, job)
        # A rank's connections use its own rail: each has an address of every server.
        self._overlay = Overlay(fabric.bench, [f"lightrig{rail}" for rail in range(job.rails)])
        self._carriers: Carriers | None = None
        self._session: RankSession | None = None
        self._idle: IdleRanks | None = None
        self._task = IdleTask(fabric.bench.clock)
        self.printed: Callable[[int, str], None] = lambda rank, line: None
        self.environment: Mapping[str, str] = {}
        self.attempt: Attempt | None = None
        self.profiled: list[Mapping[int, Sequence[tuple[Span, str]]]] = []
        self.beside: Callable[[Attempt], Sequence[Task]] = lambda attempt: ()
        try:
            self._carriers = Carriers(fabric.bench)
            self.circuits = JobCircuits(self.on_fabric, fabric, job, self._overlay, self._carriers)
            self._session = RankSession(fabric.bench.clock, *self._places())
            self.pytorch = self._session.pytorch
            names = [*self.placement, *self.spares]
            self._idle = IdleRanks(
                fabric.bench.clock, [self._overlay.servers[name] for name in names]
            )
        except BaseException:
            self.close()
            raise

    def _places(self) -> tuple[list[LinuxServer], list[str], str]:
        """Return each rank's server and network device, and the address of rank 0."""
        ranks, rails = range(len(self.job.stage_of)), self.job.rails
        servers = [self._overlay.servers[self.placement[rank // rails]] for rank in ranks]
        devices = [self._overlay.devices[rank % rails] for rank in ranks]
        return servers, devices, self._overlay.addresses[self.placement[0]]

    def move_ranks(self, server: str, spare: str) -> None:
        """Have the ranks of a server on another one once `reform` and `renew` are called."""
        assert self._session is not None
        self.placement[self.placement.index(server)] = spare
        self._session.place(*self._places())
        self._take_rails()

    def leave_rails(self, rails: Collection[int]) -> None:
        """Have the next rail carry the traffic of each of `rails` once `reform` is called."""
        self.without |= frozenset(rails)
        self._take_rails()

    def _take_rails(self) -> None:
        assert self._carriers is not None
        self.on_fabric = rails_of(self.fabric, self.job, self.placement, self.without)
        given = (self.on_fabric, self.fabric, self.job, self._overlay, self._carriers)
        self.circuits = JobCircuits(*given)

    def dark_rails(self) -> list[int]:
        """Return the rails in use whose ring of all ranks has a port that stays dark."""
        assert self._carriers is not None
        found = []
        for rail in sorted({*range(self.job.rails)} - self.without):
            circuits = self.on_fabric.wirings[rail].circuits(GIANT_RING)
            plan = Plan(f"rail {rail}", {self.on_fabric.switches[rail]: circuits})
            links = self.fabric.links(plan)
            if self._carriers.dark({port for link in links for port in (link.a, link.b)}):
                found.append(rail)
        return found

    def dark_servers(self) -> list[str]:
        """Return the servers of the job with a port that the ring of all ranks leaves dark."""
        assert self._carriers is not None
        links = self.fabric.links(self.circuits.plan(GIANT_RING))
        dark = self._carriers.dark({port for link in links for port in (link.a, link.b)})
        return sorted({port.owner for port in dark})

    @property
    def ranks(self) -> Sequence[TrainingRank]:
        """The programs of the ranks, by number."""
        assert self._session is not None
        return self._session.ranks

    def renew(self) -> None:
        """Start the ranks' programs anew, as if no script had run; raises `NoPyTorchError`."""
        assert self._session is not None
        self._session.renew()

    def reform(self) -> None:
        """Set the ring of all ranks anew after a failure, with a carrier at each of its ports.

        Raises `LinksDownError` where one stays dark, and as `Fabric.apply` does.
        """
        self.circuits.reform()

    def on_plan(self, script: Script, plan: Plan, control: Control = "none") -> Trained:
        """Run `script` while the switches stay in `plan`; raises what a rank raises."""
        self.circuits.move(plan)
        self._overlay.route(self.fabric.links(plan))
        return self._run(script, PrintedLines(self.printed), control)

    def profile(self, script: Script) -> tuple[tuple[PhaseTable, ...], Trained]:
        """Run a few steps on the giant ring; every rank's phase table, and what was seen.

        Raises `LinkLostError`, `NoStepError` for a script that ended before its first step, and
        `OpusError` for ranks that do not fit together.
        """
        self.circuits.ring()
        listener = PrintedLines(self.printed)
        self.profiled.append(listener.lines)
        seen = self._run(script, listener, "watched", watched=True)
        check_first_step(seen, script.name, "on the ring of all ranks")
        by_rank = {
            rank: SeenOperations(
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

        Raises `LinkLostError`, `RailsLostError`, `ScheduleError`, and what a rank raises.
        """
        self.circuits.ring()
        count = self.on_fabric.commands
        given = (script, tables, mode, self.circuits.apply, self.circuits.take, retries)
        return self._control(*given, count=count, watched=True)

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
        self.circuits.move(plan)
        self._overlay.route(self.fabric.links(plan))

        def apply(_: Sequence[Rewire]) -> None:
            self.fabric.bench.clock.sleep(switching)

        def take(topology: Topology) -> Mapping[str, frozenset[Circuit]]:
            return self.circuits.plan(topology).circuits

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
        *,
        watched: bool = False,
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
            Controller.of(self.job, begun, retries, self.without),
            commands=commands,
            count=count,
        )
        self.circuits.carrier = lambda: rails.controller.carrier
        still = all(table.still for table in tables)
        taken = partial(take, begun)
        listener = ControlledRanks(self.printed, rails, self.ranks, taken, still=still)
        phases = [local_phases(table, listener.ran) for table in tables]
        before = self._traffic()
        trained = self._run(script, listener, "gated", phases, watched=watched)
        listener.catch_up()
        trained.traffic = {
            port: (sent - before[port][0], received - before[port][1])
            for port, (sent, received) in self._traffic().items()
        }
        rails.journal.sort()
        trained.rails, trained.found = rails, listener.found
        return trained

    def lateness(self, between: Span) -> list[HostLateness]:
        """Return how late hosts woke a rank that does nothing, and a task of the harness.

        Between two moments of the last run; and how its hosts' processors were used in all of it,
        or from the end of its first step on: in that one all ranks load their libraries at once.
        """
        assert self._idle is not None
        hosts = self._idle.lateness(between, self._process_groups())
        return [*hosts, *self._task.lateness(between)]

    def _begin_steps(self, ranks: ControlledRanks) -> None:
        """Count the use of processors from the end of all ranks' first step on."""
        assert self._idle is not None
        if ranks.await_first_step():
            self._idle.begin(self._process_groups())

    def _process_groups(self) -> dict[str, list[int]]:
        """Return the process groups of the ranks on each server."""
        groups: dict[str, list[int]] = {}
        for rank in self.ranks:
            groups.setdefault(rank.name, []).append(rank.process_group)
        return groups

    def _traffic(self) -> dict[Port, tuple[int, int]]:
        """Return the bytes that the kernel has sent and received at each NIC port of the job."""
        servers = {name: self._overlay.servers[name] for name in self.placement}
        found = port_traffic(self.fabric.testbed, servers, self.fabric.bench.clock)
        return {port: (each.sent, each.received) for port, each in found.items()}

    def outages(self) -> list[tuple[Port, Span]]:
        """Times without carrier of NIC ports, since the job was made."""
        assert self._carriers is not None
        return self._carriers.outages()

    def close(self) -> None:
        """End all programs, and leave the servers as they were found."""
        opened = (self._session, self._carriers, self._overlay, self._idle)
        # At the same time: a signal leaves five seconds for all of it.
        self.fabric.bench.clock.parallel(*(each.close for each in opened if each is not None))

    def _run(
        self,
        script: Script,
        listener: PrintedLines,
        control: Control,
        phases: Sequence[LocalPhases] = (),
        *,
        watched: bool = False,
    ) -> Trained:
        """Run `script` on all ranks; watched: whether the links of its circuits must stay."""
        assert self._session is not None
        assert self._carriers is not None
        assert self._idle is not None
        self._idle.begin(self._process_groups())
        controlled = listener if isinstance(listener, ControlledRanks) else None
        carriers, clock = self._carriers, self.fabric.bench.clock
        circuits, cabling = self.on_fabric.settled, self.fabric.testbed.cabling
        over = clock.event()
        watch = LinkWatch(clock, carriers, cabling, circuits, self._late)
        self._task = IdleTask(clock)
        beside: list[Task] = [partial(self._task.run, over)]
        beside += [partial(watch.run, over)] if watched else []
        attempt = None
        if controlled is not None:
            attempt = self.attempt = Attempt(controlled, over)
            beside += [controlled.begin, partial(self._begin_steps, controlled)]
            beside += self.beside(attempt)
        running = set(range(len(self.ranks)))

        def ended(rank: int) -> None:
            running.discard(rank)
            if not running:
                over.set()
                if controlled is not None:  # they may end without an operation
                    controlled.lose()

        def lost() -> None:
            if attempt is not None and attempt.failed is None:
                attempt.failed, attempt.unfinished = clock.now(), attempt.listener.unfinished()
            carriers.abandoned = True
            over.set()
            if controlled is not None:
                controlled.lose()

        run = self._session.run(
            script,
            listener,
            control=control,
            groups={group.name: group.ranks for group in self.job.groups.values()},
            phases=phases,
            beside=beside,
            ended=ended,
            lost=lost,
            parallel=None if controlled is None else controlled.rails.run,
            environment=self.environment,
        )
        return Trained(run.operations, run.printed, run.front_end, run.steps, run.optimizers)

    def _late(self) -> int:
        """Return by how much links were behind simulated light lately, in ns."""
        bench = self.fabric.bench
        delay = bench.world and bench.world.longest_delay(bench.clock.now() - _LATELY)
        return delay.by if delay else 0
