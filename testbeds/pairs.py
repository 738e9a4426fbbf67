"""Pairs of a testbed's plans, between which a test alternates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lightrig.testbeds.model import Testbed
from lightrig.testbeds.plans import Change, Circuit, PartialMoves, Plan, Port


@dataclass(frozen=True)
class PlanPair:
    """Two plans of one testbed."""

    before: Plan
    after: Plan

    def __str__(self) -> str:
        return f"{self.before.name}-{self.after.name}"

    def counts(self) -> tuple[int, ...]:
        """Numbers of circuits that can be moved at once: whole independent components."""
        return self._counts

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return self._moves.counts()[1:]

    @cached_property
    def _moves(self) -> PartialMoves:
        return PartialMoves(self.before, self.after)

    def link_counts(self, testbed: Testbed) -> Iterator[int]:
        """Yield those of `counts` after which no link has only one direction, ascending.

        What is not asked for is not computed.
        """
        halves = _Halves(testbed, self.before)
        made: set[int] = set()
        for count, choice in self._moves.choices():
            for index in made.symmetric_difference(choice):
                halves.take(*self._moves.components[index], back=index in made)
            made = set(choice)
            if not halves.alone:
                yield count


class _Halves:
    """The directions of links that circuits carry, and those whose way back is missing.

    Attributes:
        alone: transmitters whose light has no way back, or ends at no port of a server.
    """

    def __init__(self, testbed: Testbed, plan: Plan) -> None:
        self._testbed, self._cabling = testbed, testbed.cabling
        self._heard_by: dict[Port, Port | None] = {}
        self.alone: set[Port] = set()
        for switch, circuits in plan.circuits.items():
            self.take(switch, Change(frozenset(), frozenset(), circuits))

    def take(self, switch: str, move: Change, *, back: bool = False) -> None:
        """Make a move, or undo it."""
        removed, new = (move.add, move.remove) if back else (move.remove, move.add)
        touched: set[Port] = set()
        for circuit in removed:
            source = self._source(switch, circuit)
            touched |= {source, self._answer(source)}
            del self._heard_by[source]
        for circuit in new:
            source = self._source(switch, circuit)
            self._heard_by[source] = self._cabling.receiver(switch, circuit.egress)
            touched |= {source, self._answer(source)}
        for source in touched:
            whole = source not in self._heard_by or self._is_whole(source)
            (self.alone.discard if whole else self.alone.add)(source)

    def _source(self, switch: str, circuit: Circuit) -> Port:
        known = self._cabling.transmitter(switch, circuit.ingress)
        return known or Port(switch, str(circuit.ingress))

    def _answer(self, source: Port) -> Port:
        """Return the transmitter that must reach `source`'s receiver; itself if none can."""
        sink = self._heard_by.get(source)
        return source if sink is None else self._cabling.speaker(sink)

    def _is_whole(self, source: Port) -> bool:
        sink, back = self._heard_by[source], self._heard_by.get(self._answer(source))
        if sink is None or back is None or sink == back:
            return False
        owners = {source.owner, sink.owner, back.owner}
        return self._cabling.speaker(back) == source and owners <= self._testbed.servers.keys()


def plan_pairs(testbed: Testbed) -> list[PlanPair]:
    """Return each plan of the file with the next one, and the last with the first."""
    plans = list(testbed.plans.values())
    following = [*plans[1:], plans[0]] if len(plans) > 2 else plans[1:]
    return [PlanPair(*pair) for pair in zip(plans, following, strict=False)]
