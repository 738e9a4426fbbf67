"""Rows a second into the journal, one flush a row; the limit is 150,000.

The second figure is the same by the processor's time, which other work on the machine does not
lengthen.
"""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.figures import beside_limit
from lightrig.harness.record import Context, Journal, Row

ROWS = 100_000
REPETITIONS = 5
LIMIT = 150_000


def main() -> None:
    context = Context("benchmark", "journal", ("nothing",), True)
    rows = [
        Row("ocs.35", "signal_recovered", 1000 + n, 900 + n, 1100 + n, "ns", n, {"event": n})
        for n in range(ROWS)
    ]
    by_wall, by_processor = [], []
    for _ in range(REPETITIONS):
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "j.jsonl", {"run": "r", "night": "2026-01-01"})
            wall, processor = time.perf_counter(), time.process_time()
            for row in rows:
                journal.append(context, row)
            by_wall.append(ROWS / (time.perf_counter() - wall))
            by_processor.append(ROWS / (time.process_time() - processor))
            journal.close()
    for name, rates in (("", by_wall), (" of processor time", by_processor)):
        rate = statistics.median(rates)
        beside_limit(
            f"rows a second{name}", rate, LIMIT, "1/s",
            f"median of {REPETITIONS}; {min(rates):,.0f} to {max(rates):,.0f}", at_least=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
