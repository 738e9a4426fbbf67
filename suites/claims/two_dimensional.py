"""All-reduce in two dimensions at once: half of the data along rows first, half along columns.

A grid is a sequence of rows of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lightrig.instruments.jobs.flows.collectives import ScheduleError, ring_reduce_scatter
from lightrig.instruments.jobs.flows.steps import Flow, Schedule, Step

Grid: TypeAlias = Sequence[Sequence[str]]

ReduceScatter: TypeAlias = Callable[[Sequence[str], float], Schedule]
"""A reduce-scatter of a number of bytes among ranks; reversed it is an all-gather."""


def both_ways_round(ranks: Sequence[str], size: float) -> Schedule:
    """Return a reduce-scatter on a ring, half of it in each direction."""
    return ring_reduce_scatter(ranks, size, both_ways=True)


def all_reduce_2d(grid: Grid, size: float, reduce_scatter: ReduceScatter) -> Schedule:
    """Return reduce-scatters along both dimensions, then all-gathers in reverse order.

    Both halves of `size` move at once, one along rows while the second is along columns, so that
    no edge is idle. Raises `ScheduleError` unless there are as many rows as columns.

    Source: Feng et al., 2025, section 4.2 and equation 7, where `reduce_scatter` is
    `both_ways_round`.
    """
    rows, columns = grid, list(zip(*grid, strict=True))
    count = len(rows)
    if any(len(row) != count for row in rows):
        raise ScheduleError("as many rows as columns are needed")
    forth = [
        *_at_once([reduce_scatter(line, size / 2) for line in [*rows, *columns]]),
        *_at_once([reduce_scatter(line, size / 2 / count) for line in [*columns, *rows]]),
    ]
    return [*forth, *reversed(forth)]


def hierarchical_2d_all_reduce(
    nodes: Sequence[Sequence[Sequence[str]]], size: float, across: ReduceScatter
) -> tuple[Schedule, Schedule]:
    """Return the all-reduce within nodes, and the one among them.

    `nodes[x][y]` are the chips of a node, in the order of a ring through its mesh. The first
    schedule is the reduce-scatter within nodes and its all-gather in the end; the second the
    two-dimensional all-reduce among the chips of one place in all nodes, of a share each.

    Source: Feng et al., 2025, section 4.2, equation 8; with a direct `across`, appendix A.2,
    equation 13.
    """
    chips = [chip for row in nodes for chip in row]
    places = range(len(chips[0]))
    within = _at_once([both_ways_round(node, size) for node in chips])
    share = size / len(places)
    among = _at_once(
        [
            all_reduce_2d([[node[place] for node in row] for row in nodes], share, across)
            for place in places
        ]
    )
    return [*within, *within], among


def _at_once(schedules: Sequence[Schedule]) -> list[Step]:
    steps = []
    for each in zip(*schedules, strict=True):
        times = {step.times for step in each}
        if len(times) != 1:
            raise ScheduleError("schedules of one length are needed")
        flows: list[Flow] = [flow for step in each for flow in step.flows]
        steps.append(Step(tuple(flows), times.pop()))
    return steps
