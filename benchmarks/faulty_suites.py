"""Random fault plans during a suite: every run ends in time, names the cause, keeps its rows.

`FAULTY_RUNS` times (default 500) the suite of reconfigurations runs on a small simulated lab, every
twentieth time in network namespaces where there are any, with one to three faults. A run is judged
by its exit status (0 passed, 1 failed, 3 ended by the lab, 6 not as found and said so), by its
journal, which must be readable with all rows that its data set has, and by its output: an internal
error, or a failure without a typed error of Lightrig, is one of the harness.

Every run is a line of `FAULTY_LOG` (default `.faulty_suites.jsonl`). A campaign that was ended goes
on behind the last one; one number draws the same faults again.
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
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.preloaded import forked, preload
from lightrig.harness.record import Results, read_journal
from lightrig.instruments.namespaces import namespaces
from lightrig.testbeds.fault_plan import FAULT_KINDS

ROOT = Path(__file__).parents[1]
LAB = ROOT / "testbeds" / "mixnet.yaml"
NAMESPACES = ROOT / "testbeds" / "namespaces.yaml"
LIMIT_S = 1800
"""In real time: a process at the lowest priority may wait long for a busy machine."""
EXPECTED = {0: "passed", 1: "failed, cause named", 3: "ended by the lab", 6: "said NOT as found"}
CAUSES = re.compile(
    r"lightrig\.(?:\w+\.)+\w*(?:Error|Conflict)\b|the harness measured a simulated world wrong"
)


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


def run_once(folder: Path, number: int, in_namespaces: bool) -> tuple[list[str], Counter[str]]:
    """Run the suite under one fault plan; returns its faults and what has happened."""
    dice = random.Random(number)
    testbed = NAMESPACES if in_namespaces else LAB
    nic = "nic0.p0" if in_namespaces else "nic0"
    servers = [f"server{n}" for n in range(4)]
    faults = drawn(dice, [f"{server}.{nic}" for server in servers], servers)
    plan, results = folder / f"{number}.yaml", folder / f"results{number}"
    plan.write_text(json.dumps({"faults": faults}))
    began = time.monotonic()
    options = ["suites/test_reconfiguration.py", "--testbed", str(testbed)]
    options += ["--instruments", "simulated", "--faults", str(plan)]
    options += ["--samples", "2", "--seed", str(number), "--results", str(results)]
    options += ["-p", "no:cacheprovider", "-p", "no:html", "--tb=short", "-k", "between"]
    found: Counter[str] = Counter()
    kinds = [str(fault["fault"]) for fault in faults]
    os.environ["LIGHTRIG_STATE"] = str(folder / "state")
    output = folder / f"{number}.txt"
    child = forked(lambda: int(pytest.main(options)), output)
    status, ended = 0, 0
    while not ended:
        if time.monotonic() - began > LIMIT_S:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return kinds, Counter({"HANG": 1})
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    printed, code = output.read_text(errors="replace"), os.waitstatus_to_exitcode(status)
    found["seconds"] = round(time.monotonic() - began)
    found[EXPECTED.get(code, f"EXIT {code}")] += 1
    found["INTERNAL ERROR"] += "INTERNALERROR" in printed
    if code == 1:
        found["CAUSE NOT NAMED"] += CAUSES.search(printed) is None
    if code not in EXPECTED:
        sys.stderr.write(printed[-3000:])
    journals = list(results.glob("runs/*/journal.jsonl"))
    found["NO JOURNAL"] += len(journals) != 1
    for journal in journals:
        in_journal = sum(1 for _ in read_journal(journal).rows())
        found["rows"] += in_journal
        found["ROWS LOST"] += max(0, in_journal - len(Results(results).frame()))
    shutil.rmtree(results, ignore_errors=True)
    return kinds, found


def main(report: Callable[[str], object] = print) -> bool:
    """Run all plans and print a table of fault by outcome; returns whether all ended well."""
    count = int(os.environ.get("FAULTY_RUNS", "500"))
    log = Path(os.environ.get("FAULTY_LOG", ".faulty_suites.jsonl")).absolute()
    reason = namespaces.available()
    if reason:
        report(f"none in namespaces: {reason}")
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    os.chdir(ROOT)
    preload(simulation=True)
    with tempfile.TemporaryDirectory(prefix="lightrig-faults-") as folder, log.open("a") as lines:
        for number in range(len(done), count):
            kinds, found = run_once(Path(folder), number, number % 20 == 19 and not reason)
            bad = sorted(name for name, n in found.items() if n and name.split()[0].isupper())
            if bad:
                report(f"plan {number} ({', '.join(kinds)}): {', '.join(bad)}")
            done.append({"number": number, "faults": kinds, "found": found})
            lines.write(json.dumps(done[-1]) + "\n")
            lines.flush()
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for each in done:
        total.update(each["found"])
        for kind in set(each["faults"]):
            table[kind]["runs"] += 1
            table[kind].update(each["found"])
    for kind in sorted(table):
        report(f"{kind:<20} {json.dumps(dict(sorted(table[kind].items())))}")
    report(f"{'all':<20} {json.dumps({'runs': len(done), **dict(sorted(total.items()))})}")
    return not any(name.split()[0].isupper() and n for name, n in total.items())


if __name__ == "__main__":
    sys.exit(not main())
