"""Kill -9 of `compact`, `push` and `pull`: no row is lost, and no file is half there.

`RESULTS_KILLS` times (default 30) each of them is killed at a drawn moment after its first file;
one that had ended by then does not count. Then all rows of the source are read and compared with
those from before, every run that the target lists has all its rows, and doing the same again makes
the target equal to one that was never interrupted, without files that its writer has left.
"""

import contextlib
import datetime
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from lightrig.harness.cli.app import application
from lightrig.harness.record import Context, Journal, Results, Row, TestOutcome, settle
from lightrig.harness.record.rows_files import MANIFEST

KINDS = ("compact", "push", "pull")
BROKEN = ("ROWS LOST", "HALF A RUN", "NOT AS IF WHOLE", "LEFT BEHIND")
MONTHS, NIGHTS = 4, 6
CONTEXT = multiprocessing.get_context("forkserver")


def plant(results: Path) -> None:
    """Record months of uneven runs on two testbeds."""
    dice = random.Random(1)
    for month in range(1, MONTHS + 1):
        for day in range(1, NIGHTS + 1):
            night = datetime.date(2026, month, day)
            folder = results / "runs" / f"{night:%Y%m%d}-021500-a"
            journal = Journal(folder / "journal.jsonl", {"run": folder.name, "night": str(night)})
            for testbed in ("lab", "b/2"):
                context = Context(testbed, "test", ("ocs: a",), True, {"clock": "virtual"})
                rows = [
                    Row("ocs", "insertion_loss", dice.random(), None, 9.0, "dB", n, {"event": n})
                    for n in range(dice.randrange(200, 900))
                ]
                journal.append_many(context, rows)
            journal.note_test(TestOutcome("test", "passed", 1.25))
            journal.close({"duration_s": 1.0})
            settle(folder)


def arguments(kind: str, source: Path, target: Path) -> list[str]:
    """Return the command line that changes `target`, which is `source` for `compact`."""
    places = {
        "compact": ["compact", "--results", str(source)],
        "push": ["push", str(target), "--results", str(source)],
        "pull": ["pull", str(source), "--results", str(target)],
    }
    return ["results", *places[kind]]


def command(line: list[str]) -> None:
    """Run a command line of Lightrig, without its output."""
    with Path(os.devnull).open("w") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    application("results")(line)


def started(kind: str, target: Path) -> bool:
    """Whether the first file was written, or is."""
    pattern = "rows/*/.*.tmp" if kind == "compact" else "rows/*/night=*/*"
    return next(target.glob(pattern), None) is not None


def content(results: Path) -> dict[str, bytes]:
    """Return all files but those that locks need, and compacted ones, whose names are drawn."""
    return {
        str(path.relative_to(results)): path.read_bytes()
        for path in results.rglob("*")
        if path.is_file() and path.name not in (".readers", ".compacting")
    }


def frame(results: Path) -> pd.DataFrame:
    return Results(results).frame()


def kill_once(kind: str, planted: Path, root: Path, number: int, found: Counter[str]) -> None:
    """Kill one process and look at what it has left."""
    dice = random.Random(f"{kind} {number}")
    source = Path(shutil.copytree(planted, root / "source"))
    target = source if kind == "compact" else root / "target"
    before = frame(source)
    line = arguments(kind, source, target)
    process = CONTEXT.Process(target=command, args=(line,), daemon=True)
    process.start()
    while process.is_alive() and not started(kind, target):
        time.sleep(0.0005)
    time.sleep(dice.uniform(0, WITHIN_S[kind]))
    if not process.is_alive():
        found["had ended"] += 1
        return
    process.kill()
    process.join()
    found["kills"] += 1
    found["ROWS LOST"] += not frame(source).equals(before)
    if kind != "compact":
        with contextlib.suppress(FileNotFoundError):
            found["runs there"] += len(listed := whole_runs(target))
            rows = frame(target)
            for run in listed:
                of_run = before[before["run"] == run].reset_index(drop=True)
                theirs = rows[rows["run"] == run].reset_index(drop=True)
                found["HALF A RUN"] += not theirs.equals(of_run)
    again = CONTEXT.Process(target=command, args=(line,))
    again.start()
    again.join()
    found["NOT AS IF WHOLE"] += again.exitcode != 0 or not frame(target).equals(before)
    if kind != "compact":
        found["NOT AS IF WHOLE"] += content(target) != content(source)
    else:
        files = list(target.glob("rows/**/*.parquet"))
        single = 2 * NIGHTS  # the last month is not over
        found["NOT AS IF WHOLE"] += len(files) != 2 * (MONTHS - 1) + single
        found["NOT AS IF WHOLE"] += not (target / MANIFEST).exists()
    found["LEFT BEHIND"] += next(target.rglob("*.tmp"), None) is not None


def whole_runs(target: Path) -> list[str]:
    return [facts.run for facts in Results(target).runs() if facts.state == "complete"]


WITHIN_S = {"compact": 0.5, "push": 0.3, "pull": 0.3}
"""A process is killed within this time after its first file."""


def outcomes(wanted: int) -> Iterator[tuple[str, Counter[str]]]:
    """Yield what was found for each kind of process."""
    CONTEXT.set_forkserver_preload(
        [f"lightrig.harness.record.{name}" for name in ("compaction", "transfer", "results")]
    )
    with tempfile.TemporaryDirectory(prefix="lightrig-kills-") as name:
        planted = Path(name, "planted")
        plant(planted)
        for kind in KINDS:
            found: Counter[str] = Counter()
            number = 0
            while found["kills"] < wanted and number < 20 * wanted:
                root = Path(name, f"{kind} {number}")
                root.mkdir()
                kill_once(kind, planted, root, number, found)
                shutil.rmtree(root)
                number += 1
            yield kind, found


def main() -> bool:
    """Kill; returns whether nothing was lost and nothing half there."""
    good = True
    for kind, found in outcomes(int(os.environ.get("RESULTS_KILLS", "30"))):
        words = ("kills", "had ended", "runs there", *BROKEN)
        print(f"{kind:<8}" + ", ".join(f"{word} {found[word]:,}" for word in words), flush=True)
        good = good and found["kills"] > 0 and not any(found[word] for word in BROKEN)
    return good


if __name__ == "__main__":
    sys.exit(not main())
