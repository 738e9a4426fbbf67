"""One flipped bit in a file of results: it is named as damaged, or all reads as before.

`FLIPS` times (default 10,000) for each kind of file one drawn bit is changed and the results are
read: rows files with a digest and without, of one run and compacted; `run.json` and
`rows/compacted.json`, which hold digests; journals, strictly and as recovery reads them. Bits are
drawn from `FLIPS_SEED` (default 1). The reader is a process of its own, so one that a file ends is
counted. An ending of the reader, an error without a type, and values that differ without a word
break the promise.
"""

import datetime
import hashlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lightrig.harness.record import Context, Journal, RecordError, Results, Row, TestOutcome, settle
from lightrig.harness.record import results as results_module
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.journal_reading import read_journal
from lightrig.harness.record.places import Place
from lightrig.harness.record.rows_check import Inspector, headers_of
from lightrig.harness.record.rows_files import stored_rows
from lightrig.harness.record.run_folder import RunFacts
from lightrig.harness.report.nights import source as source_module
from lightrig.testbeds import LightrigError

KINDS = (
    "rows with digest",
    "rows without digest",
    "compacted with digest",
    "compacted without digest",
    "run.json",
    "manifest",
    "journal",
    "journal recovered",
)
BROKEN = ("ENDED", "UNTYPED", "CHANGED")


