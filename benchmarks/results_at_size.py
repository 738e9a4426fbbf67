"""A year of nights of fifty testbeds: ingest, the queries of pages and comparisons, disk.

LIGHTRIG_ROWS is the number of rows, 1e7 by default; LIGHTRIG_RESULTS keeps the data set in a
folder instead of a temporary one. The rows of the year are written by the same Parquet writer
settings as runs are, from arrays: the rate at which runs themselves are settled, from journals,
is measured apart. A quarter of the disk is left free, at least 25 GB.
"""

import datetime
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figures import figure
from lightrig.harness.record import Context, Journal, Results, Row, write_dataset
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.comparison import compare
from lightrig.harness.record.dataset import COLUMNS
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.source import Source

TESTBEDS = 50
NIGHTS = 365
FIRST = datetime.date(2025, 11, 22)
QUANTITIES = ("insertion_loss", "reconfiguration.signal_recovered", "outage", "bit_error_ratio")
UNITS = ("dB", "ns", "ns", "1")
EVENT_SUBJECTS = 32
FREE_BYTES = 25e9
REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "5"))
INGESTED = 100_000
LIMITS_S = {"nights page, series of 90 nights": 60.0, "results compare, two runs": 10.0}


def main() -> None:
    rows = int(float(os.environ.get("LIGHTRIG_ROWS", "1e7")))
    given = os.environ.get("LIGHTRIG_RESULTS")
    folder = Path(given or tempfile.mkdtemp(prefix="lightrig-year-"))
    try:
        print(f"load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
        rates = sorted(ingest(INGESTED) for _ in range(REPETITIONS))
        figure(
            "journal to data set, rows a second of processor",
            f"{statistics.median(rates):,.0f}",
            f"{rates[0]:,.0f} to {rates[-1]:,.0f}, n {REPETITIONS}, {INGESTED:,} rows each",
        )
        if not (folder / "rows").is_dir():
            plant(folder, rows)
        measure(folder)
        write_together(folder)
        measure(folder, "compacted, ")
    finally:
        if given is None:
            shutil.rmtree(folder)


def ingest(count: int) -> float:
    """Return rows a second of processor time from a journal's end to the data set."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        journal = Journal(path, {"run": "20260101-000000-a", "night": "2026-01-01"})
        context = Context("bench", "test", ("ocs",), True, {"clock": "virtual"})
        for start in range(0, count, 1000):
            journal.append_many(
                context,
                [
                    Row(f"c{n % 32}", "insertion_loss", 1.5, None, None, "dB", n)
                    for n in range(start, start + 1000)
                ],
            )
        journal.close({})
        begun = time.process_time()
        write_dataset(path, Path(folder, "rows"))
        return count / (time.process_time() - begun)


def plant(folder: Path, rows: int) -> None:
    """Write the year below `folder`."""
    per_file = max(len(QUANTITIES) * EVENT_SUBJECTS, rows // (TESTBEDS * NIGHTS))
    random = np.random.default_rng(1)
    begun, cpu, written = time.perf_counter(), time.process_time(), 0
    for night in range(NIGHTS):
        date = FIRST + datetime.timedelta(night)
        for testbed in range(TESTBEDS):
            write(folder, f"bench{testbed:02}", date, per_file, random)
            written += per_file
        if shutil.disk_usage(folder).free < FREE_BYTES:
            print(f"  stopped at {written:,} rows: the disk keeps 25 GB free")
            break
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    print(f"  {written:,} rows of arrays written in {took:.0f} s ({used:.0f} s of processor)")


def write(
    folder: Path, testbed: str, date: datetime.date, count: int, random: np.random.Generator
) -> None:
    """Write one run of `count` rows, as `write_dataset` does."""
    run = f"{date:%Y%m%d}-021500-{testbed}"
    place = np.arange(count)
    kind = place % len(QUANTITIES)
    events = place // (len(QUANTITIES) * EVENT_SUBJECTS)
    value = random.normal(40.0, 2.0, count)
    texts = [json.dumps({"clock": "system", "event": int(n)}) for n in range(events[-1] + 1)]

    def chosen(names: list[str], index: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
        return pa.DictionaryArray.from_arrays(index, names).cast(pa.string())

    subjects = [f"server{n}.nic0" for n in range(EVENT_SUBJECTS)]
    columns = [
        chosen([run], np.zeros(count, dtype=np.int64)),
        chosen(
            ["suites/test_reconfiguration.py::test_between_plans"], np.zeros(count, dtype=np.int64)
        ),
        chosen(subjects, place // len(QUANTITIES) % EVENT_SUBJECTS),
        chosen(list(QUANTITIES), kind),
        pa.array(value),
        pa.array(value - 0.1),
        pa.array(value + 0.1),
        chosen(list(UNITS), kind),
        pa.array(place * 1_000_000),
        pa.array(np.zeros(count, dtype=bool)),
        pa.array([["ocs Polatis 1234 6.8"]], pa.list_(pa.string())).take(
            pa.array(np.zeros(count, dtype=np.int64))
        ),
        chosen(texts, events),
    ]
    header = {"run": run, "night": str(date), "schema": 3}
    table = pa.Table.from_arrays(columns, schema=COLUMNS).replace_schema_metadata(
        {"lightrig.header": json.dumps(header)}
    )
    path = folder / "rows" / f"testbed={testbed}" / f"night={date}" / f"{run}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    facts = {
        "schema": 1,
        "state": "complete",
        "torn": False,
        "tests": [],
        "summary": {},
        "testbeds": {testbed: {"rows": count, "simulated": False}},
        "header": header,
    }
    place_of_run = folder / "runs" / run
    place_of_run.mkdir(parents=True, exist_ok=True)
    (place_of_run / "run.json").write_text(json.dumps(facts))


def write_together(folder: Path) -> None:
    """Compact the months that are over; print the time."""
    begun, cpu = time.perf_counter(), time.process_time()
    done = compact(str(folder))
    used = time.process_time() - cpu
    figure(
        f"compaction of {done.replaced:,} files into {len(done.files):,}",
        f"{used:.0f} s of processor",
        f"{time.perf_counter() - begun:.0f} s; {done.before / 1e9:.2f} GB, then "
        f"{done.after / 1e9:.2f} GB",
    )


def measure(folder: Path, state: str = "") -> None:
    """Print disk, and the time of each query that pages and comparisons make."""
    files = list(folder.glob("rows/**/*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    disk = sum(file.stat().st_size for file in files)
    about = f"{state}{rows / 1e6:.0f} million rows in {len(files):,} files: "
    figure(f"{about}disk", f"{disk / rows:.1f} bytes a row", f"{disk / 1e9:.2f} GB")
    results = Results(folder)
    last = max(datetime.date.fromisoformat(facts.night) for facts in results.runs())
    before = last - datetime.timedelta(1)
    runs = [f"{date:%Y%m%d}-021500-bench00" for date in (before, last)]
    for name, query in queries(folder, results, *runs):
        times = []
        for _ in range(REPETITIONS):
            begun = time.perf_counter()
            query()
            times.append(time.perf_counter() - begun)
        limit = LIMITS_S.get(name)
        figure(
            about + name,
            f"{max(times):.2f} s, greatest",
            f"median {statistics.median(times):.2f} s, n {REPETITIONS}",
            limit=f"{limit:g} s" if limit else "",
        )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figure(f"{about}resident memory, most", f"{most:,.0f} MiB")


def queries(
    folder: Path, results: Results, before: str, last: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each query with its name."""

    def page() -> None:
        with Source(folder).connected() as connection:
            read(connection, 90)

    yield "results list", results.runs
    yield "one run's frame", lambda: results.frame(run=last)
    yield "count by testbed", lambda: results.query("SELECT testbed, count(*) FROM rows GROUP BY 1")
    yield "results compare, two runs", lambda: compare(results, before, last)
    yield "nights page, series of 90 nights", page


if __name__ == "__main__":
    main()
