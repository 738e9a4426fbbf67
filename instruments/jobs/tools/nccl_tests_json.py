"""The file that nccl-tests writes with -J. It holds the whole environment, which is dropped."""

from collections.abc import Iterator
from typing import Any

from lightrig.instruments.jobs.tools.nccl_results import (
    CollectiveRow,
    CollectiveRun,
    IterationTimes,
    Measured,
    collective_of,
)
from lightrig.instruments.servers.tools.output import (
    Printed,
    ToolOutputError,
    field,
    load,
    optional,
    whole,
)

TOOL = "nccl-tests -J"

VERSIONS = (1, 2, 3)
"""Versions of the file that are known; 2 and 3 added the times of iterations."""

_HALF = 5e-7
"""Rates and times have six decimals."""


def parse(text: str) -> CollectiveRun:
    """Read the file; `nccl_tests.parse` calls this and checks the result."""
    document = load(TOOL, text)
    if not isinstance(document, dict):
        raise ToolOutputError(TOOL, "an object", type(document).__name__)
    document.pop("env", None)  # secrets
    version = field(TOOL, document, "version", int)
    if version not in VERSIONS:
        raise ToolOutputError(TOOL, f"a version of {VERSIONS}", version)
    config = field(TOOL, document, "config", dict)
    devices = field(TOOL, config, "devices", list)
    results = field(TOOL, document, "results", list)
    if not results:
        raise ToolOutputError(TOOL, "results", "none")
    average = optional(TOOL, document, "average_bus_bandwidth", dict)
    bounds = optional(TOOL, document, "out_of_bounds", dict)
    return CollectiveRun(
        _collective(document),
        _ranks(config, devices),
        tuple(dict.fromkeys(field(TOOL, device, "hostname", str) for device in devices)),
        str(field(TOOL, document, "nccl_version", int)) if "nccl_version" in document else None,
        tuple(map(_row, results)),
        None if average is None else _number(average, "bandwidth"),
        None if bounds is None else field(TOOL, bounds, "count", int),
    )


def _ranks(config: Any, devices: list[Any]) -> int | None:
    """Return the number of ranks; None where no device is listed.

    nccl-tests list the first device of each process (src/util.cu of 2.19.6, jsonRankInfo), whose
    ranks follow each other; files that list several of a process list all.
    """
    if not devices:
        return None
    last: int = max(field(TOOL, device, "rank", int) for device in devices)
    processes = {(device.get("hostname"), device.get("pid")) for device in devices}
    if len(processes) < len(devices):
        return last + 1
    threads: int = optional(TOOL, config, "nthreads", int) or 1
    gpus: int = optional(TOOL, config, "ngpus", int) or 1
    return last + threads * gpus


def _collective(document: dict[str, Any]) -> str | None:
    arguments = optional(TOOL, document, "args", list) or []
    if not arguments or not isinstance(arguments[0], str):
        return None
    return collective_of(arguments[0])


def _row(entry: Any) -> CollectiveRow:
    root = field(TOOL, entry, "root", str).strip()
    redop = field(TOOL, entry, "redop", str).strip()
    try:
        return CollectiveRow(
            size=_count(entry, "size"),
            count=_count(entry, "count"),
            type=field(TOOL, entry, "type", str),
            redop=None if redop in ("", "none") else redop,
            root=None if root == "-1" else whole(root),
            out_of_place=_measured(entry, "out_of_place"),
            in_place=_measured(entry, "in_place"),
        )
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), root) from error


def _measured(row: Any, placement: str) -> Measured | None:
    entry = optional(TOOL, row, placement, dict)
    if entry is None:
        return None
    wrong = entry.get("nwrong")
    if wrong is not None and (not isinstance(wrong, int | float) or wrong < 0 or wrong % 1):
        raise ToolOutputError(TOOL, "a number of wrong values", wrong)
    return Measured(
        time_us=_number(entry, "cpu_time" if "cpu_time" in entry else "time"),
        algorithm_gbytes=_number(entry, "alg_bw"),
        bus_gbytes=_number(entry, "bus_bw"),
        wrong=None if wrong is None else int(wrong),
        iterations=_iterations(row, f"{placement}_per_iter"),
    )


def _iterations(row: Any, key: str) -> IterationTimes | None:
    entry = optional(TOOL, row, key, dict)
    if entry is None:
        return None
    least, most, p99, cv = (
        _number(entry, name) for name in ("min_us", "max_us", "p99_us", "cv_pct")
    )
    times = IterationTimes(least, most, p99, cv, tuple(_times(entry)))
    ends = (times.least_us, times.most_us)
    for found, printed in zip((min, max), ends, strict=True):
        if times.each_us and not Printed(found(times.each_us), _HALF).agrees(printed):
            raise ToolOutputError(TOOL, "min_us and max_us to be those of times_us", printed.value)
    return times


def _times(entry: Any) -> Iterator[float]:
    for time in optional(TOOL, entry, "times_us", list) or ():
        if isinstance(time, bool) or not isinstance(time, int | float) or time < 0:
            raise ToolOutputError(TOOL, "times_us of numbers from 0", time)
        yield float(time)


def _number(entry: Any, key: str) -> Printed:
    """A number with six decimals; `nan`, which is a string there, is none."""
    return Printed(float(field(TOOL, entry, key, (int, float))), _HALF)


def _count(entry: Any, key: str) -> int:
    count: int = field(TOOL, entry, key, int)
    if count < 0:
        raise ToolOutputError(TOOL, f"a count in {key!r}", count)
    return count
