"""Opus acting in time: its programs on a clock, between ranks and switches."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from lightrig.harness.systems.opus.planning.auditor import (
    Began,
    Confirmed,
    Ended,
    GivenUp,
    Rewiring,
    RunEvent,
)
from lightrig.harness.systems.opus.planning.controller import Controller
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
from lightrig.harness.systems.opus.planning.operations import Job, Network, Operation
from lightrig.harness.systems.opus.planning.orchestrator import Orchestrator
from lightrig.harness.systems.opus.planning.shim import Shim
from lightrig.harness.systems.opus.planning.topology import GiantRing
from lightrig.harness.systems.opus.planning.wiring import Wiring
from lightrig.instruments.clock import Clock, Event
from lightrig.testbeds import LightrigError

FALLBACK_TIMEOUT = 10_000_000_000
"""Timeout of grants while a rail waits to fall back, in ns."""

Applier = Callable[[Rewire], None]
"""Brings a rail's switch to what `Rewire` wants and reads it back; raises `LightrigError`."""


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
    """Events of a run, for an auditor and for the record."""

    events: list[RunEvent] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


class Rails:
    """A job's control plane on a clock: ranks call `before` and `after` around each operation.

    What the programs tell each other is delivered at once, within this process: the time that
    passes is the switches' own. Each switch is told by a thread of its own, which `run` starts
    beside the ranks, so that rails of one switch take turns. An error of a switch is the negative
    acknowledgement that makes the controller try again, fall back to the giant ring, or give the
    rail up.

    Args:
        clock: the bench's.
        job: whose ranks they are.
        shims: one a rank.
        wirings: one a rail.
        apply: does what the orchestrators want of the switches.
        switches: the name of each rail's switch, for the journal.
        controller: one that has heard nothing yet, whose topologies the switches are in.
    """

    def __init__(
        self,
        clock: Clock,
        job: Job,
        shims: Sequence[Shim],
        wirings: Sequence[Wiring],
        apply: Applier,
        switches: Sequence[str],
        controller: Controller | None = None,
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
        # A rank that hears of its grant may begin at once, while others are being told.
        self._lock = threading.RLock()
        self._announced: dict[int, Callable[[], None]] = {}
        self._came: dict[int, int] = {}
        self._todo: dict[str, deque[Rewire]] = {switch: deque() for switch in switches}
        self._called: dict[str, Event] = {}
        self._targets: dict[tuple[int, int], bool] = {}
        self._running = 0
        self._begun = clock.now()

    @property
    def controller(self) -> Controller:
        """Present state of the controller."""
        return self._controller

    def run(self, ranks: Sequence[Callable[[], None]]) -> None:
        """Run the ranks side by side, and the switches beside them; raises what a rank raises."""
        self._running = len(ranks)
        tasks = [partial(self._rank, rank) for rank in ranks]
        switches = [partial(self._switch, name) for name in self._todo]
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
            self._deliver(sent)
            if network != "rail" or self._settled(rank):
                self._tell(rank)
            return network

    def begin(self, rank: int, operation: Operation) -> None:
        """The rank begins with `operation`; raises `RailsLostError`."""
        if operation.network == "rail":
            with self._lock:
                self._start(rank, operation, self._came[rank])

    def after(self, rank: int, operation: Operation) -> None:
        """`operation` has ended on this rank."""
        with self._lock:
            if operation.purpose == "data":
                self._note(Ended(self.clock.now(), rank, str(operation)))
            self._shims[rank], sent = self._shims[rank].post_comm(operation)
            self._deliver(sent)

    def _tell(self, rank: int) -> None:
        settled = self._announced.pop(rank, None)
        if settled is not None:
            settled()

    def _settled(self, rank: int) -> bool:
        return self._shims[rank].may_start or self._shims[rank].failed

    def _start(self, rank: int, operation: Operation, came: int) -> None:
        shim, now = self._shims[rank], self.clock.now()
        if shim.failed:
            raise RailsLostError(f"rank {rank} cannot run {operation}: {shim.notice}")
        assert shim.rail is not None
        topology = self._controller.rails[shim.rail].topology
        circuits = self.wirings[shim.rail].carrying(operation.group, topology)
        self._note(Began(now, rank, str(operation), self._switches[shim.rail], circuits))
        self.journal.waits.append(Wait(came, rank, str(operation), now - came))
        self._shims[rank] = shim.started()

    # ------------------------------------------------------------------------- messages

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
                    undelivered += sent
                case Program():
                    ring = isinstance(message.topology, GiantRing)
                    self._targets[message.rail, message.version] = ring
                    self._rails[message.rail], sent = self._rails[message.rail].receive(message)
                    undelivered += sent
                case Rewired() | NotRewired():
                    self._rails[message.rail], sent = self._rails[message.rail].receive(message)
                    undelivered += sent
                case Rewire():
                    self._todo[self._switches[message.rail]].append(message)
                    self._call(self._switches[message.rail])
                case _:
                    self._shims[message.rank] = self._shims[message.rank].receive(message)
                    if self._settled(message.rank):
                        self._tell(message.rank)

    def _tell_incidents(self, before: Controller) -> None:
        now = self.clock.now()
        for rail, (old, new) in enumerate(zip(before.rails, self._controller.rails, strict=True)):
            more = (new.version, new.attempt) > (old.version, old.attempt)
            if new.target is not None and new.attempt > 1 and more:
                self._incident(rail, f"attempt {new.attempt} at version {new.version}", new.reason)
            left = new.version > old.version or new.state in {"falling back", "dead"}
            if old.target is not None and new.topology != old.target and left:
                self._note(GivenUp(now, self._switches[rail], f"rail {rail} v{old.version}"))
            if self._controller.falls_back(rail):
                self._call(self._switches[rail])  # from now on somebody's patience is limited
            if isinstance(new.target, GiantRing) and not isinstance(old.target, GiantRing):
                self._incident(rail, "giant ring wanted", new.reason)
            if isinstance(new.topology, GiantRing) and not isinstance(old.topology, GiantRing):
                self._incident(rail, "giant ring reached", new.reason)
            if new.state == "dead" and old.state != "dead":
                self._incident(rail, "given up", new.reason)

    def _incident(self, rail: int, what: str, why: str) -> None:
        now = self.clock.now()
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
                for switch in self._todo:
                    self._call(switch)

    def _call(self, switch: str) -> None:
        if switch in self._called:
            self._called[switch].set()

    def _switch(self, switch: str) -> None:
        """Do what the orchestrators want of a switch, until no rank is left to want more."""
        while True:
            with self._lock:
                if self._todo[switch]:
                    rewire: Rewire | None = self._todo[switch].popleft()
                elif self._running:
                    rewire = None
                    called = self._called[switch] = self.clock.event()
                    timeout = FALLBACK_TIMEOUT if self._falling_back(switch) else None
                else:
                    return
            if rewire is not None:
                self._do(rewire)
            elif not called.wait(timeout):
                self._time_out(switch)

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

    def _do(self, rewire: Rewire) -> None:
        about = (rewire.rail, rewire.job, rewire.version, rewire.attempt)
        switch, change = self._switches[rewire.rail], f"rail {rewire.rail} v{rewire.version}"
        with self._lock:
            fallback = self._targets[rewire.rail, rewire.version]
            again = rewire.attempt > 1
            now = self.clock.now()
            self._note(Rewiring(now, switch, change, rewire.remove, rewire.add, again, fallback))
        try:
            self._apply(rewire)
        except LightrigError as error:
            answer: Message = NotRewired(*about, str(error).partition("\n")[0])
        else:
            answer = Rewired(*about)
        with self._lock:
            if isinstance(answer, Rewired):
                self._note(Confirmed(self.clock.now(), switch, change))
            self._deliver([answer])