def record(results: Path, night: datetime.date, count: int) -> None:
    """Record an ended run of uneven rows on two testbeds."""
    folder = results / "runs" / f"{night:%Y%m%d}-021500-a"
    header = {"run": folder.name, "night": str(night), "descriptions": {}, "testbeds": {"lab": "x"}}
    journal = Journal(folder / "journal.jsonl", header)
    dice = random.Random(count)
    for testbed in ("lab", "b/2"):
        context = Context(testbed, "test", ("ocs: a", {"model": "b"}), False, {"clock": "system"})
        rows = [
            Row(
                f"server{n % 3}",
                "insertion_loss",
                8.0 - dice.random(),
                None if n % 4 else dice.random(),
                9.0 + n,
                "dB",
                n * 1_000_003,
                {"event": n // 2},
            )
            for n in range(count)
        ]
        journal.append_many(context, rows)
    journal.note_test(TestOutcome("test", "passed", 1.25))
    journal.close({"duration_s": 12.5})
    settle(folder)


def undigested(results: Path) -> None:
    """Leave the results as earlier versions wrote them: without digests."""
    for path in results.glob("runs/*/run.json"):
        document = json.loads(path.read_text())
        document.pop("digests")
        document.pop("sha256")
        path.write_text(json.dumps(document, indent=1) + "\n")
    manifest = results / "rows" / "compacted.json"
    if manifest.exists():
        document = json.loads(manifest.read_text())
        document.pop("digests")
        document.pop("sha256")
        manifest.write_text(json.dumps(document))


def planted(root: Path, kind: str) -> tuple[Path, list[Path]]:
    """Return results, and the files of which bits are changed."""
    results = root / "results"
    for day, count in ((3, 37), (4, 5), (5, 61)):
        record(results, datetime.date(2026, 1, day), count)
    if kind.startswith("compacted") or kind == "manifest":
        record(results, datetime.date(2026, 2, 1), 7)
        compact(str(results))
    if kind.endswith("without digest"):
        undigested(results)
    patterns = {
        "rows": "rows/*/night=2026-01-05/*.parquet",
        "compacted": "rows/*/2026-01.*.parquet",
        "run.json": "runs/20260105*/run.json",
        "manifest": "rows/compacted.json",
        "journal": "runs/20260105*/journal.jsonl",
    }
    return results, sorted(results.glob(patterns[kind.split(maxsplit=1)[0]]))


def content(results: Path, kind: str, files: list[Path]) -> str:
    """Return a digest of all that is read from the results."""
    if kind.startswith("journal"):
        record = read_journal(files[0], salvage=kind.endswith("recovered"))
        if record.damage or record.torn:
            raise RecordError("named as damaged")
        rows = [(context, row) for context, row in record.rows()]
        return digest((record.header, record.summary, record.tests, rows))
    found = Results(results)
    if damaged := found.damaged():
        raise damaged[0]
    frame = found.frame().to_csv()
    with source_module.Source(results).connected() as connection:
        nights = connection.sql("FROM found ORDER BY testbed, night, file_row_number").df()
        headers = source_module.Source(results).descriptions(connection).headers
    runs = [(vars_of(one), list(one.tests or ())) for one in found.runs()]
    return digest((runs, frame, nights.to_csv(), sorted(headers.items())))


def vars_of(facts: RunFacts) -> list[object]:
    return [getattr(facts, each.name) for each in fields(facts) if each.name != "tests"]


def digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def read(results: Path, kind: str, files: list[Path], pipe: Connection) -> None:
    """Answer each request by the outcome of reading the results."""
    inspector = Inspector()
    undigested = kind.endswith("without digest")
    wanted = content(results, kind, files)
    facts = {one.run: one for one in Results(results).runs()}
    rows = {file.name: file for file in stored_rows(Place(results))}
    if undigested:
        # Inspected here, by one process for all: a new one each time would take most of the time.
        results_module.check_rows = source_module.check_rows = lambda _, files: list(files)
    while True:
        pipe.send("ready")
        path = Path(pipe.recv())
        try:
            if undigested:
                file = rows[path.relative_to(results).as_posix()]
                if problem := inspector.problem(path, file, headers_of(file, facts)):
                    raise RecordError(problem)
            outcome = "same" if content(results, kind, files) == wanted else "CHANGED"
        except LightrigError:
            outcome = "typed"
        except Exception as error:
            outcome = f"UNTYPED {type(error).__name__}: {error}"
        pipe.send(outcome)


def reader(results: Path, kind: str, files: list[Path]) -> tuple[Any, Connection]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("forkserver").Process(
        target=read, args=(results, kind, files, theirs), daemon=True
    )
    process.start()
    theirs.close()
    return process, ours


def flips(kind: str, count: int, seed: str, note: Callable[[str], object]) -> Counter[str]:
    """Change `count` drawn bits of files of a kind, one at a time; return the outcomes."""
    found: Counter[str] = Counter()
    dice = random.Random(f"{seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="lightrig-flips-") as name:
        results, files = planted(Path(name), kind)
        if kind.startswith("journal"):
            files = files[:1]
        process, pipe = reader(results, kind, files)
        for _ in range(count):
            file = dice.choice(files)
            data = file.read_bytes()
            at, bit = dice.randrange(len(data)), dice.randrange(8)
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            pipe.recv()
            file.write_bytes(changed)
            try:
                pipe.send(str(file))
                outcome = pipe.recv()
            except (EOFError, ConnectionError):
                outcome = "ENDED"
                process.join()
            finally:
                file.write_bytes(data)
            if outcome == "ENDED":
                process, pipe = reader(results, kind, files)
            word = outcome.split()[0]
            found[word] += 1
            if word in BROKEN:
                note(f"{kind}: {file.name}, byte {at}, bit {bit}: {outcome}")
        process.kill()
        process.join()
    return found


def outcomes() -> Iterator[tuple[str, Counter[str]]]:
    """Yield the outcomes of each kind of file."""
    count, seed = int(os.environ.get("FLIPS", "10000")), os.environ.get("FLIPS_SEED", "1")
    for kind in os.environ.get("FLIPS_KINDS", ",".join(KINDS)).split(","):
        yield kind, flips(kind, count, seed, print)


def main() -> bool:
    """Print the outcomes; returns whether nothing was silent, untyped or ended the reader."""
    print(f"{'file':<26}{'flips':>8}{'typed':>8}{'same':>8}" + "".join(f"{b:>9}" for b in BROKEN))
    good = True
    for kind, found in outcomes():
        cells = "".join(f"{found[word]:>8,}" for word in ("typed", "same"))
        bad = "".join(f"{found[word]:>9,}" for word in BROKEN)
        print(f"{kind:<26}{found.total():>8,}{cells}{bad}", flush=True)
        good = good and not any(found[word] for word in BROKEN)
    return good


if __name__ == "__main__":
    sys.exit(not main())
