"""Networks of a simulated step: links of their own, links that are shared, circuits that change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lightrig.harness.workloads.collectives import (
    Timing,
    ring_nanoseconds,
    switched_exchange_nanoseconds,
)
from lightrig.harness.workloads.graph import Group, Node, Pattern, WorkloadError
from lightrig.harness.workloads.selection import LinkSelection
from lightrig.harness.workloads.simulator import Simulator

Switching = int | Callable[[], int]
"""Nanoseconds of a change of circuits, or what draws those of the next one."""


class DedicatedLinks:
    """A network on which each ring and each pair of stages has links of its own.

    bandwidths: bytes a nanosecond of a link, by the kind of a group, and "pp" between stages.
    switched: what a rank sends in an all-to-all goes straight to its target through a switch; in a
    ring, others pass it on. exchange: of an all-to-all of so many members, the time that its bytes
    take over that of even ones through a switch. changes: how often its circuits have been changed,
    which whoever changes them counts.
    """

    def __init__(
        self,
        bandwidths: Mapping[str, float],
        timing: Timing,
        *,
        switched: bool = False,
        exchange: Callable[[int], float] | None = None,
    ) -> None:
        self.changes = 0
        self.bandwidths = dict(bandwidths)
        self._exchange = (lambda _: 1.0) if exchange is None and switched else exchange
        self.timing = timing
        self._free: dict[tuple[int, int], int] = defaultdict(int)

    def collective(self, group: Group, node: Node) -> int:
        """Return the nanoseconds of a ring, or of an all-to-all through packet switches."""
        bandwidth = self.bandwidth(group.kind)
        if self._exchange is not None and node.pattern is Pattern.ALL_TO_ALL:
            bandwidth /= self._exchange(group.size)
            return switched_exchange_nanoseconds(group.size, node.amount, bandwidth, self.timing)
        return ring_nanoseconds(node.pattern, group.size, node.amount, bandwidth, self.timing)

    def bandwidth(self, kind: str) -> float:
        """Return the bandwidth of links of a kind; raises `WorkloadError` where there are none."""
        if not self.bandwidths.get(kind):
            raise WorkloadError(f"the network has no links for {kind}")
        return self.bandwidths[kind]

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """End a collective after its time."""
        simulator.at(simulator.now + self.collective(group, node), end)

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send a message after those that the same link still sends."""
        sent = int(amount / self.bandwidth("pp"))
        begun = max(simulator.now, self._free[source, target])
        self._free[source, target] = begun + sent + int(self.timing.holding * self.timing.latency)
        simulator.at(int(begun + sent + self.timing.latency), end)


@dataclass
class _Wish:
    """What several ranks want to carry together, once all of them have selected its links.

    took: nanoseconds of it. waiting: the ranks that wait, by what for. end: called at its end.
    ready: how many of its ranks are. since: when the last of them began to select.
    """

    ranks: tuple[int, ...]
    took: int
    waiting: Mapping[str, Sequence[int]]
    end: Callable[[], None]
    ready: int = 0
    since: int | None = None


