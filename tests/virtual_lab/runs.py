"""One run of pytest on the virtual lab: captures, the run, the comparison."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrig.harness.record.journal_reading import read_journal
from lightrig.harness.record.row import Row

from .captures import capturing
from .comparison import Verdict, compare, parse_moves, without_row
from .lab import SERVERS, VirtualLab
from .steps import ROOT, VirtualLabError

RUN_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: pytest's exit status, what it printed, its folder and the verdicts.

    Attributes:
        without_row: event and port of links that came up, and of which there is no row.
        merged: number of links that came up, and of whose darkness the server's kernel has not
            heard, by its own count: it did not run meanwhile.
    """

    status: int
    said: str
    folder: Path
    verdicts: list[Verdict]
    without_row: list[tuple[int, str]]
    merged: int

    @property
    def wrong(self) -> list[str]:
        """What the truth contradicts: rows, and ports that are left out without a word."""
        lines = [str(verdict) for verdict in self.verdicts if not verdict.held]
        if len(self.without_row) > self.merged:
            ports = ", ".join(f"{port} of event {event}" for event, port in self.without_row)
            lines.append(f"without a row: {ports}; servers have not noticed {self.merged} moves")
        return lines


def compared_run(lab: VirtualLab, name: str, arguments: Sequence[str]) -> Run:
    """Run pytest with `arguments` on the lab, and compare each row with its truth.

    Files are in `runs/NAME` of the lab's folder. Raises `VirtualLabError` where it left no results.
    """
    folder = lab.folder / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results"
    before = set(results.glob("runs/*"))
    noted, counted = len(lab.notes.read_text().splitlines()), _carriers_up(lab)
    with capturing(lab.plant_pid, folder / "taps.pcap", dumps=lab.dumps) as capture:
        status, said = pytest_on(lab, [*arguments, "--results", str(results)])
    (folder / "pytest.txt").write_text(said)
    made = sorted(set(results.glob("runs/*")) - before)
    if not made:
        raise VirtualLabError(f"the run left no results: {said[-2000:]}")
    moves = parse_moves("\n".join(lab.notes.read_text().splitlines()[noted:]))
    merged = sum(move.up for move in moves) - (_carriers_up(lab) - counted)
    received = capture.received()
    verdicts = [
        verdict
        for rows in rows_by_test(made[-1]).values()
        for verdict in compare(rows, moves, received)
    ]
    (folder / "verdicts.txt").write_text("".join(f"{verdict}\n" for verdict in verdicts))
    missing = [
        each for rows in rows_by_test(made[-1]).values() for each in without_row(rows, moves)
    ]
    return Run(status, said, made[-1], verdicts, missing, merged)


def _carriers_up(lab: VirtualLab) -> int:
    """Return how often the servers' kernels have seen a carrier come up, on all ports."""
    command = "cat /sys/class/net/fabric*/carrier_up_count"
    counts = [lab.run(server, command).split() for server in range(len(SERVERS))]
    return sum(int(count) for of_server in counts for count in of_server)


def pytest_on(lab: VirtualLab, arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest on the lab; returns its exit status and what it printed."""
    done = subprocess.run(
        pytest_command(lab, arguments),
        cwd=ROOT,
        env=os.environ | lab.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def pytest_command(lab: VirtualLab, arguments: Sequence[str]) -> list[str]:
    """Return the command line of pytest on the lab, as hardware."""
    stated = ["--testbed", str(lab.testbed), "--instruments", "hardware"]
    if "--results" not in arguments:
        stated += ["--results", str(lab.folder / "runs" / "results")]
    return [sys.executable, "-m", "pytest", *arguments, *stated, "-p", "no:cacheprovider"]


def rows_by_test(run: Path) -> dict[str, list[Row]]:
    """Return the rows of each test of a run."""
    found: dict[str, list[Row]] = {}
    for context, row in read_journal(run / "journal.jsonl").rows():
        found.setdefault(context.test, []).append(row)
    return found
