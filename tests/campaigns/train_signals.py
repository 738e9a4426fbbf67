"""SIGTERM of `lightrig train` at a drawn moment: it ends within five seconds, and nothing is left.

`TRAIN_SIGNALS` times (default 20) a script with a `DataLoader` of four workers, forked and spawned
in turn, and with a child of its own session that ignores SIGTERM, is run on `rails4` until SIGTERM
comes: while the command starts, while it profiles, while it trains, or while it ends. All
processes of a run have a variable of its own in their environment; those that have it when the
command has ended are left behind. Every run is a line of the campaign's file
(`tests.campaigns.records`).

Needs the extra torch, and namespaces.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.campaigns.records import log, reported

ROOT = Path(__file__).parents[2]
MOMENTS = ("start", "profiling", "training", "end")
METHODS = ("fork", "spawn")
MARK = "LIGHTRIG_TRAIN_SIGNALS"
STEPS = 6
WITHIN_S = 5.0
HANGS_S = 60.0
START_S = 10.0
"""Time from the command's start to its first step on an idle machine, roughly."""
LIGHTRIG = [sys.executable, "-u", "-c", "from lightrig.harness.cli import main; main()"]
OPTIONS = (
    "train",
    "testbeds/rails4.yaml",
    "--parallel",
    "dp=4",
    "--instruments",
    "simulated",
    "--",
)

SCRIPT = """\
import signal, subprocess, sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def main():
    dist.init_process_group("gloo")
    ignores = lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"], start_new_session=True, preexec_fn=ignores)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(256, 64))
    for (rows,) in DataLoader(
        data, 256 // STEPS, drop_last=True, num_workers=4, multiprocessing_context=METHOD
    ):
        loss = (model(rows) - rows).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item()!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


def marked(value: str) -> Iterator[int]:
    """Yield the processes that have the mark of a run."""
    wanted = f"{MARK}={value}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def command_of(process: int) -> str:
    """Return the command line of a process, or "" where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return ""


class Lines:
    """Lines of a running command, counted by what they begin with."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._count: Counter[str] = Counter()
        self._heard = threading.Condition()
        self._over = False
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, begin: str, count: int) -> None:
        """Wait for `count` lines that begin so, or for the end of all lines."""
        with self._heard:
            self._heard.wait_for(
                lambda: self._over or self._count[begin] >= count, timeout=10 * HANGS_S
            )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self._count[line.partition(",")[0]] += 1
                self._heard.notify_all()
        with self._heard:
            self._over = True
            self._heard.notify_all()


def one_signal(folder: Path, number: int) -> dict[str, Any]:
    """Run the command, send it SIGTERM, and look what is left."""
    dice = random.Random(number)
    moment, method = MOMENTS[number % 4], METHODS[number // 4 % 2]
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("METHOD", repr(method)).replace("STEPS", str(STEPS)))
    mark = f"{os.getpid()}.{number}"
    found: dict[str, Any] = {"number": number, "moment": moment, "method": method}
    with (folder / "stderr.txt").open("w+") as stderr:
        process = subprocess.Popen(
            [*LIGHTRIG, *OPTIONS, str(script)],
            env={**os.environ, MARK: mark},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        lines = Lines(process)
        if moment == "start":
            time.sleep(dice.random() * START_S)
        elif moment == "end":
            lines.wait_for("[on circuits", 4 * STEPS)
            time.sleep(dice.random() * 2)
        else:
            name = "[on circuits" if moment == "training" else "[on the ring of all ranks"
            lines.wait_for(name, dice.randrange(1, 4 * STEPS))
            time.sleep(dice.random() * 0.1)
        found["alive"] = process.poll() is None
        sent = time.monotonic()
        process.terminate()
        try:
            found["status"] = process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            found["status"] = None
        while (left := list(marked(mark))) and time.monotonic() < sent + WITHIN_S:
            time.sleep(0.02)
        found["seconds"] = round(time.monotonic() - sent, 3)
        found["left"] = [command_of(each) for each in left]
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()
        stderr.seek(0)
        found["load"] = round(os.getloadavg()[0], 1)
        # Before the command has its handler, SIGTERM ends it where nothing was changed.
        if found["status"] not in (130, 0, -signal.SIGTERM) or (
            found["status"] == -signal.SIGTERM and moment != "start"
        ):
            found["printed"] = stderr.read()[-1500:]
    return found


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of moments, and whether each run ended in time with nothing left."""
    columns = ("alive", "longest s", "LATE", "OTHER STATUS", "LEFT")
    printed = [f"{'moment':<12}" + "".join(f"{name:>14}" for name in columns)]
    good = True
    for moment in MOMENTS:
        of = [each for each in done if each["moment"] == moment]
        late = sum(each["seconds"] > WITHIN_S for each in of)
        other = sum("printed" in each for each in of)
        left = sum(bool(each["left"]) for each in of)
        longest = max((each["seconds"] for each in of), default=0.0)
        alive = sum(each["alive"] for each in of)
        cells = (alive, longest, late, other, left)
        printed.append(f"{moment:<12}" + "".join(f"{cell:>14}" for cell in cells))
        good &= not (late or other or left)
    return printed, good


def main(report: Callable[[str], object] = print) -> bool:
    """Send the signals; returns whether each ended everything in time."""
    runs = int(os.environ.get("TRAIN_SIGNALS", "20"))
    os.chdir(ROOT)
    with log("train_signals") as lines:
        while len(lines.done) < runs:
            with tempfile.TemporaryDirectory(prefix="lightrig-train-signals-") as folder:
                lines.add(one_signal(Path(folder), len(lines.done)))
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
