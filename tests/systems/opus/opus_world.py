"""A job, its control plane and its switches as one state, in which anything may happen next.

Messages between programs arrive in any order, late, twice or never. A switch does what it is
told in any order, but commands on a common port in theirs, and it may stop. Ranks start and end
their operations whenever they may.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.messages import (
    Failed,
    Granted,
    Message,
    NotProgrammed,
    NotRewired,
    Program,
    Programmed,
    Release,
    Released,
    Rewire,
    Rewired,
    TopoWrite,
)
from lightrig.harness.systems.opus.planning.operations import Operation, RailJob
from lightrig.harness.systems.opus.planning.orchestrator import Orchestrator
from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    Confirmed,
    Ended,
    GivenUp,
    Rewiring,
    RunEvent,
)
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import GiantRing
from lightrig.harness.systems.opus.planning.wiring import Attachment, RailWiring
from lightrig.testbeds import Circuit

Choice = tuple[str, int | tuple[int, int]]
"""Next event: its kind, and which of them; on a switch or rail, also which change."""


def attachments(
    job: RailJob, rail: int, first: int = 1
) -> dict[int, tuple[Attachment, Attachment]]:
    """Each rank's two ports, ingress and egress of one number from `first` on."""
    return {
        rank: (
            Attachment(first + 2 * place, 100 + first + 2 * place),
            Attachment(first + 2 * place + 1, 101 + first + 2 * place),
        )
        for place, rank in enumerate(job.ranks(rail))
    }


class Switch(NamedTuple):
    """State of a rail's switch: circuits, commands in their order, and those under way."""

    held: frozenset[Circuit]
    told: tuple[Rewire, ...] = ()
    busy: frozenset[Rewire] = frozenset()
    dead: bool = False

    def ready(self) -> Iterator[Rewire]:
        """The commands that may begin or end now: no earlier one has a port of theirs."""
        earlier: set[tuple[str, int]] = set()
        for rewire in () if self.dead else self.told:
            if earlier.isdisjoint(_ports(rewire)):
                yield rewire
            earlier |= _ports(rewire)


def _ports(rewire: Rewire) -> set[tuple[str, int]]:
    circuits = rewire.remove | rewire.add
    return {("in", c.ingress) for c in circuits} | {("out", c.egress) for c in circuits}


class State(NamedTuple):
    """Everything at one moment."""

    shims: tuple[Shim, ...]
    controller: Controller
    rails: tuple[Orchestrator, ...]
    switches: tuple[Switch, ...]
    mail: tuple[Message, ...] = ()
    started: frozenset[tuple[int, Operation]] = frozenset()

    @property
    def done(self) -> bool:
        """Whether every rank has run its program, and nothing is left to say."""
        return not self.mail and all(finished(shim) and shim.pending is None for shim in self.shims)

    @property
    def told(self) -> bool:
        """Whether a rank was told that no rail is left, so that the job is started again."""
        return any(shim.failed for shim in self.shims)


def finished(shim: Shim) -> bool:
    return shim.table.at(shim.position) is None and not shim.in_flight


