"""A year of nights of fifty testbeds: ingest, the queries of pages and comparisons, disk.

LIGHTRIG_ROWS is the number of rows, 1e7 by default, LIGHTRIG_NIGHTS that of nights;
LIGHTRIG_RESULTS keeps the data set in a folder instead of a temporary one, and where that has
rows already, they are only queried; LIGHTRIG_REPETITIONS is the number of times that each query
is made, of which p95 is shown from twenty on. The rows of the year are written by the same
Parquet writer settings as runs are, from arrays: the rate at which runs themselves are settled,
from journals, is measured apart.

With LIGHTRIG_PLANT=compacted the months that are over are written as compaction leaves them, one
file a testbed and month: ten times as fast, for many rows. Otherwise each run has its own file, and
what compaction makes of them is measured too. 25 GB of the disk are left free, or
LIGHTRIG_FREE_GB.
"""

import datetime
import json
import math
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figures import figure
from lightrig.harness.record import Context, Journal, Results, Row, write_dataset
from lightrig.harness.record.compacted_file import ROW_GROUP, writer_of
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.dataset import COLUMNS, COMPACTED_COLUMNS
from lightrig.harness.record.digests import digest_of, with_digest
from lightrig.harness.record.rows_files import MANIFEST, Compacted, Manifest, plain_file
from lightrig.harness.report.comparison import compare
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.source import Source

TESTBEDS = 50
NIGHTS = int(os.environ.get("LIGHTRIG_NIGHTS", "365"))
TESTS = 82
"""Tests of a run, as of `make night`; each has a line in the run's facts."""

FIRST = datetime.date(2025, 11, 22)
QUANTITIES = ("insertion_loss", "reconfiguration.signal_recovered", "outage", "bit_error_ratio")
UNITS = ("dB", "ns", "ns", "1")
EVENT_SUBJECTS = 32
FREE_BYTES = float(os.environ.get("LIGHTRIG_FREE_GB", "25")) * 1e9
REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "20"))
P95_NEEDS = 20
INGESTIONS = 3
INGESTED = 100_000
LIMITS_S = {"nights page, series of 90 nights": 60.0, "results compare, two runs": 10.0}


