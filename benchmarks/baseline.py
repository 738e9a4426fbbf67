"""Processor time of commands beside a baseline commit, both on this machine in turn.

LIGHTRIG_BASELINE names the commit, LIGHTRIG_REPETITIONS the number of turns. The commit's files are
unpacked below the temporary folder and run with this Python and its libraries. The least of the
turns is compared, since other work on the machine only adds to a time. Where a command does more
than it did, as the doctor, whose checks have become more, the limit is one of the time a check; the
ratio of the whole is stated beside it.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import beside_limit

COMMIT = os.environ.get("LIGHTRIG_BASELINE", "9407a49c3375")
REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "5"))
LIMIT = 1.15
ROOT = Path(__file__).parents[1]
LIGHTRIG = ("-c", "from lightrig.harness.cli import main; main()")
COMMANDS: dict[str, Sequence[str]] = {
    "check testbeds/opus.yaml": (*LIGHTRIG, "check", "testbeds/opus.yaml"),
    "plan testbeds/opus.yaml": (*LIGHTRIG, "plan", "testbeds/opus.yaml", "east-west"),
    "doctor testbeds/opus.yaml": (*LIGHTRIG, "doctor", "testbeds/opus.yaml", "--simulated"),
    "suites collected": (
        *("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"),
        *("suites", "--testbed", "testbeds/opus.yaml"),
    ),
    "1,000 reconfigurations": ("-m", "benchmarks", "reconfigurations"),
}
"""Arguments of Python, which both commits take."""
COUNTED = {"doctor testbeds/opus.yaml": ("check", re.compile(rb"([0-9]+) checks$"))}
"""What a command prints how many of, at its end."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        unpack(COMMIT, Path(folder))
        trees = (ROOT, Path(folder))
        for name, arguments in COMMANDS.items():
            what, pattern = COUNTED.get(name, ("", re.compile(b"")))
            # The first run compiles the modules.
            counts = [count(run(tree, arguments), pattern) for tree in trees]
            turns = [[processor_s(tree, arguments) for tree in trees] for _ in range(REPETITIONS)]
            today, then = (min(times) for times in zip(*turns, strict=True))
            more = counts[0] / counts[1]
            ratios = sorted(a / b / more for a, b in turns)
            whole = (
                f"; the whole {today / then:.2f}, {counts[0]} beside {counts[1]} {what}s"
                if what
                else ""
            )
            beside_limit(
                f"{name}{f', a {what}' if what else ''}, of its processor time at {COMMIT}",
                today / then / more,
                LIMIT,
                spread=f"of the least; turns {ratios[0]:.2f} to {ratios[-1]:.2f}, median "
                f"{statistics.median(ratios):.2f}, n {REPETITIONS}{whole}",
                peer=f"{today:.2f} s beside {then:.2f} s",
                processor=today / then / more,
            )


def unpack(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder; ends the program where git does not have it."""
    archive = subprocess.run(["git", "archive", commit], capture_output=True, cwd=ROOT, check=False)
    if archive.returncode:
        raise SystemExit(
            f"the baseline {commit} is not in this checkout; fetch its whole history, or name "
            f"another commit by LIGHTRIG_BASELINE: {archive.stderr.decode().strip()}"
        )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def processor_s(tree: Path, arguments: Sequence[str]) -> float:
    """Return the processor time in s of a Python program on the files of a tree."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(tree, arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(tree: Path, arguments: Sequence[str]) -> bytes:
    """Run a Python program on the files of a tree; return its output."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "LIGHTRIG_FIGURES")
    environment = {k: v for k, v in os.environ.items() if k not in dropped}
    environment["PYTHONPATH"] = str(tree)
    ended = subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        cwd=tree,
        env=environment,
        check=True,
    )
    return ended.stdout


def count(output: bytes, pattern: re.Pattern[bytes]) -> int:
    """Return the number that a pattern finds in an output; 1 for a pattern without a number.

    Raises ValueError where it finds none.
    """
    if not pattern.groups:
        return 1
    found = pattern.search(output.rstrip())
    if found is None:
        raise ValueError(f"found {output[-80:]!r}, expected {pattern.pattern!r}")
    return int(found[1])


if __name__ == "__main__":
    main()
