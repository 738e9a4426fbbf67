"""Traces of node faults: read, converted to smaller nodes, made up from a trace's statistics."""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, Mask
from lightrig.testbeds.json_text import from_strict_json

Times = npt.NDArray[np.int64]
Random = np.random.Generator

DAY = 86_400 * 10**9
"""In ns."""
_TICK = DAY // 10_000
"""The production trace states days with four decimals: 8.64 s."""

PRODUCTION_NODES = 400
"""Nodes of eight GPUs that the production trace was taken from; 169 of them never failed."""

HALF_FAILS = 0.0117 / 0.0233
"""Probability that a fault of eight GPUs is one of a given four, as the paper rounds it."""


class _Event(BaseModel):
    model_config = ConfigDict(strict=True)  # the kind of a fault is of no use here

    node_id: Annotated[str, Field(min_length=1)]
    event_time: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    event_type: Literal["fault_start", "fault_end"]


_EVENTS = TypeAdapter(list[_Event])


@dataclass(frozen=True, slots=True)
class Trace:
    """Faults of `nodes` nodes between `begin` and `end`: of which node, from when until when.

    All times are in ns, and a fault is over at its `until`.
    """

    nodes: int
    begin: int
    end: int
    node: Times
    since: Times
    until: Times

    @property
    def mean_repair(self) -> float:
        """Mean duration of a fault in ns."""
        return float((self.until - self.since).mean())


@dataclass(frozen=True, slots=True)
class States:
    """Faulty nodes over time: one row of `faulty` for each of `durations`, in ns."""

    durations: Times
    faulty: Mask

    def mean(self, values: npt.ArrayLike) -> float:
        """The mean over time of one value a state."""
        return float(np.average(np.asarray(values, dtype=float), weights=self.durations))

    def quantile(self, values: npt.ArrayLike, q: float) -> float:
        """The least value that is not exceeded for a share `q` of the time."""
        found = np.asarray(values, dtype=float)
        order = np.argsort(found, kind="stable")
        cumulated = np.cumsum(self.durations[order])
        # A share of the time is a whole number of ns; 0.99 of it need not be.
        return float(found[order[np.searchsorted(cumulated, q * cumulated[-1] * (1 - 1e-12))]])


@cache
def production_trace() -> Trace:
    """The public fault trace of a production cluster: 348 days from 30 March 2024.

    It runs from its first event to its last. Source: stepfun-ai/InfiniteHBD-Trace, Apache-2.0;
    see data/SOURCES.md.
    """
    path = files("lightrig.suites.claims.infinitehbd") / "data" / "fault_trace.json"
    return read_trace(path.read_text(encoding="utf-8"), PRODUCTION_NODES)


