"""Results of a run of nccl-tests, and checks of their consistency."""

import functools
import math
from dataclasses import dataclass, replace

from lightrig.instruments.servers.tools.output import Printed, ToolOutputError

TOOL = "nccl-tests"

_TYPE_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16"), 2),
    **dict.fromkeys(("int32", "uint32", "float", "int"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
_SHARED = frozenset({"all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter"})
_PLAIN = frozenset({"broadcast", "reduce", "sendrecv"})
_MOST_RANKS = 1 << 14

COLLECTIVES = _SHARED | _PLAIN | {"all_reduce", "hypercube"}
"""Tests whose bandwidths can be checked."""


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """Times of the iterations of one size (-I), in µs as printed, and their variation in %.

    `each_us` has all of them, in order; only the file of -J has.
    """

    least_us: Printed
    most_us: Printed
    p99_us: Printed
    variation_percent: Printed
    each_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """One size, out of place or in place, as printed: 0.00 GB/s is less than 0.005.

    Attributes:
        time_us: of one operation, on average.
        algorithm_gbytes: size by time, in 10^9 bytes a second.
        bus_gbytes: that, times the factor of the collective.
        wrong: values that were not as expected; None where they were not checked.
    """

    time_us: Printed
    algorithm_gbytes: Printed
    bus_gbytes: Printed
    wrong: int | None
    iterations: IterationTimes | None = None

    @property
    def time_ns(self) -> int:
        """The time in ns."""
        return round(self.time_us.value * 1e3)

    @property
    def algorithm_bps(self) -> int:
        """Algorithm bandwidth in bit/s."""
        return round(self.algorithm_gbytes.value * 8e9)

    @property
    def bus_bps(self) -> int:
        """Bus bandwidth in bit/s: what a link of a ring carries."""
        return round(self.bus_gbytes.value * 8e9)


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One size: `size` in bytes, `count` elements of `type`."""

    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: Measured | None
    in_place: Measured | None

    @property
    def measured(self) -> tuple[Measured, ...]:
        """The measurements, out of place first."""
        return tuple(each for each in (self.out_of_place, self.in_place) if each is not None)


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """A table of nccl-tests.

    Attributes:
        collective: such as `all_reduce`; None where neither tool nor caller says.
        ranks: None where neither the list of devices nor the caller says.
        hosts: of the ranks, each once.
        average_bus_gbytes: over all sizes and both placements, in GB/s; None where the table
            has no end.
        wrong: values out of bounds; None where the table has no end.
        factor: bus by algorithm bandwidth: exact where collective and ranks are known, else as
            near as the rows have it; None where they are all too slow to tell.
    """

    collective: str | None
    ranks: int | None
    hosts: tuple[str, ...]
    version: str | None
    rows: tuple[CollectiveRow, ...]
    average_bus_gbytes: Printed | None
    wrong: int | None
    factor: float | None = None


def collective_of(program: str) -> str:
    """`all_reduce` of `/opt/nccl-tests/all_reduce_perf`."""
    return program.rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf")


def bus_factor(collective: str, ranks: int) -> float | None:
    """Return bus by algorithm bandwidth for `ranks`; None for an unknown collective."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in _SHARED:
        return (ranks - 1) / ranks
    return 1.0 if collective in _PLAIN or collective == "hypercube" else None


def check(run: CollectiveRun) -> CollectiveRun:
    """Return `run` with its factor; raises `ToolOutputError` if its numbers are inconsistent."""
    for row in run.rows:
        _check_row(row, run)
    factor = _check_factor(run)
    _check_average(run)
    return replace(run, factor=factor)


def _check_row(row: CollectiveRow, run: CollectiveRun) -> None:
    _check_size(row, run)
    for each in row.measured:
        if each.time_us.value < 0 or each.bus_gbytes.value < 0:
            raise _contradiction("times and rates from 0", row)
        if each.time_us.value <= each.time_us.half or run.collective == "hypercube":
            continue
        rate = Printed(row.size / 1e3, 0.0).over(each.time_us)
        if not rate.agrees(each.algorithm_gbytes):
            raise _contradiction("algbw to be size / time", row)


def _check_size(row: CollectiveRow, run: CollectiveRun) -> None:
    """Size is count x type, or that times the ranks where each rank has a share."""
    width = _TYPE_BYTES.get(row.type)
    if width is None:
        raise _contradiction(f"one of the types {', '.join(sorted(_TYPE_BYTES))}", row)
    one, all_ranks = row.count * width, row.count * width * (run.ranks or 1)
    if run.collective is None:
        fits = row.size in (one, all_ranks) or (run.ranks is None and one and not row.size % one)
    elif run.collective in _SHARED:
        fits = row.size == all_ranks if run.ranks else not one or not row.size % one
    else:
        fits = row.size == one or run.collective == "hypercube"
    if not fits:
        raise _contradiction("size to be count x type, or that for each rank", row)


def _check_factor(run: CollectiveRun) -> float | None:
    """The factor that all rows agree on, which must be that of the collective, if known."""
    if run.collective is not None and run.collective not in COLLECTIVES:
        raise ToolOutputError(TOOL, f"one of {', '.join(sorted(COLLECTIVES))}", run.collective)
    least, most = 0.0, math.inf
    for row in run.rows:
        for each in row.measured:
            algorithm, bus = each.algorithm_gbytes, each.bus_gbytes
            if algorithm.value <= algorithm.half:
                continue
            low = (bus.value - bus.half) / (algorithm.value + algorithm.half)
            high = (bus.value + bus.half) / (algorithm.value - algorithm.half)
            least, most = max(least, low), min(most, high)
            if least > most * (1 + 1e-9):
                raise _contradiction("one ratio of busbw to algbw in all rows", row)
    if math.isinf(most):
        return None
    fitting = [
        candidate
        for candidate in _candidates(run.collective, run.ranks)
        if least * (1 - 1e-9) <= candidate <= most * (1 + 1e-9)
    ]
    if not fitting:
        raise ToolOutputError(
            TOOL,
            f"busbw / algbw as {run.collective or 'a collective'} has it for "
            f"{run.ranks or 'any number of'} ranks",
            f"{(least + most) / 2:.4f}",
        )
    return fitting[0] if len(fitting) == 1 else (least + most) / 2


@functools.cache
def _candidates(collective: str | None, ranks: int | None) -> tuple[float, ...]:
    """Factors that are possible, given what is known of the collective and the ranks."""
    names = ("all_reduce", "all_gather", "broadcast") if collective is None else (collective,)
    counts = range(1, _MOST_RANKS + 1) if ranks is None else (ranks,)
    factors = {bus_factor(name, count) for name in names for count in counts}
    return tuple(sorted(factor for factor in factors if factor is not None))


def _check_average(run: CollectiveRun) -> None:
    """The average is that of all rows, so a row that is missing or changed shows."""
    if run.average_bus_gbytes is None:
        return
    rates = [each.bus_gbytes for row in run.rows for each in row.measured]
    count = len(rates)
    mean = Printed(
        sum(rate.value for rate in rates) / count, sum(rate.half for rate in rates) / count
    )
    if not mean.agrees(run.average_bus_gbytes):
        raise ToolOutputError(
            TOOL,
            f"{count} values whose average is {run.average_bus_gbytes.value:g} GB/s",
            f"{mean.value:g} GB/s: rows are missing or were changed",
        )


def _contradiction(expected: str, row: CollectiveRow) -> ToolOutputError:
    shown = " ".join(
        f"{each.time_us.value:g} us {each.algorithm_gbytes.value:g} {each.bus_gbytes.value:g} GB/s"
        for each in row.measured
    )
    return ToolOutputError(TOOL, expected, f"{row.size} B, {row.count} {row.type}: {shown}")
