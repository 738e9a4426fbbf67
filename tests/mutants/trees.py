"""Copies of the tree in which bugs are planted, and runs of tests in them.

Each run is a process of its own, forked from one that has loaded what all tests load and nothing of
the tree, so that a bug costs the time of its tests and not that of starting Python.
"""

import contextlib
import json
import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from mutants import opened

ROOT = Path(__file__).parents[2]
SOUND_SECONDS = 600.0
"""Limit of a run of tests on the sound tree."""

SHORTEST_LIMIT = 30.0
"""Limit, in seconds, of a run with a bug whose tests are quick on the sound tree."""

CONTEXT = multiprocessing.get_context("forkserver")
"""Processes that have loaded what all tests load, and nothing of the tree that has the bug."""

PROGRAMS = ("lightrig.instruments.servers.programs", "lightrig.instruments.jobs.programs")
"""Packages of programs that are sent to servers as text: by their modules, coverage knows them."""

_PRELOADED = ["anyio", "hypothesis", "jinja2", "networkx", "numpy", "pydantic", "pytest"]
CONTEXT.set_forkserver_preload([*_PRELOADED, "ruamel.yaml", "scipy.stats"])

A = TypeVar("A")
B = TypeVar("B")
Mapped = Callable[[Callable[[A, Path], B], Iterable[A]], Iterator[B]]
"""Maps items by a function of one and a tree."""


@dataclass(frozen=True)
class TestRun:
    """Outcome of a run of tests.

    state: "passed"; "failed", a test or a fixture of one; "uncollected", where pytest or a test
    file could not be loaded; "hung"; "empty", without a test. failed: what failed, by its id.
    """

    __test__ = False

    state: str
    seconds: float
    failed: tuple[str, ...]
    output: str


def limit_s(sound_s: float) -> float:
    """Return after how many seconds tests that took `sound_s` on the sound tree hang."""
    return max(SHORTEST_LIMIT, 10.0 * sound_s)


def copy_of_tree(folder: Path) -> Path:
    """Copy what git tracks, or would, to `folder`."""
    for name in _listed():
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.is_file():
            shutil.copy(source, target)
    _compile_tree(folder)
    return folder


def _listed() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return [name for name in listed if name]


def _compile_tree(folder: Path) -> None:
    """Store the bytecode of a tree, valid by the hash of its source.

    A process that tries a bug then compiles one file. By time stamp, a bug of the same length
    planted within the same second would run as the code without it.
    """
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*command, "."], cwd=folder, check=False, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def edited(tree: Path, texts: dict[str, str]) -> Iterator[None]:
    """Give files of `tree`, by name, other texts, and put the old ones back at the end."""
    sound = {name: (tree / name).read_text() for name in texts}
    try:
        for name, text in texts.items():
            (tree / name).write_text(text)
        yield
    finally:
        for name, text in sound.items():
            (tree / name).write_text(text)


def run_tests(
    tests: Sequence[str],
    tree: Path,
    limit: float = SOUND_SECONDS,
    options: Sequence[str] = ("-x",),
    data_file: Path | None = None,
) -> TestRun:
    """Run `tests` on `tree`, at most `limit` seconds.

    data_file: where the lines that they run are stored, also those of the processes they start;
    the files that they read stand beside it, in one whose name ends with ".read".
    """
    # A process that tests have started may still write where its lines are stored.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        seen = Path(temporary, "seen.json")
        process = CONTEXT.Process(target=_tested, args=(tree, tests, temporary, options, data_file))
        began = time.monotonic()
        process.start()
        process.join(limit)
        seconds = time.monotonic() - began
        late = process.exitcode is None
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.killpg(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        process.join()
        output = Path(temporary, "output")
        text = output.read_text(errors="replace") if output.exists() else ""
        if late:
            return TestRun("hung", seconds, (), f"{text}\nnot finished after {limit:.0f} s")
        failed: list[str] = []
        state = {0: "passed", 5: "empty"}.get(process.exitcode or 0, "uncollected")
        # pytest ends with 1 also where it stops at a test file that cannot be loaded.
        if seen.exists():
            failed = json.loads(seen.read_text())
            state = "failed" if state == "uncollected" else state
        return TestRun(state, seconds, tuple(failed), text)


def _tested(
    tree: Path, tests: Sequence[str], temporary: str, options: Sequence[str], data_file: Path | None
) -> None:
    """Run `tests` on `tree` in this process, which ends."""
    os.setpgrp()  # no session of its own: its leader dies with the first terminal that it opens
    with Path(temporary, "output").open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(tree)
    sys.path.insert(0, str(tree))
    # Programs that the tests start run the code of this tree too.
    os.environ["PYTHONPATH"] = str(tree)
    sys.dont_write_bytecode = True
    measured = _coverage(tree, temporary, data_file) if data_file else None
    if data_file:
        _note_files(tree, temporary, data_file)
    # Rewriting the assertions of all modules would cost more than most of the tests.
    always = ["-q", "-m", "not long", "--assert=plain", f"--basetemp={temporary}/tests"]
    always += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    plugins = [_QuickestFirst(tree / "durations.json"), _Failures(Path(temporary, "seen.json"))]
    code = pytest.main([*always, *options, *tests], plugins)
    if measured is not None:
        measured()
    sys.stdout.flush()
    os._exit(int(code))


def _coverage(tree: Path, temporary: str, data_file: Path) -> Callable[[], None]:
    """Begin to note which lines run, also in processes started; return what stores them."""
    import coverage  # where no lines are noted, the package need not be there

    settings = Path(temporary, "coveragerc")
    settings.write_text(
        f"[run]\ndata_file = {temporary}/lines\nparallel = true\npatch = subprocess, _exit\n"
        f"sigterm = true\nsource = {tree}\nomit = {tree}/tests/*\n"
        f"source_pkgs = {', '.join(PROGRAMS)}\n"
    )
    measured = coverage.Coverage(config_file=str(settings))
    measured.start()

    def store() -> None:
        measured.stop()
        measured.save()
        together = coverage.Coverage(config_file=str(settings), data_file=str(data_file))
        together.combine([str(path) for path in Path(temporary).glob("lines.*")])
        together.save()

    return store


def _note_files(tree: Path, temporary: str, data_file: Path) -> None:
    """Begin to note which files of the tree are read, also by processes started."""
    customized = Path(temporary, "customized")
    customized.mkdir()
    shutil.copy(opened.__file__, customized / "sitecustomize.py")
    log = data_file.with_suffix(".read")
    log.unlink(missing_ok=True)
    os.environ[opened.VARIABLE] = f"{tree.resolve()}:{log}"
    os.environ["PYTHONPATH"] = f"{customized}{os.pathsep}{tree}"
    opened.note(str(tree.resolve()), str(log))


class _Failures:
    """Writes which tests failed, fixtures included, from the start of the first test on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: list[str] = []

    def pytest_runtest_logstart(self) -> None:
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self._failed:
            self._failed.append(report.nodeid)
            self._write()

    def _write(self) -> None:
        self._path.write_text(json.dumps(self._failed))


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


@contextlib.contextmanager
def pool_of_trees(jobs: int) -> Iterator[Mapped[A, B]]:
    """Yield a function that maps items over `jobs` copies of the tree, as many at a time."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            trees.put(copy_of_tree(Path(folder, str(number))))

        def mapped(function: Callable[[A, Path], B], items: Iterable[A]) -> Iterator[B]:
            def run(item: A) -> B:
                tree = trees.get()
                try:
                    return function(item, tree)
                finally:
                    trees.put(tree)

            return pool.map(run, items)

        yield mapped
