"""Replay of a fault trace on an architecture: waste, largest job, waiting time."""

from collections.abc import Iterator, Sequence

import numpy as np

from lightrig.harness.jobs.sweeps import sweep
from lightrig.suites.claims.infinitehbd.architectures import Architecture, waste
from lightrig.suites.claims.infinitehbd.trace import (
    Random,
    States,
    halved,
    production_trace,
    states,
    subset,
    with_fixed_repair,
)

GPUS = 2_880
"""The simulated cluster: five NVL-576, the most that the trace's 3,200 GPUs hold (§7)."""

DRAWS = 20


def cluster(
    random: Random, *, gpus: int = 4, total: int = GPUS, apart: bool = True, fixed: bool = False
) -> States:
    """A drawn cluster of `total` GPUs in nodes of 4 or 8 under the production trace.

    apart: whether the two halves of a node of eight stand anywhere, as nodes do that fail
    independently, and not side by side. The paper says neither; its figures come out only with
    the former. fixed: whether each repair takes as long as the mean one.
    """
    trace = subset(production_trace(), total // 8, random)
    if fixed:
        trace = with_fixed_repair(trace, production_trace().mean_repair)
    if gpus == 4:
        trace = halved(trace, random)
        if apart:
            trace = subset(trace, trace.nodes, random)
    return states(trace)


def clusters(draws: int = DRAWS, *, gpus: int = 4, apart: bool = True) -> Iterator[States]:
    """Drawn clusters, the same ones each time."""
    points = [(seed, gpus, apart) for seed in range(draws)]
    return iter(sweep(_cluster_of_seed, points))


def _cluster_of_seed(point: tuple[int, int, bool], _random: np.random.Generator) -> States:
    seed, gpus, apart = point
    return cluster(np.random.default_rng(seed), gpus=gpus, apart=apart)


def mean_wastes(
    found: Sequence[States], architecture: Architecture, gpus: int, group: int
) -> list[float]:
    """Return `mean_waste` of each cluster: the trace replayed on each."""
    return sweep(_mean_waste_of, [(one, architecture, gpus, group) for one in found])


def _mean_waste_of(
    point: tuple[States, Architecture, int, int], _random: np.random.Generator
) -> float:
    return mean_waste(*point)


def mean_waste(found: States, architecture: Architecture, gpus: int, group: int) -> float:
    """The share of GPUs that are healthy and wasted, over time."""
    return found.mean(waste(architecture, found.faulty, gpus, group))


def largest_job(
    found: States, architecture: Architecture, gpus: int, group: int, share: float = 1.0
) -> int:
    """GPUs of the largest job that can run for at least `share` of the time."""
    usable = architecture.usable(found.faulty, gpus, group)
    return -int(found.quantile(-usable, share))


def waiting(
    found: States, architecture: Architecture, gpus: int, group: int, jobs: list[int]
) -> list[float]:
    """The share of the time for which a job of each size waits for repairs."""
    usable = architecture.usable(found.faulty, gpus, group)
    return [found.mean(usable < job) for job in jobs]
