"""Training scripts of others, under torchrun and on circuits: the same numbers, and what they cost.

`LIGHTRIG_SCRIPTS` names a list of scripts as for suites/claims/test_opus_scripts.py; no script is
part of this project. `foreign_scripts.json` beside this file is such a list, of which a copy stands
where the scripts are, with one of `foreign_preludes.py`: each has its `source` (repository, commit
and path), and beside it what it imports from there. Those of `nanogpt` read
`data/generated/train.bin` and `val.bin` of their folder, 4,096 random tokens below 50,304 as 16-bit
numbers. A `prelude` sets a seed, a device or the size of a data set, and prints what all parameters
sum up to after each step. With `longer`, arguments in the place of its own and what follows its
prelude, a script runs more steps, as the campaign `step_predictions` has it.

Each runs `FOREIGN_ROUNDS` times (default 3) under torchrun with Gloo and on the circuits of its
`testbed` (default rails4), in turn. Each rank must print the same numbers, to the last digit, or,
where they sum up what all ranks have, within `ROUNDING`. The time is that from the first printed
number to the last one, so it leaves out starts. Every run is a line of the campaign's file
(`tests.campaigns.records`), and goes on for `LONGEST_S` at most.

Needs the extra torch, and namespaces.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from lightrig.harness.jobs.training import RESULTS
from lightrig.suites.claims.test_opus_scripts import NotListedError, entries, source_of
from tests.campaigns.records import log, reported

ROOT = Path(__file__).parents[2]
ROUNDING = 4 * 2.0**-23
"""Largest relative difference of sums over four ranks in another order, of single precision."""
LONGEST_S = 600.0
LIGHTRIG = [sys.executable, "-u", "-c", "from lightrig.harness.cli import main; main()"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
PREFIX = {
    "torchrun": re.compile(r"\[default(\d+)\]:"),  # also before each part of a line
    "circuits": re.compile(r"^\[on circuits, rank (\d+)\] "),
}


def command_of(entry: dict[str, Any], kind: str, script: Path) -> list[str]:
    """Return the command line of one run."""
    arguments = list(map(str, entry.get("arguments", ())))
    degrees = entry["parallel"]
    if kind == "torchrun":
        ranks = entry.get("ranks") or prod(degrees.values())
        return [*TORCHRUN, str(ranks), "--tee", "3", str(script), *arguments]
    parallel = ",".join(f"{name}={degree}" for name, degree in degrees.items())
    testbed = str(ROOT / "testbeds" / f"{entry.get('testbed', 'rails4')}.yaml")
    options = ["--parallel", parallel, "--results", entry.get("results", RESULTS)]
    command = [*LIGHTRIG, "train", testbed, "--instruments", "simulated", "--json", *options]
    command += ["--ranks", str(entry["ranks"])] if "ranks" in entry else []
    return [*command, "--", str(script), *arguments]


def one_run(entry: dict[str, Any], kind: str, folder: Path) -> dict[str, Any]:
    """Run a script; return its ranks' numbers, the time between them, and what it cost."""
    script = folder / Path(entry["script"]).name
    script.write_text(source_of(entry))
    pattern = re.compile(entry.get("results", RESULTS))
    numbers: defaultdict[str, list[str]] = defaultdict(list)
    begun: defaultdict[str, str] = defaultdict(str)
    stamps: list[float] = []
    last: list[str] = []
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command_of(entry, kind, script),
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdout=output if kind == "circuits" else subprocess.PIPE,
            stderr=subprocess.PIPE if kind == "circuits" else subprocess.STDOUT,
            text=True,
        )
        late = threading.Timer(LONGEST_S, process.terminate)
        late.start()
        lines = process.stderr if kind == "circuits" else process.stdout
        assert lines is not None
        for line in lines:
            last = [*last[-20:], line.rstrip()]
            _, *parts = PREFIX[kind].split(line)
            for rank, part in zip(parts[::2], parts[1::2], strict=True):
                begun[rank] += part
                if part.endswith("\n"):
                    each = pattern.finditer(begun.pop(rank))
                    found = [number[number.lastindex or 0] for number in each]
                    numbers[rank] += found
                    stamps += [time.monotonic()] * bool(found)
        status = process.wait()
        late.cancel()
        output.seek(0)
        document = json.loads(output.read() or "{}") if kind == "circuits" else {}
    found_all: dict[str, Any] = {
        "script": entry["script"],
        "kind": kind,
        "status": status,
        "numbers": numbers,
        "seconds": round(stamps[-1] - stamps[0], 3) if len(stamps) > 1 else None,
        "load": round(os.getloadavg()[0], 1),
    }
    if status:
        found_all["printed"] = last
    if document:
        uses = document["front_end"]
        found_all["front_end"] = {use["kind"]: [use["count"], use["size"]] for use in uses}
        found_all["phases"] = document["phases"]
    return found_all


