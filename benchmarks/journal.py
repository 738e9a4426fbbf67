"""Rows a second into the journal, one flush a row; the limit is 150,000."""

import statistics
import tempfile
import time
from pathlib import Path

from harness.record import Context, Journal, Row

ROWS = 100_000
REPETITIONS = 5
LIMIT = 150_000


def main() -> None:
    context = Context("benchmark", "journal", ("nothing",), True)
    rows = [
        Row("ocs.35", "light_back", 1000 + n, 900 + n, 1100 + n, "ns", n, {"event": n})
        for n in range(ROWS)
    ]
    rates = []
    for _ in range(REPETITIONS):
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "j.jsonl", {"run": "r", "night": "2026-01-01"})
            start = time.perf_counter()
            for row in rows:
                journal.append(context, row)
            rates.append(ROWS / (time.perf_counter() - start))
            journal.close()
    rate = statistics.median(rates)
    print(f"{rate:,.0f} rows/s (median of {REPETITIONS}; {min(rates):,.0f} to {max(rates):,.0f})")
    print(f"  {rate / LIMIT:.2f} times the limit of {LIMIT:,}")


if __name__ == "__main__":
    main()
