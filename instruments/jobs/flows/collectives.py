"""Collectives as schedules: the flows between ranks, step by step.

`size` is in bytes, as nccl-tests defines it: the buffer of a rank, for `all_gather` the output.
"""

from __future__ import annotations

from collections.abc import Sequence

from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.flows.steps import Flow, Schedule, Step
from lightrig.testbeds.errors import LightrigError


class ScheduleError(LightrigError, ValueError):
    """A collective that cannot be run among these ranks."""


def ring_reduce_scatter(ranks: Sequence[str], size: float, *, both_ways: bool = False) -> Schedule:
    """Every rank ends with its share of the sum: n - 1 steps of size / n to the next rank.

    With `both_ways` half of each share goes in each direction of the ring.
    """
    _at_least_two(ranks)
    return [Step(tuple(_to_neighbours(ranks, size / len(ranks), both_ways)), len(ranks) - 1)]


def ring_all_gather(ranks: Sequence[str], size: float, *, both_ways: bool = False) -> Schedule:
    """Every rank ends with the shares of all: the same traffic as `ring_reduce_scatter`."""
    return ring_reduce_scatter(ranks, size, both_ways=both_ways)


def ring_all_reduce(ranks: Sequence[str], size: float, *, both_ways: bool = False) -> Schedule:
    """A reduce-scatter, then an all-gather: 2 (n - 1) steps of size / n."""
    return [
        *ring_reduce_scatter(ranks, size, both_ways=both_ways),
        *ring_all_gather(ranks, size, both_ways=both_ways),
    ]


def send_receive(ranks: Sequence[str], size: float) -> Schedule:
    """Every rank sends its buffer to the next one, as `sendrecv_perf` does."""
    _at_least_two(ranks)
    return [Step(tuple(_to_neighbours(ranks, size, False)))]


def direct_all_to_all(ranks: Sequence[str], size: float) -> Schedule:
    """Every rank sends size / n to each rank, all at once.

    Ranks that are no neighbours reach each other over routes through forwarding ranks.
    """
    _at_least_two(ranks)
    share = size / len(ranks)
    return [Step(tuple(Flow(a, b, share) for a in ranks for b in ranks if a != b))]


def unequal_all_to_all(
    ranks: Sequence[str], lanes: Sequence[Sequence[Sequence[float]]]
) -> Schedule:
    """Every pair of ranks exchanges a different amount, all at once.

    lanes: matrix of bytes from rank to rank, of each parallel lane; the diagonal is ignored.
    Raises `ScheduleError` for a wrong shape and for negative sizes.
    """
    _at_least_two(ranks)
    count = len(ranks)
    if any(len(sizes) != count or any(len(row) != count for row in sizes) for sizes in lanes):
        raise ScheduleError(f"sizes of {count} ranks to as many are needed, found another shape")
    flows = [
        Flow(ranks[i], ranks[j], size, lane)
        for lane, sizes in enumerate(lanes)
        for i, row in enumerate(sizes)
        for j, size in enumerate(row)
        if size and i != j
    ]
    if any(flow.size < 0 for flow in flows):
        raise ScheduleError("sizes from 0 are needed, found one below")
    return [Step(tuple(flows))]


def schedule_of(collective: Collective, ranks: Sequence[str], size: float) -> Schedule:
    """Return the schedule of NCCL and Gloo for large messages: rings, and direct all-to-all."""
    match collective:
        case "all_reduce":
            return ring_all_reduce(ranks, size)
        case "all_gather":
            return ring_all_gather(ranks, size)
        case "reduce_scatter":
            return ring_reduce_scatter(ranks, size)
        case "all_to_all":
            return direct_all_to_all(ranks, size)
        case "send_receive":
            return send_receive(ranks, size)


def _to_neighbours(ranks: Sequence[str], size: float, both_ways: bool) -> list[Flow]:
    following = [*ranks[1:], ranks[0]]
    directions = [following, [ranks[-1], *ranks[:-1]]] if both_ways else [following]
    return [
        Flow(here, there, size / len(directions))
        for neighbours in directions
        for here, there in zip(ranks, neighbours, strict=True)
    ]


def _at_least_two(ranks: Sequence[str]) -> None:
    if len(ranks) < 2 or len(set(ranks)) != len(ranks):
        raise ScheduleError(f"at least two ranks are needed, each once, found {', '.join(ranks)}")
