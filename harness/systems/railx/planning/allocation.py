"""Ports of each parallelism: static allocation, pairing, and switching in the gap.

RailX, sections 3.3.4, 5.1 and 5.2, equation 11. Volumes are in bytes, bandwidth in bit/s of
one direction of one port, times in ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Literal, NamedTuple, TypeAlias

from lightrig.harness.systems.railx.planning.physical import RailxError

Objective: TypeAlias = Literal["sum", "slowest"]
GAP_NS = 6_000_000.0
"""Measured by the authors between context and expert parallelism (appendix A.4)."""


class Traffic(NamedTuple):
    """Volume of one parallelism, and the computation that it can overlap with."""

    volume: float
    overlap_ns: float = 0.0


class Split(NamedTuple):
    """Ports of each parallelism and the time that results."""

    ports: tuple[int, int]
    time_ns: float


def transfer_ns(volume: float, ports: int, bps: float) -> float:
    """V / (2 n B): both directions of a ring at once; infinite for a volume without ports."""
    if ports:
        return 8e9 * volume / (2 * ports * bps)
    return float("inf") if volume else 0.0


def split_times(first: Traffic, second: Traffic, ports: int, bps: float) -> list[Split]:
    """Return the time of equation 11 for every division of `ports`, each at least one port."""
    if ports < 2:
        raise RailxError(f"found {ports} ports to divide between two, expected at least 2")
    splits = []
    for n in range(1, ports):
        both = zip((first, second), (n, ports - n), strict=True)
        times = (max(t.overlap_ns, transfer_ns(t.volume, count, bps)) for t, count in both)
        splits.append(Split((n, ports - n), sum(times)))
    return splits


def static_allocation(first: Traffic, second: Traffic, ports: int, bps: float) -> Split:
    """Return the division of least time by equation 11, exactly; the first of equals."""
    return min(split_times(first, second, ports, bps), key=lambda split: split.time_ns)


def split_ports(first: float, second: float, ports: int, objective: Objective) -> tuple[int, int]:
    """Return whole ports that minimise V1/n1 + V2/n2, or the slower of both (section 3.3.4)."""
    if ports < 2:
        raise RailxError(f"found {ports} ports to divide between two, expected at least 2")
    combine = sum if objective == "sum" else max
    chosen = min(range(1, ports), key=lambda n: combine((first / n, second / (ports - n))))
    return chosen, ports - chosen


def best_pairing(
    volumes: Mapping[str, float], ports: int, objective: Objective
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return which two parallelisms share each physical dimension, of four, by enumeration.

    The paper's rule puts the highest and the lowest together (section 5.2); it is a heuristic. Each
    dimension has `ports` to divide; the sum of their times, or the slowest, is minimised.
    """
    if len(volumes) != 4:
        raise RailxError(f"found {len(volumes)} parallelisms, expected four for two dimensions")
    combine = sum if objective == "sum" else max

    def cost(names: Sequence[str]) -> float:
        times = []
        for a, b in (names[:2], names[2:]):
            n_a, n_b = split_ports(volumes[a], volumes[b], ports, objective)
            times.append(combine((volumes[a] / n_a, volumes[b] / n_b)))
        return combine(times)

    found = min(permutations(volumes), key=cost)
    return (found[0], found[1]), (found[2], found[3])


class DynamicGain(NamedTuple):
    """Times of two communications that follow each other: with divided and with switched ports."""

    static_ns: float
    dynamic_ns: float

    @property
    def speedup(self) -> float:
        """Static over dynamic time; at most 2."""
        return self.static_ns / self.dynamic_ns


def dynamic_gain(
    first: float,
    second: float,
    ports: int,
    bps: float,
    switching_ns: float,
    gap_ns: float = GAP_NS,
) -> DynamicGain:
    """Compare divided ports with all ports for one communication and then for the next.

    Only what `switching_ns` (drain, switch, lock, verify) exceeds the gap by is added. The paper
    gives no switching time.
    """
    static = static_allocation(Traffic(first), Traffic(second), ports, bps).time_ns
    late = max(0.0, switching_ns - gap_ns)
    dynamic = transfer_ns(first, ports, bps) + transfer_ns(second, ports, bps) + late
    return DynamicGain(static, dynamic)
