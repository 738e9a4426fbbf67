"""Reading a large journal for the data set and for the report, in a process each.

LIGHTRIG_EVENTS is the number of reconfigurations that the journal holds, 9,000 by default: 122 MB.
Each row stands for a stage of one circuit of one event, as a run of the reconfiguration suite on
opus.yaml records them. Peak memory is that above the process before it read anything.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import figure
from lightrig.harness.record import Context, Journal, Row, read_journal, write_dataset
from lightrig.harness.report.frames import collect
from lightrig.harness.report.run_page import write_page
from lightrig.testbeds import load

EVENTS = int(os.environ.get("LIGHTRIG_EVENTS", "9000"))
REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "3"))
CIRCUITS = 16
STAGES = ("acknowledged", "loss_of_signal", "signal_recovered", "carrier_up", "first_datagram")
MS = 1_000_000
OPUS = Path(__file__).parents[1] / "testbeds" / "opus.yaml"


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] in STEPS:
        measure(STEPS[sys.argv[1]], Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        journal = Path(name, "journal.jsonl")
        rows = plant(journal)
        size = journal.stat().st_size / 1e6
        for step in STEPS:
            found = [_in_a_process(step, journal) for _ in range(REPETITIONS)]
            times = sorted(each["cpu_s"] for each in found)
            most = max(each["mib"] for each in found)
            figure(
                f"{step}, {rows / 1e6:.2f} million rows, {size:.0f} MB",
                f"{statistics.median(times):.1f} s of processor, {most:.0f} MiB",
                f"{times[0]:.1f} to {times[-1]:.1f} s, n {REPETITIONS}",
            )


def plant(path: Path) -> int:
    """Write the journal; return its number of rows."""
    journal = Journal(path, {"run": "20260101-000000-a", "night": "2026-01-01"})
    test = "suites/test_reconfiguration.py::test_between_plans[opus-east-west-north-south]"
    context = Context("opus", test, ("ocs: Polatis, serial SIM-ocs",), True, {"clock": "virtual"})
    count = 0
    for event in range(EVENTS):
        begun = event * 10**9
        rows = [
            Row(
                *(f"ocs {circuit}->{circuit + 16}", f"reconfiguration.{stage}.circuit"),
                *(at := MS * (40 + place * 7 + (event * 31 + circuit) % 17), at - MS, at + MS),
                *("ns", begun + at, {"event": event}),
            )
            for place, stage in enumerate(STAGES)
            for circuit in range(CIRCUITS)
        ]
        rows += [
            Row("opus", f"reconfiguration.{stage}", *(at, at - MS, at + MS), "ns", begun, each)
            for place, stage in enumerate(STAGES)
            for at in (MS * (60 + place * 7 + event % 17),)
            for each in ({"event": event},)
        ]
        journal.append_many(context, rows)
        count += len(rows)
    journal.close({})
    return count


def _read(journal: Path) -> object:
    return collect(read_journal(journal))


def _dataset(journal: Path) -> object:
    return write_dataset(journal, journal.parent / f"rows{os.getpid()}")


def _page(journal: Path) -> object:
    return write_page(
        read_journal(journal), {"opus": load(OPUS)}, journal.with_name(f"{os.getpid()}.html")
    )


STEPS: dict[str, Callable[[Path], object]] = {
    "rows for the report": _read,
    "data set": _dataset,
    "report": _page,
}


def measure(step: Callable[[Path], object], journal: Path) -> None:
    """Print the processor time in seconds, and the peak of memory in MiB, of `step`."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    result = step(journal)
    used = time.process_time() - begun
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del result
    print(json.dumps({"cpu_s": used, "mib": (most - before) / 1024}))


def _in_a_process(step: str, journal: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.report_reading", step, str(journal)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
