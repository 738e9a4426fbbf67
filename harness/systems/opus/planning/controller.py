"""The controller: one a job, it holds requests until all who must agree have asked."""

# What follows a controller is a controller: it may be asked what only they are asked.
# ruff: noqa: SLF001

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from lightrig.harness.systems.opus.planning.messages import (
    Failed,
    FromRail,
    FromShim,
    Granted,
    Message,
    NotProgrammed,
    Program,
    Programmed,
    Release,
    Released,
    TopoWrite,
)
from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC, RailJob
from lightrig.harness.systems.opus.planning.pending_asks import Barrier, PendingAsks
from lightrig.harness.systems.opus.planning.topology import (
    GIANT_RING,
    GiantRing,
    Topology,
    TopologyId,
)

RailState: TypeAlias = Literal["in use", "falling back", "dead"]
T = TypeVar("T")
Sent: TypeAlias = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class RailChange:
    """A change of a rail that is under way.

    Attributes:
        version: counts the changes of a rail, across all attempts at each.
        attempt: counts from 1.
        digits: the stages that change and their digits; none for the giant ring.
        reason: what went wrong with the attempt before.
    """

    version: int
    attempt: int
    digits: frozenset[tuple[int, int]] = frozenset()
    reason: str = ""

    @property
    def is_ring(self) -> bool:
        """Whether it makes the giant ring."""
        return not self.digits

    @property
    def stages(self) -> frozenset[int]:
        """The stages whose digit changes."""
        return frozenset(stage for stage, _ in self.digits)


@dataclass(frozen=True, slots=True)
class RailStatus:
    """State of a job on one rail, in the controller.

    topology: that of all acknowledged changes. changes: those under way, no two of which touch
    a common port. version: of the last one begun. overdue: timeouts while falling back. reason:
    why it fell back or died.
    """

    topology: Topology
    state: RailState = "in use"
    changes: tuple[RailChange, ...] = ()
    version: int = 0
    overdue: int = 0
    reason: str = ""

    @property
    def is_ring(self) -> bool:
        """Whether the rail is a giant ring, or is becoming one."""
        return isinstance(self.topology, GiantRing) or any(each.is_ring for each in self.changes)

    def changing(self, version: int) -> RailChange | None:
        """The change of that version, while it is under way."""
        return next((each for each in self.changes if each.version == version), None)

    @property
    def target(self) -> TopologyId:
        """The topology once all changes under way are made, on a rail that is no giant ring."""
        assert not isinstance(self.topology, GiantRing)
        digits = {stage: digit for change in self.changes for stage, digit in change.digits}
        return self.topology.with_stages(digits)

    def touches(self, wanted: TopologyId) -> bool:
        """Whether a change to `wanted` would touch a port of a change under way.

        That is so for a stage that is changing, and for one that has a link with a changing
        neighbour: as the topology is, as it will be, or once the neighbour alone has changed.
        """
        if isinstance(self.topology, GiantRing):
            return False
        now, before = self.topology, self.target
        changing = now.changed(before)
        changed = before.changed(wanted)
        after = wanted
        return any(
            stage in changing or any(each.joins(stage, near) for each in (now, before, after))
            for stage in changed
            for near in now.beside(frozenset({stage})) & changing
        )

    def without(self, change: RailChange) -> tuple[RailChange, ...]:
        """The changes under way but for one."""
        return tuple(each for each in self.changes if each.version != change.version)