def main() -> None:
    rows = int(float(os.environ.get("LIGHTRIG_ROWS", "1e7")))
    given = os.environ.get("LIGHTRIG_RESULTS")
    together = os.environ.get("LIGHTRIG_PLANT") == "compacted"
    folder = Path(given or tempfile.mkdtemp(prefix="lightrig-year-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print(f"load average {os.getloadavg()[0]:.1f} of {os.cpu_count()} processors")
        if (folder / "rows").is_dir():
            measure(folder, "compacted, " if together else "")
            return
        rates = sorted(ingest(INGESTED) for _ in range(INGESTIONS))
        figure(
            "journal to data set, rows a second of processor",
            f"{statistics.median(rates):,.0f}",
            f"{rates[0]:,.0f} to {rates[-1]:,.0f}, n {INGESTIONS}, {INGESTED:,} rows each",
        )
        plant(folder, rows, together=together)
        if together:
            measure(folder, "compacted, ")
            return
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


# ----------------------------------------------------------------------------------- the year


def plant(folder: Path, rows: int, *, together: bool) -> None:
    """Write the year below `folder`; together: the months that are over as compacted files."""
    each = max(len(QUANTITIES) * EVENT_SUBJECTS, math.ceil(rows / (TESTBEDS * NIGHTS)))
    random = np.random.default_rng(1)
    begun, cpu, written = time.perf_counter(), time.process_time(), 0
    dates = [FIRST + datetime.timedelta(night) for night in range(NIGHTS)]
    compacted: list[Compacted] = []
    for month, group in groupby(dates, lambda date: f"{date:%Y-%m}"):
        nights = list(group)
        for testbed in (f"bench{n:02}" for n in range(TESTBEDS)):
            if shutil.disk_usage(folder).free < FREE_BYTES:
                print(f"  stopped at {written:,} rows: {FREE_BYTES / 1e9:g} GB stay free")
                break
            if together and month != f"{dates[-1]:%Y-%m}":
                compacted.append(write_month(folder, testbed, nights, each, random))
            else:
                for date in nights:
                    write_night(folder, testbed, date, each, random)
            written += each * len(nights)
    (folder / MANIFEST).write_text(Manifest(tuple(compacted)).text())
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    figure(
        f"{written / 1e6:.0f} million rows of arrays planted, rows a second of processor",
        f"{written / used:,.0f}",
        f"{took:.0f} s, {used:.0f} s of processor; n 1",
    )


def write_night(
    folder: Path, testbed: str, date: datetime.date, count: int, random: np.random.Generator
) -> None:
    """Write one run of `count` rows, as `write_dataset` does, and its folder."""
    run, header, facts = write_run(folder, testbed, date, count)
    table = rows_of(run, count, random).replace_schema_metadata(
        {"lightrig.header": json.dumps(header)}
    )
    path = folder / plain_file(testbed, str(date), run)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)
    facts["digests"] = {testbed: digest_of(path)}
    (folder / "runs" / run / "run.json").write_text(with_digest(facts))


def write_month(
    folder: Path,
    testbed: str,
    nights: list[datetime.date],
    count: int,
    random: np.random.Generator,
) -> Compacted:
    """Write the runs of a month as one file, as `compact` leaves them, and their folders."""
    runs = {date: write_run(folder, testbed, date, count) for date in nights}
    file = Compacted(
        f"rows/testbed={testbed}/{nights[0]:%Y-%m}.planted.parquet",
        {str(date): {run: count} for date, (run, _, _) in runs.items()},
    )
    (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
    metadata = {run: {"header": header} for run, header, _ in runs.values()}
    waiting: list[pa.Table] = []
    with writer_of(folder / file.name, metadata) as writer:
        for date, (run, _, _) in runs.items():
            columns = rows_of(run, count, random).columns
            days = pa.array(np.full(count, date, "datetime64[D]"))
            waiting.append(
                pa.Table.from_arrays(
                    [*columns, days, pa.array(np.arange(count))], schema=COMPACTED_COLUMNS
                )
            )
            if sum(map(len, waiting)) >= ROW_GROUP or date == nights[-1]:
                table = pa.concat_tables(waiting)
                writer.write_table(table, row_group_size=len(table))
                waiting = []
    return replace(file, digest=digest_of(folder / file.name))


def write_run(
    folder: Path, testbed: str, date: datetime.date, count: int
) -> tuple[str, dict[str, object], dict[str, object]]:
    """Write the folder of a run that has ended; return its name, its header and its facts."""
    run = f"{date:%Y%m%d}-021500-{testbed}"
    described = f"testbeds/{testbed}/{testbed}.yaml"
    header: dict[str, object] = {
        "run": run,
        "night": str(date),
        "schema": 3,
        "started": f"{date}T02:15:00+00:00",
        "command": f"pytest suites --testbed {testbed}.yaml --profile night",
        "testbeds": {testbed: f"/lab/{testbed}.yaml"},
        "descriptions": {testbed: described},
    }
    tests = [
        [f"suites/test_reconfiguration.py::test_between_plans[{testbed}-{n}]", "passed", 1.5]
        for n in range(TESTS)
    ]
    facts: dict[str, object] = {
        "schema": 1,
        "state": "complete",
        "torn": False,
        "tests": tests,
        "summary": {"duration_s": 3600.0},
        "testbeds": {testbed: {"rows": count, "simulated": False}},
        "header": header,
    }
    place = folder / "runs" / run
    (place / described).parent.mkdir(parents=True, exist_ok=True)
    (place / "run.json").write_text(with_digest(facts))
    # What lies beside: it is listed, but nothing that is measured here opens it.
    for name in ("journal.jsonl", "report.html", described):
        (place / name).touch()
    return run, header, facts


def rows_of(run: str, count: int, random: np.random.Generator) -> pa.Table:
    """Return the rows of one run, with the columns of the data set."""
    value = random.normal(40.0, 2.0, count)
    columns = alike(count) | {
        "run": pa.repeat(run, count),
        "value": pa.array(value),
        "lower": pa.array(value - 0.1),
        "upper": pa.array(value + 0.1),
    }
    return pa.Table.from_arrays([columns[name] for name in COLUMNS.names], schema=COLUMNS)


@lru_cache
def alike(count: int) -> dict[str, pa.Array]:
    """Return the columns that every run of `count` rows has."""
    place = np.arange(count)
    kind = place % len(QUANTITIES)
    events = place // (len(QUANTITIES) * EVENT_SUBJECTS)
    texts = [json.dumps({"clock": "system", "event": int(n)}) for n in range(events[-1] + 1)]

    def chosen(names: list[str], index: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
        return pa.DictionaryArray.from_arrays(index, names).cast(pa.string())

    subjects = [f"server{n}.nic0" for n in range(EVENT_SUBJECTS)]
    instruments = pa.array([["ocs Polatis 1234 6.8"]], pa.list_(pa.string()))
    return {
        "test": pa.repeat("suites/test_reconfiguration.py::test_between_plans", count),
        "subject": chosen(subjects, place // len(QUANTITIES) % EVENT_SUBJECTS),
        "quantity": chosen(list(QUANTITIES), kind),
        "unit": chosen(list(UNITS), kind),
        "time_ns": pa.array(place * 1_000_000),
        "simulated": pa.array(np.zeros(count, dtype=bool)),
        "instruments": instruments.take(pa.array(np.zeros(count, dtype=np.int64))),
        "conditions": chosen(texts, events),
    }


def write_together(folder: Path) -> None:
    """Compact the months that are over; print the time."""
    begun, cpu = time.perf_counter(), time.process_time()
    done = compact(str(folder))
    used = time.process_time() - cpu
    figure(
        f"compaction of {done.replaced:,} files into {len(done.files):,}",
        f"{used:.0f} s of processor",
        f"{time.perf_counter() - begun:.0f} s; {done.before / 1e9:.2f} GB, then "
        f"{done.after / 1e9:.2f} GB; n 1",
    )


# ----------------------------------------------------------------------------------- the queries


def measure(folder: Path, state: str = "") -> None:
    """Print disk, and the time of each query that pages and comparisons make."""
    files = list(folder.glob("rows/**/*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    disk = sum(file.stat().st_size for file in files)
    results = Results(folder)
    runs = results.runs()
    about = f"{state}{rows / 1e6:.0f} million rows of {len(runs):,} runs in {len(files):,} files: "
    figure(f"{about}disk", f"{disk / rows:.1f} bytes a row", f"{disk / 1e9:.2f} GB")
    last = max(datetime.date.fromisoformat(facts.night) for facts in runs)
    before = last - datetime.timedelta(1)
    names = [f"{date:%Y%m%d}-021500-bench00" for date in (before, last)]
    for name, query in queries(folder, results, *names):
        times, cpu = [], time.process_time()
        for _ in range(REPETITIONS):
            begun = time.perf_counter()
            query()
            times.append(time.perf_counter() - begun)
        used = (time.process_time() - cpu) / REPETITIONS
        limit = LIMITS_S.get(name)
        figure(
            about + name,
            p95(times),
            f"median {statistics.median(times):.2f} s, n {REPETITIONS}; {used:.2f} s of processor",
            limit=f"{limit:g} s" if limit else "",
        )
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figure(f"{about}resident memory, most", f"{most:,.0f} MiB")


def p95(times: list[float]) -> str:
    """Return the nearest-rank p95, or the greatest where there are too few."""
    if len(times) < P95_NEEDS:
        return f"{max(times):.2f} s, greatest of {len(times)}"
    return f"{sorted(times)[math.ceil(0.95 * len(times)) - 1]:.2f} s, p95"


def queries(
    folder: Path, results: Results, before: str, last: str
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each query with its name."""

    def page() -> None:
        read(Source(folder, 90))

    yield "results list", results.runs
    yield "one run's frame", lambda: results.frame(run=last)
    yield "count by testbed", lambda: results.query("SELECT testbed, count(*) FROM rows GROUP BY 1")
    yield "results compare, two runs", lambda: compare(results, before, last)
    yield "nights page, series of 90 nights", page


if __name__ == "__main__":
    main()
