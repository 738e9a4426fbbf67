"""Kill -9 of each process of a run: the lab is as found after `lightrig restore`, or it is said.

`PROCESS_KILLS` times (default 30) each: pytest, the controller and a worker of pytest-xdist, the
pytest of a night, and `lightrig restore`. A kill counts only where the process was alive and had
saved a state. `restore` computes too little for a moment in its processor time: it is killed up to
5 ms after a drawn one of its commands, replies and removals of a state. Workers of xdist, their
controller and nights restore by themselves, which is waited for. Then a lab that is changed must
have a saved state, and a night and a controller must have reported it; `lightrig restore` runs, and
circuits and settings are compared with those from before, as in `suite_kills`, whose labs these
are. Runs that were cut off are recovered; all acknowledged rows must be in the results, and no file
is half there. Each kill is a line of the campaign's file.
"""

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lightrig.harness.record import JournalEmptyError, Results, recover, to_recover
from lightrig.instruments.wire.trace import Trace
from tests.campaigns import acknowledged
from tests.campaigns.preloaded import forked, preload, run_lanes, run_pytest
from tests.campaigns.records import folder, log, read, reported
from tests.campaigns.suite_kills import ROOT, Lab, processor_time, restore
from tests.campaigns.suite_kills_lab import served

TESTS = {
    "mixnet": "suites/test_reconfiguration.py",
    "switchoptics": "suites/test_switch_optics.py",
}
PROCESSES = ("pytest", "xdist controller", "xdist worker", "pytest of a night", "restore")
BEGINS_S = 120.0
ENDS_S = 300.0
FIRST_ROW_S = 30.0
"""After this time without a row a saved state will do."""
WITHIN_S = 3.0
WITHIN_CPU_S = 0.3
"""Processor time from the first state or row to a kill at the latest."""
RESTORE_EVENTS = 30
"""Commands, replies and removals of a restore, as far as none has ended by itself."""
DELAY_S = 0.005
LOOK_S = 0.02


def options(lab: Lab, results: Path, number: int) -> list[str]:
    """Return the arguments of pytest."""
    given = [TESTS[lab.name], "--testbed", str(lab.file), "--instruments", "hardware"]
    given += ["--samples", "40", "--seed", str(number), "--results", str(results)]
    given += ["-q", "-p", "no:cacheprovider", "-p", "no:html"]
    return [*given, "-p", acknowledged.__name__]


def begin(process: str, lab: Lab, place: Path, number: int) -> int:
    """Begin a run; returns the number of its first process."""
    results = place / "results"
    if process.startswith("xdist"):
        command = [sys.executable, "-m", "pytest", *options(lab, results, number)]
        command += ["-n", "2", "--maxfail", "1"]
        if lab.name != "mixnet" or number % 2:  # a replacement would run all other tests
            command += ["--max-worker-restart", "0"]
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
                    "pytest": ["--instruments", "hardware", *given[5:9], *given[-2:]],
                    "hosts": {"here": {"testbeds": [str(lab.file)]}},
                }
            )
        )
        return forked(partial(night, hosts, lab.name), place / "run.txt")
    return forked(lambda: run_pytest(options(lab, results, number)), place / "run.txt")


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
    """Whether a thread of a process runs and is not yet to be reaped.

    A process that is killed has its files and locks open until its last thread has ended, and its
    first one, whose state is that of the process in /proc, may end before others.
    """
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return False
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            stat = Path(f"/proc/{process}/task/{thread}/stat").read_text()
            if stat.rpartition(")")[2].split()[0] not in ("Z", "X"):
                return True
    return False


def kill_at_random(
    process: str, first: int, place: Path, dice: random.Random, workers: list[int]
) -> str:
    """Kill a process some time after its first state or its first row; returns the outcome.

    Adds what it had started to `workers`: these go on for a while, and have another parent then.
    For `restore`, it is pytest that is killed: after a row, so that there is something to restore.
    """
    state = Path(os.environ["LIGHTRIG_STATE"])
    began = time.monotonic()
    by_row = process == "restore" or dice.random() < 0.5

    def begun() -> bool:
        wants_row = by_row and time.monotonic() < began + FIRST_ROW_S
        return bool(acknowledged.rows(place)) if wants_row else any(state.glob("*.found.json"))

    while not begun():
        if time.monotonic() > began + BEGINS_S or not is_alive(first):
            return "not begun"
        time.sleep(LOOK_S)
    chosen = victim(process, first)
    part = dice.random()
    latest = time.monotonic() + part * WITHIN_S  # the controller of xdist hardly computes
    try:
        enough = processor_time(chosen) + part * WITHIN_CPU_S if chosen else 0.0
        while chosen and is_alive(chosen) and processor_time(chosen) < enough:
            if time.monotonic() > latest:
                break
            time.sleep(LOOK_S)
    except OSError:
        return "ended by itself"
    if chosen is None or not is_alive(chosen):
        return "ended by itself"
    workers += children(chosen)
    os.kill(chosen, signal.SIGKILL)
    return "killed"


