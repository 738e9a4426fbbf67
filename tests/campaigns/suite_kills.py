"""Kill -9 during the suites: the lab is as found after `lightrig restore`, no row is lost.

Testbeds named in `KILLS_TESTBEDS` (default five of the shipped ones; acos and railx, with up to 79
switches, only where they are named) are served in real time. `KILLS` times (default 1,000) a random
test of the next suite in turn runs on one, in a process that is killed within two seconds after its
first saved state or its first row (more of them on a busy machine, but within 0.15 s of processor
time). Then `lightrig restore` runs, and circuits and settings are compared with those from before:
circuits in the ground truth, settings over the wire. Rows are acknowledged when the journal's own
call has returned; they must be in the journal, and, of every tenth run, in the data set of a
recovered run.

`KILLS_LANES` processes (default 4) kill, each in labs of its own. Every kill is a line of the
campaign's file (`tests.campaigns.records`). A campaign that was ended goes on behind the last one;
one number draws the same test and moment again.
"""

import itertools
import json
import mmap
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.record import Journal, Results, read_journal, recover
from tests.campaigns.preloaded import RUN_OPTIONS, forked, preload, run_lanes, run_pytest
from tests.campaigns.records import folder, log, read, reported
from tests.campaigns.suite_kills_lab import served

ROOT = Path(__file__).parents[2]
TESTBEDS = ("mixnet", "opus", "infinitehbd", "switchlab", "switchoptics")
WITHIN_S = 2.0
WITHIN_CPU_S = 0.15
"""Processor time in which a run makes some tens of events."""
BEGINS_S = 300.0
"""Longest time until a run has opened its lab, on a busy machine."""
FIRST_ROW_S = 30.0
"""After this time without a row a saved state will do."""
LOOK_S = 0.02
LARGE = ("railx", "acos")
"""Testbeds of many switches, which take long to open: used for what only they can run."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Lab:
    """One served testbed, the tests that it can run, and the pipe to the process that serves it."""

    name: str
    folder: Path
    ask: Callable[..., Any]
    tests: list[str]

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
    return run_pytest([test, *options, "-q", "--seed", str(seed), "--results", str(results)])


def restore(lab: Lab) -> int:
    """Run `lightrig restore FILE`."""
    from lightrig.harness.cli import main as command

    command(["restore", str(lab.file)])
    return 0


def processor_time(process: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def run_and_kill(
    child: int, begun: Callable[[], bool], dice: random.Random
) -> tuple[str, resource.struct_rusage]:
    """Kill a process some time after it has `begun`; return the outcome and what it has used."""
    ends, cpu_ends = time.monotonic() + BEGINS_S, float("inf")
    has_begun = False
    reaped = 0
    try:
        while time.monotonic() < ends and processor_time(child) < cpu_ends:
            reaped, _, used = os.wait4(child, os.WNOHANG)
            if reaped:
                return "ended by itself", used
            if not has_begun and begun():
                has_begun = True
                part = dice.random()
                cpu_ends = processor_time(child) + part * WITHIN_CPU_S
                # On a busy machine little happens in two seconds of real time.
                busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
                ends = time.monotonic() + part * WITHIN_S * busy
            time.sleep(LOOK_S)
    finally:
        if not reaped:
            os.killpg(child, signal.SIGKILL)
            _, _, used = os.wait4(child, 0)
    return "killed" if has_begun else "not begun", used


def one_kill(lab: Lab, test: str, number: int) -> dict[str, Any]:
    """Run a test, kill it, restore and compare."""
    dice = random.Random(number)
    found: dict[str, Any] = {"number": number, "test": test, "lab": lab.name}
    found["suite"] = suite_of(test)
    place = lab.folder / str(number)
    place.mkdir()
    count, results, state = place / "count", place / "results", lab.folder / "state"
    count.write_bytes(bytes(8))
    before = lab.ask("draw", lab.name, number)
    os.environ["LIGHTRIG_STATE"] = str(state)
    began = time.monotonic()
    child = forked(lambda: run_test(lab, test, results, count, number), place / "run.txt")

    def any_row() -> bool:
        return any(count.read_bytes())

    def any_state() -> bool:
        return any(state.glob("**/*.found.json"))

    latest = time.monotonic() + FIRST_ROW_S  # many tests wait long for their first row
    by_row = dice.random() < 0.5

    def begun() -> bool:
        return any_row() if by_row and time.monotonic() < latest else any_state()

    found["outcome"], used = run_and_kill(child, begun, dice)
    found["cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
    found["run_s"] = round(time.monotonic() - began, 2)
    found["states"] = len(list(state.glob("**/*.found.json")))
    found["changed"] = lab.ask("circuits", lab.name) != before["circuits"]
    check_rows(results, count, number, found)
    os.environ["LIGHTRIG_STATE"] = str(state)
    _, status, used = os.wait4(forked(lambda: restore(lab), place / "restore.txt"), 0)
    found["restore_cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
    found["restore"] = os.waitstatus_to_exitcode(status)
    after = lab.ask("truth", lab.name)
    found["left changed"] = after != before
    if found["left changed"] or found["restore"]:
        found["before"], found["after"] = before, after
        found["printed"] = (place / "restore.txt").read_text()[-2000:]
    shutil.rmtree(place)
    return found


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


def next_test(labs: list[Lab], number: int, done: list[dict[str, Any]]) -> tuple[Lab, str]:
    """Draw a test of the suite whose turn it is, on a small testbed where there is one.

    Tests that have ended without a state or a row, after which a kill would come, are left out.
    """
    dice = random.Random(f"test {number}")
    barren = {(e["lab"], e["test"]) for e in done if e["outcome"] != "killed" and not e["rows"]}
    barren -= {(e["lab"], e["test"]) for e in done if e["outcome"] == "killed"}
    tests = [(lab, test) for lab in labs for test in lab.tests if (lab.name, test) not in barren]
    suites = sorted({suite_of(test) for _, test in tests})
    suite = suites[number % len(suites)]
    of_suite = [each for each in tests if suite_of(each[1]) == suite]
    small = [each for each in of_suite if each[0].name not in LARGE]
    return dice.choice(small or of_suite)


def collect(names: Sequence[str], target: Path) -> dict[str, list[str]]:
    """Return the tests that each testbed can run."""
    found = {}
    for name in names:
        options = ["--collect-only", "-q", "--instruments", "hardware"]
        options += ["--testbed", f"testbeds/{name}.yaml"]

        def work(options: list[str] = options) -> int:
            pytest.main(["suites", *options, *RUN_OPTIONS], plugins=[CollectOnly(target)])
            return 0

        os.waitpid(forked(work, target.with_suffix(".txt")), 0)
        found[name] = json.loads(target.read_text())
    return found


def lane(place: Path, tests: dict[str, list[str]], numbers: Iterator[int], kills: int) -> int:
    """Kill in labs of its own, until all lanes together have made `kills`."""
    place.mkdir()
    with served(place, list(tests)) as (ask, login), log("suite_kills") as lines:
        os.environ["LIGHTRIG_SERVED"] = login
        labs = [Lab(name, place / name, ask, of) for name, of in tests.items()]
        while killed(done := read("suite_kills")) < kills:
            number = next(numbers)
            lab, test = next_test(labs, number, done)
            lines.add(one_kill(lab, test, number))
    return 0


def killed(done: list[dict[str, Any]]) -> int:
    return sum(each["outcome"] == "killed" for each in done)


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
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
    for found in done:
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
    names = os.environ.get("KILLS_TESTBEDS", " ".join(TESTBEDS)).split()
    lanes = int(os.environ.get("KILLS_LANES", "4"))
    done = read("suite_kills")
    # The folder of the campaign's files may be a relative one.
    os.environ["CAMPAIGNS"] = str(folder())
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="lightrig-kills-") as name:
        preload(simulation=False)
        tests = collect(names, Path(name, "tests.json"))
        first = max((each["number"] for each in done), default=-1) + 1
        run_lanes(
            [
                partial(
                    lane, Path(name, f"lane {n}"), tests, itertools.count(first + n, lanes), kills
                )
                for n in range(lanes)
            ]
        )
    return reported(*table(read("suite_kills")), report) and killed(read("suite_kills")) >= kills
