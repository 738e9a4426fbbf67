"""Random fault plans during a suite: every run ends in time, names the cause, keeps its rows.

`FAULTY_RUNS` times (default 500) the suite of reconfigurations runs on a small simulated lab, every
twentieth time in network namespaces where there are any, with one to three faults. A run is judged
by its exit status (0 passed, 1 failed, 3 ended by the lab, 6 not as found and said so), by its
journal, which must be readable with all rows that its data set has, and by its output: an internal
error, or a failure without a typed error of Lightrig, is one of the harness.

`FAULTY_LANES` processes (default 4) run plans. Every run is a line of the campaign's file
(`tests.campaigns.records`). A campaign that was ended runs what is missing; one number draws the
same faults again.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from lightrig.harness.bench import simulation
from lightrig.harness.record import Results, read_journal
from lightrig.instruments.namespaces import namespaces
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds.fault_plan import FAULT_KINDS
from tests.campaigns.preloaded import forked, preload, run_lanes, run_pytest
from tests.campaigns.records import faults_by_outcome, folder, log, read, reported, total_of

ROOT = Path(__file__).parents[2]
LAB = ROOT / "testbeds" / "mixnet.yaml"
NAMESPACES = ROOT / "testbeds" / "namespaces.yaml"
LIMIT_S = 1800
"""In real time: a process at the lowest priority may wait long for a busy machine."""
EXPECTED = {0: "passed", 1: "failed, cause named", 3: "ended by the lab", 6: "said NOT as found"}
MEASURED_WRONG = "the harness measured a simulated world wrong"
CAUSES = re.compile(rf"lightrig\.(?:\w+\.)+\w*(?:Error|Conflict)\b|{MEASURED_WRONG}")
LOOK_S = 0.05
NAMESPACES_EVERY = 20


def drawn(dice: random.Random, ports: list[str], servers: list[str]) -> list[dict[str, object]]:
    """Draw one to three faults."""
    faults: list[dict[str, object]] = []
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        kind = dice.choice(FAULT_KINDS)
        at = {
            "fibers swapped": dice.sample(ports, 2),
            "server lost": dice.sample(servers, 1),
            "clock step": [],
            "disk full": [],
        }.get(kind, ["ocs"] if kind.startswith("instrument") else dice.sample(ports, 1))
        fault = {"fault": kind, "at": at, "after": f"{dice.choice([1, 100, 3000, 9000])} ms"}
        if at and dice.random() < 0.5:
            fault["lasting"] = f"{dice.choice([0.01, 0.5, 5, 60])} s"
        faults.append(fault)
    return faults


class ComparedWorlds:
    """Compares each switch's circuits before and after a run, in the simulated world's own truth.

    Put in the place of the class of worlds, in the process of a run.
    """

    def __init__(self, target: Path) -> None:
        self._target = target

    def __call__(self, *arguments: Any) -> SimulatedLab:
        """Make a world that writes which switches it leaves changed when it is closed."""
        world = SimulatedLab(*arguments)
        before = _circuits(world)
        close = world.close

        def compared() -> None:
            after = _circuits(world)
            self._target.write_text(
                json.dumps([name for name in after if after[name] != before[name]])
            )
            close()

        world.close = compared  # type: ignore[method-assign]
        return world


def _circuits(world: SimulatedLab) -> dict[str, dict[int, int]]:
    matrices = world.matrices
    return {name: dict(matrix.egress_of) for name, matrix in matrices.items()}


def run_suite(options: list[str], changed: Path) -> int:
    """Run pytest in a world that tells what the run leaves changed."""
    simulation.SimulatedLab = ComparedWorlds(changed)  # type: ignore[assignment, misc]
    return run_pytest(options)


def run_once(place: Path, number: int, in_namespaces: bool) -> tuple[list[str], Counter[str]]:
    """Run the suite under one fault plan; returns its faults and what has happened."""
    dice = random.Random(number)
    testbed = NAMESPACES if in_namespaces else LAB
    nic = "nic0.p0" if in_namespaces else "nic0"
    servers = [f"server{n}" for n in range(4)]
    faults = drawn(dice, [f"{server}.{nic}" for server in servers], servers)
    plan, results = place / f"{number}.yaml", place / f"results{number}"
    plan.write_text(json.dumps({"faults": faults}))
    options = ["suites/test_reconfiguration.py", "--testbed", str(testbed)]
    options += ["--instruments", "simulated", "--faults", str(plan)]
    options += ["--samples", "2", "--seed", str(number), "--results", str(results)]
    options += ["--tb=short", "-k", "between"]
    found: Counter[str] = Counter()
    kinds = [str(fault["fault"]) for fault in faults]
    os.environ["LIGHTRIG_STATE"] = str(place / f"state{number}")
    output, changed = place / f"{number}.txt", place / f"{number}.changed"
    began = time.monotonic()
    child = forked(lambda: run_suite(options, changed), output)
    ended, status, used = 0, 0, None
    try:
        while not ended and time.monotonic() - began < LIMIT_S:
            time.sleep(LOOK_S)
            ended, status, used = os.wait4(child, os.WNOHANG)
    finally:
        if not ended:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if not ended:
        return kinds, Counter({"HANG": 1})
    assert used is not None
    found["CPU ms"] = round(1e3 * (used.ru_utime + used.ru_stime))
    judge(os.waitstatus_to_exitcode(status), output.read_text(errors="replace"), found)
    if changed.exists() and json.loads(changed.read_text()):
        found["left changed and said so"] += found[EXPECTED[6]]
        found["LEFT CHANGED"] += not found[EXPECTED[6]]
    journals = list(results.glob("runs/*/journal.jsonl"))
    found["NO JOURNAL"] += len(journals) != 1
    for journal in journals:
        in_journal = sum(1 for _ in read_journal(journal).rows())
        found["rows"] += in_journal
        found["ROWS LOST"] += max(0, in_journal - len(Results(results).frame()))
    if not broken(found):
        shutil.rmtree(results, ignore_errors=True)
    return kinds, found


def judge(code: int, printed: str, found: Counter[str]) -> None:
    """Count the outcome of a run by its exit status and what it has printed."""
    found[EXPECTED.get(code, f"EXIT {code}")] += 1
    found["INTERNAL ERROR"] += "INTERNALERROR" in printed
    if code == 1:
        found["CAUSE NOT NAMED"] += CAUSES.search(printed) is None
    found["closure failed"] += MEASURED_WRONG in printed
    if broken(found):
        sys.stderr.write(printed[-3000:])


def broken(found: Counter[str]) -> list[str]:
    """Return the promises that were broken, which stand in capitals."""
    names = [name for name, n in found.items() if n and name.split()[0].isupper()]
    return sorted(name for name in names if name != "CPU ms")


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of fault by outcome, and whether all runs ended well."""
    bad = broken(total_of(done))
    outcomes = (*EXPECTED.values(), "closure failed", "left changed and said so", "rows")
    printed = faults_by_outcome(done, "runs", outcomes, bad)
    return printed, not bad