def read_trace(text: str, nodes: int) -> Trace:
    """Return a trace in the form of the public one, of a cluster of `nodes` nodes.

    That is a JSON list of events in the order of time, with `node_id`, `event_time` in days and
    `event_type`: fault_start or fault_end. Raises `InfiniteHbdError` for another form, for an end
    without a start and a start without an end, and for more nodes than there are.
    """
    try:
        events = _EVENTS.validate_python(from_strict_json(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InfiniteHbdError(f"trace, event {where}: {first['msg']}") from error
    except ValueError as error:
        raise InfiniteHbdError(f"the trace is cut or damaged: {error}") from error
    names = {name: n for n, name in enumerate(sorted({event.node_id for event in events}))}
    if not 0 < len(names) <= nodes:
        raise InfiniteHbdError(f"the trace has {len(names)} nodes, expected 1 to {nodes}")
    # One node has two faults at a time: the first that began is taken to end first.
    open_: dict[str, list[int]] = defaultdict(list)
    faults = []
    before = 0
    for number, event in enumerate(events):
        at = round(event.event_time * 10_000) * _TICK
        if at < before:
            raise InfiniteHbdError(f"trace, event {number}: it is before the one that it follows")
        before = at
        if event.event_type == "fault_start":
            open_[event.node_id].append(at)
        elif open_[event.node_id]:
            faults.append((names[event.node_id], open_[event.node_id].pop(0), at))
        else:
            raise InfiniteHbdError(
                f"trace, event {number}: a fault of {event.node_id} ends that did not begin"
            )
    if lasting := sorted(name for name, begun in open_.items() if begun):
        raise InfiniteHbdError(f"trace: a fault of {lasting[0]} has no end")
    node, since, until = np.array(sorted(faults, key=lambda fault: fault[1]), dtype=np.int64).T
    return Trace(nodes, int(since.min()), int(until.max()), node.copy(), since.copy(), until.copy())


def states(trace: Trace) -> States:
    """The trace as states that last until something fails or is repaired."""
    since = np.clip(trace.since, trace.begin, trace.end)
    until = np.clip(trace.until, trace.begin, trace.end)
    edges = np.unique(np.concatenate([[trace.begin, trace.end], since, until]))
    steps = np.zeros((edges.size, trace.nodes), dtype=np.int16)
    np.add.at(steps, (np.searchsorted(edges, since), trace.node), 1)
    np.add.at(steps, (np.searchsorted(edges, until), trace.node), -1)
    return States(np.diff(edges), np.cumsum(steps, axis=0, out=steps)[:-1] > 0)


def subset(trace: Trace, count: int, random: Random) -> Trace:
    """The faults of `count` nodes, drawn, in a drawn order; raises `InfiniteHbdError`."""
    if not 0 < count <= trace.nodes:
        raise InfiniteHbdError(f"found {count} nodes, expected 1 to the trace's {trace.nodes}")
    place = np.full(trace.nodes, -1)
    place[random.permutation(trace.nodes)[:count]] = np.arange(count)
    chosen = place[trace.node] >= 0
    return replace(
        trace,
        nodes=count,
        node=place[trace.node][chosen],
        since=trace.since[chosen],
        until=trace.until[chosen],
    )


def halved(trace: Trace, random: Random, share: float = HALF_FAILS) -> Trace:
    """The trace for nodes of half the size: node n becomes 2n and 2n + 1 (Appendix A).

    Each half takes each fault with probability `share`, whatever the other does: so a quarter of
    the faults vanishes and another strikes both halves, as the paper's text says.
    """
    takes = random.random((trace.node.size, 2)) < share
    fault, half = np.nonzero(takes)
    return replace(
        trace,
        nodes=2 * trace.nodes,
        node=2 * trace.node[fault] + half,
        since=trace.since[fault],
        until=trace.until[fault],
    )


def with_fixed_repair(trace: Trace, repair: float | None = None) -> Trace:
    """The trace with every fault repaired after `repair` ns; None for the trace's mean (§6.2)."""
    after = round(trace.mean_repair if repair is None else repair)
    return replace(trace, until=trace.since + after)


def synthetic(like: Trace, nodes: int, random: Random, days: float | None = None) -> Trace:
    """A trace of `nodes` nodes with the rate and the repair times of another.

    Faults strike as a Poisson process, all nodes alike, and each takes a repair time drawn from
    those of `like`. It begins with no node faulty. In the production trace faults come in
    bursts and some nodes fail often, so its high quantiles are higher than those made up here.
    """
    span = like.end - like.begin
    length = span if days is None else round(days * DAY)
    mean = like.node.size / like.nodes * nodes * length / span
    count = int(random.poisson(mean))
    since = np.sort(random.integers(0, length, count))
    repairs = (like.until - like.since)[random.integers(0, like.node.size, count)]
    return Trace(nodes, 0, length, random.integers(0, nodes, count), since, since + repairs)


def independent(nodes: int, share: float, draws: int, random: Random) -> Mask:
    """`draws` states in which each node is faulty with probability `share`, by itself."""
    return random.random((draws, nodes)) < share


def node_fault_share(gpu_share: float, gpus: int) -> float:
    """Return the probability that a node of `gpus` GPUs is faulty: 1 - (1 - p)^gpus (App. A)."""
    return float(-np.expm1(gpus * np.log1p(-gpu_share)))


def gpu_fault_share(node_share: float, gpus: int) -> float:
    """Return the probability that a GPU is faulty, from that of a node of `gpus`."""
    return float(-np.expm1(np.log1p(-node_share) / gpus))
