"""Kill -9 of each long command: no process and no link stays, and the next run tidies its folder.

`COMMAND_KILLS` times (default 30) each of pytest, survive, certify, orchestrate and train
(`COMMAND_KILLS_OF`, by commas; train needs the extra torch) is killed after a drawn part of its
processor time, or of `LASTS_S` where it waits, with namespaces or simulated instruments of its own.
A kill counts only where the command was alive. What it has started is known by its ancestors at the
kill and by a variable in its environment. `ENDS_S` later none of it may live; the links of this
network namespace, in which the campaign is alone, must be those of before; and after another run
has made a temporary folder, the one of temporary files must be empty. Each kill is a line of the
campaign's file.

Circuits that are left changed are looked for by `suite_kills` and `process_kills`; agents, which
need switches that are served, are killed by `agent_kills`.
"""

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lightrig.instruments.temporary_folders import remove_abandoned
from tests.campaigns.preloaded import ROOT, forked, preload, run_pytest
from tests.campaigns.process_kills import children, is_alive
from tests.campaigns.records import log, reported
from tests.campaigns.suite_kills import processor_time
from tests.campaigns.train_signals import OPTIONS, SCRIPT, STEPS, marked

MARK = "LIGHTRIG_TRAIN_SIGNALS"
"""The variable that `train_signals.marked` looks for."""
ENDS_S = 30.0
LOOK_S = 0.02
CACHE = "torchinductor_"
"""Begins the name of a cache that PyTorch keeps for each account."""
ALONE = "COMMAND_KILLS_ALONE"
PROCESSOR_S = {
    "pytest": 0.5,
    "survive": 1.0,
    "certify": 1.5,
    "orchestrate": 1.5,
    "train": 2.0,
}
"""Processor time, without imports, in which a command is killed."""
LASTS_S = {"pytest": 10.0, "survive": 15.0, "certify": 20.0, "orchestrate": 15.0, "train": 30.0}
"""Time in which a command is killed at the latest: most of them wait more than they compute."""


def arguments(command: str, place: Path) -> list[str]:
    """Return the arguments of a command."""
    simulated = ["--instruments", "simulated"]
    if command == "survive":
        faults = ["--fault", "cut:1s", "--number", "100"]
        return ["survive", "testbeds/namespaces.yaml", *faults, *simulated]
    if command == "certify":
        return [
            "certify",
            "testbeds/namespaces.yaml",
            "ocs",
            "--quick",
            *simulated,
            "--out",
            str(place),
        ]
    service = [*simulated, "--socket", str(place / "api")]
    if command == "orchestrate":
        state = ["--state", str(place / "s.json")]
        return ["orchestrate", "infinitehbd", "testbeds/infinitehbd5.yaml", *service, *state]
    (place / "script.py").write_text(
        SCRIPT.replace("METHOD", "'fork'").replace("STEPS", str(STEPS))
    )
    return [*OPTIONS, str(place / "script.py")]


def run(command: str, place: Path) -> int:
    """Run a command in this process; return its status."""
    if command == "pytest":
        given = ["suites/test_reconfiguration.py", "--testbed", "testbeds/namespaces.yaml"]
        return run_pytest([*given, "--results", str(place / "results"), "-q"])
    from lightrig.harness.cli import main as lightrig

    sys.argv = ["lightrig", *arguments(command, place)]
    lightrig()
    return 0


def descendants(process: int) -> Iterator[int]:
    """Yield all processes that a process has started, and theirs."""
    for child in children(process):
        yield child
        yield from descendants(child)


def links() -> set[str]:
    """Return the names of the links of this network namespace."""
    return {
        line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]
    }


