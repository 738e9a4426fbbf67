"""Lines that each test file runs, stored, so that a mistake is tried with the tests that reach it.

A test file is measured as a whole: fixtures of modules run with its first test alone. Processes
that tests start are measured too. Lines are stored as a data file of coverage.py a test file;
the texts whose lines they are, by their digests.
"""

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutants.trees import PROGRAMS, ROOT, run_tests

if TYPE_CHECKING:
    from coverage import CoverageData


STORE = ROOT / ".mistakes"


@dataclass(frozen=True)
class Reach:
    """A test file and what it runs.

    state, seconds: of its run on the sound tree. root: tree that was measured. digests: of the test
    file and of each file of the product that it runs, by name. reads: names of files that it reads,
    and of those of tests that it imports; of folders that it lists, with a "/" at the end.
    """

    test: str
    state: str
    seconds: float
    root: str
    digests: dict[str, str]
    reads: list[str]

    def lines(self, file: str) -> frozenset[int]:
        """Return the lines of `file` that it runs; empty where the file has changed since."""
        if self.digests.get(file) != digest(file):
            return frozenset()
        return self.measured_lines(file)

    def measured_lines(self, file: str) -> frozenset[int]:
        """Return the lines that it runs of `file` as it was measured, which is `measured_text`."""
        data = _data(_stored(self.test, "lines"))
        names = (name for name in data.measured_files() if _file_of(name, self.root) == file)
        return frozenset(line for name in names for line in data.lines(name) or ())

    def measured_text(self, file: str) -> str | None:
        """Return the text of `file` as it was measured; None where it is not stored."""
        path = STORE / "texts" / self.digests.get(file, "none")
        return path.read_text() if path.is_file() else None


@functools.lru_cache(maxsize=1)
def _data(path: Path) -> "CoverageData":
    from coverage import CoverageData

    data = CoverageData(str(path))
    data.read()
    return data


def digest(file: str, root: Path | None = None) -> str:
    """Return the digest of a file; empty where it is not there."""
    path = (root or ROOT) / file
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _file_of(name: str, root: str) -> str:
    """Return the file of the tree that coverage.py stores as `name`.

    A program that was sent as text is stored in the folder where it ran, by its module's name.
    """
    module = Path(name).name
    if module.startswith(tuple(f"{package}." for package in PROGRAMS)):
        return f"{module.removeprefix('lightrig.').replace('.', '/')}.py"
    return name.removeprefix(f"{root}/")


def _stored(test: str, suffix: str) -> Path:
    return STORE / f"{test.replace('/', '-')}.{suffix}"


def files_of_tests(under: Iterable[str]) -> list[str]:
    """Return the names of all test files under folders, or those files."""
    found = set()
    for name in under:
        path = ROOT / name
        found |= {path} if path.is_file() else set(path.rglob("test_*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def stored(test: str) -> Reach | None:
    """Return what is stored of a test file; None where it was not measured, or has changed."""
    path = _stored(test, "json")
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    if "reads" not in content:  # of an earlier version
        return None
    found = Reach(**content)
    return found if found.digests.get(test) == digest(test) else None


def is_of_today(reach: Reach, files: Iterable[str]) -> bool:
    """Whether none of `files` has changed since they were measured, as far as it runs them."""
    return all(reach.digests.get(file, digest(file)) == digest(file) for file in files)


def measure(test: str, tree: Path) -> Reach:
    """Run a test file on the sound tree, and store what it runs."""
    from coverage import CoverageData

    STORE.mkdir(exist_ok=True)
    lines = _stored(test, "lines")
    lines.unlink(missing_ok=True)
    _data.cache_clear()
    run = run_tests([test], tree, options=(), data_file=lines)
    if run.state == "failed":
        # Measuring takes signals and time that some tests look at: they may pass without it.
        run = run_tests([test], tree, options=())
    root = str(tree.resolve())
    digests = {test: digest(test, tree)}
    if lines.exists():
        data = CoverageData(str(lines))
        data.read()
        ran = [name for name in data.measured_files() if data.lines(name)]
        names = {_file_of(name, root) for name in ran}
        digests |= {name: digest(name, tree) for name in names}
        for name in names:
            _keep_text(tree / name, digests[name])
    read = lines.with_suffix(".read")
    reads = sorted({*read.read_text().splitlines()}) if read.exists() else []
    read.unlink(missing_ok=True)
    found = Reach(test, run.state, round(run.seconds, 2), root, digests, reads)
    _stored(test, "json").write_text(json.dumps(asdict(found)))
    return found


def _keep_text(path: Path, digest_: str) -> None:
    kept = STORE / "texts" / digest_
    if path.is_file() and not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept)


def refreshed(
    tests: Sequence[str],
    files: Sequence[str],
    mapped: Callable[[Callable[[str, Path], Any], Iterable[str]], Iterable[Any]],
) -> list[Reach]:
    """Return what all `tests` run, measured again where one or what it runs of `files` changed."""
    known = {test: stored(test) for test in tests}
    old = [test for test, reach in known.items() if reach is None or not is_of_today(reach, files)]
    known |= {reach.test: reach for reach in mapped(measure, old)}
    return [reach for reach in known.values() if reach is not None]


def reaching(
    reaches: Iterable[Reach], file: str, lines: tuple[int, int], most_s: float
) -> tuple[list[Reach], int]:
    """Return the test files that run a line of `file`, and how many more there are.

    Only those that pass on the sound tree: nearest by the words of their paths first, then the
    quickest, up to `most_s` seconds together, and at least one.
    """
    words = {*Path(file).parts, Path(file).stem}
    wanted = range(lines[0], lines[1] + 1)
    found = [
        reach
        for reach in reaches
        if reach.state == "passed" and file in reach.digests
        if not reach.lines(file).isdisjoint(wanted)
    ]

    def order(reach: Reach) -> tuple[int, float]:
        path = Path(reach.test)
        near = len(words & {*path.parts, path.stem.removeprefix("test_")})
        return -near, reach.seconds

    found.sort(key=order)
    chosen, total = list[Reach](), 0.0
    for reach in found:
        if not chosen or total + reach.seconds <= most_s:
            chosen.append(reach)
            total += reach.seconds
    return chosen, len(found) - len(chosen)


def broken(reaches: Iterable[Reach]) -> list[str]:
    """Return the test files that do not pass on the sound tree, each with its state."""
    return [
        f"{reach.test}: {reach.state}"
        for reach in reaches
        if reach.state not in {"passed", "empty"}
    ]
