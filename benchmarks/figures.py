"""Figures of benchmarks, and the page of them.

    python -m benchmarks.figures [--page docs/appendix/benchmarks.md] [NAME ...]

runs benchmarks that give figures, all or those named, and writes the page. Figures of benchmarks
that are not run stay as they were measured last: `docs/appendix/benchmarks.json` has them.
"""

import datetime
import gc
import inspect
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

BENCHMARKS = (
    "reconfigurations",
    "plans",
    "collection",
    "many_instruments",
    "results_at_size",
    "nights_over_hosts",
)
PAGE = Path(__file__).parents[1] / "docs" / "appendix" / "benchmarks.md"

_HEAD = """# Benchmarks

The figures are written by `python -m benchmarks.figures`; what they mean for a [large
lab](#what-10000-switches-and-100000-gpus-need) stands below them. Each was measured on the machine
and at the load that its line names: a load above the number of processors means that other work
shared them, and times are then upper bounds. A peer is measured in the same run, on the same work.
All instruments are simulated.

"Processor time" is the ratio of processor times to the peer's: other work on a machine changes it
less than a time. Every benchmark has it for its whole run, and a ratio of wall times, beside a loop
of two million additions in Python that is timed five times before the run and five times after:
the spread of these ten is the noise of the machine meanwhile. Such a ratio tells how dear a run is,
and has no limit. What a benchmark does not measure is "not measured".
"""
NOT_MEASURED = "not measured"
ADDITIONS, _LOOPS = 2_000_000, 5
_BY_HAND = "\n## What 10,000 switches"
"""Heading from which on the page is written by hand."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    spread: the interval, or the extremes, and of how many samples. peer: what it is compared with.
    limit: what it must not exceed; empty where none is stated. processor: ratio of processor times.
    """

    benchmark: str
    name: str
    value: str
    spread: str
    peer: str
    limit: str
    measured: str
    machine: str
    processor: str = NOT_MEASURED


@dataclass(frozen=True, slots=True)
class Judged:
    """A figure beside its limit.

    share: of the limit; what is beyond it has more than 1. timed: whether it is a time, which
    depends on the machine and its load, and is never judged.
    """

    benchmark: str
    name: str
    share: float
    timed: bool

    @property
    def beyond(self) -> bool:
        """Whether it is judged, and beyond its limit; so is what is no number."""
        return not self.timed and not self.share <= 1


measured_now: list[Figure] = []
judged_now: list[Judged] = []
_TIMES = ("s", "ms", "1/s")


def figure(name: str, value: str, spread: str = "", *, peer: str = "", limit: str = "") -> None:
    """Print a figure, and note it for the page."""
    _note(_benchmark(), name, value, spread, peer, limit)


def beside_limit(
    name: str,
    found: float,
    limit: float,
    unit: str = "",
    spread: str = "",
    *,
    peer: str = "",
    processor: float | None = None,
    at_least: bool = False,
) -> None:
    """Print a figure with its share of a limit, and note it for the page and for `--judge`.

    unit: of both; none for a ratio or a count. processor: the ratio of processor times to the same
    peer. at_least: whether the limit is the least that is allowed; the share is then the limit's of
    the figure.
    """
    share = limit / found if at_least else found / limit
    benchmark = _benchmark()
    judged_now.append(Judged(benchmark, name, share, unit in _TIMES))
    value, most = (f"{number:.4g} {unit}".strip() for number in (found, limit))
    limit_text = f"{'at least ' if at_least else ''}{most}"
    used = NOT_MEASURED if processor is None else f"{processor:.3g}"
    _note(benchmark, name, f"{value}, {share:.2f} of the limit", spread, peer, limit_text, used)


def run(name: str) -> None:
    """Run a benchmark, and note what the whole of it takes beside a loop of Python.

    The wall time and the processor time, of child processes too, are those of `main()`.
    """
    print(f"== {name}", flush=True)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak of `peak_mib`
    loops = [_loop() for _ in range(_LOOPS)]
    wall, used = time.perf_counter(), _used()
    import_module(f"benchmarks.{name}").main()
    wall, used = time.perf_counter() - wall, _used() - used
    loops += [_loop() for _ in range(_LOOPS)]
    by_wall, by_processor = (sorted(times) for times in zip(*loops, strict=True))
    middle = statistics.median(by_processor)
    noise = f"{by_processor[0] / middle:.2f} to {by_processor[-1] / middle:.2f}"
    _note(
        name,
        "the whole run",
        f"{wall:.1f} s, {used:.1f} s of processor",
        f"the loop {noise} of its median, n {len(loops)}",
        f"{wall / statistics.median(by_wall):.3g} of the loop's time",
        "",
        f"{used / middle:.3g} of the loop's",
    )


