"""Networks whose links are shared: what crosses a link at the same time has equal parts of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.workloads.collectives import Step, Timing, ring_nanoseconds, steps
from lightrig.harness.workloads.graph import Group, Node, WorkloadError
from lightrig.harness.workloads.simulator import Simulator

Route = Callable[[int, int], Sequence[Hashable]]
"""The links from a simulated rank to another."""


@dataclass(slots=True, eq=False)
class _Flow:
    """Equal messages that go on at one rate; `loads`: how many of them cross each link."""

    loads: Mapping[Hashable, int]
    left: float
    end: Callable[[], None]
    rate: float = 0.0


def max_min(
    capacities: Mapping[Hashable, float], flows: Sequence[Mapping[Hashable, int]]
) -> list[float]:
    """Return the max-min fair rates of flows, each of which loads links by its messages.

    Source: progressive filling, Bertsekas and Gallager, Data Networks, section 6.5.2.
    """
    rates = [0.0] * len(flows)
    left = {link: capacities[link] for loads in flows for link in loads}
    growing = [number for number, loads in enumerate(flows) if loads]
    while growing:
        demand: dict[Hashable, int] = defaultdict(int)
        for number in growing:
            for link, load in flows[number].items():
                demand[link] += load
        level = min(left[link] / load for link, load in demand.items())
        full = {link for link, load in demand.items() if left[link] <= level * load * (1 + 1e-9)}
        for number in growing:
            rates[number] += level
        for link, load in demand.items():
            left[link] = max(left[link] - level * load, 0.0)
        growing = [number for number in growing if not full.intersection(flows[number])]
    return rates


class SharedLinks:
    """A network of links with capacities and a route between each two simulated ranks.

    capacities: bytes a nanosecond, by link. algorithms: by kind of group; a ring without. local:
    bytes a nanosecond of links of groups of which one rank is simulated, by kind.
    """

    def __init__(
        self,
        capacities: Mapping[Hashable, float],
        route: Route,
        timing: Timing,
        local: Mapping[str, float],
        algorithms: Mapping[str, str] | None = None,
    ) -> None:
        self.carried: dict[Hashable, float] = defaultdict(float)
        self._capacities, self._route, self._timing = capacities, route, timing
        self._local, self._algorithms = local, algorithms or {}
        self._flows: list[_Flow] = []
        self._since, self._turn = 0, 0

    def collective(self, group: Group, node: Node) -> int:
        """Return the nanoseconds of a ring on links of its own."""
        if group.size > 1 and not self._local.get(group.kind):
            raise WorkloadError(f"the network has no links for {group.kind}")
        bandwidth = self._local.get(group.kind, 1.0)
        return ring_nanoseconds(node.pattern, group.size, node.amount, bandwidth, self._timing)

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Send the messages of a collective; those within servers have links of their own."""
        if group.kind == "tp":
            simulator.at(simulator.now + self.collective(group, node), end)
            return
        algorithm = self._algorithms.get(group.kind, "ring")
        found = steps(node.pattern, algorithm, len(group.members), node.amount)
        self._continue(simulator, group.members, found, end)

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send a message on its route."""
        self._continue(simulator, (source, target), (Step(((0, 1, amount),)),), end)

    def _continue(
        self,
        simulator: Simulator,
        members: Sequence[int],
        left: Sequence[Step],
        end: Callable[[], None],
    ) -> None:
        """Do the first step, then the others."""
        if not left:
            simulator.at(simulator.now, end)
            return
        step = left[0]
        by_amount: dict[int, dict[Hashable, int]] = defaultdict(lambda: defaultdict(int))
        for source, target, amount in step.messages:
            for link in self._route(members[source], members[target]):
                by_amount[amount][link] += 1
        open_flows = len(by_amount)
        largest = max(by_amount)
        beyond = self._timing.latency + self._timing.endpoint
        beyond += self._timing.reduction(largest) if step.reduces else 0

        def ended() -> None:
            nonlocal open_flows
            open_flows -= 1
            if not open_flows:
                after = simulator.now + int(step.times * beyond)
                simulator.at(after, lambda: self._continue(simulator, members, left[1:], end))

        self._advance(simulator)
        for amount, loads in by_amount.items():
            for link, load in loads.items():
                self.carried[link] += load * amount * step.times
            self._flows.append(_Flow(loads, float(amount * step.times), ended))
        self._plan(simulator)

    def _advance(self, simulator: Simulator) -> None:
        elapsed, self._since = simulator.now - self._since, simulator.now
        for flow in self._flows:
            flow.left -= elapsed * flow.rate

    def _plan(self, simulator: Simulator) -> None:
        """Share links anew, and plan when the next flow ends."""
        self._turn += 1
        if not self._flows:
            return
        rates = max_min(self._capacities, [flow.loads for flow in self._flows])
        for flow, rate in zip(self._flows, rates, strict=True):
            flow.rate = rate if flow.loads else float("inf")
        soonest = min(max(flow.left, 0.0) / flow.rate for flow in self._flows)
        turn = self._turn
        # Upwards, so that at least one flow has ended then.
        simulator.at(simulator.now + -int(-soonest // 1), lambda: self._end(simulator, turn))

    def _end(self, simulator: Simulator, turn: int) -> None:
        if turn != self._turn:
            return
        self._advance(simulator)
        ended = [flow for flow in self._flows if flow.left <= flow.rate * 1e-6]
        self._flows = [flow for flow in self._flows if flow not in ended]
        for flow in ended:
            simulator.at(simulator.now, flow.end)
        self._plan(simulator)
