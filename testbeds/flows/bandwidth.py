"""Algorithm and bus bandwidth of a collective, as nccl-tests defines them."""

from typing import Literal

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"]
"""The collectives that are modelled here."""


def bus_factor(collective: Collective, ranks: int) -> float:
    """Bus by algorithm bandwidth among `ranks`: what a link of a ring carries for each byte.

    Source: nccl-tests, doc/PERFORMANCE.md and each test's GetBw.
    """
    match collective:
        case "all_reduce":
            return 2 * (ranks - 1) / ranks
        case "all_gather" | "reduce_scatter" | "all_to_all":
            return (ranks - 1) / ranks
        case "send_receive":
            return 1.0


def algorithm_bandwidth(size: int, time_ns: float) -> float:
    """Bit/s of a collective on `size` bytes that took `time_ns`; see `nccl-tests`.

    The size is the printed one: all that a rank holds, and for `all_gather`, `reduce_scatter`
    and `all_to_all` the share of all ranks together.
    """
    return 8e9 * size / time_ns


def bus_bandwidth(collective: Collective, ranks: int, size: int, time_ns: float) -> float:
    """Bit/s that a link of a ring would have to carry for the algorithm bandwidth found."""
    return algorithm_bandwidth(size, time_ns) * bus_factor(collective, ranks)
