"""Kill -9 during the suites: the lab is as found after `lightrig restore`, no row is lost.

Testbeds named in `KILLS_TESTBEDS` (default four of the shipped ones; acos and railx, with up to 79
switches, only where they are named) are served by one long-lived process, in real time. `KILLS`
times (default 1,000) a random test of the next suite in turn runs on one, in a process that is
killed up to two seconds after its first saved state or its first row. Then `lightrig restore` runs,
and circuits and settings are compared with those from before: circuits in the ground truth,
settings over the wire. Rows are acknowledged when the journal's own call has returned; they must be
in the journal, and, of every tenth run, in the data set of a recovered run.

Every kill is a line of `KILLS_LOG` (default `.kills.jsonl`). A campaign that was ended goes on
behind the last one; one seed draws the same tests and moments again.
"""

import contextlib
import gc
import json
import mmap
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.preloaded import forked, preload
from benchmarks.suite_kills_lab import served
from lightrig.harness.record import Journal, Results, read_journal, recover

ROOT = Path(__file__).parents[1]
TESTBEDS = ("mixnet", "opus", "infinitehbd", "switchlab")
WITHIN_S = 2.0
BEGINS_S = 300.0
"""Longest time until a run has opened its lab, on a busy machine."""
LARGE = ("railx", "acos")
"""Testbeds of many switches, which take long to open: used for what only they can run."""
LANES = 3
"""Labs in which something goes on at once; mostly the wait of a restore."""


@dataclass
class Lab:
    """One served testbed, the tests that it can run, and the pipe to the process that serves it."""

    name: str
    folder: Path
    ask: Callable[..., Any]
    tests: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """Return the testbed's file with its addresses."""
        return self.folder / "served.yaml"


def suite_of(test: str) -> str:
    return test.partition("::")[0].removeprefix("suites/").removesuffix(".py")


class CollectOnly:
    """Writes which tests a testbed can run."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the ids of all tests."""
        self._target.write_text(json.dumps([item.nodeid for item in session.items]))


def run_test(lab: Lab, test: str, results: Path, count: Path, seed: int) -> int:
    """Run one test as `pytest` does; the number of acknowledged rows stands in `count`."""
    append_many = Journal.append_many
    descriptor = os.open(count, os.O_RDWR)
    shared = mmap.mmap(descriptor, 8)

    def acknowledge(rows: int) -> None:
        total = int.from_bytes(shared[:], sys.byteorder) + rows
        shared[:] = total.to_bytes(8, sys.byteorder)

    def counted_many(self: Journal, context: Any, rows: Any) -> None:
        given = list(rows)
        append_many(self, context, given)
        acknowledge(len(given))

    Journal.append_many = counted_many  # type: ignore[method-assign]
    options = ["--testbed", str(lab.file), "--instruments", "hardware", "--samples", "40"]
    options += ["--seed", str(seed), "--results", str(results)]
    options += ["-p", "no:cacheprovider", "-p", "no:html", "-q"]
    return int(pytest.main([test, *options]))


def restore(lab: Lab) -> int:
    """Run `lightrig restore FILE`."""
    from lightrig.harness.cli import main as command

    command(["restore", str(lab.file)])
    return 0


