"""Series of the paper's figures: stored flit simulations and formulas."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightrig.harness.claims.figures.curves import Curve, Figures, exact_curve
from lightrig.harness.systems.railx.planning.allocation import Traffic, split_times
from lightrig.harness.systems.railx.planning.workload import LISTING_1, volumes
from lightrig.suites.claims.railx.claims import LLAMA, all_reduces
from lightrig.suites.claims.railx.failed_grids import availabilities, largest_jobs
from lightrig.suites.claims.railx.flits import Point, stored_points

PORTS, PORT_BPS = 10, 800e9
"""Of both parallelisms (§6.5), and 100 GB/s of a port (§6.4)."""
_ALGORITHMS = ("1D-ring", "2D-Torus", "hierarchical-2D-Torus")
_VALUE_BYTES = 2


def _points(multiple: int) -> Sequence[Point]:
    found = [each for each in stored_points() if each.multiple == multiple]
    return sorted((each for each in found if not each.credit_delay), key=lambda one: one.rate)


def _name(multiple: int) -> str:
    return f"RailX-2D-HyperX, k = {multiple}"


def throughput(multiples: Sequence[int]) -> Sequence[Curve]:
    """Return all-to-all throughput by offered load, flits a cycle and chip (Fig. 14)."""
    curves = []
    for multiple in multiples:
        points = _points(multiple)
        outcomes = [each.outcome for each in points]
        curves.append(
            Curve(
                _name(multiple),
                tuple(each.rate for each in points),
                tuple(each.throughput for each in outcomes),
                tuple(each.lower for each in outcomes),
                tuple(each.upper for each in outcomes),
                10,
            )
        )
    return curves


def latency(multiples: Sequence[int]) -> Sequence[Curve]:
    """Return the mean latency of packets that arrived in cycles, by offered load (Fig. 14)."""
    return [
        exact_curve(
            _name(multiple), {each.rate: each.outcome.latency for each in _points(multiple)}
        )
        for multiple in multiples
    ]


def all_reduce(mesh: int, side: int) -> Sequence[Curve]:
    """Return the time of three algorithms in ns, by bytes; nodes of mesh x mesh chips (Fig. 15)."""
    sizes = np.logspace(3, 10, 29).tolist()
    times = [all_reduces(mesh, side, size) for size in sizes]
    return [
        exact_curve(name, dict(zip(sizes, found, strict=True)))
        for name, found in zip(_ALGORITHMS, zip(*times, strict=True), strict=True)
    ]


def allocation(overlap_ns: float = 0.0) -> Sequence[Curve]:
    """Return communication time in ns by the ports of CP of ten, by sequence length (Fig. 16).

    Volumes are those of Table 4 for the model and the degrees of the claims; `overlap_ns` of data
    parallelism is hidden behind computation.
    """
    curves = []
    for sequence in (4096, 8192, 32_768, 131_072):
        found = volumes(replace(LLAMA, sequence=sequence), LISTING_1)
        data = sum(
            one.elements * one.times for name, one in found.items() if name.startswith("data")
        )
        context = sum(
            one.elements * one.times for name, one in found.items() if name.startswith("context")
        )
        splits = split_times(
            Traffic(_VALUE_BYTES * data, overlap_ns),
            Traffic(_VALUE_BYTES * context),
            PORTS,
            PORT_BPS,
        )
        times = {float(split.ports[1]): split.time_ns for split in splits}
        curves.append(exact_curve(f"{sequence:,} tokens", dict(sorted(times.items()))))
    return curves


FIGURES: Figures = {
    "throughput": throughput,
    "latency": latency,
    "all-reduce": all_reduce,
    "allocation": allocation,
    "largest-jobs": largest_jobs,
    "availabilities": availabilities,
}
"""Functions that return series, by the names that results/published/figures uses."""
