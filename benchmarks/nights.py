"""The nights' page of ninety nights of five testbeds.

How long it takes, how large it is, and whether the three injected faults are what it
marks, and nothing else.
"""

import datetime
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.faulty_nights import USUAL, Fault, Scatter, plant
from benchmarks.figures import beside_limit
from lightrig.harness.report.nights import NIGHTS, judge_nights, write_nights
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
        for one in moved:
            for change in one.changes:
                date = datetime.date.fromisoformat(history.date(change.index).date)
                found.add((lab.testbed, date, one.series.quantity, one.series.subject))
    return found, times, drifts


def expected(faults: list[Fault]) -> set[Mark]:
    """Return the series that the page should mark."""
    return {(fault.testbed, fault.night, *series) for fault in faults for series in fault.series}


QUIET: Mapping[str, Scatter] = {
    "retries in 1 % of events": USUAL,
    "retries in 5 % of events": Scatter(retries=0.05),
    "3 times the scatter": Scatter(wider=3.0),
    "heavy tails, t of 3 degrees": Scatter(df=3),
}
"""Worlds without a fault: five testbeds of 16 NIC ports, 20 events a night."""
QUIET_SEEDS = int(os.environ.get("NIGHTS_QUIET_SEEDS", "5"))
BEFORE, MORNINGS = 18, 8
"""Nights before the first morning that is judged, and mornings of a seed."""


def quiet(scatter: Scatter, seeds: Iterable[int]) -> Counter[str]:
    """Count what the page shows on mornings of a world without a fault.

    mornings; marked: mornings with a card; and cards, departures, changes, drifts of all.
    """
    found: Counter[str] = Counter()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            nights = BEFORE + MORNINGS
            plant(Path(folder), seed, nights, at=nights, scatter=scatter)
            left = sorted({one.name for one in Path(folder).glob("rows/*/night=*")})
            for _ in range(MORNINGS):
                judged = judge_nights(folder)
                cards = sum(len(causes) for _, causes in judged.causes)
                found += Counter(mornings=1, marked=int(cards > 0), cards=cards)
                for board in judged.boards:
                    found["departures"] += len(board.departures)
                    found["changes"] += sum(len(one.changes) for one in board.moved)
                    found["drifts"] += sum(one.drift is not None for one in board.moved)
                _remove(Path(folder), left.pop())
    return found


def _remove(results: Path, night: str) -> None:
    """Remove the last night, so that the morning before it is the last one."""
    day = night.partition("=")[2].replace("-", "")
    for each in [*results.glob(f"rows/*/{night}"), *results.glob(f"runs/{day}*")]:
        shutil.rmtree(each)


def print_quiet() -> None:
    """Print what mornings without a fault show, by world."""
    for name, scatter in QUIET.items():
        found = quiet(scatter, range(1, 1 + QUIET_SEEDS))
        print(
            f"  {name}: a card on {found['marked']} of {found['mornings']} mornings; "
            f"{found['cards']} cards, {found['departures']} departures, {found['changes']} "
            f"changes, {found['drifts']} drifts"
        )


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
    beside_limit(
        "page", took, LIMIT_SECONDS, "s",
        f"median of {REPETITIONS}; {min(seconds):.2f} to {max(seconds):.2f}",
    )  # fmt: skip
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
    print_quiet()


if __name__ == "__main__":
    main()
