"""Opus acting in time: its programs on a clock, between ranks and switches."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.gathering import GATHERING, Gathering
from lightrig.harness.systems.opus.planning.messages import (
    Message,
    NotProgrammed,
    NotRewired,
    Program,
    Programmed,
    Release,
    Rewire,
    Rewired,
    TopoWrite,
)
from lightrig.harness.systems.opus.planning.operations import Network, Operation, RailJob
from lightrig.harness.systems.opus.planning.orchestrator import Orchestrator
from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    ChangeStamps,
    Confirmed,
    Ended,
    GivenUp,
    Rewiring,
    RunEvent,
)
from lightrig.harness.systems.opus.planning.shim import Shim
from lightrig.harness.systems.opus.planning.switch_commands import SwitchCommands
from lightrig.harness.systems.opus.planning.topology import GiantRing
from lightrig.harness.systems.opus.planning.wiring import RailWiring
from lightrig.instruments.clock import Clock, Event
from lightrig.testbeds import LightrigError

FALLBACK_TIMEOUT = 10_000_000_000
"""Timeout of grants while a rail waits to fall back, in ns."""

Applier = Callable[[Sequence[Rewire]], ChangeStamps | None]
"""Brings one switch to what all of `Rewire` want, in one command, and reads it back.

Returns when that was sent, acknowledged and followed by links, where it knows. No two of them have
a port in common. Raises `LightrigError`, where none counts as made.
"""


class RailsLostError(LightrigError):
    """No rail is left that could carry a job's traffic; it is to be started again."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong on a rail, when, and why.

    at: ns on the clock; after: since the control plane began.
    """

    at: int
    rail: int
    what: str
    why: str
    after: int

    def __str__(self) -> str:
        after = f"{self.after / 1e9:.3f} s"
        return f"rail {self.rail} {after} after the job began: {self.what}, since {self.why}"


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that a rank's operation waited for its topology, from `at` on, in ns."""

    at: int
    rank: int
    operation: str
    length: int


@dataclass
class Journal:
    """Events of a run, for an auditor and for the record.

    Operations that ranks begin by themselves are heard of late: `sort` brings them to their place.
    """

    events: list[RunEvent] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    def sort(self) -> None:
        """Bring the events into the order in which they happened."""
        self.events.sort(key=lambda event: event.at)