@dataclass(frozen=True, slots=True)
class Controller:
    """State of a job's controller; every message gives the next state and the messages to send.

    A group is ready for an operation when all its ranks have asked for it. It is granted at once
    where the topology is right. Where it is not, a rail's topology changes when
    - every rank of each stage whose digit changes has asked for what that digit will be, and
    - no rank that will lose a link by it still holds what it was granted.
    Stages that are ready together change together, and a stage need not wait for a change of
    others unless it shares a port with one of them, as neighbours do that have a link.
    `receive` grants; `due` and `change` begin changes, so that the caller may wait for requests
    that are about to arrive and need not spend a switching time of their own.

    The paper waits for the group alone. Several groups share a stage's sub-mapping, and one of
    them may still be sending when another is ready: G2 needs the stage.

    A change that fails is tried `retries` times more. Then the giant ring is, as often, once
    nobody on the rail holds anything. Then the rail is dead, and another carries its ranks'
    traffic, as a giant ring as well: those ranks may be a phase behind its own, and a ring
    serves both. Without another, whoever asks is told so. Nobody waits for ever.

    Attributes:
        job: whose controller it is.
        rails: what is known of each.
        carrier: which rail carries each rank's traffic.
        asks: requests that were not answered.
        holding: the turn that each rank was granted and has not given back; 0 for none.
        turns: the last turn heard of from each rank.
        retries: attempts after the first.
    """

    job: RailJob = field(hash=False)
    rails: tuple[RailStatus, ...]
    carrier: tuple[int, ...]
    asks: PendingAsks
    holding: tuple[int, ...]
    turns: tuple[int, ...]
    retries: int = 2

    @classmethod
    def of(
        cls,
        job: RailJob,
        topology: Topology | None = None,
        retries: int = 2,
        without: Collection[int] = (),
    ) -> "Controller":
        """The controller of `job`, whose rails are in `topology`: by default all pipeline.

        without: rails with a link that is lost; others carry their ranks' traffic.
        """
        begun = topology or TopologyId.uniform(job.stages, ASYMMETRIC)
        zeros = (0,) * len(job.stage_of)
        rails = tuple(RailStatus(begun) for _ in range(job.rails))
        made = cls(job, rails, job.rail_of, PendingAsks(job.groups), zeros, zeros, retries)
        for rail in sorted(without):
            made, _ = made._without(rail, "a link of it is lost")
        return made

    # ------------------------------------------------------------------------- messages

    def receive(self, message: FromShim | FromRail) -> tuple["Controller", Sent]:
        """Take a message of a shim or of an orchestrator; late and repeated ones do no harm."""
        match message:
            case TopoWrite():
                return self._asked(message)
            case Release():
                return self._released(message)
            case Programmed():
                return self._programmed(message)
            case NotProgrammed():
                change = self.rails[message.rail].changing(message.version)
                if change is None or change.attempt != message.attempt:
                    return self, ()
                return self._unanswered(message.rail, change, message.reason)

    def timeout(self, rail: int, version: int | None = None) -> tuple["Controller", Sent]:
        """A change is not acknowledged; without `version`, not all held on it is given back."""
        if version is None:
            return self._impatient(rail)
        change = self.rails[rail].changing(version)
        if change is None:
            return self, ()
        return self._unanswered(rail, change, "no acknowledgement in time")

    def due(self) -> list[int]:
        """The rails that have a change to begin."""
        return [rail for rail in range(len(self.rails)) if self._next(rail) is not None]

    def change(self, rail: int) -> tuple["Controller", Sent]:
        """Begin the change that is due on a rail, if any: one for all stages that are ready."""
        change = self._next(rail)
        if change is None:
            return self, ()
        status = self.rails[rail]
        begun = replace(status, changes=(*status.changes, change), version=change.version)
        controller = self._with(rail, begun)
        return controller, (controller._program(rail, change),)

    def unacknowledged(self) -> tuple[Program, ...]:
        """Return the orders of all changes under way, for rails that may not have had them."""
        return tuple(
            self._program(rail, change)
            for rail, status in enumerate(self.rails)
            for change in status.changes
        )

    def _asked(self, request: TopoWrite) -> tuple["Controller", Sent]:
        rank = request.rank
        if request.turn > self.turns[rank]:
            return replace(
                self,
                asks=self.asks.with_ask(request),
                turns=_put(self.turns, rank, request.turn),
                holding=_put(self.holding, rank, 0),
            )._serve()
        if self.holding[rank] == request.turn:  # the grant was lost on its way
            return self, (self._grant(request),)
        if self.turns[rank] == request.turn and self._is_dead(rank):
            return self, (self._fail(request),)
        return self, ()

    def _released(self, release: Release) -> tuple["Controller", Sent]:
        rank, answer = release.rank, Released(release.rank, release.turn)
        if self.holding[rank] != release.turn:
            return self, (answer,)
        controller, sent = replace(self, holding=_put(self.holding, rank, 0))._serve()
        return controller, (answer, *sent)

    def _programmed(self, message: Programmed) -> tuple["Controller", Sent]:
        status = self.rails[message.rail]
        change = status.changing(message.version)
        if change is None:
            return self, ()
        reached = replace(
            status, topology=_reached(status.topology, change), changes=status.without(change)
        )
        return self._with(message.rail, reached)._serve()

    def _unanswered(self, rail: int, change: RailChange, reason: str) -> tuple["Controller", Sent]:
        status = self.rails[rail]
        if change.attempt <= self.retries:
            again = replace(change, attempt=change.attempt + 1, reason=reason)
            retried = replace(status, changes=(*status.without(change), again))
            return self._with(rail, retried), (self._program(rail, again),)
        if change.is_ring:
            return self._without(rail, reason)
        left = status.without(change)
        return (
            self._with(
                rail, replace(status, state="falling back", changes=left, overdue=0, reason=reason)
            ),
            (),
        )

    def _impatient(self, rail: int) -> tuple["Controller", Sent]:
        """Somebody does not give back what it holds: maybe it waits for one that waits here."""
        status = self.rails[rail]
        if not self.falls_back(rail) or status.changes:
            return self, ()
        if status.overdue <= self.retries:
            return self._with(rail, replace(status, overdue=status.overdue + 1)), ()
        holders = ", ".join(str(rank) for rank in self._carried(rail) if self.holding[rank])
        return self._without(rail, f"rank {holders} would not let go for the giant ring")

    def _without(self, rail: int, reason: str) -> tuple["Controller", Sent]:
        """Give a rail up; the next one that lives carries its traffic."""
        dead = replace(self.rails[rail], state="dead", changes=(), reason=reason)
        controller = self._with(rail, dead)
        count = len(self.rails)
        order = [(rail + step) % count for step in range(1, count)]
        alive = [candidate for candidate in order if controller.rails[candidate].state != "dead"]
        if alive:
            moved = tuple(alive[0] if carrying == rail else carrying for carrying in self.carrier)
            controller = replace(controller, carrier=moved)
        return controller._serve()

    # ------------------------------------------------------------------------- decisions

    def _serve(self) -> tuple["Controller", Sent]:
        """Grant what can be granted, and refuse what no rail carries any more."""
        lost = []
        if any(rail.state == "dead" for rail in self.rails):
            lost = [ask for ask in sorted(self.asks, key=_by_rank) if self._is_dead(ask.rank)]
        ranks = [ask.rank for ask in lost]
        controller = replace(self, asks=self.asks.without(ranks)) if lost else self
        sent: list[Message] = [self._fail(ask) for ask in lost]
        for barrier in controller.ready():
            if controller.is_served(barrier):
                controller = controller._granted(barrier)
                sent += [controller._grant(ask) for ask in barrier.asked]
        return controller, tuple(sent)

    def ready(self) -> list[Barrier]:
        """The operations that all ranks of their group have asked for."""
        return self.asks.ready()

    def _wanted(self, barrier: Barrier) -> dict[int, int]:
        dimension = self.job.groups[barrier.group].dimension
        return {ask.stage: dimension for ask in barrier.asked}

    def is_served(self, barrier: Barrier) -> bool:
        """Whether the topology is right for it and nothing that it needs is being changed (G1)."""
        rail = self.carrier[barrier.asked[0].rank]
        status = self.rails[rail]
        if isinstance(status.topology, GiantRing):
            return True
        if self.falls_back(rail) or status.is_ring:
            return False
        wanted = self._wanted(barrier)
        if any(status.topology[stage] != digit for stage, digit in wanted.items()):
            return False
        return all(change.stages.isdisjoint(wanted) for change in status.changes)

    def _next(self, rail: int) -> RailChange | None:
        """The change that a rail should begin now, if any."""
        status = self.rails[rail]
        if self.falls_back(rail):
            idle = not any(self.holding[rank] for rank in self._carried(rail))
            return RailChange(status.version + 1, 1) if idle and not status.changes else None
        if status.state == "dead" or status.is_ring:
            return None
        assert not isinstance(status.topology, GiantRing)
        # One change for all that are ready: a switch moves many ports in the time of one.
        before = target = status.target
        for barrier in self.ready():
            if self.carrier[barrier.asked[0].rank] == rail:
                merged = target.with_stages(self._wanted(barrier))
                if merged == target:  # as most are, of a phase that goes on
                    continue
                if not status.touches(merged) and self.may_change(rail, before, merged):
                    target = merged
        changed = before.changed(target)
        digits = frozenset((stage, target[stage]) for stage in changed)
        return RailChange(status.version + 1, 1, digits) if digits else None

    def may_change(self, rail: int, topology: TopologyId, target: TopologyId) -> bool:
        """Whether all ranks of the changed stages want it (O1), and none uses what goes (G2)."""
        changed = topology.changed(target)
        agreed = all(
            (ask := self.asks.of(rank)) is not None
            and self.job.groups[ask.group].dimension == target[stage]
            for stage, rank in self._at(rail, changed)
        )
        left = topology.rewired(target) - changed
        return agreed and not any(self.holding[rank] for _, rank in self._at(rail, left))

    def _at(self, rail: int, stages: frozenset[int]) -> Iterator[tuple[int, int]]:
        for stage in stages:
            for rank in self.job.at_stage[stage]:
                if self.carrier[rank] == rail:
                    yield stage, rank

    def _carried(self, rail: int) -> list[int]:
        return [rank for rank, carrier in enumerate(self.carrier) if carrier == rail]

    def falls_back(self, rail: int) -> bool:
        """Whether the rail is to become a giant ring as soon as nobody holds anything."""
        status = self.rails[rail]
        if status.state == "dead" or status.is_ring:
            return False
        moved = self.carrier is not self.job.rail_of  # what another rail carries, as few ever are
        foreign = moved and any(self.job.rail_of[rank] != rail for rank in self._carried(rail))
        return status.state == "falling back" or foreign

    def _is_dead(self, rank: int) -> bool:
        return self.rails[self.carrier[rank]].state == "dead"

    # ------------------------------------------------------------------------- changes

    def _granted(self, barrier: Barrier) -> "Controller":
        holding = list(self.holding)
        for ask in barrier.asked:
            holding[ask.rank] = ask.turn
        ranks = [ask.rank for ask in barrier.asked]
        return replace(self, asks=self.asks.without(ranks), holding=tuple(holding))

    def _grant(self, ask: TopoWrite) -> Granted:
        rail = self.carrier[ask.rank]
        return Granted(ask.rank, ask.turn, rail, self.rails[rail].topology)

    def _program(self, rail: int, change: RailChange) -> Program:
        # With the digits of all changes under way: a stage has no link with one that is leaving.
        status = self.rails[rail]
        topology = GIANT_RING if change.is_ring else status.target.with_stages(dict(change.digits))
        stages = change.stages or frozenset(range(self.job.stages))
        return Program(rail, self.job.name, change.version, change.attempt, topology, stages)

    def _fail(self, ask: TopoWrite) -> Failed:
        reason = self.rails[self.carrier[ask.rank]].reason
        return Failed(ask.rank, ask.turn, f"no rail is left: {reason}")

    def _with(self, rail: int, status: RailStatus) -> "Controller":
        return replace(self, rails=_put(self.rails, rail, status))


def _reached(topology: Topology, change: RailChange) -> Topology:
    """The topology once `change` is made."""
    if change.is_ring or isinstance(topology, GiantRing):
        return GIANT_RING
    return topology.with_stages(dict(change.digits))


def _put(values: Sequence[T], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _by_rank(ask: TopoWrite) -> int:
    return ask.rank
