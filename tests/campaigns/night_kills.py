"""Kill -9 of a night's coordinator or worker: the lab is as found, no row and no file is lost.

`NIGHT_KILLS` times (default 60) `lightrig night` measures a served testbed (`NIGHT_KILLS_TESTBED`,
default rings4) in real time, on one host with two attempts, until its coordinator or its worker, in
turn, is killed at a random moment after the first saved state: up to three seconds later, or more
on a busy machine. A kill counts if the process was alive. Once all of the night's processes have
ended, the lab must be as before, or a saved state must say how it was, from which `lightrig
restore` restores it; every row that the journal had at the kill must be in it or published, and
whatever stands in the results must be whole. Every kill is a line of the campaign's file
(`tests.campaigns.records`).

Needs the extra dask.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lightrig.harness.night.outcomes import parse
from lightrig.harness.record import RecordError, Results, read_journal
from tests.campaigns.records import folder, log, reported
from tests.campaigns.suite_kills_lab import LOGIN, served

ROOT = Path(__file__).parents[2]
KINDS = ("coordinator", "worker")
WITHIN_S = 3.0
BEGINS_S = 120.0
ENDS_S = 300.0
LOOK_S = 0.02
LIGHTRIG = [sys.executable, "-c", "from lightrig.harness.cli import main; main()"]


def described(place: Path, testbed: Path) -> Path:
    """Write the file of a night with one host."""
    document = {
        "results": str(place / "results"),
        "suites": [str(ROOT / "suites" / "test_reconfiguration.py")],
        "pytest": ["--instruments", "hardware", "--samples", "20", "-k", "between", "--seed", "1"],
        "hosts": {"one": {"testbeds": [str(testbed)], "start": "{command}"}},
    }
    lab = place / "lab.yaml"
    lab.write_text(json.dumps(document))  # JSON is YAML
    return lab


def processes_of(place: Path) -> Iterator[int]:
    """Yield the processes whose folder of temporary files is that of this night."""
    wanted = f"TMPDIR={place / 'tmp'}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue  # it has ended, or is another account's


def is_worker(process: int) -> bool:
    """Return whether a process is the worker of the night's host."""
    try:
        return b"--worker" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def rows_of(place: Path) -> int:
    """Return the number of rows in the journals of the night, published or not."""
    journals = [
        *place.glob("tmp/*/runs/*/journal.jsonl"),
        *place.glob("results/runs/*/journal.jsonl"),
    ]
    count = 0
    for journal in journals:
        try:
            count += sum(1 for _ in read_journal(journal).rows())
        except (RecordError, FileNotFoundError):
            continue  # it has just begun, or was just published
    return count


def half_there(place: Path) -> list[str]:
    """Return what stands in the results and cannot be read."""
    found = [str(error) for error in Results(place / "results").damaged()]
    for outcome in place.glob("results/nights/*/*.json"):
        try:
            parse(outcome.name, outcome.read_bytes())
        except RecordError as error:
            found.append(str(error))
    return found


def wait_for_end(place: Path) -> bool:
    """Wait until no process of the night is left; return whether it came to that."""
    ends = time.monotonic() + ENDS_S
    while list(processes_of(place)):
        if time.monotonic() > ends:
            return False
        time.sleep(0.2)
    return True


def one_kill(
    place: Path, testbed: Path, ask: Callable[..., Any], name: str, number: int
) -> dict[str, Any]:
    """Run a night, kill one of its processes, and compare."""
    dice = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    found: dict[str, Any] = {"number": number, "kind": kind}
    for part in ("tmp", "state"):
        (place / part).mkdir(parents=True)
    env = {**os.environ, "TMPDIR": str(place / "tmp"), "LIGHTRIG_STATE": str(place / "state")}
    before = ask("draw", name, number)
    lab = described(place, testbed)
    with (place / "night.txt").open("wb") as printed:
        command = [*LIGHTRIG, "night", str(lab)]
        night = subprocess.Popen(command, env=env, stdout=printed, stderr=printed)
    latest = time.monotonic() + BEGINS_S
    while not list(place.glob("state/**/*.found.json")):
        if night.poll() is not None or time.monotonic() > latest:
            break
        time.sleep(LOOK_S)
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    time.sleep(dice.random() * WITHIN_S * busy)
    victims = [night.pid] if kind == "coordinator" else [*filter(is_worker, processes_of(place))]
    rows = rows_of(place)
    found["changed"] = ask("circuits", name) != before["circuits"]
    found["killed"] = night.poll() is None and len(victims) == 1
    if found["killed"]:
        os.kill(victims[0], signal.SIGKILL)
    found["status"] = night.wait()
    found["ended"] = wait_for_end(place)
    found["rows"], found["rows lost"] = rows, max(0, rows - rows_of(place))
    found["states"] = len(list(place.glob("state/**/*.found.json")))
    left = ask("truth", name) != before
    found["left changed unsaid"] = left and not found["states"]
    found["to restore"] = left
    command = [*LIGHTRIG, "restore", str(testbed)]
    restored = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found["restore"] = restored.returncode
    found["not restored"] = ask("truth", name) != before
    found["half there"] = half_there(place)
    if left or found["rows lost"] or found["half there"] or found["not restored"]:
        found["printed"] = (place / "night.txt").read_text()[-1500:] + restored.stderr[-500:]
    shutil.rmtree(place)
    return found


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of the process by outcome, and whether all is as it should be."""
    columns = (
        *("alive at the kill", "lab changed", "rows", "restored by hand", "ROWS LOST"),
        *("LEFT CHANGED UNSAID", "NOT RESTORED", "HALF THERE", "NOT ENDED"),
    )
    rows = {kind: Counter[str]() for kind in KINDS}
    for each in done:
        if not each["killed"]:
            continue
        row = rows[each["kind"]]
        row["alive at the kill"] += 1
        row["lab changed"] += each["changed"]
        row["rows"] += each["rows"]
        row["restored by hand"] += each["to restore"]
        row["ROWS LOST"] += each["rows lost"]
        row["LEFT CHANGED UNSAID"] += each["left changed unsaid"]
        row["NOT RESTORED"] += each["not restored"] or each["restore"] != 0
        row["HALF THERE"] += bool(each["half there"])
        row["NOT ENDED"] += not each["ended"]
    printed = [f"{'process':<14}" + "".join(f"{name:>21}" for name in columns)]
    for kind, row in rows.items():
        printed.append(f"{kind:<14}" + "".join(f"{row[name]:>21,}" for name in columns))
    return printed, not any(
        row[name] for row in rows.values() for name in columns if name.isupper()
    )


def main(report: Callable[[str], object] = print) -> bool:
    """Kill and compare; returns whether everything was as found, and no row or file lost."""
    kills = int(os.environ.get("NIGHT_KILLS", "60"))
    name = os.environ.get("NIGHT_KILLS_TESTBED", "rings4")
    os.environ["CAMPAIGNS"] = str(folder())
    os.chdir(ROOT)
    with (
        tempfile.TemporaryDirectory(prefix="lightrig-night-kills-") as root,
        served(Path(root), [name]) as (ask, login),
        log("night_kills") as lines,
    ):
        os.environ[LOGIN] = login
        while sum(each["killed"] for each in lines.done) < kills:
            number = len(lines.done)
            testbed = Path(root, name, "served.yaml")
            lines.add(one_kill(Path(root, str(number)), testbed, ask, name, number))
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
