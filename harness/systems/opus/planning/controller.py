"""The controller: one a job, it holds requests until all who must agree have asked."""

# What follows a controller is a controller: it may be asked what only they are asked.
# ruff: noqa: SLF001

from collections.abc import Iterator, Sequence
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
from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC, Job
from lightrig.harness.systems.opus.planning.topology import (
    GIANT_RING,
    GiantRing,
    Topology,
    TopologyId,
)

RailState: TypeAlias = Literal["settled", "changing", "falling back", "dead"]
T = TypeVar("T")
Sent: TypeAlias = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class RailStatus:
    """State of a job on one rail, in the controller.

    topology: the last one that was acknowledged. target: the one under way, while changing.
    version: counts targets, across all attempts at each. reason: what went wrong last.
    """

    topology: Topology
    state: RailState = "settled"
    target: Topology | None = None
    version: int = 0
    attempt: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Barrier:
    """A communication group's operation, and who has asked for it: one line of the CTR table."""

    group: str
    index: int
    asked: tuple[TopoWrite, ...]


@dataclass(frozen=True, slots=True)
class Controller:
    """State of a job's controller; every message gives the next state and the messages to send.

    A group is ready for an operation when all its ranks have asked for it. It is granted at once
    where the topology is right. Where it is not, a rail's topology changes when
    - every rank of each stage whose digit changes has asked for what that digit will be, and
    - no rank that will lose a link by it still holds what it was granted.
    Stages that are ready together change together.

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

    job: Job = field(hash=False)
    rails: tuple[RailStatus, ...]
    carrier: tuple[int, ...]
    asks: frozenset[TopoWrite]
    holding: tuple[int, ...]
    turns: tuple[int, ...]
    retries: int = 2

    @classmethod
    def of(cls, job: Job, topology: Topology | None = None, retries: int = 2) -> "Controller":
        """The controller of `job`, whose rails are in `topology`: by default all pipeline."""
        begun = topology or TopologyId.uniform(job.stages, ASYMMETRIC)
        zeros = (0,) * len(job.stage_of)
        rails = tuple(RailStatus(begun) for _ in range(job.rails))
        return cls(job, rails, job.rail_of, frozenset(), zeros, zeros, retries)

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
                status = self.rails[message.rail]
                current = message.version == status.version and message.attempt == status.attempt
                return self._unanswered(message.rail, message.reason) if current else (self, ())

    def timeout(self, rail: int) -> tuple["Controller", Sent]:
        """No acknowledgement has come from `rail`, or not all that is held on it is given back."""
        return self._unanswered(rail, "no acknowledgement in time")

    def _asked(self, request: TopoWrite) -> tuple["Controller", Sent]:
        rank = request.rank
        if request.turn > self.turns[rank]:
            remaining = frozenset(ask for ask in self.asks if ask.rank != rank)
            return replace(
                self,
                asks=remaining | {request},
                turns=_put(self.turns, rank, request.turn),
                holding=_put(self.holding, rank, 0),
            )._advance()
        if self.holding[rank] == request.turn:  # the grant was lost on its way
            return self, (self._grant(request),)
        if self.turns[rank] == request.turn and self._is_dead(rank):
            return self, (self._fail(request),)
        return self, ()

    def _released(self, release: Release) -> tuple["Controller", Sent]:
        rank, answer = release.rank, Released(release.rank, release.turn)
        if self.holding[rank] != release.turn:
            return self, (answer,)
        controller, sent = replace(self, holding=_put(self.holding, rank, 0))._advance()
        return controller, (answer, *sent)

    def _programmed(self, message: Programmed) -> tuple["Controller", Sent]:
        status = self.rails[message.rail]
        if status.state != "changing" or message.version != status.version:
            return self, ()
        assert status.target is not None
        settled = replace(status, topology=status.target, state="settled", target=None)
        return self._with(message.rail, settled)._advance()

    def _unanswered(self, rail: int, reason: str) -> tuple["Controller", Sent]:
        status = self.rails[rail]
        if self.falls_back(rail):
            return self._impatient(rail)
        if status.state != "changing":
            return self, ()
        if status.attempt <= self.retries:
            again = replace(status, attempt=status.attempt + 1, reason=reason)
            return self._with(rail, again), (self._program(rail, again),)
        if isinstance(status.target, GiantRing):
            return self._without(rail, reason)
        fallen = replace(status, state="falling back", target=None, attempt=0, reason=reason)
        return self._with(rail, fallen)._advance()

    def _impatient(self, rail: int) -> tuple["Controller", Sent]:
        """Somebody does not give back what it holds: maybe it waits for one that waits here."""
        status = self.rails[rail]
        if status.attempt <= self.retries:
            return self._with(rail, replace(status, attempt=status.attempt + 1)), ()
        holders = ", ".join(str(rank) for rank in self._carried(rail) if self.holding[rank])
        return self._without(rail, f"rank {holders} would not let go for the giant ring")

    def _without(self, rail: int, reason: str) -> tuple["Controller", Sent]:
        """Give a rail up; the next one that lives carries its traffic."""
        dead = replace(self.rails[rail], state="dead", target=None, reason=reason)
        controller = self._with(rail, dead)
        count = len(self.rails)
        order = [(rail + step) % count for step in range(1, count)]
        alive = [candidate for candidate in order if controller.rails[candidate].state != "dead"]
        if alive:
            moved = tuple(alive[0] if carrying == rail else carrying for carrying in self.carrier)
            controller = replace(controller, carrier=moved)
        return controller._advance()

    # ------------------------------------------------------------------------- decisions

    def _advance(self) -> tuple["Controller", Sent]:
        """Grant what can be granted, and change or fall back where that is due."""
        lost = [ask for ask in sorted(self.asks, key=_by_rank) if self._is_dead(ask.rank)]
        controller = replace(self, asks=self.asks - set(lost)) if lost else self
        sent: list[Message] = [self._fail(ask) for ask in lost]
        for barrier in controller.ready():
            if controller._is_served(barrier):
                controller = controller._granted(barrier)
                sent += [controller._grant(ask) for ask in barrier.asked]
        for rail, status in enumerate(controller.rails):
            target = controller._next(rail)
            if target is not None:
                state = replace(
                    status, state="changing", target=target, version=status.version + 1, attempt=1
                )
                controller = controller._with(rail, state)
                sent.append(controller._program(rail, state))
        return controller, tuple(sent)

    def ready(self) -> list[Barrier]:
        """The operations that all ranks of their group have asked for."""
        asked: dict[tuple[str, int], list[TopoWrite]] = {}
        for ask in sorted(self.asks, key=_by_rank):
            asked.setdefault((ask.group, ask.index), []).append(ask)
        return [
            Barrier(group, index, tuple(asks))
            for (group, index), asks in sorted(asked.items())
            if len(asks) == len(self.job.groups[group].ranks)
        ]

    def _wanted(self, barrier: Barrier) -> dict[int, int]:
        dimension = self.job.groups[barrier.group].dimension
        return {ask.stage: dimension for ask in barrier.asked}

    def _is_served(self, barrier: Barrier) -> bool:
        """Whether the topology is right for it and nothing that it needs is being changed (G1)."""
        rail = self.carrier[barrier.asked[0].rank]
        status = self.rails[rail]
        if isinstance(status.topology, GiantRing):
            return True
        if self.falls_back(rail) or isinstance(status.target, GiantRing):
            return False
        wanted = self._wanted(barrier)
        if any(status.topology[stage] != digit for stage, digit in wanted.items()):
            return False
        return status.target is None or wanted.keys().isdisjoint(
            status.topology.changed(status.target)
        )

    def _next(self, rail: int) -> Topology | None:
        """The topology that a rail should change to now, if any."""
        status = self.rails[rail]
        if self.falls_back(rail):
            idle = not any(self.holding[rank] for rank in self._carried(rail))
            return GIANT_RING if idle else None
        if status.state != "settled" or isinstance(status.topology, GiantRing):
            return None
        # One change for all that are ready: a switch moves many ports in the time of one.
        target = status.topology
        for barrier in self.ready():
            if self.carrier[barrier.asked[0].rank] == rail:
                merged = target.with_stages(self._wanted(barrier))
                if merged != target and self._may_change(rail, status.topology, merged):
                    target = merged
        return target if target != status.topology else None

    def _may_change(self, rail: int, topology: TopologyId, target: TopologyId) -> bool:
        """Whether all ranks of the changed stages want it (O1), and none uses what goes (G2)."""
        changed = topology.changed(target)
        asked = {ask.rank: self.job.groups[ask.group].dimension for ask in self.asks}
        agreed = all(asked.get(rank) == target[stage] for stage, rank in self._at(rail, changed))
        left = topology.rewired(target) - changed
        return agreed and not any(self.holding[rank] for _, rank in self._at(rail, left))

    def _at(self, rail: int, stages: frozenset[int]) -> Iterator[tuple[int, int]]:
        for rank in self._carried(rail):
            if self.job.stage_of[rank] in stages:
                yield self.job.stage_of[rank], rank

    def _carried(self, rail: int) -> list[int]:
        return [rank for rank, carrier in enumerate(self.carrier) if carrier == rail]

    def falls_back(self, rail: int) -> bool:
        """Whether the rail is to become a giant ring as soon as nobody holds anything."""
        status = self.rails[rail]
        if status.state != "settled" or isinstance(status.topology, GiantRing):
            return status.state == "falling back"
        return any(self.job.rail_of[rank] != rail for rank in self._carried(rail))

    def _is_dead(self, rank: int) -> bool:
        return self.rails[self.carrier[rank]].state == "dead"

    # ------------------------------------------------------------------------- changes

    def _granted(self, barrier: Barrier) -> "Controller":
        holding = list(self.holding)
        for ask in barrier.asked:
            holding[ask.rank] = ask.turn
        return replace(self, asks=self.asks - set(barrier.asked), holding=tuple(holding))

    def _grant(self, ask: TopoWrite) -> Granted:
        rail = self.carrier[ask.rank]
        return Granted(ask.rank, ask.turn, rail, self.rails[rail].topology)

    def _program(self, rail: int, status: RailStatus) -> Program:
        assert status.target is not None
        return Program(rail, self.job.name, status.version, status.attempt, status.target)

    def _fail(self, ask: TopoWrite) -> Failed:
        reason = self.rails[self.carrier[ask.rank]].reason
        return Failed(ask.rank, ask.turn, f"no rail is left: {reason}")

    def _with(self, rail: int, status: RailStatus) -> "Controller":
        return replace(self, rails=_put(self.rails, rail, status))


def _put(values: Sequence[T], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _by_rank(ask: TopoWrite) -> int:
    return ask.rank
