"""Run the test files that what has changed since a commit can affect, the quickest first.

    python tests/affected.py [--since COMMIT] [--keep-going] [--list]
    python tests/affected.py --measure

Without a COMMIT it is HEAD: what is not committed yet. A test file runs that, as it was measured
last, runs a line of which the old side of the difference consists, or reads a file that has
changed, or lists a folder in which a file is new or gone; that has changed itself, or was not
measured, or failed while it was; and each of tests/docs and tests/structure, which read the tree.
`--measure` runs each test file whose code has changed since it was measured, and stores in
.mistakes what it runs and reads; `make mistakes` uses the same. A text that no line stands for, as
a docstring, affects what reads the file.

pytest-testmon (2.2.0) knows neither what runs in the programs that tests start nor data files.
"""

import argparse
import ast
import contextlib
import difflib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # where this file is run as a program

from mutants import reach  # noqa: E402
from mutants.trees import pool_of_trees  # noqa: E402

ALWAYS = ("tests/docs/", "tests/structure/")
"""Folders of tests that read the tree, also by git, which a copy to measure them is without."""

BATCH_SECONDS = 5.0
"""Of tests that one pytest runs, at least: it takes a second or two to start."""

ENDING_SECONDS = 10.0
"""For a pytest to end in, after another one has failed."""


@dataclass(frozen=True)
class Chosen:
    """A test file that runs, and why. seconds: of its last run that was measured, 0 without one."""

    test: str
    why: str
    seconds: float


def changed_since(commit: str, root: Path | None = None) -> dict[str, str]:
    """Return which files differ from a commit: "A" where new, "D" where gone, or another letter.

    A renamed file is gone, and another new.
    """

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(root or ROOT), *arguments]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [name for name in printed.split("\0") if name]

    changed = git("diff", "--name-status", "--no-renames", "-z", commit)
    untracked = git("ls-files", "--others", "--exclude-standard", "-z")
    return dict(zip(changed[1::2], changed[::2], strict=True)) | dict.fromkeys(untracked, "A")


def old_lines(old: str, new: str) -> set[int] | None:
    """Return the lines of `old` of which each test that the change can affect runs one.

    Whole statements; of what is added to a function, and of its signature, all lines of its body;
    of a method that is new, those of its class. None for what affects all that import the module,
    as a constant does. An import or a function that is new affects what uses it, which has changed.
    """
    before, after = old.splitlines(), new.splitlines()
    was, now = _Statements(old), _Statements(new)
    found: set[int] = set()
    for kind, i, j, k, m in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        if kind == "equal":
            continue
        several = [was.run_with(line, now) for line in range(i + 1, j + 1)]
        if m - k > j - i:
            several += [now.added_to(was, line) for line in range(k + 1, m + 1)]
        for lines in several:
            if lines is None:
                return None
            found |= lines
    return found


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_FUNCTION, ast.ClassDef)
_IMPORT = (ast.Import, ast.ImportFrom)


class _Statements:
    """Statements of a text by their lines."""

    def __init__(self, text: str) -> None:
        self.module = ast.parse(text)
        self._lines = text.splitlines()
        imports = [node for node in self.module.body if isinstance(node, _IMPORT)]
        self.imported = {name for node in imports for name in _imported(node)}

    def run_with(self, line: int, now: "_Statements") -> set[int] | None:
        """Return lines of which one runs wherever the statement of `line` takes effect.

        None where that is the import of its module; no lines for blanks, comments, docstrings and
        imports that `now` has too.
        """
        path = self._path(line)
        if not path:
            return set()
        statement = path[-1]
        if isinstance(statement, _FUNCTION) and not statement.decorator_list:
            return _body(statement)
        if not any(isinstance(node, _FUNCTION) for node in path[:-1]):
            kept = isinstance(statement, _IMPORT) and _imported(statement) <= now.imported
            return set() if kept else None
        inner = [child.lineno for child in _children(statement)]
        # `else` and `finally` stand behind an inner statement: then all of it.
        last = min(inner) - 1 if inner and line < min(inner) else statement.end_lineno or 0
        return set(range(statement.lineno, max(last, statement.lineno) + 1))

    def added_to(self, was: "_Statements", line: int) -> set[int] | None:
        """Return lines of `was` of which one runs wherever `line`, which is new, takes effect."""
        path = self._path(line)
        if not path:
            return set()
        found: ast.Module | ast.stmt = was.module
        new: ast.stmt | None = None
        for node in (node for node in path if isinstance(node, _NAMED)):
            known = _named(found, node.name)
            if known is None and isinstance(found, ast.Module):
                return None if node.decorator_list else set()
            if known is None:
                new = node
                break
            found = known
        if isinstance(found, _FUNCTION):
            is_decorator = isinstance(path[-1], _FUNCTION) and line < path[-1].lineno
            return None if is_decorator else _body(found)
        if isinstance(found, ast.ClassDef) and isinstance(new, _FUNCTION):
            methods = [node for node in found.body if isinstance(node, _FUNCTION)]
            return {line for node in methods for line in _body(node)} or None
        return set() if isinstance(path[-1], _IMPORT) else None

    def _path(self, line: int) -> list[ast.stmt]:
        """Return the statements around a line, from the outermost; none for what does not run."""
        path, inside = list[ast.stmt](), self.module.body
        while True:
            here = [node for node in inside if _first(node) <= line <= (node.end_lineno or 0)]
            if not here:
                break
            path.append(here[0])
            inside = _children(here[0])
        is_blank = self._lines[line - 1].lstrip()[:1] in {"", "#"}
        if path and (_is_text(path[-1]) or (is_blank and _children(path[-1]))):
            return []
        return path


