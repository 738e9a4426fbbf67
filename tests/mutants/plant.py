"""Plant bugs one at a time in a copy of the tree, and report which of them the tests notice.

`make mutants` runs it; `python tests/mutants/plant.py --only closure --jobs 3` a part of it. The
bugs stand in mutants.yaml beside this file. With `--outcomes FILE` each outcome is added to a file,
and a bug is not tried again whose outcome is there of the same code and tests: so a run that was
interrupted goes on. Exit 0 where every bug without a reason to survive is killed, and every bug
with one survives; else 1.
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
MUTANTS = Path(__file__).with_name("mutants.yaml")
SECONDS = 600

CONTEXT = multiprocessing.get_context("forkserver")
"""Processes that have loaded what all tests load, and nothing of the tree that has the bug."""

_PRELOADED = "anyio hypothesis jinja2 networkx numpy pydantic pytest ruamel.yaml scipy.stats"
CONTEXT.set_forkserver_preload(_PRELOADED.split())


@dataclass(frozen=True)
class Bug:
    """One bug that is planted.

    old, new: text of `file`, which has it once, and what takes its place. tests: files that are
    to notice it. survives: why no test can, or None.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str | None = None

    def mutate(self, text: str) -> str:
        """Return the text with the bug; raises `ValueError` if it has `old` not exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: found {self.old!r} {text.count(self.old)} times in {self.file}, "
                "expected it once: the code has changed, so plant the bug anew"
            )
        return text.replace(self.old, self.new)

    def version(self, root: Path = ROOT) -> str:
        """Return what tells this bug in this code, with these tests, from all others."""
        digest = hashlib.sha256(repr((self.name, self.old, self.new, self.tests)).encode())
        for name in (self.file, *(test.partition("::")[0] for test in self.tests)):
            path = root / name
            for each in [path] if path.is_file() else sorted(path.glob("*.py")):
                digest.update(each.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """Outcome of a bug: "killed", "survived" or "error" (the tests could not run)."""

    bug: Bug
    state: str
    seconds: float
    output: str

    @property
    def expected(self) -> bool:
        """Whether the bug's entry says so."""
        return self.state == ("killed" if self.bug.survives is None else "survived")


def bugs(path: Path = MUTANTS) -> list[Bug]:
    """Return the bugs of the list, each name once."""
    return [
        Bug(
            name,
            body["file"],
            body["old"],
            body["new"],
            tuple(body["tests"]),
            body.get("survives"),
        )
        for name, body in YAML(typ="safe").load(path.read_text()).items()
    ]


def copy_of_tree(folder: Path) -> Path:
    """Copy what git tracks, or would, to `folder`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.is_file():
            shutil.copy(source, target)
    compile_tree(folder)
    return folder


def compile_tree(folder: Path) -> None:
    """Store the bytecode of a tree, valid by the hash of its source.

    A process that tries a bug then compiles one file. By time stamp, a bug of the same length
    planted within the same second would run as the code without it.
    """
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*command, "."], cwd=folder, check=False, stdout=subprocess.DEVNULL)


def try_bug(bug: Bug, tree: Path) -> Outcome:
    """Run the bug's tests on `tree` with the bug in it, and take it out again."""
    path = tree / bug.file
    sound = path.read_text()
    began = time.monotonic()
    path.write_text(bug.mutate(sound))
    try:
        code, output = _pytest(bug.tests, tree)
    finally:
        path.write_text(sound)
    state = {0: "survived", 1: "killed", 2: "killed"}.get(code, "error")
    return Outcome(bug, state, time.monotonic() - began, output)


def _pytest(tests: Sequence[str], tree: Path) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary, "output")
        process = CONTEXT.Process(target=_tested, args=(tree, tests, temporary, output))
        process.start()
        process.join(SECONDS)
        late = process.exitcode is None
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.killpg(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        process.join()
        if late:
            return 124, f"not finished after {SECONDS} s"
        return process.exitcode or 0, output.read_text(errors="replace") if output.exists() else ""


def _tested(tree: Path, tests: Sequence[str], temporary: str, output: Path) -> None:
    """Run `tests` on `tree` in this process, which ends."""
    os.setsid()
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = True
    # Rewriting the assertions of all modules would cost more than most of the tests.
    options = ["-x", "-q", "-m", "not long", "--assert=plain", f"--basetemp={temporary}/tests"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([*options, *tests], [_QuickestFirst(tree / "durations.json")])
    sys.stdout.flush()
    os._exit(int(code))


class _QuickestFirst:
    """Runs the tests that took least in the runs before first: most bugs need none of the others.

    path: where the durations are kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._seconds[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._seconds))


def try_all(chosen: Iterable[Bug], jobs: int) -> Iterator[Outcome]:
    """Try all bugs, `jobs` at a time, each in a copy of the tree of its own."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            trees.put(copy_of_tree(Path(folder, str(number))))
        shown = threading.Lock()

        def run(bug: Bug) -> Outcome:
            tree = trees.get()
            try:
                outcome = try_bug(bug, tree)
            finally:
                trees.put(tree)
            with shown:
                print(f"{outcome.state:9}{outcome.seconds:6.0f} s  {bug.name}", flush=True)
            return outcome

        yield from pool.map(run, chosen)


def remembered(chosen: Iterable[Bug], path: Path | None) -> dict[str, Outcome]:
    """Return the outcomes of `chosen` in a file, by name, that hold for the present code."""
    if path is None or not path.exists():
        return {}
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    known = {one["version"]: one for one in stored if one["state"] != "error"}
    found = {bug.name: (bug, known.get(bug.version())) for bug in chosen}
    return {
        name: Outcome(bug, one["state"], one["seconds"], "")
        for name, (bug, one) in found.items()
        if one is not None
    }


def remember(outcome: Outcome, path: Path | None) -> None:
    """Add an outcome to a file."""
    if path is not None:
        stored = {"version": outcome.bug.version(), "name": outcome.bug.name}
        stored |= {"state": outcome.state, "seconds": round(outcome.seconds, 1)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(stored) + "\n")


def report(outcomes: Sequence[Outcome]) -> str:
    """Return numbers, and a sentence on each bug that did not end as its entry says."""
    killed = sum(one.state == "killed" for one in outcomes)
    lines = [f"{killed} of {len(outcomes)} bugs killed"]
    for one in outcomes:
        if one.state == "survived" and one.bug.survives:
            lines.append(f"survived, as expected: {one.bug.name}: {one.bug.survives}")
        elif not one.expected:
            lines.append(f"{one.state}, and was not to be: {one.bug.name} in {one.bug.file}")
        if one.state == "error":
            lines += one.output.splitlines()[-15:]
    return "\n".join(lines)


def main() -> int:
    """Try the bugs that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) // 2, 1))
    parser.add_argument("--outcomes", type=Path, help="file of outcomes, to go on with")
    asked = parser.parse_args()
    chosen = [bug for bug in bugs() if asked.only in bug.name]
    outcomes = remembered(chosen, asked.outcomes)
    for outcome in try_all((bug for bug in chosen if bug.name not in outcomes), asked.jobs):
        remember(outcome, asked.outcomes)
        outcomes[outcome.bug.name] = outcome
    outcomes = {bug.name: outcomes[bug.name] for bug in chosen}
    print(report(list(outcomes.values())))
    return 0 if all(one.expected for one in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
