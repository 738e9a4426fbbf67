"""Servers that select the ring of each collective by themselves, under real all-reduces."""

from collections.abc import Callable, Iterable, Sequence

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.bench.collectives import Collectives
from lightrig.harness.jobs.planning.rings import ring_order
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.acos.runtime.selection import (
    Boundary,
    NumberedCollectives,
    SelectionAgent,
    central_part,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.collectives import CollectiveCall, CollectiveMeasurement
from lightrig.testbeds import LightrigError

SIZE = 1 << 20
"""Bytes of an all-reduce."""

OPERATIONS = 3
"""All-reduces in each collective call."""


class WrongResultError(LightrigError):
    """An all-reduce ended with wrong values."""


class RingSelection:
    """The servers of a testbed, each with an agent that selects between its rings.

    Args:
        fabric: of namespaces, with plans RING and RING-without-SERVER.
        collectives: run all-reduces there, and lead packets over the links of a plan.
        record: takes the rows.
    """

    def __init__(
        self,
        fabric: Fabric,
        collectives: Collectives,
        record: Callable[[Iterable[Row]], None],
    ) -> None:
        self._fabric = fabric
        self._collectives = collectives
        self._record = record
        self._events = 0
        self._done: list[CollectiveMeasurement] = []
        self._undo: list[Callable[[], None]] = []

    def run(
        self, program: Sequence[str], *, without: str | None = None
    ) -> dict[str, list[Boundary]]:
        """Let the servers run an all-reduce on each ring of `program`, one after the other.

        Adaptation and resilience are set before, centrally; then every server moves its
        switches by itself. `without` is a server that has failed and is bypassed. Returns the
        boundaries of each server.

        Raises `WrongResultError`, and what the agents, the switches and the collectives raise.
        """
        testbed, clock = self._fabric.testbed, self._fabric.bench.clock
        ending = f"-without-{without}" if without else ""
        plans = [f"{ring}{ending}" for ring in program]
        self._fabric.apply(central_part(testbed, self._fabric.plans[plans[0]]))
        servers = [server for server in testbed.servers if server != without]
        group = frozenset(servers)
        library = NumberedCollectives(clock, {plan: [group] for plan in plans}, self._all_reduce)
        agents = [SelectionAgent(self._fabric, server, library) for server in servers]
        try:
            passed = clock.parallel(*(lambda agent=agent: agent.run(plans) for agent in agents))
        finally:
            for agent in agents:
                agent.close()
        self._record(list(self._rows(passed)))
        return dict(zip(servers, passed, strict=True))

    def fail(self, server: str, program: Sequence[str]) -> dict[str, list[Boundary]]:
        """Cut `server` off its light and run `program` on the rings past it.

        Records how long that took until the first all-reduce was done. Raises what `run` does.
        """
        world, clock = self._fabric.bench.world, self._fabric.bench.clock
        assert world is not None, "servers are namespaces, whose light is simulated"
        began = clock.now()
        self._undo.append(world.power_off(server))
        passed = self.run(program, without=server)
        first = min(each[0].began for each in passed.values())
        done = self._done[-len(program)].at.latest
        after = Span(first - began, done - began)
        row = self._row(server, "selection.bypassed", after, began, {"ranks": len(passed)})
        self._record([row])
        return passed

    def restore_power(self) -> None:
        """Give failed servers their light back."""
        while self._undo:
            self._undo.pop()()

    @property
    def measured(self) -> Sequence[CollectiveMeasurement]:
        """All-reduces that were run, in order."""
        return tuple(self._done)

    def _all_reduce(self, group: frozenset[str], number: int, topology: str) -> None:
        plan = self._fabric.plans[topology]
        links = self._fabric.links(plan)
        self._collectives.route(plan)
        servers = [server for server in self._fabric.testbed.servers if server in group]
        call = CollectiveCall("all_reduce", ring_order(servers, links), (SIZE,), 1, OPERATIONS)
        (found,) = self._collectives.runner.run(call)
        if found.wrong:
            raise WrongResultError(
                f"{found.wrong} values came out wrong in collective {number} on {topology}"
            )
        self._done.append(found)

    def _rows(self, passed: Sequence[Sequence[Boundary]]) -> Iterable[Row]:
        for at_boundary in zip(*passed, strict=True):
            first = min(at_boundary, key=lambda boundary: boundary.reached)
            number, self._events = self._events, self._events + 1
            conditions: dict[str, Scalar] = {
                "event": number,
                "topology": first.topology,
                "ranks": len(at_boundary),
                "moved": first.switched is not None,
            }
            waited = first.began - first.reached
            yield self._row(
                self._fabric.testbed.name,
                "selection.begun",
                Span(waited, waited),
                first.reached,
                conditions,
            )
            for each in at_boundary:
                if each.switched is None:
                    continue
                # The acknowledgement came when its last byte was read: that is the later stamp.
                done = each.switched.latest
                switched = Span(done - each.sent.latest, done - each.sent.earliest)
                linked = Span(max(each.linked - each.sent.latest, 0), each.linked - each.reached)
                at = each.sent.earliest
                yield self._row(each.server, "selection.switched", switched, at, conditions)
                yield self._row(each.server, "selection.links_up", linked, at, conditions)

    @staticmethod
    def _row(
        subject: str, quantity: str, span: Span, at: int, conditions: dict[str, Scalar]
    ) -> Row:
        low, high = span
        return Row(subject, quantity, (low + high) // 2, low, high, "ns", at, conditions)