def one_kill(command: str, place: Path, number: int) -> dict[str, Any]:
    """Begin a command, kill it, and look what is left."""
    dice = random.Random(number)
    temporary = place / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    os.environ["LIGHTRIG_STATE"] = str(place / "state")
    mark = os.environ[MARK] = f"{os.getpid()}.{number}"
    before = links()
    process = forked(lambda: run(command, place), place / "out.txt")
    part, began = dice.random(), time.monotonic()
    enough, lasts = part * PROCESSOR_S[command], part * LASTS_S[command]
    with contextlib.suppress(OSError, ValueError):
        while is_alive(process) and processor_time(process) < enough:
            if time.monotonic() > began + lasts:
                break
            time.sleep(LOOK_S)
    lived = time.monotonic() - began
    alive, family = is_alive(process), set(descendants(process))
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    killed = time.monotonic()
    _, status = os.waitpid(process, 0)

    def left() -> list[int]:
        return [one for one in {*family, *marked(mark)} - {os.getpid()} if is_alive(one)]

    while left() and time.monotonic() < killed + ENDS_S:
        time.sleep(LOOK_S)
    remaining = {one: Path(f"/proc/{one}/cmdline").read_bytes().decode()[:200] for one in left()}
    after = time.monotonic() - killed
    folders = sorted(one.name for one in temporary.iterdir())
    remove_abandoned()
    found = {
        "number": number,
        "command": command,
        "outcome": "killed" if alive and status == signal.SIGKILL else "ended by itself",
        "lived s": round(lived, 2),
        "left": list(remaining.values()),
        "after s": round(after, 2),
        "links": sorted(links() - before),
        "folders": len(folders),
        "folders left": sorted(
            one.name for one in temporary.iterdir() if not one.name.startswith(CACHE)
        ),
    }
    if found["outcome"] != "killed":
        found["printed"] = (place / "out.txt").read_text(errors="replace")[-1500:]
    for one in remaining:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    return found


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of commands, and whether nothing was left."""
    columns = ("killed", "by itself", "LEFT", "LINKS", "folders", "FOLDERS LEFT", "longest s")
    printed = [f"{'command':<12}" + "".join(f"{name:>14}" for name in columns)]
    good = True
    for command in dict.fromkeys(each["command"] for each in done):
        of = [each for each in done if each["command"] == command]
        killed = [each for each in of if each["outcome"] == "killed"]
        broken = [
            sum(len(each[name]) for each in killed) for name in ("left", "links", "folders left")
        ]
        longest = max((each["after s"] for each in killed), default=0.0)
        folders = sum(each["folders"] for each in killed)
        cells = (len(killed), len(of) - len(killed), *broken[:2], folders, broken[2], longest)
        printed.append(f"{command:<12}" + "".join(f"{cell:>14}" for cell in cells))
        good &= not any(broken)
    return printed, good


def main(report: Callable[[str], object] = print) -> bool:
    """Kill the commands; return whether nothing was left."""
    if ALONE not in os.environ:
        alone = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$0" "$@"']
        command = [*alone, sys.executable, "-m", "tests.campaigns", "command_kills"]
        return subprocess.run(command, env={**os.environ, ALONE: "1"}, check=False).returncode == 0
    os.chdir(ROOT)
    kills = int(os.environ.get("COMMAND_KILLS", "30"))
    wanted = [name for name in PROCESSOR_S if name != "train" or importlib.util.find_spec("torch")]
    if chosen := os.environ.get("COMMAND_KILLS_OF"):
        wanted = chosen.split(",")
    preload(simulation=True)
    with log("command_kills") as lines:
        counts = defaultdict(int)
        for each in lines.done:
            counts[each["command"]] += each["outcome"] == "killed"
        number = len(lines.done)
        while missing := [name for name in wanted if counts[name] < kills]:
            command = missing[number % len(missing)]
            with tempfile.TemporaryDirectory(prefix="command-kills-", dir="/tmp") as folder:
                lines.add(one_kill(command, Path(folder), number))
            counts[command] += lines.done[-1]["outcome"] == "killed"
            number += 1
            if number > 4 * kills * len(wanted):
                break
        return reported(*table(lines.done), report)
