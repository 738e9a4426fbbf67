"""Servers that hold each operation of their ranks until the switches lead to its topology."""

import queue
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.systems.acos.runtime.selection import TopologySelector
from lightrig.harness.workloads.selection import LinkSelection
from lightrig.instruments.clock import Clock, Event, Span
from lightrig.instruments.jobs.traffic.training import PrintedLines, TrainingRank, Wanted
from lightrig.testbeds import LightrigError

HOLD_NS = 45_000_000
"""Light stays this long after the last operation: Linux delays acknowledgements by up to 40 ms."""

DRAIN_POLL_NS = 2_000_000
DRAIN_TIMEOUT_NS = 20_000_000_000


class DrainError(LightrigError):
    """Bytes of an operation that had ended were not acknowledged in time."""


@dataclass(frozen=True, slots=True)
class RankGroup:
    """A group of ranks, and the plan that its operations need."""

    ranks: tuple[int, ...]
    topology: str


@dataclass(frozen=True, slots=True)
class TopologyChange:
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


class Gatekeeper:
    """One server: it selects the topology of each operation that its rank announces.

    Args:
        selector: its switches and ports.
        rank: its rank's program.
        groups: by name, each with the topology of its operations.
        clock: of the bench.
        met: set once all ranks have found each other.
        unacknowledged: returns how many bytes of its connections are not acknowledged yet.
        all_lit: returns whether each of its ports has a carrier.
    """

    def __init__(
        self,
        selector: TopologySelector,
        rank: TrainingRank,
        groups: Mapping[str, RankGroup],
        clock: Clock,
        met: Event,
        unacknowledged: Callable[[], int],
        all_lit: Callable[[], bool],
    ) -> None:
        self.selector = selector
        self.changes: list[TopologyChange] = []
        self._rank, self._groups, self._clock, self._met = rank, groups, clock, met
        self._unacknowledged, self._all_lit = unacknowledged, all_lit
        self._announced: queue.SimpleQueue[tuple[int, Wanted] | None] = queue.SimpleQueue()
        self._links = LinkSelection()
        self._idle = threading.Condition()

    def announce(self, number: int, operation: Wanted) -> None:
        """Take an operation that waits."""
        self._announced.put((number, operation))

    def ended(self, number: int) -> None:
        """Note that an operation has ended."""
        with self._idle:
            self._links = self._links.end(number)
            self._idle.notify()

    def finish(self) -> None:
        """End `work`: the rank's script has ended."""
        with self._idle:
            for number in self._links.running:
                self._links = self._links.end(number)
            self._idle.notify()
        self._announced.put(None)

    def work(self) -> None:
        """Permit operations in order, each on its topology, until the script has ended."""
        while (announced := self._announced.get()) is not None:
            number, operation = announced
            refused = None
            with self._idle:
                topology = self._groups[operation.group].topology
                self._links = self._links.wants(number, topology)
            try:
                self._met.wait()
                self._change(topology, number)
            except LightrigError as error:
                refused = str(error)
            with self._idle:
                self._links = self._links.refuse() if refused else self._links.start()
            self._rank.go(number, refused)

    def _change(self, topology: str, number: int) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._links.due != "nothing")
            if self._links.due == "start":
                return
            before = self._links.selected
        idle = self._clock.now()
        if before is not None:
            self._clock.sleep(HOLD_NS)
            self._drain(idle, before, topology)
        drained = self._clock.now()
        with self._idle:
            self._links = self._links.begin()
        failed = True
        try:
            sent, switched = self.selector.select(topology, number)
            failed = False
        finally:
            with self._idle:
                self._links = self._links.over(failed=failed)
        assert switched is not None
        linked = self._clock.now()
        self.changes.append(
            TopologyChange(
                self.selector.server, number, topology, idle, drained, sent, switched, linked
            )
        )

    def _drain(self, since: int, before: Hashable, topology: str) -> None:
        """Wait until all bytes are acknowledged.

        A neighbour that has left has had all that it needed, or it would still be there: where a
        port is dark the acknowledgement comes when the topology does.
        """
        while waiting := self._unacknowledged():
            if not self._all_lit():
                return
            if self._clock.now() > since + DRAIN_TIMEOUT_NS:
                raise DrainError(
                    f"{self.selector.server} has {waiting} bytes that were not acknowledged "
                    f"{DRAIN_TIMEOUT_NS / 1e9:g} s after its last operation on {before}, "
                    f"and would select {topology}: does the neighbour's rank run?"
                )
            self._clock.sleep(DRAIN_POLL_NS)


class Gates(PrintedLines):
    """Hands what ranks announce to their servers.

    The first operations wait until all ranks have announced one, that is, until they have found
    each other over the plan `MEETING`: the start of a job, which a controller knows (§4.4).
    """

    def __init__(self, keepers: Sequence[Gatekeeper], all_waiting: Event, met: Event) -> None:
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
