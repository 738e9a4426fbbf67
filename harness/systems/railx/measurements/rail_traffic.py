"""Exchanges over all rails of a plan, and the share of the ports' line rate that they reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.railx.runtime.rails import Rails
from lightrig.instruments.jobs.core.collectives import Exchange, ExchangeMeasurement
from lightrig.testbeds import LightrigError, Plan

Pattern: TypeAlias = Literal["rings", "one-way rings", "all-to-all"]


class WrongRailTrafficError(LightrigError):
    """An exchange delivered other values than were sent; its times mean nothing."""


@dataclass(frozen=True)
class RailExchange:
    """One exchange pattern over one plan, repeated.

    Attributes:
        plan: the name of the plan.
        pattern: who sends to whom.
        measurement: what was run, and how long each operation took.
        ports: ports of a node, each with `rate_bps`.
        bound: the greatest share of the ports' line rate that the busiest port allows.
    """

    plan: str
    pattern: Pattern
    measurement: ExchangeMeasurement
    ports: int
    rate_bps: int
    bound: float

    @property
    def node_bytes(self) -> int:
        """Bytes that the node with most to send sends in one operation."""
        lanes = self.measurement.exchange.lanes
        return max(sum(map(sum, rows)) for rows in zip(*lanes, strict=True))

    def utilizations(self) -> list[float]:
        """Return the share of the line rate of a node's ports in each operation."""
        bits, rate = 8 * self.node_bytes, self.ports * self.rate_bps
        return [bits / (time * 1e-9 * rate) for time in self.measurement.times_ns]


@dataclass(eq=False)
class RailTraffic:
    """Exchanges of one test over the rails, applied, run and recorded.

    Observation of the links is paused: on servers that are one machine, it takes processor time
    that the ranks need.
    """

    rails: Rails
    _fabric: Fabric
    _links: LinkObservation
    _record: Callable[[Iterable[Row]], None]

    def apply(self, plan: Plan) -> None:
        """Have the rails in the phase of `plan`; see `Rails.apply`."""
        self._links.pause()
        self.rails.apply(self._fabric, plan)

    def exchange(self, plan: Plan, pattern: Pattern, size: int, iterations: int) -> RailExchange:
        """Run `pattern` in the phase of `plan`, and record every operation.

        size: bytes from each node to each of its peers; in "rings", to each neighbour on each rail.

        Raises:
            LinksDownError: a port gets no carrier.
            CollectiveFailedError: it ended with an error, or did not end.
            WrongRailTrafficError: values came out wrong.
        """
        lanes = self.rails.lanes(plan)
        shares = (
            lanes.all_to_all(size)
            if pattern == "all-to-all"
            else lanes.rings(size, plus_only=pattern == "one-way rings")
        )
        self._links.pause()
        with self.rails.phase(self._fabric, plan):
            found = self.rails.runner.exchange(
                Exchange(self.rails.nodes, shares), warm_up=1, iterations=iterations
            )
        if found.wrong:
            raise WrongRailTrafficError(
                f"{found.wrong} values of {pattern} over {plan.name} came out wrong ({found.tool})"
            )
        (server, *_) = self._fabric.testbed.servers.values()
        nics = server.nics.values()
        result = RailExchange(
            plan.name,
            pattern,
            found,
            sum(len(nic.ports) for nic in nics),
            min(nic.rate_bps for nic in nics),
            lanes.bound(shares),
        )
        self._record(rail_traffic_rows(result))
        return result


def rail_traffic_rows(found: RailExchange) -> Iterator[Row]:
    """Yield time and utilization of each operation, and utilization relative to its bound."""
    subject, at = f"{found.pattern} over {found.plan}", found.measurement.at.latest
    conditions: dict[str, Scalar] = {
        "plan": found.plan,
        "pattern": found.pattern,
        "node_bytes": found.node_bytes,
        "line_rate_bps": found.ports * found.rate_bps,
        "bound": found.bound,
        "tool": found.measurement.tool,
    }
    for time, used in zip(found.measurement.times_ns, found.utilizations(), strict=True):
        yield Row(subject, "rail_traffic.time", time, time, time, "ns", at, conditions)
        for name, value in (("utilization", used), ("relative", used / found.bound)):
            yield Row(subject, f"rail_traffic.{name}", value, None, None, "share", at, conditions)
