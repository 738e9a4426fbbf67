"""Algorithm and bus bandwidth of a collective, as nccl-tests defines them."""

from typing import Literal

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"]
"""The modelled collectives."""


def bus_factor(collective: Collective, ranks: int) -> float:
    """Return bus by algorithm bandwidth: the bytes on a link of a ring for each byte.

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
    """Return the bit/s of a collective on `size` bytes that took `time_ns`, as nccl-tests does.

    The size is the printed one: the buffer of a rank, and for `all_gather`, `reduce_scatter` and
    `all_to_all` the shares of all ranks together.
    """
    return 8e9 * size / time_ns


def bus_bandwidth(collective: Collective, ranks: int, size: int, time_ns: float) -> float:
    """Return the bit/s on a link of a ring with the measured algorithm bandwidth."""
    return algorithm_bandwidth(size, time_ns) * bus_factor(collective, ranks)
