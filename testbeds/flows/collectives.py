"""Collectives as schedules: which rank sends how much to which, step by step.

`size` is in bytes and counted as nccl-tests counts it: what a rank holds, for `all_gather`
what it holds in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbeds.errors import LightrigError
from testbeds.flows.bandwidth import Collective
from testbeds.flows.steps import Flow, Schedule, Step


class ScheduleError(LightrigError, ValueError):
    """A collective that cannot be run among these ranks."""


def ring_reduce_scatter(ranks: Sequence[str], size: float, *, both_ways: bool = False) -> Schedule:
    """Every rank ends with its share of the sum: n - 1 steps of size / n to the next rank.

    With `both_ways` half of each share goes round the other way.
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
    """Every rank sends all it has to the next, as `sendrecv_perf` does."""
    _at_least_two(ranks)
    return [Step(tuple(_to_neighbours(ranks, size, False)))]


def direct_all_to_all(ranks: Sequence[str], size: float) -> Schedule:
    """Every rank sends each other its share, size / n, all at once.

    Where ranks are no neighbours it goes by their routes, others forwarding it.
    """
    _at_least_two(ranks)
    share = size / len(ranks)
    return [Step(tuple(Flow(a, b, share) for a in ranks for b in ranks if a != b))]


def unequal_all_to_all(
    ranks: Sequence[str], lanes: Sequence[Sequence[Sequence[float]]]
) -> Schedule:
    """Every rank sends each other a share of its own, all at once.

    lanes: bytes from each rank to each other, ranks x ranks, of each lane; one is enough where
    nothing goes side by side. What is on the diagonal stays where it is. Raises `ScheduleError`
    for another shape and for sizes below zero.
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


def binary_exchange_partners(rank: int, ranks: int, step: int) -> tuple[int, range]:
    """Whom `rank` exchanges with in `step` (from 1), and whose shares it sends there.

    The partner is rank xor 2^(L - step) of 2^L ranks. What it gets is meant for the block of
    2^(L - step) ranks that it is in, which begins at partner & ~(2^(L - step) - 1).

    Source: InfiniteHBD, appendix G.2, Algorithm 6, whose printed mask, partner & 2^(L - step),
    names another block from 4 ranks on.
    """
    distance = _power_of_two(ranks) >> step
    partner = rank ^ distance
    first = partner & ~(distance - 1)
    return partner, range(first, first + distance)


def binary_exchange_all_to_all(ranks: Sequence[str], size: float) -> Schedule:
    """An all-to-all in log2 n steps, in each of which a rank sends half of all that it holds.

    Raises `ScheduleError` unless the number of ranks is a power of two.
    """
    count = len(ranks)
    _power_of_two(count)
    steps = []
    for step in range(1, count.bit_length()):
        partners = (binary_exchange_partners(rank, count, step)[0] for rank in range(count))
        steps.append(
            Step(tuple(Flow(ranks[i], ranks[j], size / 2) for i, j in enumerate(partners)))
        )
    return steps


def hierarchical_ring_all_reduce(groups: Sequence[Sequence[str]], size: float) -> Schedule:
    """Rings within groups, then one across them for each place in a group.

    Reduce-scatter in each group, all-reduce of each share among the groups, all-gather in
    each group. All groups have the same number of ranks.
    """
    within = len(groups[0])
    if any(len(group) != within for group in groups):
        raise ScheduleError("groups of one size are needed, found " + _sizes(groups))
    across = list(zip(*groups, strict=True))
    scatter = _side_by_side([ring_reduce_scatter(group, size) for group in groups])
    exchange = _side_by_side([ring_all_reduce(place, size / within) for place in across])
    return [*scatter, *exchange, *scatter]


def schedule_of(collective: Collective, ranks: Sequence[str], size: float) -> Schedule:
    """What NCCL and Gloo do for large messages: rings, and an all-to-all that is direct."""
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


def _side_by_side(schedules: Sequence[Schedule]) -> list[Step]:
    """Schedules of equal steps at the same time."""
    return [
        Step(tuple(flow for step in steps for flow in step.flows), steps[0].times)
        for steps in zip(*schedules, strict=True)
    ]


def _to_neighbours(ranks: Sequence[str], size: float, both_ways: bool) -> list[Flow]:
    following = [*ranks[1:], ranks[0]]
    ways = [following, [ranks[-1], *ranks[:-1]]] if both_ways else [following]
    return [
        Flow(here, there, size / len(ways))
        for way in ways
        for here, there in zip(ranks, way, strict=True)
    ]


def _at_least_two(ranks: Sequence[str]) -> None:
    if len(ranks) < 2 or len(set(ranks)) != len(ranks):
        raise ScheduleError(f"at least two ranks are needed, each once, found {', '.join(ranks)}")


def _power_of_two(count: int) -> int:
    if count < 2 or count & (count - 1):
        raise ScheduleError(f"a power of two of ranks is needed, found {count}")
    return count


def _sizes(groups: Sequence[Sequence[str]]) -> str:
    return ", ".join(str(len(group)) for group in groups)
