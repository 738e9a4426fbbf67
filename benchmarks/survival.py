"""Kill -9 at random moments: what was acknowledged, what is found, and how fast it went.

Two hundred kills of ours and forty of each peer, at moments drawn evenly from the first eight
seconds after the first acknowledgement, with a measurement every 2 ms, or from the first two
with a test every 2 ms; ours also while it records as fast as it can. "Acknowledged" is what the
recorder's own call had returned for; a test is acknowledged when pytest has logged its end. The
work is the same for all, what they promise is not: QCoDeS says that it writes every five
seconds, OpenHTF, pytest-html and JUnit XML that they write at the end. A rate counts what was
acknowledged in six seconds without a pause, by the clock and by the processor's time, not what
a recorder then still has to write.

Peers are run by the Python that `PEERS` names, by default this one; those that it lacks are
skipped: pip install 'lightrig[peers]'.
"""

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lightrig.harness.record import RecordError, Results, recover
from lightrig.harness.report import write_page

KILLS = {"ours": 200, "peers": 40}
AT_ONCE = 8
PACE_S = 0.002
WITHIN_S = {"rows": 8.0, "tests": 2.0}
FLAT_OUT_WITHIN_S = 0.1
RATE_S = 6.0
OURS = ("lightrig", "lightrig-pytest")
PEERS = ("qcodes", "qcodes-1ms", "openhtf", "pytest-reportlog", "pytest-html", "junitxml")
OF_ROWS = frozenset(("lightrig", "qcodes", "qcodes-1ms", "openhtf"))


class MissingError(Exception):
    """The Python that was asked lacks the recorder."""


class Recorder:
    """A program that records, forked anew for each kill."""

    def __init__(self, name: str, python: str) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("recorders.py")), name],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            _, printed = self._process.communicate()
            raise MissingError(printed.strip().rpartition("\n")[2])

    def start(self, folder: Path, pace: float) -> int:
        """Begin to record in a process of its own; returns its id."""
        return int(self._ask({"folder": str(folder), "pace": pace}))

    def count(self, folder: Path) -> int:
        """Return the number of rows that the recorder finds again."""
        return int(self._ask({"count": str(folder)}))

    def _ask(self, question: dict[str, object]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the program; what it has forked goes on."""
        self._process.communicate()


@contextmanager
def recorder(name: str) -> Iterator[Recorder]:
    python = sys.executable if name in OURS else os.environ.get("PEERS", sys.executable)
    opened = Recorder(name, python)
    try:
        yield opened
    finally:
        opened.close()


@dataclass
class Tally:
    """Outcome of many kills; `whole` of them were recovered with data set and report."""

    kills: int = 0
    acknowledged: int = 0
    lost: list[int] = field(default_factory=list)
    whole: int | None = None
    recover_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def acknowledged(folder: Path) -> int:
    file = folder / "acknowledged"
    return int.from_bytes(file.read_bytes(), sys.byteorder) if file.exists() else 0


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    while Path(f"/proc/{process}").exists():
        time.sleep(0.001)


def killed(opened: Recorder, root: Path, pace: float, delays: list[float]) -> Iterator[Path]:
    """Folders of processes that were killed so long after their first word, in no order."""
    waiting = [(root / str(index), delay) for index, delay in enumerate(delays)]
    silent: dict[Path, tuple[int, float]] = {}
    due: dict[Path, tuple[int, float]] = {}
    while waiting or silent or due:
        while waiting and len(silent) + len(due) < (AT_ONCE if pace else 1):
            folder, delay = waiting.pop()
            folder.mkdir(parents=True)
            silent[folder] = opened.start(folder, pace), delay
        for folder in [folder for folder in silent if acknowledged(folder)]:
            process, delay = silent.pop(folder)
            due[folder] = process, time.monotonic() + delay
        for folder, (process, _) in silent.items():
            if not Path(f"/proc/{process}").exists() and not acknowledged(folder):
                raise RuntimeError(f"{folder}: the recorder ended before it had recorded anything")
        for folder in [folder for folder, (_, at) in due.items() if at <= time.monotonic()]:
            kill(due.pop(folder)[0])
            yield folder
        time.sleep(0.001)


def survive(name: str, pace: float, within: float) -> Tally:
    dice = random.Random(f"{name} {pace}")
    kills = KILLS["ours" if name in OURS else "peers"]
    delays = [dice.uniform(0, within) for _ in range(int(os.environ.get("KILLS", kills)))]
    tally = Tally(whole=0 if name == "lightrig" else None)
    with tempfile.TemporaryDirectory() as folder, recorder(name) as opened:
        for place in killed(opened, Path(folder), pace, delays):
            printed = acknowledged(place)
            found = opened.count(place)
            tally.kills += 1
            tally.acknowledged += printed
            tally.lost.append(max(0, printed - found))
            if tally.whole is not None:
                tally.whole += whole(place, found, tally)
            shutil.rmtree(place)
    return tally


def whole(place: Path, found: int, tally: Tally) -> bool:
    """Whether the run comes back with all its rows in the data set, and its report."""
    start = time.perf_counter()
    try:
        recovered = recover(place / "runs" / "r", write_page)
    except RecordError as error:
        tally.errors.append(str(error))
        return False
    tally.recover_s.append(time.perf_counter() - start)
    rows = len(Results(place).frame(run="r"))
    if rows != found:
        tally.errors.append(f"{rows} rows in the data set, {found} in the journal")
    return rows == found and recovered.report is not None


def rate(name: str) -> tuple[float, float]:
    """Acknowledged a second, and a second of processor time; starting is left out."""
    with tempfile.TemporaryDirectory() as folder, recorder(name) as opened:
        process = opened.start(Path(folder), 0.0)
        while not acknowledged(Path(folder)):
            time.sleep(0.001)
        before, start, used = acknowledged(Path(folder)), time.perf_counter(), processor(process)
        time.sleep(RATE_S)
        done, took = acknowledged(Path(folder)) - before, time.perf_counter() - start
        used = processor(process) - used
        kill(process)
    return done / took, done / used


def processor(process: int) -> float:
    """The processor time of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def line(name: str, unit: str, tally: Tally, speeds: tuple[float, ...] = ()) -> str:
    worst, total = max(tally.lost), sum(tally.lost)
    share = total / tally.acknowledged if tally.acknowledged else 0.0
    return (
        f"{name:<17} {tally.kills:>5} {tally.acknowledged:>12,} {unit:<5} {total:>10,} "
        f"({share:>6.1%}) {worst:>8,}" + "".join(f"{speed:>12,.0f}" for speed in speeds)
    )


def main() -> None:
    print(f"{'':<17} kills acknowledged             lost (share)    worst         1/s   1/CPU s")
    ours = []
    for name in (*OURS, *PEERS):
        unit = "rows" if name in OF_ROWS else "tests"
        try:
            tally = survive(name, PACE_S, WITHIN_S[unit])
            print(line(name, unit, tally, rate(name)), flush=True)
        except MissingError as error:
            print(f"{name:<17} skipped: {error}", flush=True)
            continue
        if name == "lightrig":
            ours = [tally, survive(name, 0.0, FLAT_OUT_WITHIN_S)]
            print(line("  at full speed", unit, ours[-1]), flush=True)
    for tally in ours:
        print(
            f"lightrig results recover: {tally.whole} of {tally.kills} runs whole with data set "
            f"and report, median {statistics.median(tally.recover_s):.2f} s"
        )
        print(*(f"  {sentence}" for sentence in tally.errors), sep="\n", end="")


if __name__ == "__main__":
    main()