class Rails:
    """A job's control plane on a clock: ranks call `before` and `after` around each operation.

    What the programs tell each other is delivered at once, within this process: the time that
    passes is the switches' own, and `gathering` for stages that leave a phase nearly together.
    What is wanted of a switch when it is free goes there in one command, whichever rail it is
    for; a change that touches a port of one under way waits for that. An error of a switch is the
    negative acknowledgement that makes the controller try again, fall back to the giant ring, or
    give the rail up. A change that is tried again has a command of its own, so that a port which
    fails does not fail the rails beside it.

    Args:
        clock: the bench's.
        job: whose ranks they are.
        shims: one a rank.
        wirings: one a rail.
        apply: does what the orchestrators want of the switches.
        switches: the name of each rail's switch, for the journal.
        controller: one that has heard nothing yet, whose topologies the switches are in.
        gathering: how long a change waits for further stages, in ns.
        commands: commands that a switch carries out at a time; one that is read back as a whole
            after each takes no second.
        count: how many commands, one after another, a switch makes of what `apply` is given.
    """

    def __init__(
        self,
        clock: Clock,
        job: RailJob,
        shims: Sequence[Shim],
        wirings: Sequence[RailWiring],
        apply: Applier,
        switches: Sequence[str],
        controller: Controller | None = None,
        *,
        gathering: int = GATHERING,
        commands: int = 1,
        count: Callable[[Sequence[Rewire]], int] = lambda _: 1,
    ) -> None:
        self.clock, self.job = clock, job
        self.journal = Journal()
        self._shims, self.wirings = list(shims), wirings
        self._controller = controller or Controller.of(job)
        self._rails = [
            Orchestrator.of(rail, {job.name: (wiring, self._controller.rails[rail].topology)})
            for rail, wiring in enumerate(wirings)
        ]
        self._apply, self._switches = apply, switches
        self._gathering = Gathering(gathering)
        self._commands, self._count = commands, count
        # A rank that hears of its grant may begin at once, while others are being told.
        self._lock = threading.RLock()
        self._announced: dict[int, Callable[[], None]] = {}
        self._came: dict[int, int] = {}
        names = dict.fromkeys(switches)
        self._commands_of = {switch: SwitchCommands() for switch in names}
        self._called: dict[str, list[Event]] = {switch: [] for switch in names}
        self._targets: dict[tuple[int, int], bool] = {}
        self._wanted: dict[Rewire, int] = {}
        self._running = 0
        self._begun = clock.now()
        # Of each rank: when it did what it sends a message about, and when that came.
        self._did = dict.fromkeys(range(len(self._shims)), self._begun)
        self._asked = dict.fromkeys(self._did, (self._begun, self._begun))
        self._freed = dict(self._asked)
        self._due: dict[int, int] = {}
        self._agreed: dict[tuple[int, int], tuple[int, int, int]] = {}

    @property
    def controller(self) -> Controller:
        """Present state of the controller."""
        return self._controller

    def run(self, ranks: Sequence[Callable[[], None]]) -> None:
        """Run the ranks side by side, and the switches beside them; raises what a rank raises."""
        self._running = len(ranks)
        tasks = [partial(self._rank, rank) for rank in ranks]
        switches = [
            partial(self._switch, name, each)
            for name in self._commands_of
            for each in range(self._commands)
        ]
        self.clock.parallel(*tasks, *switches)

    def before(self, rank: int, operation: Operation) -> Network:
        """Wait until `operation` may run, and say on which network it does.

        Raises `RailsLostError`, and `ScheduleError` for an operation that was not profiled.
        """
        settled = self.clock.event()
        network = self.announce(rank, operation, settled.set)
        settled.wait()
        self.begin(rank, operation)
        return network

    def announce(self, rank: int, operation: Operation, settled: Callable[[], None]) -> Network:
        """Announce that a rank wants `operation`, and return the network it will use.

        `settled` is called, maybe within this call, once it may `begin` or never will; it must
        not wait. Raises `ScheduleError` for an operation that was not profiled.
        """
        with self._lock:
            shim, network, sent = self._shims[rank].pre_comm(operation)
            self._shims[rank] = shim
            self._announced[rank], self._came[rank] = settled, self.clock.now()
            self._did[rank] = self._came[rank]
            self._deliver(sent)
            if network != "rail" or self._settled(rank):
                self._tell(rank)
            return network

    def begin(self, rank: int, operation: Operation) -> None:
        """The rank begins with `operation`; raises `RailsLostError`."""
        if operation.network == "rail":
            with self._lock:
                self._start(rank, operation, self._came[rank], self.clock.now())

    def began(self, rank: int, operation: Operation, asked: int, began: int) -> None:
        """The rank has begun with `operation` by itself, in what it was granted before, then.

        Raises `OpusError` if it must not have, `ScheduleError` for one that was not profiled.
        """
        with self._lock:
            self._shims[rank], _, sent = self._shims[rank].pre_comm(operation)
            self._did[rank] = asked
            self._send(sent)
            self._start(rank, operation, asked, began)

    def after(self, rank: int, operation: Operation, ended: int | None = None) -> None:
        """`operation` has ended on this rank: now, or then."""
        with self._lock:
            at = self._did[rank] = self.clock.now() if ended is None else ended
            if operation.purpose == "data":
                self._note(Ended(at, rank, str(operation)))
            self._shims[rank], sent = self._shims[rank].post_comm(operation)
            self._send(sent)

    def _tell(self, rank: int) -> None:
        settled = self._announced.pop(rank, None)
        if settled is not None:
            settled()

    def _settled(self, rank: int) -> bool:
        return self._shims[rank].may_start or self._shims[rank].failed

    def _start(self, rank: int, operation: Operation, came: int, now: int) -> None:
        shim = self._shims[rank]
        if shim.failed:
            raise RailsLostError(f"rank {rank} cannot run {operation}: {shim.notice}")
        assert shim.rail is not None
        topology = self._controller.rails[shim.rail].topology
        circuits = self.wirings[shim.rail].carrying(operation.group, topology)
        self._note(Began(now, rank, str(operation), self._switches[shim.rail], circuits))
        self.journal.waits.append(Wait(came, rank, str(operation), now - came))
        self._shims[rank] = shim.started()

    # ------------------------------------------------------------------------- messages

    def _send(self, messages: Sequence[Message]) -> None:
        """Deliver what a shim sends; most send nothing, which makes no change due."""
        if messages:
            self._deliver(messages)

    def _deliver(self, messages: Sequence[Message]) -> None:
        """Hand over messages, and those that they lead to, until nobody says more."""
        undelivered = deque(messages)
        while undelivered:
            message = undelivered.popleft()
            match message:
                case TopoWrite() | Release() | Programmed() | NotProgrammed():
                    before = self._controller
                    self._controller, sent = before.receive(message)
                    self._tell_incidents(before)
                    self._heard_of(message, before)
                    undelivered += sent
                case Program():
                    ring = isinstance(message.topology, GiantRing)
                    self._agreed.setdefault(*self._agreement(message))
                    self._targets[message.rail, message.version] = ring
                    self._rails[message.rail], sent = self._rails[message.rail].receive(message)
                    undelivered += sent
                case Rewired() | NotRewired():
                    self._rails[message.rail], sent = self._rails[message.rail].receive(message)
                    undelivered += sent
                case Rewire():
                    self._wanted[message] = self.clock.now()
                    self._commands_of[self._switches[message.rail]].add(message)
                    self._call(self._switches[message.rail])
                case _:
                    self._shims[message.rank] = self._shims[message.rank].receive(message)
                    if self._settled(message.rank):
                        self._tell(message.rank)
        self._gather()

    def _heard_of(self, message: Message, before: Controller) -> None:
        """Note when each rank asked, and when it gave back what it held."""
        if isinstance(message, TopoWrite | Release):
            rank, moments = message.rank, (self._did[message.rank], self.clock.now())
            if isinstance(message, TopoWrite):
                self._asked[rank] = moments
            if before.holding[rank] and not self._controller.holding[rank]:
                self._freed[rank] = moments

    def _agreement(self, program: Program) -> tuple[tuple[int, int], tuple[int, int, int]]:
        """Return a change's rail and version, and when ranks agreed, were heard, and it was due."""
        rail, now = program.rail, self.clock.now()
        topology, target = self._controller.rails[rail].topology, program.topology
        due = self._due.pop(rail, now)
        agreed = heard = due
        if not isinstance(topology, GiantRing) and not isinstance(target, GiantRing):
            left = topology.rewired(target) - program.stages
            carried = [rank for rank, by in enumerate(self._controller.carrier) if by == rail]
            stages = {rank: self.job.stage_of[rank] for rank in carried}
            asked = [self._asked[rank] for rank in carried if stages[rank] in program.stages]
            freed = [self._freed[rank] for rank in carried if stages[rank] in left]
            moments = [*asked, *freed]
            agreed, heard = (
                min(due, max((each[place] for each in moments), default=due)) for place in (0, 1)
            )
        return (rail, program.version), (agreed, heard, due)

    def _gather(self) -> None:
        """Note when the changes that are due will begin."""
        for rail in self._gathering.note(self._controller.due(), self.clock.now()):
            self._call(self._switches[rail])

    def _tell_incidents(self, before: Controller) -> None:
        now = self.clock.now()
        for rail, (old, new) in enumerate(zip(before.rails, self._controller.rails, strict=True)):
            for change in new.changes:
                if change.attempt > 1 and change not in old.changes:
                    what = f"attempt {change.attempt} at version {change.version}"
                    self._incident(rail, what, change.reason)
            if new.topology == old.topology:
                for change in old.changes:
                    if new.changing(change.version) is None:
                        name = f"rail {rail} v{change.version}"
                        self._note(GivenUp(now, self._switches[rail], name))
            if self._controller.falls_back(rail):
                self._call(self._switches[rail])  # from now on grants are overdue at some time
            if new.is_ring and not old.is_ring:
                self._incident(rail, "giant ring wanted", new.reason)
            if isinstance(new.topology, GiantRing) and not isinstance(old.topology, GiantRing):
                self._incident(rail, "giant ring reached", new.reason)
            if new.state == "dead" and old.state != "dead":
                self._incident(rail, "given up", new.reason)

    def _incident(self, rail: int, what: str, why: str) -> None:
        now, why = self.clock.now(), why or "it carries the traffic of another rail as well"
        self.journal.incidents.append(Incident(now, rail, what, why, now - self._begun))

    def _note(self, event: RunEvent) -> None:
        self.journal.events.append(event)

    # ------------------------------------------------------------------------- threads

    def _rank(self, program: Callable[[], None]) -> None:
        try:
            program()
        finally:
            with self._lock:
                self._running -= 1
                for switch in self._commands_of:
                    self._call(switch)

    def _call(self, switch: str) -> None:
        for called in self._called[switch]:
            called.set()

    def _switch(self, switch: str, number: int) -> None:
        """Do what is wanted of a switch, until no rank is left to want more.

        Only the first of a switch's threads ends the wait for grants.
        """
        while True:
            with self._lock:
                timeout = self._begin_changes(switch)
                if timeout is None and number == 0 and self._falling_back(switch):
                    timeout = FALLBACK_TIMEOUT
                rewires = self._commands_of[switch].take()
                if not rewires and not self._running and not self._commands_of[switch].waiting:
                    return
                if not rewires:
                    called = self.clock.event()
                    self._called[switch].append(called)
            if rewires:
                self._do(switch, rewires)
                continue
            happened = called.wait(timeout)
            with self._lock:
                self._called[switch].remove(called)
            if not happened and timeout == FALLBACK_TIMEOUT:
                self._time_out(switch)

    def _begin_changes(self, switch: str) -> int | None:
        """Begin what has been gathered; return the time until there is more to begin."""
        now = self.clock.now()
        rails = [rail for rail, name in enumerate(self._switches) if name == switch]
        for rail, due in self._gathering.take(now, rails):
            before = self._controller
            self._due[rail] = due
            self._controller, sent = before.change(rail)
            self._tell_incidents(before)
            self._deliver(sent)
        begins = self._gathering.next(rails)
        return None if begins is None else max(0, begins - now)

    def _falling_back(self, switch: str) -> list[int]:
        rails = [rail for rail, name in enumerate(self._switches) if name == switch]
        return [rail for rail in rails if self._controller.falls_back(rail)]

    def _time_out(self, switch: str) -> None:
        with self._lock:
            for rail in self._falling_back(switch):
                before = self._controller
                self._controller, sent = before.timeout(rail)
                self._tell_incidents(before)
                self._deliver(sent)

    def _do(self, switch: str, rewires: Sequence[Rewire]) -> None:
        with self._lock:
            now, commands = self.clock.now(), self._count(rewires)
            for rewire in rewires:
                changed = (switch, _name(rewire), rewire.remove, rewire.add)
                fallback = self._targets[rewire.rail, rewire.version]
                wanted = self._wanted.pop(rewire, now)
                again = rewire.attempt > 1
                agreed = self._agreed.get((rewire.rail, rewire.version), (None, None, None))
                self._note(Rewiring(now, *changed, again, fallback, wanted, commands, *agreed))
        failed = ""
        try:
            stamps = self._apply(rewires)
        except LightrigError as error:
            failed = str(error).partition("\n")[0]
        with self._lock:
            for rewire in rewires:
                self._commands_of[switch].done(rewire)
                if not failed:
                    self._note(Confirmed(self.clock.now(), switch, _name(rewire), stamps))
            for rewire in rewires:
                about = (rewire.rail, rewire.job, rewire.version, rewire.attempt)
                self._deliver([NotRewired(*about, failed) if failed else Rewired(*about)])
            self._call(switch)


def _name(rewire: Rewire) -> str:
    return f"rail {rewire.rail} v{rewire.version}"