def one_kill(
    lab: Lab, test: str, number: int, victims: set[str], found: dict[str, Any]
) -> Iterator[None]:
    """Run a test, kill it, restore and compare; yields while there is something to wait for."""
    dice = random.Random(number)
    place = lab.folder / str(number)
    place.mkdir()
    count, results = place / "count", place / "results"
    count.write_bytes(bytes(8))
    before = lab.ask("draw", lab.name, number)
    while victims:
        yield
    victims.add(lab.name)
    os.environ["LIGHTRIG_STATE"] = str(lab.folder / "state")
    child = forked(lambda: run_test(lab, test, results, count, number), place / "run.txt")
    first_row = dice.random() < 0.5
    began = time.monotonic()
    kill_at, ended = began + BEGINS_S, False
    begun = False
    while time.monotonic() < kill_at:
        reaped, _, used = os.wait4(child, os.WNOHANG)
        if reaped:
            ended = True
            break
        if not begun and (
            any(count.read_bytes())
            if first_row
            else any((lab.folder / "state").glob("**/*.found.json"))
        ):
            begun, kill_at = True, time.monotonic() + dice.uniform(0, WITHIN_S)
        yield
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, _, used = os.wait4(child, 0)
    victims.discard(lab.name)
    found["cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
    found["outcome"] = "ended by itself" if ended else "killed" if begun else "not begun"
    found["run_s"] = round(time.monotonic() - began, 2)
    found["states"] = len(list((lab.folder / "state").glob("**/*.found.json")))
    found["changed"] = lab.ask("circuits", lab.name) != before["circuits"]
    check_rows(results, count, number, found)
    child = forked(lambda: restore(lab), place / "restore.txt")
    while True:
        reaped, status, used = os.wait4(child, os.WNOHANG)
        if reaped:
            break
        yield
    found["restore_cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
    found["restore"] = os.waitstatus_to_exitcode(status)
    after = lab.ask("truth", lab.name)
    found["left changed"] = after != before
    if found["left changed"] or found["restore"]:
        found["before"], found["after"] = before, after
        found["printed"] = (place / "restore.txt").read_text()[-2000:]
    shutil.rmtree(place)


def check_rows(results: Path, count: Path, number: int, found: dict[str, Any]) -> None:
    acknowledged = int.from_bytes(count.read_bytes(), sys.byteorder)
    journals = list(results.glob("runs/*/journal.jsonl"))
    rows = sum(sum(1 for _ in read_journal(journal).rows()) for journal in journals)
    found["rows"] = acknowledged
    found["rows lost"] = max(0, acknowledged - rows)
    if number % 10 == 0 and rows:
        for journal in journals:
            recover(journal.parent)
        found["recovered"] = len(Results(results).frame())
        found["rows lost"] += max(0, acknowledged - found["recovered"])


def next_test(labs: list[Lab], number: int, barren: set[str]) -> tuple[Lab, str]:
    """Draw a test of the suite whose turn it is, on a small testbed where there is one.

    `barren` are tests that have changed nothing that a kill could leave.
    """
    dice = random.Random(f"test {number}")
    useful = [(lab, test) for lab in labs for test in lab.tests if key(lab, test) not in barren]
    suites = sorted({suite_of(test) for _, test in useful})
    suite = suites[number % len(suites)]
    of_suite = [each for each in useful if suite_of(each[1]) == suite]
    small = [each for each in of_suite if each[0].name not in LARGE]
    return dice.choice(small or of_suite)


def key(lab: Lab, test: str) -> str:
    return f"{lab.name} {test}"


def collect(lab: Lab) -> list[str]:
    target = lab.folder / "tests.json"
    options = ["--collect-only", "-q", "--instruments", "hardware", "--testbed", str(lab.file)]

    def work() -> int:
        plugins = [CollectOnly(target)]
        pytest.main(["suites", *options, "-p", "no:cacheprovider"], plugins=plugins)
        return 0

    os.waitpid(forked(work, lab.folder / "collected.txt"), 0)
    return json.loads(target.read_text())


def campaign(labs: list[Lab], log: Path, kills: int, report: Callable[[str], object]) -> None:
    """Kill until the log has `kills` of them."""
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    killed = sum(each["outcome"] == "killed" for each in done)
    barren = {
        each["key"] for each in done if each["outcome"] == "ended by itself" and not each["states"]
    }
    number = max((each["number"] for each in done), default=-1) + 1
    lanes: dict[str, tuple[Iterator[None], dict[str, Any]]] = {}
    victims: set[str] = set()
    started = time.monotonic()
    with log.open("a") as lines:
        while killed < kills or lanes:
            while len(lanes) < LANES and killed + len(lanes) < kills:
                free = [lab for lab in labs if lab.name not in lanes]
                lab, test = next_test(free, number, barren)
                found: dict[str, Any] = {
                    "number": number,
                    "key": key(lab, test),
                    "suite": suite_of(test),
                    "lab": lab.name,
                }
                lanes[lab.name] = one_kill(lab, test, number, victims, found), found
                number += 1
            for name, (steps, found) in list(lanes.items()):
                try:
                    next(steps)
                except StopIteration:
                    del lanes[name]
                    killed += found["outcome"] == "killed"
                    if found["outcome"] == "ended by itself" and not found["states"]:
                        barren.add(found["key"])
                    lines.write(json.dumps(found, sort_keys=True) + "\n")
                    lines.flush()
                    if killed % 50 == 0 and found["outcome"] == "killed":
                        report(f"{killed:>5} kills, {time.monotonic() - started:.0f} s")
            time.sleep(0.004)


def table(log: Path) -> tuple[list[str], bool]:
    """Return the table of suite by outcome, and whether all is as it should be."""
    columns = (
        "killed",
        "lab changed",
        "ended by itself",
        "not begun",
        "rows",
        "ROWS LOST",
        "LEFT CHANGED",
        "NOT RESTORED",
    )
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in log.read_text().splitlines():
        found = json.loads(line)
        for row in (rows[found["suite"]], rows["~all"]):
            row[found["outcome"]] += 1
            row["lab changed"] += found["changed"] and found["outcome"] == "killed"
            row["rows"] += found["rows"]
            row["ROWS LOST"] += found["rows lost"]
            row["LEFT CHANGED"] += found["left changed"]
            row["NOT RESTORED"] += found["restore"] != 0
    printed = [f"{'suite':<28}" + "".join(f"{name:>16}" for name in columns)]
    for suite in sorted(rows):
        cells = "".join(f"{rows[suite][name]:>16,}" for name in columns)
        printed.append(f"{suite.removeprefix('~'):<28}{cells}")
    return printed, not any(rows["~all"][name] for name in columns if name.isupper())


def main(report: Callable[[str], object] = print) -> bool:
    """Kill and restore; returns whether everything was as found and no row was lost."""
    kills = int(os.environ.get("KILLS", "1000"))
    log = Path(os.environ.get("KILLS_LOG", ".kills.jsonl")).absolute()
    names = os.environ.get("KILLS_TESTBEDS", " ".join(TESTBEDS)).split()
    os.chdir(ROOT)
    with (
        tempfile.TemporaryDirectory(prefix="lightrig-kills-") as name,
        served(Path(name), names) as (ask, login),
    ):
        os.environ["LIGHTRIG_SERVED"] = login
        preload(simulation=False)
        labs = [Lab(each, Path(name) / each, ask) for each in names]
        for lab in labs:
            lab.tests = collect(lab)
        gc.freeze()
        campaign(labs, log, kills, report)
    printed, good = table(log)
    for line in printed:
        report(line)
    return good


if __name__ == "__main__":
    sys.exit(not main())
