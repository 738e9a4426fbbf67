"""The shim: one a rank, between the framework's collective calls and the network."""

# What follows a shim is a shim: it may be asked what only they are asked.
# ruff: noqa: SLF001

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from lightrig.harness.systems.opus.planning.messages import (
    Failed,
    FromShim,
    Granted,
    Release,
    Released,
    TopoWrite,
    ToShim,
)
from lightrig.harness.systems.opus.planning.operations import Network, Operation, OpusError
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.topology import GiantRing

Mode: TypeAlias = Literal["default", "provisioning"]


class ScheduleError(OpusError):
    """A rank issued another operation than the one that profiling saw."""


@dataclass(frozen=True, slots=True)
class Shim:
    """State of a rank's shim; every event gives the next state and the messages to send.

    In default mode it asks for a topology when an operation needs it, in provisioning mode as
    soon as the operations before are done. Either way nothing is asked for while one of its
    operations is under way, and none starts before what it asked for is granted.

    The printed pseudocode marks the topology busy at the FIRST operation of a phase, so that a
    phase of two blocks before its second; here it is in use from the grant until the LAST
    operation of the stretch has ended, as in the released code.

    Attributes:
        rank: whose shim it is.
        stage: its pipeline stage.
        table: what profiling has recorded.
        mode: when to ask.
        position: of the next operation that will be announced.
        announced: an operation was announced and has not started.
        in_flight: positions of those that were started and have not ended.
        turn: of the last request.
        pending: the last message, until it is answered.
        granted: the position that was asked for and may run with all of its stretch, or None.
        rail: which one carries it.
        notice: what the framework should be told: that a giant ring carries its traffic, or why
            nothing does any more.
        failed: nothing carries its traffic any more.
    """

    rank: int
    stage: int
    table: PhaseTable = field(hash=False)
    mode: Mode = "default"
    position: int = 0
    announced: bool = False
    in_flight: frozenset[int] = frozenset()
    turn: int = 0
    pending: FromShim | None = None
    granted: int | None = None
    rail: int | None = None
    notice: str = ""
    failed: bool = False

    def pre_comm(self, operation: Operation) -> tuple["Shim", Network, tuple[FromShim, ...]]:
        """The framework wants `operation`: which network carries it, and what to send.

        On the rail it must not start before `may_start`. Raises `ScheduleError`.
        """
        if operation.purpose != "data":
            return self, operation.network, ()
        expected = self.table.at(self.position)
        if self.announced or operation != expected:
            waits = f"{expected} to start first" if self.announced else f"{expected}"
            raise ScheduleError(f"rank {self.rank} issued {operation}, expected {waits}")
        shim, sent = replace(self, announced=True)._ask_if_needed()
        return shim, "rail", sent

    @property
    def may_start(self) -> bool:
        """Whether the operation that was announced may run now (G1)."""
        return self.announced and self.is_granted

    @property
    def is_granted(self) -> bool:
        """Whether the topology of the operation that was announced has been granted."""
        if self.granted is None:
            return False
        return self.granted == self.position or not self.table.asks(self.position)

    def started(self) -> "Shim":
        """The operation that was announced runs; raises `OpusError` if it must not."""
        if not self.may_start:
            raise OpusError(f"rank {self.rank} started an operation that it may not start")
        return replace(
            self,
            announced=False,
            in_flight=self.in_flight | {self.position},
            position=self.position + 1,
        )

    def post_comm(self, operation: Operation) -> tuple["Shim", tuple[FromShim, ...]]:
        """`operation` has ended on this rank. Raises `OpusError` if it was never started."""
        if operation.purpose != "data":
            return self, ()
        place = next((p for p in self.in_flight if self.table.at(p) == operation), None)
        if place is None:
            raise OpusError(f"rank {self.rank}: {operation} ended and was never started")
        shim = replace(self, in_flight=self.in_flight - {place})
        following = shim.table.at(shim.position)
        goes_on = following is not None and not shim.table.asks(shim.position)
        if shim.in_flight or goes_on:
            return shim, ()
        return shim.give_back()

    def receive(self, message: ToShim) -> "Shim":
        """Take an answer of the controller; a late or a repeated one changes nothing."""
        if message.turn != self.turn:
            return self
        match message:
            case Granted() if isinstance(self.pending, TopoWrite):
                ring = isinstance(message.topology, GiantRing)
                return replace(
                    self,
                    pending=None,
                    granted=self.position,
                    rail=message.rail,
                    notice=f"rail {message.rail} is one giant ring" if ring else "",
                )
            case Failed() if isinstance(self.pending, TopoWrite):
                return replace(self, pending=None, failed=True, notice=message.reason)
            case Released() if isinstance(self.pending, Release):
                return replace(self, pending=None)
        return self

    def overdue(self) -> tuple[FromShim, ...]:
        """Return the message to repeat when no reply has come in time."""
        return (self.pending,) if self.pending is not None else ()

    def _ask_if_needed(self) -> tuple["Shim", tuple[FromShim, ...]]:
        if self.is_granted or self.in_flight or isinstance(self.pending, TopoWrite):
            return self, ()
        return self._ask()

    def give_back(self) -> tuple["Shim", tuple[FromShim, ...]]:
        """Give the grant back: request the next topology, or release this one."""
        shim = replace(self, granted=None)
        follows = shim.table.at(shim.position) is not None
        if shim.announced or (follows and shim.mode == "provisioning"):
            return shim._ask()
        release = Release(shim.rank, shim.turn)
        return replace(shim, pending=release), (release,)

    def _ask(self) -> tuple["Shim", tuple[FromShim, ...]]:
        operation = self.table.at(self.position)
        assert operation is not None
        turn = self.turn + 1
        request = TopoWrite(self.rank, turn, operation.group, operation.index, self.stage)
        return replace(self, turn=turn, pending=request), (request,)
