"""Claims of all systems counted by kind of value and verdict, at two revisions.

    python -m benchmarks.claim_counts [--before REVISION] [--results PLACE]

Without `--results` nothing counts as measured. The earlier revision is checked out beside this one
and counts its own claims; without `--before` there is one column.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from lightrig.harness.claims import published_files

ROOT = Path(__file__).parents[1]
Counts: TypeAlias = Mapping[tuple[str, str], int]
"""Claims by kind of value, empty without one, and verdict."""

_CLAIMS = "from lightrig.harness.cli import main; main()"


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.claim_counts")
    parser.add_argument("--before", metavar="REVISION")
    parser.add_argument("--results", metavar="PLACE")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lightrig-") as folder:
        results = options.results or folder
        now = {system: counts(ROOT, system, results) for system in published_files()}
        before: Mapping[str, Counts] = {}
        if options.before:
            tree = Path(folder) / "before"
            _git("worktree", "add", "--detach", str(tree), options.before)
            try:
                before = {system: counts(tree, system, results) for system in now}
            finally:
                _git("worktree", "remove", "--force", str(tree))
    _print(before, now, options.before)


def counts(root: Path, system: str, results: str) -> Counts:
    """Return the counts of a system's claims, by the checkout at `root`.

    Raises `RuntimeError` where it cannot read them.
    """
    command = [sys.executable, "-c", _CLAIMS, "claims", system, "--results", results]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ended = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if ended.returncode not in (0, 1):  # 1: something differs
        raise RuntimeError(f"{system} at {root}: {ended.stderr.strip()}")
    rows = [line.split("\t") for line in ended.stdout.splitlines()]
    return Counter((kind, verdict) for _, verdict, kind, *_ in rows)


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)


def _print(before: Mapping[str, Counts], now: Mapping[str, Counts], revision: str | None) -> None:
    if revision:
        print(f"each pair of numbers: at {revision}, and now")
    keys = sorted({key for of in (before, now) for found in of.values() for key in found})
    systems = list(now)
    print("kind, verdict".ljust(26), *(system.rjust(13) for system in systems))
    for key in keys:
        kind, verdict = key
        cells = [
            _cell(before.get(s, {}).get(key, 0), now[s].get(key, 0), revision) for s in systems
        ]
        print(f"{kind or 'no value'}, {verdict}".ljust(26), *(cell.rjust(13) for cell in cells))
    total = [
        _cell(sum(before.get(s, {}).values()), sum(now[s].values()), revision) for s in systems
    ]
    print("all".ljust(26), *(cell.rjust(13) for cell in total))


def _cell(before: int, now: int, revision: str | None) -> str:
    return f"{before} {now}" if revision else str(now)


if __name__ == "__main__":
    main(sys.argv[1:])