def restore_and_die(lab: Lab, event: int, delay: float, count: Path) -> int:
    """Run `lightrig restore FILE`, and kill it `delay` s after its `event`-th event.

    Events are commands, replies and removals of files; their number stands in `count`.
    """
    descriptor = os.open(count, os.O_RDWR | os.O_CREAT)
    events = itertools.count(1)

    def note() -> None:
        number = next(events)
        os.pwrite(descriptor, b"%d" % number, 0)
        if number == event:
            kill = partial(os.kill, os.getpid(), signal.SIGKILL)
            threading.Timer(delay, kill).start() if delay else kill()

    def noted(method: Callable[..., int]) -> Callable[..., int]:
        def call(*given: Any) -> int:
            at = method(*given)
            note()
            return at

        return call

    Trace.sent = noted(Trace.sent)  # type: ignore[method-assign]
    Trace.received = noted(Trace.received)  # type: ignore[method-assign]
    sys.addaudithook(lambda name, _: note() if name == "os.remove" else None)
    return restore(lab)


def kill_restore(lab: Lab, place: Path, dice: random.Random, found: dict[str, Any]) -> str:
    """Kill a `lightrig restore` after one of its events; returns the outcome."""
    of_lab = [each.get("events", 0) for each in read("process_kills") if each["lab"] == lab.name]
    event = dice.randint(1, max(of_lab, default=0) or RESTORE_EVENTS)
    delay = dice.choice([0.0, dice.uniform(0, DELAY_S)])
    count = place / "events"
    killed = forked(lambda: restore_and_die(lab, event, delay, count), place / "restore killed.txt")
    outcome = "killed" if wait(killed) == -signal.SIGKILL else "ended by itself"
    found["events"] = int(count.read_bytes() or b"0")
    return outcome


def check_results(place: Path, found: dict[str, Any]) -> None:
    """Recover what was cut off, and compare the rows with those that were acknowledged."""
    found["rows"] = acknowledged.rows(place)
    there, half = 0, [str(path) for path in place.glob("**/*.tmp")]
    for results in (place / "results", *place.glob("tmp/*/")):
        if not (results / "runs").is_dir():
            continue
        for run in to_recover(results):
            with contextlib.suppress(JournalEmptyError):
                recover(run)
        half += map(str, Results(results).damaged())
        there += len(Results(results).frame())
    found["rows lost"], found["half there"] = max(0, found["rows"] - there), half


def one_kill(process: str, lab: Lab, number: int) -> dict[str, Any]:
    """Begin a run, kill one of its processes, restore and compare."""
    dice = random.Random(number)
    found: dict[str, Any] = {"number": number, "process": process, "lab": lab.name}
    place, state = lab.folder / str(number), lab.folder / "state"
    (place / "tmp").mkdir(parents=True)
    before = lab.ask("draw", lab.name, number, True)
    os.environ["LIGHTRIG_STATE"] = str(state)
    os.environ["TMPDIR"] = tempfile.tempdir = str(place / "tmp")
    os.environ[acknowledged.FOLDER] = str(place)
    state.mkdir(mode=0o700, exist_ok=True)
    first = begin(process, lab, place, number)
    workers: list[int] = []
    try:
        outcome = kill_at_random(process, first, place, dice, workers)
    finally:
        if outcome == "not begun" and is_alive(first):
            workers += children(first)
            os.kill(first, signal.SIGKILL)
    ended = wait(first)
    for worker in workers:
        while is_alive(worker):
            time.sleep(LOOK_S)
    if process == "restore" and outcome == "killed":
        found["changed before"] = lab.ask("truth", lab.name) != before
        outcome = kill_restore(lab, place, dice, found)
    found["outcome"], found["exit"] = outcome, ended
    printed = (place / "run.txt").read_text(errors="replace")
    after = lab.ask("truth", lab.name)
    found["changed"] = after != before
    said = any(state.glob("*.found.json"))
    if process in ("pytest of a night", "xdist worker"):
        said = said and "NOT as found" in printed
    found["unsaid"] = after != before and not said
    found["restored by the night"] = "the lab was restored" in printed
    found["restore"] = wait(forked(lambda: restore(lab), place / "restore.txt"))
    after = lab.ask("truth", lab.name)
    found["left changed"] = after != before
    check_results(place, found)
    if outcome == "not begun":
        found["printed"] = printed[-2000:]
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
            # The tests on the first lab take a tenth of the time of those on the second.
            lines.add(one_kill(process, labs[number // len(PROCESSES) % 3 // 2], number))
    return 0


def killed(done: Sequence[dict[str, Any]], process: str) -> int:
    """Return how often a process was killed alive."""
    return sum(each["outcome"] == "killed" and each["process"] == process for each in done)


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of process by outcome, and whether all is as it should be."""
    columns = ("killed", "changed then", "ended by itself", "not begun", "rows", "ROWS LOST")
    columns += ("HALF THERE", "CHANGED UNSAID", "LEFT CHANGED", "NOT RESTORED")
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for found in done:
        row = rows[found["process"]]
        row[found["outcome"]] += 1
        row["changed then"] += found["changed"] and found["outcome"] == "killed"
        row["rows"] += found["rows"]
        row["ROWS LOST"] += found["rows lost"]
        row["HALF THERE"] += len(found["half there"])
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
    return reported(*table(done), report) and all(killed(done, each) >= kills for each in PROCESSES)


SETTINGS = {"PROCESS_KILLS": "30", "PROCESS_KILLS_LANES": "2"}
"""Settings from the environment, and their defaults."""

if __name__ == "__main__":
    sys.exit(not main())
