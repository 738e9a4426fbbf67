"""A logbook of 100,000 notes: the nights' page with it and without, in pairs, and a query.

`LIGHTRIG_PAIRS` (default 9) pairs of pages of 45 nights of five testbeds; times are of the
processor, so that a busy machine changes them little. What the page takes longer with notes is
compared with what Python's json takes to parse their 100,000 lines, 19 MB, of which the page needs
the 12,000 from between the nights. A share of the page is no measure: the page becomes faster, and
the notes stay as many.
"""

import json
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.faulty_nights import plant
from benchmarks.figures import beside_limit
from lightrig.harness.record import Results
from lightrig.harness.record.journal import header_line, seal
from lightrig.harness.report.nights import write_nights

NOTES, NIGHTS = 100_000, 45
MOST, MOST_SECONDS = 0.5, 2.0
TESTBEDS = ("mixnet", "opus", "acos", "railx", "infinitehbd")


def write_notes(results: Path) -> None:
    """Write notes of two accounts on ports of all testbeds, over a year."""
    dice = random.Random(1)
    (results / "notes").mkdir()
    for account in ("ann", "ben"):
        with (results / "notes" / f"{account}@rack.jsonl").open("w") as file:
            for _ in range(NOTES // 2):
                at = f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"
                note = {
                    "at_utc": f"{at} {dice.randint(0, 23):02}:{dice.randint(0, 59):02}:00",
                    "account": account,
                    "host": "rack",
                    "testbed": dice.choice(TESTBEDS),
                    "subject": f"ocs.{dice.randint(1, 64)}",
                    "text": "cleaned with a click pen, " * dice.randint(1, 4),
                }
                file.write(json.dumps(note) + "\n")


def write_journals(results: Path) -> None:
    """Write the journal of each run, which tells when it began."""
    for rows in results.glob("rows/*/night=*/*.parquet"):
        night = rows.parent.name.partition("=")[2]
        header = {"run": rows.stem, "night": night, "started": f"{night}T01:30:00+00:00"}
        journal = results / "runs" / rows.stem / "journal.jsonl"
        journal.write_text(f"{seal(header_line(header))}\n", encoding="utf-8")


def processor_time(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        without, noted = Path(made, "without"), Path(made, "noted")
        plant(without, seed=0, nights=NIGHTS)
        write_journals(without)
        shutil.copytree(without, noted)
        write_notes(noted)
        page = Path(made, "nights.html")
        for folder in (without, noted):
            write_nights(str(folder), page)
        lines = [line for file in (noted / "notes").iterdir() for line in file.open("rb")]
        shares, ratios = [], []
        for pair in range(int(os.environ.get("LIGHTRIG_PAIRS", "9"))):
            order = (without, noted) if pair % 2 else (noted, without)
            took = {f: processor_time(lambda f=f: write_nights(str(f), page)) for f in order}  # type: ignore[misc]
            ratios.append(took[noted] / took[without])
            parsing = processor_time(lambda: [json.loads(line) for line in lines])
            shares.append((took[noted] - took[without]) / parsing)
        results = Results(noted)
        seconds = [
            processor_time(lambda: results.query("SELECT count(*) FROM notes")) for _ in range(5)
        ]
    share = statistics.median(shares)
    print(f"{NOTES:,} notes")
    beside_limit(
        "what the nights' page takes longer, of json's parsing of all notes", share, MOST,
        spread=f"median of {len(shares)} pairs; {min(shares):.3f} to {max(shares):.3f}",
        peer=f"the page without notes, {statistics.median(ratios):.3f} times as long with them",
        processor=share,
    )  # fmt: skip
    beside_limit("SELECT count(*) FROM notes", statistics.median(seconds), MOST_SECONDS, "s")


if __name__ == "__main__":
    main()
