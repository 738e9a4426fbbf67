"""A soak of served namespaces with planted flaps, killed and gone on with: each flap is named.

A soak of `SOAK_MINUTES` (default 30), with `SOAK_FLAPS` (20) of 5 ms to 2 s, each by darkening one
transmitter, and `SOAK_KILLS` (2) kills -9, drawn by `SOAK_SEED` (1). What is true is told by the
agent that switches the kernel's links: when each carrier changed, by CLOCK_MONOTONIC, which is the
clock of a run on hardware too.

A flap that lies in no gap and is not named, another one that is, a wrong first end, a duration
outside its bounds, or more than two first ends that cannot be told break the promise.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lightrig.harness.cli.served_lab import ServedLab
from lightrig.harness.record import Row, read_journal
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Port, Testbed, load
from lightrig.testbeds.readdressing import readdressed

ROOT = Path(__file__).parents[2]
LOGIN = "LIGHTRIG_SERVED"
SECOND = 1_000_000_000
SHORTEST, LONGEST = 5_000_000, 2 * SECOND
"""Of a planted flap, in ns."""


class TrueFlap(NamedTuple):
    """A carrier that was lost: the port, and from when to when."""

    port: str
    down: int
    up: int


@dataclass
class SoakLab:
    """The testbed of namespaces, served, and the changes of carriers in it."""

    folder: Path
    clock: SystemClock = field(default_factory=SystemClock)
    changes: list[tuple[str, bool, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        testbeds = self.folder / "testbeds"
        shutil.copytree(ROOT / "testbeds", testbeds, ignore=shutil.ignore_patterns("*.py"))
        testbed = load(testbeds / "namespaces.yaml")
        parts = [*testbed.optical_switches, *testbed.servers]
        login = ("bench", "planted")
        logins = dict.fromkeys(parts, login)
        self.lab = ServedLab(testbed, 1, 0, logins, carrier_changed=self._changed)
        known = self.folder / "known_hosts"
        services = self.lab.services
        known.write_text("".join(f"{s.known_hosts}\n" for s in services.values() if s.known_hosts))
        self.file = self.folder / "served.yaml"
        self.file.write_text(
            readdressed(
                testbed.path,
                {name: service.address for name, service in services.items()},
                login=f"env:{LOGIN}",
                known_hosts=known,
                target=self.file,
            )
        )
        self.testbed: Testbed = load(self.file)
        self.environment = {
            **os.environ,
            LOGIN: ":".join(login),
            "LIGHTRIG_STATE": str(self.folder / "state"),
        }

    def _changed(self, port: Port, up: bool, at: int) -> None:
        self.changes.append((str(port), up, at))

    def flap(self, port: Port, lasting: int) -> None:
        """Take the light that a port sends away for a time, in ns."""
        back = self.lab.world.darken([port])
        self.clock.sleep(lasting)
        back()

    def flaps_since(self, began: int) -> list[TrueFlap]:
        """Return the losses of carriers that began after a time, and are over."""
        down: dict[str, int] = {}
        found = []
        for port, up, at in list(self.changes):
            if not up:
                down[port] = at
            elif port in down and down[port] >= began:
                found.append(TrueFlap(port, down[port], at))
        return found

    def close(self) -> None:
        self.lab.close()
        self.clock.close()


@dataclass
class SoakRuns:
    """Runs of one soak, each killed but the last."""

    lab: SoakLab
    length: str
    started: list[str] = field(default_factory=list)

    def start(self, *options: str) -> None:
        """Begin the soak, or go on with it, and wait until it watches."""
        self.results = self.lab.folder / "results"
        known = self.names()
        resumed = ("--soak-resume", known[-1]) if known else ()
        arguments = [
            *(sys.executable, "-m", "pytest", "suites/test_soak.py", "--instruments", "hardware"),
            *("--testbed", str(self.lab.file), "--soak", self.length, "-q", "--color=no"),
            *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"),
            *("--results", str(self.results), *resumed, *options),
        ]
        self.output = self.lab.folder / f"output{len(known)}.txt"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                arguments,
                cwd=ROOT,
                env=self.lab.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.until(lambda: len(self.names()) > len(known) and self.watched() > 0)

    def names(self) -> list[str]:
        """Names of the runs so far, the oldest first."""
        found = self.results.glob("runs/*/journal.jsonl")
        ordered = sorted(found, key=lambda journal: journal.stat().st_ctime_ns)
        for name in (journal.parent.name for journal in ordered):
            if name not in self.started:
                self.started.append(name)
        return list(self.started)

    def until(self, so: Callable[[], bool]) -> None:
        deadline = self.lab.clock.now() + 900 * SECOND
        while not so():
            assert self.process.poll() is None, self.printed()
            assert self.lab.clock.now() < deadline, self.printed()
            self.lab.clock.sleep(SECOND // 20)

    def printed(self) -> str:
        return self.output.read_text()

    def rows(self, name: str | None = None) -> list[Row]:
        """Return the rows of a run, by default the latest."""
        name = name or self.names()[-1]
        journal = self.results / "runs" / name / "journal.jsonl"
        return [row for _, row in read_journal(journal).rows()]

    def watched(self) -> int:
        return sum(row.quantity == "soak.watched" for row in self.rows())

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def end(self) -> int:
        """Wait for the end of the last run; return its status."""
        return self.process.wait(7200)


@dataclass
class Verdict:
    """What a soak said of what was planted."""

    planted: list[TrueFlap]
    within_gaps: list[TrueFlap] = field(default_factory=list)
    missed: list[TrueFlap] = field(default_factory=list)
    invented: list[Row] = field(default_factory=list)
    wrong_end: list[tuple[TrueFlap, Row]] = field(default_factory=list)
    cannot_tell: int = 0
    wrong_length: list[tuple[TrueFlap, Row]] = field(default_factory=list)
    named: list[Row] = field(default_factory=list)


def judge(runs: SoakRuns, planted: list[TrueFlap]) -> Verdict:
    """Compare what all runs recorded with what was true."""
    rows = [row for name in runs.names() for row in runs.rows(name)]
    gaps = [
        (row.time_ns - SECOND // 10, row.time_ns + row.value + SECOND // 10)
        for row in rows
        if row.quantity == "soak.gap"
    ]
    flaps = "soak.flap", "soak_before.flap"  # of the last run: all
    found = Verdict(planted, named=[row for row in runs.rows() if row.quantity in flaps])
    ends = max(row.time_ns for row in runs.rows() if row.quantity == "soak.watched")
    gaps.append((ends - SECOND // 10, 1 << 62))
    left = list(found.named)
    for true in planted:
        in_gap = any(true.down <= ended and true.up >= began for began, ended in gaps)
        alike = [
            row
            for row in left
            if true.port in row.subject.split(" <-> ") and abs(row.time_ns - true.down) < SECOND / 4
        ]
        if in_gap:
            found.within_gaps.append(true)
        if not alike:
            if not in_gap:
                found.missed.append(true)
            continue
        row = min(alike, key=lambda each: abs(each.time_ns - true.down))
        left.remove(row)
        first = row.conditions["first"]
        if first == "cannot tell":
            found.cannot_tell += not in_gap
        elif first != true.port:
            found.wrong_end.append((true, row))
        length, slack = true.up - true.down, 20_000_000
        low, high = row.lower or 0, row.upper if row.upper is not None else 1 << 62
        if not in_gap and not low - slack <= length <= high + slack:
            found.wrong_length.append((true, row))
    found.invented = left
    return found


@contextlib.contextmanager
def soak_lab(folder: Path) -> Iterator[SoakLab]:
    with contextlib.closing(SoakLab(folder)) as lab:
        yield lab


def plant(
    runs: SoakRuns, flaps: int, kills: int, apart: Callable[[random.Random], float], seed: int
) -> Verdict:
    """Run a soak with planted flaps and kills at random moments; return the verdict.

    apart: draws the seconds between two flaps.
    """
    lab, dice = runs.lab, random.Random(seed)
    ports = [spec.port for spec in lab.testbed.nic_ports]
    runs.start()
    began = lab.clock.now()
    killed_after = set(dice.sample(range(1, flaps), kills))
    for number in range(flaps):
        lab.clock.sleep(round(apart(dice) * SECOND))
        if runs.process.poll() is not None:  # over, and the switch is as it was found
            break
        length = round(SHORTEST * (LONGEST / SHORTEST) ** dice.random())
        before = len(lab.changes)
        while len(lab.changes) < before + 2 and runs.process.poll() is None:
            # The kernel may miss a short one.
            lab.flap(dice.choice(ports), length)
            lab.clock.sleep(SECOND // 4)
        if number in killed_after:
            runs.kill()
            lab.flap(dice.choice(ports), SECOND // 10)  # while nobody looks
            runs.start()
    runs.end()
    return judge(runs, lab.flaps_since(began))


MOST_UNTOLD = 2


def main() -> bool:
    """Run one soak; print what it says, and return whether all is well."""
    setting = os.environ.get
    minutes, flaps = float(setting("SOAK_MINUTES", "30")), int(setting("SOAK_FLAPS", "20"))
    kills, seed = int(setting("SOAK_KILLS", "2")), int(setting("SOAK_SEED", "1"))
    pause = 0.8 * minutes * 60 / flaps
    with tempfile.TemporaryDirectory() as folder, soak_lab(Path(folder)) as lab:
        runs = SoakRuns(lab, f"{minutes * 60:.0f} s")
        found = plant(runs, flaps, kills, lambda dice: pause * dice.uniform(0.5, 1.5), seed)
        printed = runs.printed()
        journals = sum(p.stat().st_size for p in runs.results.glob("runs/*/journal.jsonl"))
    for row in found.named:
        low, high = (row.lower or 0) / 1e6, row.upper
        ended = "or more" if high is None else f"to {high / 1e6:,.1f} ms"
        print(f"  {row.subject}: {low:,.1f} {ended}, {row.conditions['first']}", end="; ")
        print(row.conditions["light"])
    print(f"{len(found.planted)} planted, {len(found.within_gaps)} of them in gaps")
    print(f"{len(found.named)} named, {len(found.invented)} of them not planted")
    print(f"missed {found.missed}")
    print(f"wrong end {found.wrong_end}; cannot tell {found.cannot_tell}")
    print(f"outside of their bounds {found.wrong_length}")
    print(f"{journals / 1e3:,.0f} kB of journals")
    print(next((line for line in printed.splitlines() if "link hours" in line), printed))
    wrong = found.missed or found.invented or found.wrong_end or found.wrong_length
    return not wrong and found.cannot_tell <= MOST_UNTOLD
