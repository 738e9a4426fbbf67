"""The controller of one region while a script trains: changes circuits, permits all-to-alls."""

import queue
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.harness.systems.mixnet.planning.calendar import FirstExchange
from lightrig.harness.systems.mixnet.planning.control import (
    CircuitControl,
    DueChange,
    Permitted,
)
from lightrig.harness.systems.mixnet.planning.course import Course
from lightrig.harness.systems.mixnet.planning.delegation import (
    Links,
    link_bytes,
    rank_stages,
    rank_transfers,
)
from lightrig.harness.systems.mixnet.planning.exchange import Transfer
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime.region_circuits import RegionCircuits
from lightrig.harness.systems.mixnet.runtime.trained import (
    CircuitChange,
    LinkPeriod,
    NewCircuits,
    TrainingExchange,
)
from lightrig.testbeds import Plan, Port


@dataclass(slots=True)
class _Begun:
    """An all-to-all on one rank: when it was wanted and permitted, then when it began and ended."""

    one: Permitted
    wanted: int
    permitted: int
    began: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class _Finished:
    """An all-to-all that has ended on all ranks; size: bytes of a row."""

    ranks: Sequence[_Begun]
    plan: Plan
    routing: Routing
    size: int
    carried: Links


class RegionRun:
    """A region's part of one script: the controller's loop over what its ranks announce.

    Args:
        number: of the region.
        circuits: its circuits.
        course: the order of its all-to-alls.
        plan: the circuits that it begins with.
        first: see `ExpertTraining.train`.
        tell: sends an answer to a rank of the job.
        count: whether to read what NIC ports have counted.

    Ranks are numbered in the region, but for `tell`.
    """

    def __init__(
        self,
        number: int,
        circuits: RegionCircuits,
        course: Course,
        plan: Plan,
        first: FirstExchange | None,
        tell: Callable[[int, Any], None],
        *,
        count: bool,
    ) -> None:
        self._number, self._circuits, self._plan = number, circuits, plan
        self._clock, self._tell, self._counts = circuits.clock, tell, count
        self.control = CircuitControl(
            circuits.placement, course.layers, first, course=course, groups=circuits.region.groups
        )
        self._messages: queue.SimpleQueue[tuple[int, Any, int]] = queue.SimpleQueue()
        self.changes: list[CircuitChange] = []
        self.periods: list[LinkPeriod] = []
        self._finished: list[_Finished] = []
        self._transfers: list[Transfer] = []
        self._stages: dict[int, Any] = {}
        self._planned: Counter[tuple[Port, Port]] = Counter()
        self._asked: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._running: dict[int, _Begun] = {}

    def begin(self) -> None:
        """Bring in the first circuits."""
        self._routing = self._circuits.bring_in(self._plan, None).routing
        self._read, self._again = self._circuits.traffic() if self._counts else ({}, {})

    def receive(self, rank: int, message: Any, at: int) -> None:
        """Take a message of a rank, or None where its script has ended; on any thread."""
        self._messages.put((rank, message, at))

    def loop(self) -> None:
        """Control the region until the scripts of all its ranks have ended."""
        left = self._circuits.placement.ranks
        while left:
            rank, message, at = self._messages.get()
            if message is None:
                left -= 1
                continue
            self._take(rank, message, at)
            if self._messages.empty():
                self._advance()

    def exchanges(self) -> list[TrainingExchange]:
        """Return the all-to-alls that have ended on all ranks."""
        return list(map(self._described, self._finished))

    def end_period(self) -> None:
        """Note what links have carried since the last time, now that no all-to-all runs."""
        if not self._counts:
            return
        read, sent_again = self._circuits.traffic()
        counted = {port: now.since(self._read[port]) for port, now in read.items()}
        again = {name: now - self._again[name] for name, now in sent_again.items()}
        self.periods.append(LinkPeriod(self._plan, dict(self._planned), counted, again))
        self._read, self._again = read, sent_again
        self._planned.clear()

    def _take(self, rank: int, message: Any, at: int) -> None:
        if "wants" in message:
            self.control.wants(rank, message["wants"])
            self._asked[rank], self._sizes[rank] = at, message["size"]
        else:
            self.control.ended(rank)
            self._finish(rank, message)

    def _advance(self) -> None:
        if (due := self.control.due()) is not None:
            self._change(due)
        for permitted in self.control.permitted():
            self._permit(permitted)
        self.control.learn()

    def _change(self, due: DueChange) -> None:
        began = self._clock.now()
        name = f"step {due.step}, layer {due.layer}, {due.before}"
        plan = self._circuits.plan_for(due.demand, name, self._plan)
        planned = self._clock.now()
        new = NewCircuits(self._routing, 0, planned, planned, planned, planned)
        if plan.circuits != self._plan.circuits:
            self.end_period()
            new = self._circuits.bring_in(plan, self._plan)
            self._routing, self._plan = new.routing, plan
        self.control.changed()
        self.changes.append(
            CircuitChange(
                step=due.step,
                layer=due.layer,
                before=due.before,
                knows=due.knows,
                moved=new.moved,
                began=began,
                planned=planned,
                left=new.left,
                switched=new.switched,
                lit=new.lit,
                done=new.done,
                region=self._number,
            )
        )

    def _permit(self, one: Permitted) -> None:
        if not self._running or self._have_ended:  # it is the first rank of the next one
            on = self._circuits.placement
            self._transfers = rank_transfers(one.traffic, on, self._routing)
            self._stages = rank_stages(self._transfers, on, self._routing)
            self._running.clear()
        self._running[one.rank] = _Begun(one, self._asked[one.rank], self._clock.now())
        self._tell(self._circuits.region.ranks[one.rank], {"stages": self._stages[one.rank]})

    def _finish(self, rank: int, message: Any) -> None:
        begun = self._running[rank]
        begun.began, begun.ended = message["began"], message["over"]
        if self._have_ended:
            size = self._sizes[rank]
            carried = link_bytes(self._transfers, size)
            self._planned.update(carried)
            ranks = list(self._running.values())
            self._finished.append(_Finished(ranks, self._plan, self._routing, size, carried))

    @property
    def _have_ended(self) -> bool:
        """Whether all ranks have ended the all-to-all that was permitted last."""
        running = self._running.values()
        return len(running) == self._circuits.placement.ranks and all(one.ended for one in running)

    def _described(self, finished: _Finished) -> TrainingExchange:
        """Return an all-to-all with what takes time to compute, for which no rank is to wait."""
        circuits, one = self._circuits, finished.ranks[0].one
        lanes, optical = circuits.shares(finished.routing, one.traffic)
        return TrainingExchange(
            step=one.step,
            layer=one.layer,
            phase=one.phase,
            traffic=one.traffic * finished.size,
            plan=finished.plan,
            optical=optical,
            wanted=max(each.wanted for each in finished.ranks),
            permitted=max(each.permitted for each in finished.ranks),
            began=max(each.began for each in finished.ranks),
            ended=max(each.ended for each in finished.ranks),
            predicted=circuits.predicted(finished.plan, finished.routing, lanes, finished.size),
            carried=finished.carried,
            region=self._number,
        )
