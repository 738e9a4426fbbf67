"""The nights' page of ninety nights of five testbeds.

How long it takes, how large it is, and whether the three injected faults are what it
marks, and nothing else.
"""

import datetime
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.faulty_nights import Fault, plant
from lightrig.harness.report.nights import NIGHTS, write_nights
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.series_changes import find_series_changes, group_changes
from lightrig.harness.report.nights.source import Source

LIMIT_SECONDS = 5.0
REPETITIONS = 5
SEEDS = 6

Mark = tuple[str, datetime.date, str, str]
"""Testbed, night, quantity and subject."""


def marked(results: Path) -> tuple[set[Mark], int, int]:
    """Return the changes that the page marks, the number of their groups, and of drifts."""
    history = read(Source(results, NIGHTS))
    assert history is not None
    found: set[Mark] = set()
    times = drifts = 0
    for lab, moved in zip(history.labs, find_series_changes(history.labs), strict=True):
        times += len(group_changes(lab, moved, ()))
        drifts += sum(one.drift is not None for one in moved)
        found |= {
            (lab.testbed, history.date(change.index), one.series.quantity, one.series.subject)
            for one in moved
            for change in one.changes
        }
    return found, times, drifts


def expected(faults: list[Fault]) -> set[Mark]:
    """Return the series that the page should mark."""
    return {(fault.testbed, fault.night, *series) for fault in faults for series in fault.series}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        faults, rows = plant(Path(folder), seed=0, nights=NIGHTS)
        page = Path(folder, "nights.html")
        seconds = []
        for _ in range(REPETITIONS):
            start = time.perf_counter()
            write_nights(folder, page)
            seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        code = (
            f"from lightrig.harness.cli.report import *; report(None, Path({folder!r}), {NIGHTS})"
        )
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        whole = time.perf_counter() - start
        size = page.stat().st_size
    took = statistics.median(seconds)
    print(f"{NIGHTS} nights of 5 testbeds, {rows:,} rows")
    print(
        f"  page in {took:.2f} s (median of {REPETITIONS}; {min(seconds):.2f} to "
        f"{max(seconds):.2f}), {took / LIMIT_SECONDS:.2f} of the limit of {LIMIT_SECONDS:g} s"
    )
    print(f"  the whole command, imports and all, in {whole:.2f} s; {size / 1e6:.2f} MB")
    exact = 0
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            faults, _ = plant(Path(folder), seed, NIGHTS)
            found, times, drifts = marked(Path(folder))
        wanted = expected(faults)
        exact += found == wanted and times == len(faults)
        if found != wanted or times != len(faults) or drifts:
            print(
                f"  seed {seed}: {len(wanted - found)} missed, {len(found - wanted)} too many, "
                f"{times} groups of changes, {drifts} drifts"
            )
            for mark in sorted(found ^ wanted)[:8]:
                print(f"    {'missed' if mark in wanted else 'too many'}: {mark}")
    print(f"  exactly the injected changes marked with {exact} of {SEEDS} seeds")


if __name__ == "__main__":
    main()
