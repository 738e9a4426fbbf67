"""Traffic as steps of flows, and its duration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from lightrig.instruments.jobs.flows.network import Floats
from lightrig.instruments.jobs.flows.routing import Route, Router
from lightrig.instruments.jobs.flows.sharing import Crossings, max_min

_DONE = 1e-9
"""Share of its bytes that a finished flow may have left, by rounding."""


class Flow(NamedTuple):
    """`size` bytes from one vertex to another; by its `lane`, if the router has several routes."""

    source: str
    sink: str
    size: float
    lane: int = 0


class Step(NamedTuple):
    """Flows that start together; the next step starts when all have arrived.

    The step is repeated `times` times.
    """

    flows: tuple[Flow, ...]
    times: int = 1


Schedule: TypeAlias = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of traffic beyond the capacity of its edges.

    Attributes:
        setup_ns: time of a step before its first bit leaves, such as a kernel's launch.
        efficiency: share of an edge's capacity left for payload, after protocol overhead;
            above 0, to 1.
    """

    setup_ns: float = 0.0
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        if self.setup_ns < 0 or not 0 < self.efficiency <= 1:
            raise ValueError(f"{self}: needs setup_ns from 0 and an efficiency above 0, to 1")


FREE = Costs()
"""No costs but the capacity and the latency of edges."""


def duration(router: Router, schedule: Iterable[Step], costs: Costs = FREE) -> float:
    """Return the duration of `schedule` in ns; raises `NoRouteError`."""
    return sum(
        step.times * (costs.setup_ns + step_duration(router, step.flows, costs.efficiency))
        for step in schedule
    )


def step_duration(router: Router, flows: Sequence[Flow], efficiency: float = 1.0) -> float:
    """Return the time of the last bit's arrival of `flows` that start together, in ns."""
    routes = _routes(router, flows)
    ends = finish_times(router, flows, efficiency)
    arrivals = ends + np.array([route.latency_ns for route in routes])
    return float(arrivals.max(initial=0.0))


def finish_times(router: Router, flows: Sequence[Flow], efficiency: float = 1.0) -> Floats:
    """Return the time at which each flow has sent its last bit, in ns, without latency.

    Flows share edges max-min fairly; when one ends, the rest share the capacity that it frees.
    """
    crossings = Crossings.of(_routes(router, flows))
    capacities = router.network.capacities * efficiency / 1e9
    bits = np.array([8.0 * flow.size for flow in flows])
    left, ends, now = bits.copy(), np.zeros(len(flows)), 0.0
    active = left > 0
    while active.any():
        rates = max_min(capacities, crossings, active)
        with np.errstate(invalid="ignore"):
            needed = np.where(active, left / np.where(active, rates, 1.0), np.inf)
        passed = needed.min()
        now += passed
        done = active & (needed <= passed * (1 + _DONE))
        ends[done] = now
        active &= ~done
        left = np.where(active, left - np.where(active, rates, 0.0) * passed, 0.0)
    return ends


def loads(router: Router, flows: Sequence[Flow]) -> Floats:
    """Return the bytes of `flows` that each edge of the network carries, in its order."""
    crossings = Crossings.of(_routes(router, flows))
    sizes = np.array([flow.size for flow in flows])
    return crossings.loads(sizes, len(router.network.edges))


def _routes(router: Router, flows: Sequence[Flow]) -> list[Route]:
    return [router.route(flow.source, flow.sink, flow.lane) for flow in flows]