def peak_mib() -> float:
    """Return the most memory of this process since the benchmark began, in MiB (VmHWM, proc(5)).

    The usage of getrusage(2) would have that of the benchmarks before it.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) / 1024


def _loop() -> tuple[float, float]:
    """Return the wall time and the processor time of a fixed loop, in s."""
    wall, used, total = time.perf_counter(), time.process_time(), 0
    for number in range(ADDITIONS):
        total += number
    return time.perf_counter() - wall, time.process_time() - used


def _used() -> float:
    """Return the processor time of this process and the children that have ended, in s."""
    each = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


def verdict() -> bool:
    """Print the figures beyond their limits; returns whether no ratio and no count is."""
    beyond = [one for one in judged_now if one.beyond]
    judged = sum(not one.timed for one in judged_now)
    print(f"== judged: {judged} ratios and counts, {len(beyond)} beyond their limits")
    for one in judged_now:
        if one.beyond or not one.share <= 1:
            about = "" if one.beyond else " (a time: not judged)"
            print(f"  {one.benchmark}, {one.name}: {one.share:.2f} of the limit{about}")
    return not beyond


def _benchmark() -> str:
    """Return the name of the benchmark that called a function of this module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    assert frame is not None
    return Path(frame.f_code.co_filename).stem


def _note(
    benchmark: str,
    name: str,
    value: str,
    spread: str,
    peer: str,
    limit: str,
    processor: str = NOT_MEASURED,
) -> None:
    parts = (
        f"noise {spread or NOT_MEASURED}",
        f"peer {peer}" if peer else "",
        limit and f"limit {limit}",
        f"ratio of processor times {processor}",
    )
    shown = "; ".join(filter(None, parts))
    print(f"  {name}: {value} ({shown})", flush=True)
    machine = f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.0f}"
    today = f"{datetime.datetime.now(datetime.UTC):%F}"
    measured_now.append(
        Figure(benchmark, name, value, spread, peer, limit, today, machine, processor)
    )
    if path := os.environ.get("LIGHTRIG_FIGURES"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(measured_now[-1])) + "\n")


def write(page: Path, figures: list[Figure]) -> None:
    """Write the page, with the figures of benchmarks that are not among `figures` as before."""
    stored = page.with_suffix(".json")
    earlier = [Figure(**one) for one in json.loads(stored.read_text())] if stored.exists() else []
    new = {one.benchmark for one in figures}
    every = sorted(
        [*(one for one in earlier if one.benchmark not in new), *figures],
        key=lambda one: one.benchmark,
    )
    stored.write_text(json.dumps([asdict(one) for one in every], indent=1) + "\n")
    lines = [_HEAD, f"Python {platform.python_version()} on {platform.system()}."]
    for benchmark in dict.fromkeys(one.benchmark for one in every):
        lines += ["", f"## `python -m benchmarks {benchmark}`", ""]
        lines += [
            "| figure | value | noise | peer | limit | processor time | measured |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {one.name} | {one.value} | {one.spread or NOT_MEASURED} | {one.peer} | {one.limit} "
            f"| {one.processor} | {one.measured}, {one.machine} |"
            for one in every
            if one.benchmark == benchmark
        ]
    needs: Mapping[str, str] = import_module("benchmarks.__main__").NEEDS
    measured = {one.benchmark for one in every if one.name == "the whole run"}
    lines += ["", "## Whole runs not measured", "", "| benchmark | needs |", "|---|---|"]
    lines += [f"| {name} | {what} |" for name, what in needs.items() if name not in measured]
    by_hand = "".join(page.read_text().partition(_BY_HAND)[1:]) if page.exists() else ""
    page.write_text("\n".join(lines) + "\n" + by_hand)


def main(arguments: list[str]) -> None:
    page = PAGE
    if "--page" in arguments:
        place = arguments.index("--page")
        page = Path(arguments[place + 1])
        del arguments[place : place + 2]
    if "--from" in arguments:  # figures that were noted in a file while benchmarks ran
        lines = Path(arguments[arguments.index("--from") + 1]).read_text().splitlines()
        write(page, [Figure(**json.loads(line)) for line in lines])
        return
    # This module may have been loaded by two names: as the program, and by the benchmarks.
    figures = import_module("benchmarks.figures")
    for name in arguments or BENCHMARKS:
        figures.run(name)
    write(page, figures.measured_now)


if __name__ == "__main__":
    main(sys.argv[1:])