def lane(place: Path, numbers: Iterable[int], in_namespaces: bool) -> int:
    """Run the plans of `numbers`, one after the other."""
    with log("faulty_suites") as lines:
        for number in numbers:
            every = in_namespaces and number % NAMESPACES_EVERY == NAMESPACES_EVERY - 1
            kinds, found = run_once(place, number, every)
            if bad := broken(found):
                sys.stderr.write(f"plan {number} ({', '.join(kinds)}): {', '.join(bad)}\n")
            lines.add({"number": number, "faults": kinds, "namespaces": every, "found": found})
    return 0


def main(report: Callable[[str], object] = print) -> bool:
    """Run all plans and print a table of fault by outcome; returns whether all ended well."""
    count = int(os.environ.get("FAULTY_RUNS", "500"))
    lanes = int(os.environ.get("FAULTY_LANES", "4"))
    reason = namespaces.available()
    if reason:
        report(f"none in namespaces: {reason}")
    done = {each["number"] for each in read("faulty_suites")}
    missing = [number for number in range(count) if number not in done]
    os.environ["CAMPAIGNS"] = str(folder())
    os.chdir(ROOT)
    preload(simulation=True)
    with tempfile.TemporaryDirectory(prefix="lightrig-faults-") as name:
        run_lanes([partial(lane, Path(name), missing[n::lanes], not reason) for n in range(lanes)])
    return reported(*table(read("faulty_suites")), report) and len(read("faulty_suites")) >= count
