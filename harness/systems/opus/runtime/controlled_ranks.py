"""Ranks whose operations the control plane permits: what they announce, and its word back."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lightrig.harness.systems.opus.planning.operations import Operation
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import ScheduleError
from lightrig.harness.systems.opus.runtime.rails import Rails, RailsLostError
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import (
    LocalBegin,
    LocalEnd,
    LocalPhases,
    PrintedLines,
    TrainingRank,
    Wanted,
)
from lightrig.testbeds import Circuit, LightrigError


class ControlledRanks(PrintedLines):
    """Hands what ranks announce to the control plane, and its word back to them.

    Args:
        printed: called with a rank and each line that it prints.
        rails: the control plane.
        ranks: who announce.
        take: sets the first topology; returns what each switch holds then.
        still: whether no circuit ever changes. Then nothing waits for what ranks have begun and
            ended by themselves, and the rails hear of it in `catch_up`: until then the harness
            takes no processor from ranks on its machine for it, as on a ring of all ranks.

    Attributes:
        found: what each switch held when the control plane began.
        unprofiled: the first operation that was refused, since it was not profiled; None without.
        began: when the first operation was permitted, on the bench's clock; None before.
        count: of the ranks.
    """

    def __init__(
        self,
        printed: Callable[[int, str], None],
        rails: Rails,
        ranks: Sequence[TrainingRank],
        take: Callable[[], Mapping[str, frozenset[Circuit]]],
        *,
        still: bool = False,
    ) -> None:
        super().__init__(printed)
        self.rails, self._ranks, self._take = rails, ranks, take
        self.found: Mapping[str, frozenset[Circuit]] = {}
        self.unprofiled: ScheduleError | None = None
        self.began: int | None = None
        self.count = len(ranks)
        self._running: dict[tuple[int, int], Operation] = {}
        self._granted: dict[int, int] = {}
        self._first: list[tuple[int, int, Wanted]] = []
        self._all_waiting = rails.clock.event()
        self._stepping = rails.clock.event()
        self._lost = self._begun = False
        self._turn = threading.Lock()
        self._still = still
        self._late: deque[tuple[int, Sequence[LocalBegin | LocalEnd]]] = deque()
        self._catching = threading.Lock()

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
        self._stepping.set()

    def await_first_step(self) -> bool:
        """Wait until all ranks have ended a step; False where they end before that."""
        self._stepping.wait()
        return not self._lost

    def unfinished(self) -> dict[int, str]:
        """Return the first operation of each rank that has not ended, as far as is known."""
        self.catch_up()
        first: dict[int, str] = {}
        for (rank, _), operation in sorted(self._running.items()):
            first.setdefault(rank, str(operation))
        return first

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        """Announce the operation, or hold it until all ranks wait."""
        with self._turn:
            if not self._begun:
                self._first.append((rank, number, operation))
                if len(self._first) == len(self._ranks):
                    self._all_waiting.set()
                return
        self.catch_up()
        self._announce(rank, number, operation)

    def stepped(self, rank: int, at: Span) -> None:
        """Keep the end of a step."""
        super().stepped(rank, at)
        if len(self.steps) == self.count:
            self._stepping.set()

    def ended(self, rank: int, number: int) -> None:
        """Report the end of an operation to the rails."""
        self.rails.after(rank, self._running.pop((rank, number)))

    def ran(self, rank: int, entries: Sequence[LocalBegin | LocalEnd]) -> None:
        """Tell the rails what a rank has begun and ended by itself, where circuits may change."""
        if self._still:
            self._late.append((rank, entries))
        else:
            self._tell(rank, entries)

    def catch_up(self) -> None:
        """Tell the rails what they have not heard of yet, in the order in which it came."""
        with self._catching:
            while self._late:
                self._tell(*self._late.popleft())

    def _tell(self, rank: int, entries: Sequence[LocalBegin | LocalEnd]) -> None:
        """Tell the rails; no stamp is before the grant, nor after now.

        Clocks of servers are mapped with a width.
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
            if isinstance(error, ScheduleError) and self.unprofiled is None:
                self.unprofiled = error
            self._ranks[rank].go(number, str(error))

    def _begin(self, rank: int, number: int) -> None:
        refused, self._granted[rank] = None, self.rails.clock.now()
        if self.began is None:
            self.began = self._granted[rank]
        try:
            self.rails.begin(rank, self._running[rank, number])
        except RailsLostError as error:
            refused = str(error)
        self._ranks[rank].go(number, refused)


def local_phases(
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