def _named(inside: ast.Module | ast.stmt, name: str) -> ast.stmt | None:
    """Return the class or function of a name, also below an `if` or `with`."""
    several = inside.body if isinstance(inside, ast.Module) else _children(inside)
    for node in several:
        if isinstance(node, _NAMED):
            if node.name == name:
                return node
        elif (found := _named(node, name)) is not None:
            return found
    return None


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _children(node: ast.stmt) -> list[ast.stmt]:
    """Return the statements right below one."""
    parts: list[ast.AST] = [node, *getattr(node, "handlers", []), *getattr(node, "cases", [])]
    names = ("body", "orelse", "finalbody")
    return [child for part in parts for name in names for child in getattr(part, name, [])]


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))


def _imported(node: ast.Import | ast.ImportFrom) -> set[tuple[str | None, int, str, str | None]]:
    module, level = (node.module, node.level) if isinstance(node, ast.ImportFrom) else (None, 0)
    return {(module, level, name.name, name.asname) for name in node.names}


def _is_text(node: ast.stmt) -> bool:
    constant = node.value if isinstance(node, ast.Expr) else None
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)


def choose(tests: Iterable[str], changed: Mapping[str, str], root: Path = ROOT) -> list[Chosen]:
    """Return the test files that run, the quickest first, and last those that only read a file."""
    chosen, differences = list[Chosen](), _Differences(root)
    for test in tests:
        one = reach.stored(test)
        why = _why(test, one, changed, differences)
        if why:
            chosen.append(Chosen(test, why, one.seconds if one else 0.0))
    return sorted(chosen, key=lambda one: (one.why.startswith(("reads", "lists")), one.seconds))


