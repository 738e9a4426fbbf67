"""Simulation of a step: ranks with a compute and a communication slot, on a network.

Events are ordered by time, and those of equal times by when they were planned. Times are whole
nanoseconds. What ends frees its slot; then that rank starts, of its nodes that need nothing any
more, the one of the lowest number for each free slot. A network or a controller may refuse a node;
it is asked again at the rank's next event, and by all ranks in order once no event is left
(docs/decisions/0014-order-of-simulated-events.md).
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lightrig.harness.workloads.graph import Group, Kind, Node, Workload, WorkloadError

_COMPUTE, _SEND, _RECEIVE = int(Kind.COMPUTE), int(Kind.SEND), int(Kind.RECEIVE)
_LOCAL = 4
"""A collective whose simulated members are one rank: no other rank has a part in it."""


class Network(Protocol):
    """Links between ranks: when what starts now ends."""

    def collective(self, group: Group, node: Node) -> int:
        """Return the nanoseconds of a collective that has its links to itself."""

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Call `end` when a collective of several simulated ranks, started now, ends."""

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Call `end` at the time when a message that is sent now has arrived."""


class Control(Protocol):
    """Who changes circuits as ranks need them."""

    def may_start(self, simulator: Simulator, rank: int, number: int) -> bool:
        """Say whether a rank may start a send, or a collective between simulated ranks, now."""

    def ended(self, simulator: Simulator, rank: int, number: int) -> None:
        """Learn that a node of communication has ended, before what follows it starts."""


@dataclass(slots=True)
class StepTimes:
    """What a simulated step took, in nanoseconds.

    Attributes:
        ends: when each simulated rank had done its last node.
        compute: the compute of each.
        waits: how long compute stood still, of each, until which kind of communication ended.
        changes: how often circuits were changed.
        events: how many events there were.
    """

    ends: list[int]
    compute: list[int]
    waits: list[dict[str, int]]
    changes: int = 0
    events: int = 0

    @property
    def step(self) -> int:
        """When the last rank had ended."""
        return max(self.ends)

    @property
    def exposed(self) -> int:
        """Communication that compute does not hide, of the rank that ends last."""
        last = max(range(len(self.ends)), key=self.ends.__getitem__)
        return self.ends[last] - self.compute[last]


class Simulator:
    """One step of a workload on a network; made anew for each step.

    rendezvous: whether a send begins only once its receive has been posted.
    """

    def __init__(
        self,
        workload: Workload,
        network: Network,
        control: Control | None = None,
        *,
        rendezvous: bool = False,
    ) -> None:
        self.workload = workload
        self._rendezvous = rendezvous
        self.network = network
        self.control = control
        self.now = 0
        self._events: list[tuple[int, int, int, int, Callable[[], None] | None]] = []
        self._planned = 0
        count = len(workload.graph_of)
        self._left = [list(workload.graph(rank).needed) for rank in range(count)]
        self._unfinished = [len(workload.graph(rank).nodes) for rank in range(count)]
        self._computes: list[list[int]] = [[] for _ in range(count)]
        self._communications: list[list[int]] = [[] for _ in range(count)]
        self._computing = [False] * count
        self._communicating = [False] * count
        self._idle_since = [0] * count
        self._ends = [0] * count
        self._waits: list[dict[str, int]] = [defaultdict(int) for _ in range(count)]
        self._joined: dict[Group, list[tuple[int, int]]] = defaultdict(list)
        self._arrived: dict[tuple[int, int, int], int] = defaultdict(int)
        self._expected: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self._kinds, self._nanoseconds = _plans(workload, network)
        self._nodes = [workload.graph(rank).nodes for rank in range(count)]
        self._followers = [workload.graph(rank).followers for rank in range(count)]

    def at(self, time: int, call: Callable[[], None]) -> None:
        """Call something at a time, after what has been planned for the same time before."""
        self._planned += 1
        heapq.heappush(self._events, (time, self._planned, -1, 0, call))

    def node(self, rank: int, number: int) -> Node:
        """Return a node of a simulated rank."""
        return self._nodes[rank][number]

    def group(self, rank: int, number: int) -> Group:
        """Return the group of a collective."""
        return self.workload.groups[rank][self._nodes[rank][number].group]

    def peer(self, rank: int, number: int) -> int:
        """Return the simulated rank at the other end of a send or receive."""
        return rank + self.node(rank, number).peer

    def circuits_came(self, ranks: Sequence[int], cause: str, since: int) -> None:
        """Count what these ranks waited for circuits, from then until now, before `cause` began."""
        for rank in ranks:
            if not self._computing[rank] and self._unfinished[rank]:
                began = max(since, self._idle_since[rank])
                self._waits[rank][cause] += began - self._idle_since[rank]
                self._waits[rank]["circuits"] += self.now - began
                self._idle_since[rank] = self.now

    def run(self) -> StepTimes:
        """Return the times of the step. Raises `WorkloadError` where ranks wait for each other."""
        workload = self.workload
        for rank in range(len(self._left)):
            for number, needed in enumerate(self._left[rank]):
                if not needed:
                    self._ready(rank, number)
        for rank in range(len(self._left)):
            self._walk(rank, "")
        events, pop, count = self._events, heapq.heappop, 0
        while True:
            while events:
                self.now, _, rank, number, call = pop(events)
                count += 1
                if call is None:
                    self._end(rank, number)
                else:
                    call()
            if not any(self._unfinished):
                break
            before = self._planned
            for rank in range(len(self._left)):
                if self._unfinished[rank]:  # none computes where no event is left
                    self._wait(rank, "circuits")
                self._walk(rank, "circuits")
            if self._planned == before:
                raise WorkloadError(self._stuck())
        return StepTimes(
            self._ends,
            [workload.graph(rank).compute for rank in range(len(self._left))],
            [{kind: time for kind, time in one.items() if time} for one in self._waits],
            getattr(self.network, "changes", 0),
            count,
        )

    def wake(self, rank: int) -> None:
        """Let a rank start what it may now, after what has been planned for now."""
        self.at(self.now, lambda: self._woken(rank))

    def _woken(self, rank: int) -> None:
        if not self._computing[rank] and self._unfinished[rank]:
            self._wait(rank, "circuits")
        self._walk(rank, "circuits")

    def end_node(self, rank: int, number: int) -> None:
        """Plan that a node of communication ends now, after what has been planned for now."""
        self._planned += 1
        heapq.heappush(self._events, (self.now, self._planned, rank, number, None))

    def _end(self, rank: int, number: int) -> None:
        kind = self._kinds[rank][number]
        if kind == _COMPUTE:
            self._computing[rank] = False
            self._idle_since[rank] = self.now
            cause = ""
        else:
            if kind == _RECEIVE:
                cause = "receive"
            else:
                self._communicating[rank] = False
                cause = "send" if kind == _SEND else self.group(rank, number).kind
            if not self._computing[rank]:
                # Until now compute waited for this, and from now on for what follows it.
                self._wait(rank, cause)
            if self.control is not None:
                self.control.ended(self, rank, number)
        self._unfinished[rank] -= 1
        if not self._unfinished[rank]:
            self._ends[rank] = self.now
        left = self._left[rank]
        for follower in self._followers[rank][number]:
            left[follower] -= 1
            if not left[follower]:
                self._ready(rank, follower)
        self._walk(rank, cause)

    def _ready(self, rank: int, number: int) -> None:
        kind = self._kinds[rank][number]
        if kind == _COMPUTE:
            heapq.heappush(self._computes[rank], number)
        elif kind == _RECEIVE:
            key = (self.peer(rank, number), rank, self.node(rank, number).tag)
            if self._arrived[key]:
                self._arrived[key] -= 1
                self.end_node(rank, number)
            else:
                self._expected[key].append(number)
                if self._rendezvous:
                    self.wake(key[0])
        else:
            insort(self._communications[rank], number)

    def _walk(self, rank: int, cause: str) -> None:
        """Start what can be started on a rank."""
        if self._computes[rank] and not self._computing[rank]:
            number = heapq.heappop(self._computes[rank])
            self._computing[rank] = True
            self._wait(rank, cause)
            self._plan(rank, number)
        if self._communicating[rank]:
            return
        waiting = self._communications[rank]
        for at, number in enumerate(waiting):
            if self._begin(rank, number):
                del waiting[at]
                return

    def _wait(self, rank: int, cause: str) -> None:
        """Count the time since compute has stood still, or since this was called last."""
        if idle := self.now - self._idle_since[rank]:
            self._waits[rank][cause] += idle
            self._idle_since[rank] = self.now

    def _plan(self, rank: int, number: int) -> None:
        self._planned += 1
        time = self.now + self._nanoseconds[rank][number]
        heapq.heappush(self._events, (time, self._planned, rank, number, None))

    def _begin(self, rank: int, number: int) -> bool:
        """Start a node of communication, unless it is refused."""
        kind = self._kinds[rank][number]
        if kind == _LOCAL:
            self._communicating[rank] = True
            self._plan(rank, number)
            return True
        node = self.node(rank, number)
        if self._rendezvous and kind == _SEND and not self._is_expected(rank, number):
            return False
        if self.control is not None and not self.control.may_start(self, rank, number):
            return False
        self._communicating[rank] = True
        if kind == _SEND:
            target = self.peer(rank, number)
            self.network.begin_message(
                self, rank, target, node.amount, lambda: self._delivered(rank, number, target)
            )
            return True
        group = self.group(rank, number)
        joined = self._joined[group]
        joined.append((rank, number))
        if len(joined) == len(group.members):
            members = sorted(self._joined.pop(group))
            self._check_alike(group, members)

            def ended() -> None:
                for one in members:
                    self.end_node(*one)

            self.network.begin_collective(self, group, node, ended)
        return True

    def _is_expected(self, rank: int, number: int) -> bool:
        key = (rank, self.peer(rank, number), self.node(rank, number).tag)
        return bool(self._expected[key])

    def _delivered(self, rank: int, number: int, target: int) -> None:
        self.end_node(rank, number)
        key = (rank, target, self.node(rank, number).tag)
        if self._expected[key]:
            self.end_node(target, self._expected[key].pop(0))
        else:
            self._arrived[key] += 1

    def _check_alike(self, group: Group, members: list[tuple[int, int]]) -> None:
        nodes = [self.node(*one) for one in members]
        if len({(node.pattern, node.amount) for node in nodes}) > 1:
            first, second = nodes[0], next(n for n in nodes if n[3:5] != nodes[0][3:5])
            raise WorkloadError(
                f"members of a collective of group {group.kind} disagree: {first.pattern.name} "
                f"of {first.amount} bytes, {second.pattern.name} of {second.amount}"
            )

    def _stuck(self) -> str:
        rank = next(rank for rank, left in enumerate(self._unfinished) if left)
        waiting = self._communications[rank]
        expected = [
            number for (_, to, _), found in self._expected.items() if to == rank for number in found
        ]
        for number in (*waiting, *expected):
            node = self.node(rank, number)
            return (
                f"rank {rank} waits for ever at node {number} {node.name or node.kind.name}, "
                f"{sum(map(bool, self._unfinished))} ranks do not end"
            )
        joined = [group.kind for group, found in self._joined.items() if rank in dict(found)]
        return f"rank {rank} waits for ever in a collective of group {', '.join(joined) or '?'}"


def _plans(workload: Workload, network: Network) -> tuple[list[list[int]], list[list[int]]]:
    """Return kinds and, of what no other simulated rank has a part in, nanoseconds of nodes."""
    kinds: list[list[int]] = []
    nanoseconds: list[list[int]] = []
    known: dict[tuple[int, tuple[tuple[str, str, int, int], ...]], tuple[list[int], list[int]]] = {}
    for rank, groups in enumerate(workload.groups):
        shape = tuple(sorted((n, g.kind, g.size, len(g.members)) for n, g in groups.items()))
        key = (workload.graph_of[rank], shape)
        if key not in known:
            known[key] = _plan_of(workload, network, rank, groups)
        kinds.append(known[key][0])
        nanoseconds.append(known[key][1])
    return kinds, nanoseconds


def _plan_of(
    workload: Workload, network: Network, rank: int, groups: Mapping[str, Group]
) -> tuple[list[int], list[int]]:
    kinds, times = [], []
    for number, node in enumerate(workload.graph(rank).nodes):
        kind, time = int(node.kind), node.nanoseconds
        if node.kind is Kind.COLLECTIVE:
            if node.group not in groups:
                raise WorkloadError(
                    f"rank {rank}: node {number} names the unknown group {node.group!r}"
                )
            group = groups[node.group]
            if len(group.members) == 1:
                kind, time = _LOCAL, network.collective(group, node)
        kinds.append(kind)
        times.append(time)
    return kinds, times
