"""The paper's figures that can be made again, as series of numbers; none is read off a plot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.infinitehbd.planning.costs import INTERCONNECTS, aggregate_cost
from lightrig.harness.systems.infinitehbd.planning.placement import orchestrate
from lightrig.harness.systems.infinitehbd.planning.traffic import careless, cross_tor_share, job_of
from lightrig.suites.claims.infinitehbd.architectures import (
    ARCHITECTURES,
    Architecture,
    waste,
)
from lightrig.suites.claims.infinitehbd.claims import GPU_DOLLARS, SCALED, scattered
from lightrig.suites.claims.infinitehbd.replay import (
    DRAWS,
    GPUS,
    cluster,
    clusters,
    largest_job,
    waiting,
)
from lightrig.suites.claims.infinitehbd.trace import independent

Values = npt.NDArray[np.float64]

GROUPS = (8, 16, 32, 64)
_MODEL = 60
"""Drawn states of a fault model for each share of faulty nodes."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line: its mean over draws, and between what 95 % of the draws lie."""

    name: str
    x: Values
    y: Values
    low: Values
    high: Values


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure of the paper, computed again.

    x_unit, y_unit: "share", or "1" for counts and dollars. published: places on the x axis that
    the paper prints, and what it says of them. note: what the lines rest on.
    """

    figure: str
    title: str
    x_label: str
    x_unit: str
    y_label: str
    y_unit: str
    series: tuple[ChartLine, ...]
    note: str
    published: tuple[tuple[float, str], ...] = ()


def waste_distribution(group: int = 32) -> Chart:
    """Return the distribution of waste over the time of the trace (Fig. 13)."""
    levels = np.linspace(0, 0.25, 126)
    drawn = list(clusters())

    def shares(architecture: Architecture) -> Sequence[Values]:
        return [
            _below(found.durations, waste(architecture, found.faulty, 4, group), levels)
            for found in drawn
        ]

    return Chart(
        "Fig. 13",
        f"Waste over the production trace, TP {group}",
        "GPUs wasted, at most",
        "share",
        "share of the time",
        "share",
        tuple(_over(one.name, levels, shares(one)) for one in ARCHITECTURES),
        f"{GPUS:,} GPUs in nodes of 4; {DRAWS} draws of nodes",
        ((0.0053, "published mean, K = 3"), (0.1004, "published mean, NVL-72")),
    )


def waste_over_faults(group: int = 32) -> Chart:
    """Waste under independent faults (Fig. 14)."""
    shares = np.linspace(0, 0.15, 31)
    random = np.random.default_rng(1)
    drawn = [independent(GPUS // 4, share, _MODEL, random) for share in shares.tolist()]
    return Chart(
        "Fig. 14",
        f"Waste over the share of faulty nodes, TP {group}",
        "faulty nodes",
        "share",
        "GPUs wasted",
        "share",
        tuple(
            _over(one.name, shares, np.column_stack([waste(one, m, 4, group) for m in drawn]))
            for one in ARCHITECTURES
        ),
        f"{GPUS:,} GPUs in nodes of 4 that fail independently; {_MODEL} draws a share",
    )


def largest_jobs() -> Chart:
    """The largest job that never waits, by TP (Fig. 15)."""
    drawn = list(clusters())
    return Chart(
        "Fig. 15",
        f"The largest job that {GPUS:,} GPUs always support",
        "TP",
        "1",
        "GPUs",
        "1",
        tuple(
            _over(
                one.name,
                np.array(GROUPS, dtype=float),
                [[largest_job(found, one, 4, group) for group in GROUPS] for found in drawn],
            )
            for one in ARCHITECTURES
        ),
        f"over the production trace; {DRAWS} draws of nodes",
    )


def waiting_times(group: int = 32) -> Chart:
    """Return the time that jobs of a size wait for repairs (Fig. 16)."""
    jobs = np.arange(0.80, 1.0001, 0.01)
    sizes = [round(job * GPUS) for job in jobs.tolist()]
    drawn = [cluster(np.random.default_rng(seed), fixed=True) for seed in range(DRAWS)]
    return Chart(
        "Fig. 16",
        f"Waiting for repairs, TP {group}",
        "size of the job, of all GPUs",
        "share",
        "share of the time",
        "share",
        tuple(
            _over(one.name, jobs, [waiting(found, one, 4, group, sizes) for found in drawn])
            for one in ARCHITECTURES
        ),
        f"over the production trace, each repair as long as the mean one; {DRAWS} draws of nodes",
    )


def cross_tor_traffic(job: float = 0.85) -> Chart:
    """Traffic between groups that crosses a ToR, with care and without (Fig. 17c)."""
    shares = np.arange(0, 0.1001, 0.01)
    groups = int(job * SCALED.nodes * 4) // 32

    def crossing(share: float, seed: int) -> tuple[float, float]:
        faulty, random = scattered(share, seed), np.random.default_rng(seed)
        best = orchestrate(SCALED, faulty, 8, 3, groups)
        assert best is not None
        ours = cross_tor_share(SCALED, job_of(SCALED, best, groups))
        return ours, cross_tor_share(SCALED, careless(SCALED, faulty, 8, 3, groups, random))

    found = np.array(
        [[crossing(share, seed) for share in shares.tolist()] for seed in range(DRAWS)]
    )
    return Chart(
        "Fig. 17(c)",
        f"Traffic across ToRs, TP 32, {job:.0%} of the GPUs in the job",
        "faulty nodes",
        "share",
        "of the traffic between groups",
        "share",
        (
            _over("orchestrated", shares, found[..., 0]),
            _over("without care", shares, found[..., 1]),
        ),
        f"8,192 GPUs, 2 nodes a ToR, 512 a domain (guesses); {DRAWS} draws. Measure and baseline "
        "are ours, since the paper's are not defined",
        ((0.07, "published: near zero below"),),
    )


def aggregate_costs(group: int = 32) -> Chart:
    """Return the cost of interconnect, wasted and faulty GPUs together (Fig. 17d)."""
    names = ("infinitehbd-2", "infinitehbd-3", "nvl-36", "nvl-72", "nvl-576", "tpuv4")
    built = {one.name: one for one in ARCHITECTURES}
    labels = ("InfiniteHBD (K=2)", "InfiniteHBD (K=3)", "NVL-36", "NVL-72", "NVL-576", "TPUv4")
    shares = np.linspace(0, 0.2, 21)
    random = np.random.default_rng(1)
    drawn = [independent(GPUS // 4, share, _MODEL, random) for share in shares.tolist()]

    def cost(name: str, label: str) -> ChartLine:
        lost = [waste(built[label], m, 4, group) + m.mean(axis=1) for m in drawn]
        price = aggregate_cost(INTERCONNECTS[name], np.column_stack(lost), GPU_DOLLARS)
        return _over(label, shares, price)

    return Chart(
        "Fig. 17(d)",
        f"Cost of interconnect and unusable GPUs, TP {group}",
        "faulty nodes",
        "share",
        "dollars a GPU, whatever its bandwidth",
        "1",
        tuple(map(cost, names, labels)),
        f"a GPU costs {GPU_DOLLARS:,.0f} $ (a guess, none is printed); {_MODEL} draws a share",
        ((0.121, "published: K = 2 cheaper below"),),
    )


CHARTS: Mapping[str, Callable[[], Chart]] = {
    "waste-distribution": waste_distribution,
    "waste-over-faults": waste_over_faults,
    "largest-jobs": largest_jobs,
    "waiting-times": waiting_times,
    "cross-tor-traffic": cross_tor_traffic,
    "aggregate-costs": aggregate_costs,
}


def _over(name: str, x: Values, draws: npt.ArrayLike) -> ChartLine:
    """A line from draws x places."""
    found = np.asarray(draws, dtype=float)
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    return ChartLine(name, x, found.mean(axis=0), low, high)


def _below(durations: npt.NDArray[np.int64], values: Values, levels: Values) -> Values:
    """The share of the time for which a value is at most each level."""
    order = np.argsort(values, kind="stable")
    cumulated = np.concatenate([[0.0], np.cumsum(durations[order])])
    return np.asarray(
        cumulated[np.searchsorted(values[order], levels, side="right")] / cumulated[-1]
    )