class SelectedLinks(DedicatedLinks):
    """A network on which a rank's links out of its server are of one kind at a time, by selection.

    Each rank goes by a `LinkSelection` of its own, in the order in which it is asked, and tells the
    others nothing: it selects `switching` before it is ready for another kind, after what it still
    carries, and what it has a part in begins once all its ranks are ready and carry nothing else.
    Links are selected for what a rank carries first. Links within servers ("tp") are always there.
    """

    def __init__(
        self,
        bandwidths: Mapping[str, float],
        timing: Timing,
        switching: Switching,
        exchange: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__(bandwidths, timing, exchange=exchange)
        self._switching = switching
        self._selections: dict[int, LinkSelection] = {}
        self._wishes: dict[Hashable, _Wish] = {}
        self._wanted = 0

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Begin once all members have selected the group's kind of links."""
        took = self.collective(group, node)
        if group.kind == "tp":
            simulator.at(simulator.now + took, end)
            return
        waiting = {group.kind: group.members}
        self._want(simulator, group.members, group.kind, took, waiting, end)

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send once both ranks have selected links between stages."""
        took = int(int(amount / self.bandwidth("pp")) + self.timing.latency)
        waiting = {"send": [source], "receive": [target]}
        self._want(simulator, (source, target), "pp", took, waiting, end)

    def _want(
        self,
        simulator: Simulator,
        ranks: tuple[int, ...],
        kind: str,
        took: int,
        waiting: Mapping[str, Sequence[int]],
        end: Callable[[], None],
    ) -> None:
        number, self._wanted = self._wanted, self._wanted + 1
        self._wishes[number] = _Wish(ranks, took, waiting, end)
        for rank in ranks:
            found = self._selections.get(rank, LinkSelection(selected=kind))
            self._selections[rank] = found.wants(number, kind)
            if len(found.waiting) == 0:
                self._next(simulator, rank)

    def _next(self, simulator: Simulator, rank: int) -> None:
        """Let a rank do what is due: be ready for what it wants first, or select its links."""
        selection = self._selections[rank]
        if selection.due == "nothing" or selection.running:
            return
        number = selection.waiting[0][0]
        wish = self._wishes[number]
        if selection.due == "start":
            wish.ready += 1
            if wish.ready == len(wish.ranks):
                self._start(simulator, number, wish)
            return
        if wish.since is None:
            self.changes += 1
        wish.since = simulator.now
        self._selections[rank] = selection.begin()
        took = self._switching if isinstance(self._switching, int) else self._switching()
        simulator.at(simulator.now + took, partial(self._selected, simulator, rank))

    def _selected(self, simulator: Simulator, rank: int) -> None:
        self._selections[rank] = self._selections[rank].over()
        self._next(simulator, rank)

    def _start(self, simulator: Simulator, number: Hashable, wish: _Wish) -> None:
        if wish.since is not None:
            for cause, ranks in wish.waiting.items():
                simulator.circuits_came(ranks, cause, wish.since)
        for rank in wish.ranks:
            self._selections[rank] = self._selections[rank].start()

        def over() -> None:
            del self._wishes[number]
            wish.end()
            for rank in wish.ranks:
                self._selections[rank] = self._selections[rank].end(number)
            for rank in wish.ranks:
                self._next(simulator, rank)

        simulator.at(simulator.now + wish.took, over)


class PhasedLinks(DedicatedLinks):
    """A network whose links out of servers are all of one kind at a time, those of all ranks.

    One `LinkSelection` decides for the job, as switches of rails serve all of its ranks: what is
    wanted by all of its ranks starts in that order, together with others of the same kind, and
    another kind begins `switching` after nothing runs any more. Links within servers ("tp") are
    always there.
    """

    def __init__(
        self, bandwidths: Mapping[str, float], timing: Timing, switching: Switching
    ) -> None:
        super().__init__(bandwidths, timing)
        self._switching = switching
        self._phases: LinkSelection | None = None
        self._wishes: dict[Hashable, Callable[[], None]] = {}
        self._wanted, self._changed = 0, 0

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Begin in a phase of the group's kind."""
        begin = super().begin_collective
        if group.kind == "tp":
            begin(simulator, group, node, end)
            return
        waiting = {group.kind: group.members}
        self._want(simulator, group.kind, waiting, partial(begin, simulator, group, node), end)

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send in a phase of links between stages."""
        begin = partial(super().begin_message, simulator, source, target, amount)
        self._want(simulator, "pp", {"send": [source], "receive": [target]}, begin, end)

    def _want(
        self,
        simulator: Simulator,
        kind: str,
        waiting: Mapping[str, Sequence[int]],
        begin: Callable[[Callable[[], None]], None],
        end: Callable[[], None],
    ) -> None:
        number, self._wanted = self._wanted, self._wanted + 1
        since = simulator.now

        def start() -> None:
            # What is waited for before a change begins is data of others.
            if (changed := max(since, self._changed)) < simulator.now:
                for cause, ranks in waiting.items():
                    simulator.circuits_came(ranks, cause, changed)
            begin(partial(self._ended, simulator, number, end))

        self._wishes[number] = start
        phases = LinkSelection(selected=kind) if self._phases is None else self._phases
        self._phases = phases.wants(number, kind)
        self._next(simulator)

    def _next(self, simulator: Simulator) -> None:
        """Start what is due, or change to the kind that is wanted first."""
        assert self._phases is not None
        while self._phases.due == "start":
            number = self._phases.waiting[0][0]
            self._phases = self._phases.start()
            self._wishes.pop(number)()
        if self._phases.due == "select":
            self._phases = self._phases.begin()
            self.changes, self._changed = self.changes + 1, simulator.now
            took = self._switching if isinstance(self._switching, int) else self._switching()
            simulator.at(simulator.now + took, partial(self._selected, simulator))

    def _selected(self, simulator: Simulator) -> None:
        assert self._phases is not None
        self._phases = self._phases.over()
        self._next(simulator)

    def _ended(self, simulator: Simulator, number: int, end: Callable[[], None]) -> None:
        assert self._phases is not None
        end()
        self._phases = self._phases.end(number)
        self._next(simulator)


class Circuits(DedicatedLinks):
    """Links that exist while a controller has their circuits made. What needs a line waits for it.

    line_of: the line of a group's ring, or of the pair of ranks of a message; None for links that
    always are. switching: from the last byte until a changed line carries the next; a line is up
    `more` nanoseconds later.
    """

    def __init__(
        self,
        bandwidths: Mapping[str, float],
        timing: Timing,
        line_of: Callable[[tuple[int, ...], str], Hashable | None],
        present: Iterable[Hashable],
        switching: Switching,
        more: int = 0,
    ) -> None:
        super().__init__(bandwidths, timing)
        self._line_of = line_of
        self._lines = frozenset(present)
        self._switching, self._more = switching, more
        self._up_at: dict[Hashable, int] = {}
        self._busy: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, list[Callable[[], None]]] = defaultdict(list)
        self.draining = False

    def change(self, simulator: Simulator, lines: Iterable[Hashable]) -> None:
        """Make these circuits and no other, once those that go carry nothing."""
        self.changes += 1
        wanted = frozenset(lines)
        removed = [self._busy.get(line, 0) for line in self._lines - wanted]
        start = max([simulator.now, *removed])
        if start > simulator.now:
            self.draining = True
            simulator.at(start, lambda: self._make(simulator, wanted))
        else:
            self._make(simulator, wanted)

    def _make(self, simulator: Simulator, wanted: frozenset[Hashable]) -> None:
        self.draining = False
        took = self._switching if isinstance(self._switching, int) else self._switching()
        ready = simulator.now + took + self._more
        made = sorted(wanted - self._lines, key=repr)
        self._lines = wanted
        for line in made:
            self._up_at[line] = ready
            simulator.at(ready, lambda line=line: self._release(simulator, line))  # type: ignore[misc]

    def _release(self, simulator: Simulator, line: Hashable) -> None:
        if self._is_up(simulator, line):
            for call in self._waiting.pop(line, []):
                call()

    def _is_up(self, simulator: Simulator, line: Hashable) -> bool:
        return line in self._lines and self._up_at.get(line, 0) <= simulator.now

    def _once_up(
        self,
        simulator: Simulator,
        line: Hashable | None,
        waiting: Mapping[str, Sequence[int]],
        call: Callable[[], None],
    ) -> None:
        """Call once a line is up; `waiting`: the ranks that wait, by what for."""
        if line is None or self._is_up(simulator, line):
            call()
            return
        since = simulator.now

        def came() -> None:
            for cause, ranks in waiting.items():
                simulator.circuits_came(ranks, cause, since)
            call()

        self._waiting[line].append(came)

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Begin once the ring's circuits are there."""
        line = self._line_of(group.members, group.kind)

        def begin() -> None:
            if line is not None:
                self._busy[line] = simulator.now + self.collective(group, node)
            DedicatedLinks.begin_collective(self, simulator, group, node, end)

        self._once_up(simulator, line, {group.kind: group.members}, begin)

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send once the circuit between two ranks is there."""
        line = self._line_of((source, target), "pp")

        def begin() -> None:
            DedicatedLinks.begin_message(self, simulator, source, target, amount, end)
            if line is not None:
                self._busy[line] = max(self._busy.get(line, 0), self._free[source, target])

        self._once_up(simulator, line, {"send": [source], "receive": [target]}, begin)