def compared(first: dict[str, list[str]], then: dict[str, list[str]]) -> str:
    """Return how the numbers of two runs compare."""
    if not any(first.values()):
        return "NO NUMBER"
    if first == then:
        return "equal"
    pairs = [
        pair
        for rank in {*first, *then}
        for pair in itertools.zip_longest(first.get(rank, []), then.get(rank, []))
    ]
    if any(None in pair for pair in pairs):
        return "OTHER COUNT"
    apart = max(
        abs(float(a) - float(b)) / max(abs(float(a)), abs(float(b))) for a, b in pairs if a != b
    )
    return f"within {apart:.1g}" if apart <= ROUNDING else f"DIFFERENT by {apart:.1g}"


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each script, and whether all printed the same numbers."""
    scripts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in done:
        scripts[each["script"]].append(each)
    printed = [
        f"{'script':<34}{'numbers':>16}{'torchrun':>10}{'circuits':>10}{'ratio':>7}  front end"
    ]
    good = True
    for name, runs in scripts.items():
        plain = [each for each in runs if each["kind"] == "torchrun"]
        lit = [each for each in runs if each["kind"] == "circuits"]
        if not plain or not lit:
            continue
        failed = [each for each in runs if each["status"]]
        verdicts = {compared(plain[0]["numbers"], each["numbers"]) for each in runs}
        verdict = "FAILED" if failed else ", ".join(sorted(verdicts))
        good &= not any(word.isupper() for word in verdict.split())
        times = [median(seconds(each)) if seconds(each) else 0.0 for each in (plain, lit)]
        ratio = times[1] / times[0] if times[0] else 0.0
        uses = ", ".join(f"{n} x {use}" for use, (n, _) in lit[-1].get("front_end", {}).items())
        cells = f"{times[0]:>8.2f} s{times[1]:>8.2f} s{ratio:>7.1f}"
        printed.append(f"{name:<34}{verdict:>16}{cells}  {uses or '-'}")
    return printed, good


def seconds(runs: Iterable[dict[str, Any]]) -> list[float]:
    """Return the times of runs that have one."""
    return [each["seconds"] for each in runs if each["seconds"] is not None]


def main(report: Callable[[str], object] = print) -> bool:
    """Run what is listed; returns whether all printed the same numbers."""
    rounds = int(os.environ.get("FOREIGN_ROUNDS", "3"))
    with log("foreign_scripts") as lines, tempfile.TemporaryDirectory() as folder:
        for number, entry, kind in itertools.product(
            range(rounds), entries(), ("torchrun", "circuits")
        ):
            did = [e for e in lines.done if (e["script"], e["kind"]) == (entry["script"], kind)]
            if len(did) > number:
                continue
            try:
                place = Path(tempfile.mkdtemp(dir=folder))
                lines.add(one_run(entry, kind, place))
            except NotListedError as error:
                report(str(error))
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
