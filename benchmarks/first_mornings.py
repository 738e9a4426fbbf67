"""Ten nights of five testbeds: faults on the first morning after, and false entries of any morning.

Nights scatter as in `benchmarks.faulty_nights`. In the last of them a NIC's firmware is slow, a
fiber is dirty and a lane is lost, each at another testbed. Entries of the section "Last night"
are counted over all mornings, and without faults over many sets of ten nights.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.faulty_nights import Fault, plant
from lightrig.harness.report.nights.last_night_departures import find_series_departures
from lightrig.harness.report.nights.series import Lab, NightSeries, read
from lightrig.harness.report.nights.source import Source

NIGHTS, SEEDS, STILL_SEEDS = 10, 6, 20
ERROR = 0.01
_COLUMNS = (
    "n", "median", "lower", "upper", "sampling", "p99", "p99_upper", "level", "greatest",
)  # fmt: skip

Entry = tuple[str, str, str]
"""Testbed, quantity and subject."""


def main() -> None:
    complete = extra = 0
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            faults, _ = plant(Path(folder), seed, NIGHTS, at=NIGHTS - 1)
            found = _entries(_labs(folder))
        wanted = {(fault.testbed, *series) for fault in faults for series in fault.series}
        shown = [fault for fault in faults if _of(fault) & found]
        complete += len(shown) == len(faults)
        extra += len(found - wanted)
        missing = {fault.what for fault in faults} - {fault.what for fault in shown}
        if missing:
            print(f"  seed {seed}: not shown: {', '.join(sorted(missing))}")
        print(f"  seed {seed}: {len(found & wanted)} of {len(wanted)} series shown")
    print(f"all three faults shown on the first morning with {complete} of {SEEDS} seeds")
    print(f"  {extra} series beside them")
    wrong = mornings = 0
    for seed in range(STILL_SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            plant(Path(folder), 1000 + seed, NIGHTS, at=NIGHTS)
            labs = _labs(folder)
        for morning in range(2, NIGHTS + 1):
            mornings += 1
            wrong += bool(_entries([_until(lab, morning) for lab in labs]))
    share = wrong / mornings
    print(f"false entries on {wrong} of {mornings} mornings without a fault: {share:.2%}")
    print(f"  {share / ERROR:.2f} of the promised {ERROR:.0%}")


def _labs(folder: str) -> list[Lab]:
    history = read(Source(folder, NIGHTS))
    assert history is not None
    return list(history.labs)


def _until(lab: Lab, night: int) -> Lab:
    """Return a lab as it was seen after its first `night` nights."""
    series = tuple(_cut(one, night) for one in lab.series)
    return replace(lab, series=series, runs=lab.runs[:night])


def _cut(one: NightSeries, night: int) -> NightSeries:
    return replace(one, **{name: getattr(one, name)[:night] for name in _COLUMNS})


def _entries(labs: list[Lab]) -> set[Entry]:
    return {
        (lab.testbed, each.series.quantity, each.series.subject)
        for lab, found in zip(labs, find_series_departures(labs), strict=True)
        for each in found
    }


def _of(fault: Fault) -> set[Entry]:
    return {(fault.testbed, *series) for series in fault.series}


if __name__ == "__main__":
    main()
