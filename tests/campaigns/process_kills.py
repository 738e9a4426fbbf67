"""Kill -9 of each process of a run: the lab is as found after `lightrig restore`, or it is said.

`PROCESS_KILLS` times (default 30) each: pytest, the controller and a worker of pytest-xdist, the
pytest of a night, and `lightrig restore`. A kill counts only where the process was alive and had
saved a state. Workers of xdist and nights restore by themselves, which is waited for; then
`lightrig restore` runs, and circuits and settings are compared with those from before, as in
`suite_kills`, whose labs these are. Each kill is a line of the campaign's file.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.campaigns.preloaded import forked, preload, run_lanes
from tests.campaigns.records import folder, log, read
from tests.campaigns.suite_kills import ROOT, Lab, check_rows, processor_time, restore, run_test
from tests.campaigns.suite_kills_lab import served

TESTS = {
    "mixnet": "suites/test_reconfiguration.py",
    "switchoptics": "suites/test_switch_optics.py",
}
PROCESSES = ("pytest", "xdist controller", "xdist worker", "pytest of a night", "restore")
BEGINS_S = 120.0
ENDS_S = 300.0
WITHIN_S = 5.0
WITHIN_CPU_S = 0.3
"""Processor time from the first saved state to a kill at the latest."""
RESTORE_CPU_S = 0.06
"""Processor time that a restore takes, its imports aside."""
LOOK_S = 0.02


def options(lab: Lab, results: Path, number: int) -> list[str]:
    """Return the arguments of pytest."""
    given = [TESTS[lab.name], "--testbed", str(lab.file), "--instruments", "hardware"]
    given += ["--samples", "40", "--seed", str(number), "--results", str(results)]
    return [*given, "-q", "-p", "no:cacheprovider", "-p", "no:html"]


def begin(process: str, lab: Lab, place: Path, number: int) -> int:
    """Begin a run; returns the number of its first process."""
    results, count = place / "results", place / "count"
    if process.startswith("xdist"):
        command = [sys.executable, "-m", "pytest", *options(lab, results, number)]
        command += ["-n", "2", "--maxfail", "1"]  # a worker that was killed ends the run
        with (place / "run.txt").open("wb") as output:
            return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output).pid
    if process == "pytest of a night":
        hosts = place / "hosts.yaml"
        given = options(lab, results, number)
        hosts.write_text(
            json.dumps(
                {
                    "suites": [str(ROOT / TESTS[lab.name])],
                    "results": str(results),
                    "pytest": ["--instruments", "hardware", *given[5:9]],
                    "hosts": {"here": {"testbeds": [str(lab.file)]}},
                }
            )
        )
        return forked(partial(night, hosts, lab.name), place / "run.txt")
    return forked(lambda: run_test(lab, TESTS[lab.name], results, count, number), place / "run.txt")


def night(hosts: Path, testbed: str) -> int:
    """Run `lightrig night HOSTS --testbed TESTBED`."""
    from lightrig.harness.cli import main as command

    command(["night", str(hosts), "--testbed", testbed])
    return 0


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found.append(int(stat.parent.name))
    return found


def locks(process: int) -> bool:
    """Whether a process has a lock of an instrument open."""
    try:
        return any(
            os.readlink(each).endswith(".lock") for each in Path(f"/proc/{process}/fd").iterdir()
        )
    except OSError:
        return False


def victim(process: str, first: int) -> int | None:
    """Return the process to kill; None where it is not there."""
    if process == "xdist worker":
        return next(filter(locks, children(first)), None)
    if process == "pytest of a night":
        return next(iter(children(first)), None)
    return first


def wait(process: int) -> int:
    """Wait for the end of a process, and kill it if that takes too long; returns its status."""
    ends = time.monotonic() + ENDS_S
    while time.monotonic() < ends:
        reaped, status = os.waitpid(process, os.WNOHANG)
        if reaped:
            return os.waitstatus_to_exitcode(status)
        time.sleep(LOOK_S)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise TimeoutError(f"process {process} did not end")


def is_alive(process: int) -> bool:
    """Whether a process runs and is not yet to be reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_at_random(process: str, first: int, state: Path, dice: random.Random) -> str:
    """Kill a process some time after a state is on disk; returns the outcome."""
    ends = time.monotonic() + BEGINS_S
    while not any(state.glob("*.found.json")):
        if time.monotonic() > ends or not is_alive(first):
            return "not begun"
        time.sleep(LOOK_S)
    chosen = victim(process, first)
    part = dice.random()
    latest = time.monotonic() + part * WITHIN_S  # the controller of xdist hardly computes
    try:
        # On a busy machine little happens in two seconds of real time.
        within = RESTORE_CPU_S if process == "restore" else WITHIN_CPU_S
        enough = processor_time(chosen) + part * within if chosen else 0.0
        while chosen and is_alive(chosen) and processor_time(chosen) < enough:
            if process == "xdist controller" and time.monotonic() > latest:
                break
            time.sleep(LOOK_S)
    except OSError:
        return "ended by itself"
    if chosen is None or not is_alive(chosen):
        return "ended by itself"
    os.kill(chosen, signal.SIGKILL)
    return "killed"


