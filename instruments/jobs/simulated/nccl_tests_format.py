"""Output of nccl-tests, as text and as the file of -J.

Formats are those of nccl-tests, src/util.cu; knows nothing of the parser that will read them.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

VERSION = "2.17.6"
NCCL_VERSION = 22703

TYPE_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int8": 1, "int32": 4}
"""The types of elements that are known, with their widths."""

_SHARED = frozenset({"all_gather", "reduce_scatter", "alltoall"})


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a test, sizes in bytes.

    Attributes:
        least, most: the first and the last size.
        step_bytes: from one size to the next; 0 where `factor` says.
        per_iteration: whether times of iterations are told (-I).
        json_path: where -J writes.
    """

    program: str
    argv: tuple[str, ...]
    least: int = 32 << 20
    most: int = 32 << 20
    step_bytes: int = 1 << 20
    factor: int = 0
    iterations: int = 20
    warm_up: int = 1
    check: int = 1
    gpus: int = 1
    type: str = "float"
    per_iteration: bool = False
    json_path: str = ""

    @property
    def collective(self) -> str:
        """`all_reduce` of `/opt/all_reduce_perf`."""
        return self.program.rpartition("/")[2].removesuffix("_perf")

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return TYPE_BYTES[self.type]

    def sizes(self, ranks: int) -> list[tuple[int, int]]:
        """Size in bytes and number of elements of each row.

        Where all ranks share a buffer, shares are of whole 16 bytes.
        """
        found, asked = [], self.least
        while asked <= self.most:
            if self.collective in _SHARED:
                count = asked // self.width // ranks & -(16 // self.width)
                found.append((count * self.width * ranks, count))
            else:
                found.append((asked // self.width * self.width, asked // self.width))
            step = asked * (self.factor - 1) if self.factor else self.step_bytes
            asked += max(step, 1)
        return found


@dataclass(frozen=True, slots=True)
class Device:
    """A rank's GPU."""

    rank: int
    host: str
    pid: int
    index: int
    model: str


@dataclass(slots=True)
class Timed:
    """One size: times of every iteration in ns, out of place and in place."""

    size: int
    count: int
    out_of_place: list[int]
    in_place: list[int]
    wrong: int


@dataclass(slots=True)
class Finished:
    """A test that ran to its end."""

    arguments: Arguments
    devices: Sequence[Device]
    rows: list[Timed] = field(default_factory=list)
    started: str = ""

    @property
    def wrong(self) -> int:
        """Values out of bounds in all rows and both placements."""
        return sum(2 * row.wrong for row in self.rows)

    @property
    def factor(self) -> float:
        """Bus by algorithm bandwidth."""
        ranks, name = len(self.devices), self.arguments.collective
        if name == "all_reduce":
            return 2 * (ranks - 1) / ranks
        return (ranks - 1) / ranks if name in _SHARED else 1.0

    def gbytes(self, row: Timed, times: Sequence[int]) -> tuple[float, float]:
        """Algorithm and bus bandwidth in GB/s."""
        algorithm = row.size / statistics.fmean(times)
        return algorithm, algorithm * self.factor

    def average(self) -> float:
        """Bus bandwidth over all rows and both placements, in GB/s."""
        rates = [
            self.gbytes(row, times)[1]
            for row in self.rows
            for times in (row.out_of_place, row.in_place)
        ]
        return statistics.fmean(rates)


def head(arguments: Arguments, devices: Sequence[Device]) -> str:
    """Return the lines above the table."""
    step = f"{arguments.factor}(factor)" if arguments.factor else f"{arguments.step_bytes}(bytes)"
    lines = [
        f"# nccl-tests version {VERSION} nccl-headers={NCCL_VERSION} nccl-library={NCCL_VERSION}",
        f"# Collective test starting: {arguments.collective}_perf",
        f"# nThread 1 nGpus {arguments.gpus} minBytes {arguments.least} "
        f"maxBytes {arguments.most} step: {step} warmup iters: {arguments.warm_up} "
        f"iters: {arguments.iterations} agg iters: 1 validation: {arguments.check} graph: 0 "
        "unalign: 0",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {each.rank:2d} Group  0 Pid {each.pid:6d} on {each.host:>10} device "
        f"{each.index:2d} [0000:{0x1B + each.index:02x}:00] {each.model}"
        for each in devices
    ]
    return "".join(f"{line}\n" for line in [*lines, "#"])


def text(done: Finished) -> str:
    """The whole table."""
    measured = ["time", "algbw", "busbw", "#wrong"]
    units = ["(us)", "(GB/s)", "(GB/s)", ""]
    if done.arguments.per_iteration:
        measured += ["i_min", "i_max", "i_p99", "i_cv%"]
        units += ["(us)", "(us)", "(us)", "(%)"]
    names = _columns(["size", "count", "type", "redop", "root"], measured)
    below = _columns(["(B)", "(elements)", "", "", ""], units)
    rows = "".join(f"{_row(done, row)}\n" for row in done.rows)
    bounds = "OK" if done.wrong == 0 else "FAILED"
    return (
        head(done.arguments, done.devices)
        + f"#{names[1:]}\n#{below[1:]}\n"
        + rows
        + f"# Out of bounds values : {done.wrong} {bounds}\n"
        + f"# Avg bus bandwidth    : {done.average():g} \n#\n"
        + f"# Collective test concluded: {done.arguments.collective}_perf\n"
    )


def _columns(first: Sequence[str], half: Sequence[str]) -> str:
    widths = (12, 12, 8, 6, 6)
    start = "  ".join(f"{word:>{width}}" for word, width in zip(first, widths, strict=True))
    group = "  ".join(f"{word:>7}" for word in half)
    return f"{start}  {group}  {group}"


def _row(done: Finished, row: Timed) -> str:
    redop = "sum" if done.arguments.collective in ("all_reduce", "reduce_scatter") else "none"
    tokens = [f"{row.size:>12}", f"{row.count:>12}", f"{done.arguments.type:>8}"]
    tokens += [f"{redop:>6}", f"{-1:>6}"]
    for times in (row.out_of_place, row.in_place):
        algorithm, bus = done.gbytes(row, times)
        wrong = str(row.wrong) if done.arguments.check else "N/A"
        tokens += [_fitted(statistics.fmean(times) / 1e3, 7), _fitted(algorithm, 7)]
        tokens += [_fitted(bus, 7), f"{wrong:>7}"]
        if done.arguments.per_iteration:
            each = _iterations(times)
            tokens += [_fitted(each[key], 7) for key in ("min_us", "max_us", "p99_us", "cv_pct")]
    return "  ".join(tokens)


def _fitted(value: float, width: int) -> str:
    """Return `value` with as many decimals, up to two, as fit."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}"


# --------------------------------------------------------------------------------- JSON


def as_json(done: Finished) -> str:
    """The file of -J, version 3; its environment is not a real one."""
    asked = done.arguments
    step: dict[str, Any] = (
        {"step_factor": asked.factor} if asked.factor else {"step_bytes": asked.step_bytes}
    )
    document = {
        "version": 3,
        "start_time": done.started,
        "args": list(asked.argv),
        "env": ["PATH=/usr/bin", "SIMULATED=true"],
        "nccl_version": NCCL_VERSION,
        "config": {
            "nthreads": 1,
            "ngpus": asked.gpus,
            "minimum_bytes": asked.least,
            "maximum_bytes": asked.most,
            **step,
            "warmup_iters": asked.warm_up,
            "iterations": asked.iterations,
            "aggregated_iterations": 1,
            "validation": asked.check,
            "graph": 0,
            "blocking_collectives": "false",
            "per_iter_timing": "true" if asked.per_iteration else "false",
            "parallel_init": "false",
            "devices": [
                {
                    "rank": each.rank,
                    "group": 0,
                    "pid": each.pid,
                    "hostname": each.host,
                    "device": each.index,
                    "device_hex": f"0000:{0x1B + each.index:02x}:00",
                    "device_info": each.model,
                }
                for each in done.devices
            ],
        },
        "results": [_result(done, row) for row in done.rows],
        "out_of_bounds": {
            "count": done.wrong,
            "okay": "true" if done.wrong == 0 else "false",
        },
        "average_bus_bandwidth": {"bandwidth": round(done.average(), 6), "okay": "unchecked"},
        "errors": [],
        "end_time": done.started,
    }
    return json.dumps(document, indent=1) + "\n"


def _result(done: Finished, row: Timed) -> dict[str, Any]:
    asked = done.arguments
    reduces = asked.collective in ("all_reduce", "reduce_scatter")
    result: dict[str, Any] = {
        "size": row.size,
        "count": row.count,
        "type": asked.type,
        "redop": "sum" if reduces else "none",
        "root": "    -1",
        "actual_iterations": asked.iterations,
        "experiment_name": "",
    }
    for name, times in (("out_of_place", row.out_of_place), ("in_place", row.in_place)):
        algorithm, bus = done.gbytes(row, times)
        result[name] = {
            "time": round(statistics.fmean(times) / 1e3, 6),
            "alg_bw": round(algorithm, 6),
            "bus_bw": round(bus, 6),
            "nwrong": row.wrong if asked.check else None,
        }
        if asked.per_iteration:
            result[f"{name}_per_iter"] = {
                "skipped_iterations": 0,
                **_iterations(times),
                "times_us": [time / 1e3 for time in times],
                "per_process_max_times_us": [],
            }
    return result


def _iterations(times: Sequence[int]) -> dict[str, float]:
    ordered = sorted(time / 1e3 for time in times)
    mean, sd = statistics.fmean(ordered), statistics.pstdev(ordered)

    def at(share: float) -> float:
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    statistic = {
        "min_us": ordered[0],
        "max_us": ordered[-1],
        "avg_us": mean,
        "p50_us": at(0.5),
        "p95_us": at(0.95),
        "p99_us": at(0.99),
        "stdev_us": sd,
        "cv_pct": 100 * sd / mean,
    }
    return {name: round(value, 6) for name, value in statistic.items()}