@dataclass
class World:
    """Possible events of a state, and their successors.

    lockstep: the ranks of one server issue each operation together, as tensor parallelism makes
        them.
    in_order: what one program says to another arrives in that order.
    gathers: a change that is due begins at any later time, not at once.
    log: what an auditor asks for.
    broken: what was seen to go wrong at once.
    """

    job: RailJob
    wirings: tuple[RailWiring, ...]
    lockstep: bool = False
    in_order: bool = False
    gathers: bool = False
    log: list[RunEvent] = field(default_factory=list)
    rings: set[tuple[int, int]] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    steps: int = 0

    @classmethod
    def of(
        cls, job: RailJob, *, lockstep: bool = False, in_order: bool = False, gathers: bool = False
    ) -> "World":
        rails = range(job.rails)
        wirings = tuple(RailWiring.of(job, rail, attachments(job, rail)) for rail in rails)
        return cls(job, wirings, lockstep, in_order, gathers)

    def begin(
        self,
        programs: Mapping[int, Sequence[Operation]],
        mode: Mode,
        controller: Controller,
        steps: int = 1,
    ) -> State:
        """All ranks before their first operation, all rails in the controller's topologies."""
        shims = tuple(
            Shim(rank, self.job.stage_of[rank], PhaseTable(tuple(programs[rank]), steps), mode)
            for rank in range(len(self.job.stage_of))
        )
        rails, switches = [], []
        for rail, wiring in enumerate(self.wirings):
            topology = controller.rails[rail].topology
            rails.append(Orchestrator.of(rail, {self.job.name: (wiring, topology)}))
            switches.append(Switch(wiring.circuits(topology)))
        return State(shims, controller, tuple(rails), tuple(switches))

    # ------------------------------------------------------------------------- choices

    def choices(self, state: State) -> list[Choice]:
        """Return events without a fault: messages arrive, switches act, ranks start and end."""
        out: list[Choice] = [("deliver", place) for place in self._deliverable(state)]
        for rail, switch in enumerate(state.switches):
            out += [("switch", (rail, switch.told.index(each))) for each in switch.ready()]
        out += [("change", rail) for rail in state.controller.due()] if self.gathers else []
        for rank, shim in enumerate(state.shims):
            if shim.failed:
                continue
            if shim.may_start:
                out.append(("start", rank))
            elif not shim.announced and self._may_announce(state, rank):
                out.append(("announce", rank))
            if any(self._is_over(state, place, shim) for place in shim.in_flight):
                out.append(("end", rank))
        return out

    def _deliverable(self, state: State) -> Iterator[int]:
        seen = set()
        for place, message in enumerate(state.mail):
            if not self.in_order or channel(message) not in seen:
                yield place
            seen.add(channel(message))

    def timeouts(self, state: State) -> list[Choice]:
        """Return the timeouts that may expire."""
        out: list[Choice] = [
            ("resend", rank) for rank, shim in enumerate(state.shims) if shim.overdue()
        ]
        for rail, status in enumerate(state.controller.rails):
            out += [("timeout", (rail, change.version)) for change in status.changes]
            if state.controller.falls_back(rail) and not status.changes:
                out.append(("timeout", rail))
        return out

    def faults(self, state: State) -> list[Choice]:
        """Return the faults that can occur at any time."""
        out: list[Choice] = []
        for place in range(len(state.mail)):
            out += [("lose", place), ("repeat", place)]
        for rail, switch in enumerate(state.switches):
            out.append(("revive" if switch.dead else "die", rail))
            out += [
                ("deny", (rail, switch.told.index(each)))
                for each in switch.ready()
                if each not in switch.busy
            ]
        return out

    def _may_announce(self, state: State, rank: int) -> bool:
        shim = state.shims[rank]
        if shim.table.at(shim.position) is None:
            return False
        first = rank - self.job.rail_of[rank]
        peers = state.shims[first : first + self.job.rails] if self.lockstep else ()
        return all(
            peer.position >= shim.position
            and min(peer.in_flight, default=shim.position) >= shim.position
            for peer in peers
        )

    def _is_over(self, state: State, place: int, shim: Shim) -> bool:
        """A collective ends when all of its ranks have started it."""
        operation = shim.table.at(place)
        assert operation is not None
        ranks = self.job.groups[operation.group].ranks
        return all((rank, operation) in state.started for rank in ranks)

    # ------------------------------------------------------------------------- events

    def follow(self, state: State, choice: Choice) -> State:
        """The state after `choice`."""
        self.steps += 1
        kind, which = choice
        if isinstance(which, tuple):
            rail, place = which
            if kind == "timeout":
                return self._controlled(state, *state.controller.timeout(rail, place))
            return self._switch(state, rail, place, denies=kind == "deny")
        match kind:
            case "deliver":
                mail = state.mail[:which] + state.mail[which + 1 :]
                return self._arrive(state._replace(mail=mail), state.mail[which])
            case "lose":
                return state._replace(mail=state.mail[:which] + state.mail[which + 1 :])
            case "repeat":
                return _post(state, (state.mail[which],))
            case "change":
                return self._controlled(state, *state.controller.change(which))
            case "die" | "revive":
                return _switched(state, which, state.switches[which]._replace(dead=kind == "die"))
            case "resend":
                return _post(state, state.shims[which].overdue())
            case "timeout":
                return self._controlled(state, *state.controller.timeout(which))
            case _:
                return self._rank(state, kind, which)

    def _rank(self, state: State, kind: str, rank: int) -> State:
        shim = state.shims[rank]
        if kind == "announce":
            operation = shim.table.at(shim.position)
            assert operation is not None
            shim, _, sent = shim.pre_comm(operation)
            return _post(_shimmed(state, shim), sent)
        if kind == "start":
            operation = shim.table.at(shim.position)
            assert operation is not None
            self._note_start(state, shim, operation)
            started = state.started | {(rank, operation)}
            return _shimmed(state, shim.started())._replace(started=started)
        over = min(place for place in shim.in_flight if self._is_over(state, place, shim))
        operation = shim.table.at(over)
        assert operation is not None
        self.log.append(Ended(self.steps, rank, str(operation)))
        shim, sent = shim.post_comm(operation)
        return _post(_shimmed(state, shim), sent)

    def carrying(self, shim: Shim, operation: Operation) -> frozenset[Circuit]:
        """The circuits that an operation that was granted runs over."""
        assert shim.rail is not None
        if shim.notice:
            return self.wirings[shim.rail].giant_ring
        return self.wirings[shim.rail].of_group[operation.group]

    def _note_start(self, state: State, shim: Shim, operation: Operation) -> None:
        circuits, switch = self.carrying(shim, operation), state.switches[shim.rail or 0]
        moving = {c for now in switch.busy for c in now.remove | (now.add - switch.held)}
        if circuits & moving or circuits - switch.held:
            self.broken.append(f"G1: {operation} of rank {shim.rank} starts without its circuits")
        self.log.append(Began(self.steps, shim.rank, str(operation), str(shim.rail), circuits))

    def _note_cut(self, state: State, rail: int, gone: frozenset[Circuit]) -> None:
        for shim in state.shims:
            for place in shim.in_flight if shim.rail == rail else ():
                operation = shim.table.at(place)
                assert operation is not None
                if self.carrying(shim, operation) & gone:
                    self.broken.append(f"G2: {operation} of rank {shim.rank} is cut")

    def _switch(self, state: State, rail: int, place: int, *, denies: bool) -> State:
        switch = state.switches[rail]
        first = switch.told[place]
        left = (*switch.told[:place], *switch.told[place + 1 :])
        answer = (rail, first.job, first.version, first.attempt)
        if denies:
            done = switch._replace(told=left)
            return _post(_switched(state, rail, done), (NotRewired(*answer, "denied"),))
        name = f"v{first.version}"
        remove, add = first.remove & switch.held, first.add - switch.held
        if first not in switch.busy:
            self._note_cut(state, rail, remove)
            if remove or add or first.attempt == 1:
                fallback = (rail, first.version) in self.rings
                again = first.attempt > 1
                # As the journal has it, with what the switch has done already: after a change that
                # was given up nothing else tells what has become of a circuit.
                self.log.append(
                    Rewiring(self.steps, str(rail), name, first.remove, first.add, again, fallback)
                )
            return _switched(state, rail, switch._replace(busy=switch.busy | {first}))
        held = (switch.held - first.remove) | first.add
        self.log.append(Confirmed(self.steps, str(rail), name))
        done = switch._replace(held=held, told=left, busy=switch.busy - {first})
        return _post(_switched(state, rail, done), (Rewired(*answer),))

    def _arrive(self, state: State, message: Message) -> State:
        match message:
            case TopoWrite() | Release() | Programmed() | NotProgrammed():
                return self._controlled(state, *state.controller.receive(message))
            case Granted() | Released() | Failed():
                return _shimmed(state, state.shims[message.rank].receive(message))
            case Program() | Rewired() | NotRewired():
                orchestrator, sent = state.rails[message.rail].receive(message)
                rails = _put(state.rails, message.rail, orchestrator)
                told = [each for each in sent if isinstance(each, Rewire)]
                for rewire in told:
                    switch = state.switches[message.rail]
                    switch = switch._replace(told=(*switch.told, rewire))
                    state = _switched(state, message.rail, switch)
                mail = tuple(each for each in sent if not isinstance(each, Rewire))
                return _post(state._replace(rails=rails), mail)
        raise AssertionError(message)

    def _controlled(self, state: State, controller: Controller, sent: tuple[Message, ...]) -> State:
        for message in sent:
            if isinstance(message, Program) and isinstance(message.topology, GiantRing):
                self.rings.add((message.rail, message.version))
        for rail, status in enumerate(controller.rails):
            before = state.controller.rails[rail]
            if status.topology == before.topology:
                for change in before.changes:
                    if status.changing(change.version) is None:
                        self.log.append(GivenUp(self.steps, str(rail), f"v{change.version}"))
        state = _post(state._replace(controller=controller), sent)
        for rail in () if self.gathers else controller.due():
            state = self._controlled(state, *state.controller.change(rail))
        return state


def channel(message: Message) -> tuple[str, int]:
    """Return sender and receiver."""
    match message:
        case TopoWrite() | Release():
            return "from rank", message.rank
        case Granted() | Released() | Failed():
            return "to rank", message.rank
        case Program():
            return "to rail", message.rail
        case Programmed() | NotProgrammed():
            return "from rail", message.rail
    return "from switch", message.rail


def settled(state: State) -> State:
    """The same state, with its messages in an order that does not tell how it came about."""
    return state._replace(mail=tuple(sorted(state.mail, key=channel)))


def _post(state: State, sent: Sequence[Message]) -> State:
    return state._replace(mail=(*state.mail, *sent)) if sent else state


def _shimmed(state: State, shim: Shim) -> State:
    return state._replace(shims=_put(state.shims, shim.rank, shim))


def _switched(state: State, rail: int, switch: Switch) -> State:
    return state._replace(switches=_put(state.switches, rail, switch))


def _put(values: tuple, index: int, value: object) -> tuple:
    return (*values[:index], value, *values[index + 1 :])