def one_kill(process: str, lab: Lab, number: int) -> dict[str, Any]:
    """Begin a run, kill one of its processes, restore and compare."""
    dice = random.Random(number)
    found: dict[str, Any] = {"number": number, "process": process, "lab": lab.name}
    place, state = lab.folder / str(number), lab.folder / "state"
    place.mkdir()
    (place / "count").write_bytes(bytes(8))
    before = lab.ask("draw", lab.name, number)
    os.environ["LIGHTRIG_STATE"] = str(state)
    state.mkdir(mode=0o700, exist_ok=True)
    first = begin(process, lab, place, number)
    workers = []
    try:
        outcome = kill_at_random("pytest" if process == "restore" else process, first, state, dice)
        workers = children(first) if process.startswith("xdist") else []
    finally:
        if outcome == "not begun" and is_alive(first):
            os.kill(first, signal.SIGKILL)
    ended = wait(first)
    for worker in workers:
        while is_alive(worker) and Path(f"/proc/{worker}").exists():
            time.sleep(LOOK_S)
    if process == "restore" and outcome == "killed":
        second = forked(lambda: restore(lab), place / "restore.txt")
        outcome = kill_at_random(process, second, state, dice)
        wait(second)
    found["outcome"], found["exit"] = outcome, ended
    found["rows"] = found["rows lost"] = 0
    if process in {"pytest", "restore"}:
        check_rows(place / "results", place / "count", number, found)
    printed = (place / "run.txt").read_text(errors="replace")
    after = lab.ask("truth", lab.name)
    found["changed"] = after != before
    said = "NOT as found" in printed or process != "pytest of a night"
    found["unsaid"] = after != before and not said
    found["restored by the night"] = "the lab was restored" in printed
    found["restore"] = wait(forked(lambda: restore(lab), place / "restore.txt"))
    after = lab.ask("truth", lab.name)
    found["left changed"] = after != before
    if found["left changed"] or found["restore"] or found["unsaid"]:
        found["before"], found["after"] = before, after
        found["printed"] = printed[-2000:] + (place / "restore.txt").read_text()[-2000:]
    shutil.rmtree(place)
    return found


def lane(place: Path, numbers: Iterator[int], kills: int) -> int:
    """Kill in labs of its own, until all lanes together have made `kills` of each process."""
    place.mkdir()
    with served(place, list(TESTS)) as (ask, login), log("process_kills") as lines:
        os.environ["LIGHTRIG_SERVED"] = login
        labs = [Lab(name, place / name, ask, []) for name in TESTS]
        while wanting := [
            each for each in PROCESSES if killed(read("process_kills"), each) < kills
        ]:
            number = next(numbers)
            process = wanting[number % len(wanting)]
            lines.add(one_kill(process, labs[number // len(PROCESSES) % len(labs)], number))
    return 0


def killed(done: Sequence[dict[str, Any]], process: str) -> int:
    """Return how often a process was killed alive."""
    return sum(each["outcome"] == "killed" and each["process"] == process for each in done)


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of process by outcome, and whether all is as it should be."""
    columns = ("killed", "changed then", "ended by itself", "not begun", "rows", "ROWS LOST")
    columns += ("CHANGED UNSAID", "LEFT CHANGED", "NOT RESTORED")
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for found in done:
        row = rows[found["process"]]
        row[found["outcome"]] += 1
        row["changed then"] += found["changed"] and found["outcome"] == "killed"
        row["rows"] += found["rows"]
        row["ROWS LOST"] += found["rows lost"]
        row["CHANGED UNSAID"] += found["unsaid"]
        row["LEFT CHANGED"] += found["left changed"]
        row["NOT RESTORED"] += found["restore"] != 0
    printed = [f"{'process':<20}" + "".join(f"{name:>16}" for name in columns)]
    for process in PROCESSES:
        cells = "".join(f"{rows[process][name]:>16,}" for name in columns)
        printed.append(f"{process:<20}{cells}")
    broken = any(row[name] for row in rows.values() for name in columns if name.isupper())
    return printed, not broken


def main(report: Callable[[str], object] = print) -> bool:
    """Kill and restore; returns whether everything was as found and no row was lost."""
    kills, lanes = (int(os.environ.get(name, of)) for name, of in SETTINGS.items())
    os.environ["CAMPAIGNS"] = str(folder())
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="lightrig-kills-") as name:
        preload(simulation=False)
        first = max((each["number"] for each in read("process_kills")), default=-1) + 1
        run_lanes(
            [
                partial(lane, Path(name, f"lane {n}"), itertools.count(first + n, lanes), kills)
                for n in range(lanes)
            ]
        )
    done = read("process_kills")
    printed, good = table(done)
    for line in printed:
        report(line)
    return good and all(killed(done, each) >= kills for each in PROCESSES)


SETTINGS = {"PROCESS_KILLS": "30", "PROCESS_KILLS_LANES": "2"}
"""Settings from the environment, and their defaults."""

if __name__ == "__main__":
    sys.exit(not main())