class _Differences:
    """What `old_lines` returns of each file, by its text when it was measured."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[tuple[str, str], set[int] | None] = {}

    def of(self, file: str, text: str) -> set[int] | None:
        if (file, text) not in self._known:
            path = self._root / file
            lines = None
            with contextlib.suppress(SyntaxError):  # all that import it fail
                if path.is_file():
                    new = path.read_text()
                    ast.parse(new)
                    lines = old_lines(text, new)
            self._known[file, text] = lines
        return self._known[file, text]


def _why(
    test: str, one: reach.Reach | None, changed: Mapping[str, str], differences: _Differences
) -> str:
    """Return why a test file runs; empty where it does not."""
    if test in changed:
        return "changed"
    if one is None:
        return "not measured"
    if one.state == "empty":  # all of its tests are long, or need what is not here
        return ""
    if one.state != "passed":
        return f"{one.state} when it was measured"
    if test.startswith(ALWAYS):
        return "reads the tree"
    reads = {*one.reads}
    for file, status in changed.items():
        if file in reads:
            return f"reads {file}"
        if file in one.digests:
            text = one.measured_text(file)
            lines = None if text is None else differences.of(file, text)
            if lines is None or not one.measured_lines(file).isdisjoint(lines):
                return f"runs {file}"
        folder = f"{file.rpartition('/')[0]}/"
        if folder in reads and status in {"A", "D"}:
            return f"lists {folder}"
    return ""


def batches(chosen: Sequence[Chosen], jobs: int) -> Iterator[list[Chosen]]:
    """Cut test files into runs of pytest, `jobs` of which go on at a time.

    Short ones come first, so that their failures are seen early; then they double, until what is
    left would be too much for the last ones to end together.
    """
    batch, total, before = list[Chosen](), 0.0, 0.0
    left = sum(one.seconds for one in chosen)
    for one in chosen:
        batch.append(one)
        total += one.seconds
        if total >= max(BATCH_SECONDS, min(before, left / (2 * jobs))):
            yield batch
            before, left = before + total, left - total
            batch, total = [], 0.0
    if batch:
        yield batch


def run(
    chosen: Sequence[Chosen],
    jobs: int,
    keep_going: bool,
    show: Callable[[str], None],
    root: Path = ROOT,
) -> bool:
    """Run test files; return whether all passed. Without `keep_going` the first failure ends it."""
    over, running, lock = threading.Event(), set[subprocess.Popen[bytes]](), threading.Lock()
    failed = list[bool]()

    def run_batch(batch: Sequence[Chosen]) -> None:
        # No pipe: what a test has left would hold it open.
        with tempfile.TemporaryFile("w+", errors="replace") as printed:
            run_in(printed, batch)

    def run_in(printed: IO[str], batch: Sequence[Chosen]) -> None:
        options = ["-q", "-m", "not long", *([] if keep_going else ["-x"])]
        command = [sys.executable, "-m", "pytest", *options, *(one.test for one in batch)]
        with lock:
            if over.is_set():
                return
            process = subprocess.Popen(
                command,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            running.add(process)
        await_end(process)
        printed.seek(0)
        output = printed.read()
        with lock:
            running.discard(process)
            if over.is_set():
                return
            passed = process.returncode in {0, 5}  # 5: without a test that is not long
            failed.append(not passed)
            last = (output.splitlines() or [""])[-1]
            show(f"{', '.join(one.test for one in batch)}: {last}" if passed else output)
            if not passed and not keep_going:
                end()

    def await_end(process: "subprocess.Popen[bytes]") -> None:
        """Wait until a pytest has ended, some seconds where all is over, and kill what it left."""
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SECONDS)
            if over.is_set():
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end() -> None:
        over.set()
        for process in running:  # as Ctrl-C does: fixtures are taken down
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(run_batch, batches(chosen, jobs)))
        except KeyboardInterrupt:
            with lock:
                end()
            raise
    return not any(failed)


def measure(jobs: int, show: Callable[[str], None]) -> None:
    """Measure each test file whose code has changed since it was measured, or never was."""
    tests = reach.files_of_tests(["tests"])
    old = [test for test in tests if not _is_of_today(reach.stored(test))]
    with pool_of_trees(jobs) as mapped:
        for number, one in enumerate(mapped(reach.measure, old), start=1):
            show(f"{number} of {len(old)}: {one.test} {one.state}, {one.seconds:.1f} s")


def _is_of_today(one: reach.Reach | None) -> bool:
    return one is not None and reach.is_of_today(one, one.digests)


def main(arguments: Sequence[str], show: Callable[[str], None]) -> int:
    """Return the status: 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--since", default="HEAD", help="commit (HEAD)")
    parser.add_argument("--keep-going", action="store_true", help="also after a failure")
    parser.add_argument("--list", action="store_true", help="print what would run, and why")
    parser.add_argument("--measure", action="store_true", help="store what the tests run and read")
    parser.add_argument("--jobs", type=int, default=3)
    asked = parser.parse_args(arguments)
    if asked.measure:
        measure(asked.jobs, show)
        return 0
    begun = time.monotonic()
    changed = changed_since(asked.since)
    if not changed:
        show(f"Nothing differs from {asked.since}.")
        return 0
    tests = reach.files_of_tests(["tests"])
    chosen = choose(tests, changed)
    for why, count in Counter(one.why for one in chosen).most_common():
        show(f"{count:4} {'file' if count == 1 else 'files'}: {why}")
    if sum(one.why == "not measured" for one in chosen) > len(tests) / 2:
        show("`make reach` measures once what the tests run; until then nearly all of them run.")
    if asked.list:
        for one in chosen:
            show(f"{one.seconds:7.1f} s  {one.test}: {one.why}")
        return 0
    show(f"{len(chosen)} of {len(tests)} test files can be affected by {len(changed)} files")
    passed = run(chosen, asked.jobs, asked.keep_going, show)
    show(f"{'passed' if passed else 'FAILED'} after {time.monotonic() - begun:.1f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda line: print(line, flush=True)))
