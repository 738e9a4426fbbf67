"""`make affected` runs what a change can affect, and the quickest of it first."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import affected
import pytest
from affected import Chosen, batches, changed_since, choose, old_lines, run
from mutants import reach

OLD = '''\
"""Losses."""

import math
from statistics import (
    mean,
)

LIMIT = 3.5


class Meter:
    """A meter."""

    floor = -70

    def read(self, low, high=4):
        """Read it."""
        if low > high:
            # a comment
            return mean(
                [low, high],
            )
        else:
            self.floor = low
        return math.floor(low)


@property
def wrapped(it):
    return it


def spread(levels):
    return max(levels) - min(levels)
'''
READ, SPREAD = set(range(17, 26)), {34}


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        # Changed and deleted lines: the statement, whole.
        (("[low, high],", "[low],"), {20, 21, 22}),
        (("            self.floor = low\n", "            pass\n"), {24}),
        (("        return math.floor(low)\n", ""), {25}),
        (("low > high:", "low >= high:"), {18, 19}),
        (("        else:\n            self.floor = low\n", ""), set(range(18, 25))),
        # A signature: whatever runs the function.
        (("high=4", "high=5"), READ),
        # More than there was runs in the function around it.
        (("        return math.floor(low)\n", "        low += 1\n        return low\n"), READ),
        (("    return max(levels)", "    levels.sort()\n    return max(levels)"), SPREAD),
        (("    def read", "    def reset(self):\n        self.floor = 0\n\n    def read"), READ),
        # What takes effect where the module is imported.
        (("LIMIT = 3.5", "LIMIT = 3.4"), None),
        (("floor = -70", "floor = -60"), None),
        (("LIMIT = 3.5\n", "LIMIT = 3.5\nspread = max\n"), None),
        (("    floor = -70\n", "    floor = -70\n    step = 1\n"), None),
        (("def wrapped(it)", "def wrapped(one)"), None),
        (("def spread", "@property\ndef spread"), None),
        (("import math\n", "import cmath as math\n"), None),
        # What is new is used by something else that has changed; texts do nothing.
        (("def spread", "def other(x):\n    return x\n\n\ndef spread"), set()),
        (("import math\n", "import abc\nimport math\n"), set()),
        (("    mean,\n", "    mean,\n    median,\n"), set()),
        (("            # a comment\n", "            # another\n            # one\n"), set()),
        (('"""Read it."""', '"""Read the meter."""'), set()),
        (("LIMIT", "\n\n# Of the standard.\nLIMIT"), set()),
    ],
)
def test_old_lines_are_those_that_run_wherever_a_change_takes_effect(
    change: tuple[str, str], lines: set[int] | None
) -> None:
    found = old_lines(OLD, OLD.replace(*change, 1))
    assert found == lines


def git(folder: Path, *arguments: str) -> None:
    name = ["-c", "user.name=A", "-c", "user.email=a@host.invalid"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


FILES = {
    ".gitignore": "__pycache__/\n.pytest_cache/\n",  # what Python and pytest leave
    "pytest.ini": "[pytest]\nmarkers = long: long\npythonpath = . tests\n",
    "harness/__init__.py": "",
    "harness/a.py": (
        "def double(x):\n    return x + x\n\n\ndef half(x):\n    x = x / 2\n    return x\n"
    ),
    "harness/b.py": "from harness.a import half\n\n\ndef quarter(x):\n    return half(half(x))\n",
    "harness/data/limits.txt": "2 4 7",
    "harness/data/page.html": "<html>",
    "tests/conftest.py": "",
    "tests/helper.py": "def four():\n    return 4\n",
    "tests/docs/test_pages.py": "def test_pages(): pass\n",
    "tests/test_double.py": (
        "from harness.a import double\nfrom helper import four\n"
        "def test_double(): assert double(2) == four()\n"
    ),
    "tests/test_half.py": "from harness.a import half\ndef test_half(): assert half(3) == 1.5\n",
    "tests/test_program.py": (
        "import subprocess, sys\ndef test_quarter():\n"
        "    code = 'import sys; from harness.b import quarter; sys.exit(quarter(8) != 2)'\n"
        "    assert subprocess.run([sys.executable, '-c', code]).returncode == 0\n"
    ),
    "tests/test_limits.py": (
        "import pathlib, subprocess, sys\ndef test_limits():\n"
        "    code = 'print(open(\"harness/data/limits.txt\").read())'\n"
        "    run = subprocess.run([sys.executable, '-c', code], capture_output=True)\n"
        "    assert run.stdout.split() == [b'2', b'4', b'7']\n"
    ),
    "tests/test_names.py": (
        "import pathlib\ndef test_names():\n"
        "    assert all(each.suffix for each in pathlib.Path('harness/data').iterdir())\n"
    ),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a repository in which all tests are measured, and their store."""
    folder = tmp_path_factory.mktemp("measured")
    root = folder / "tree"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "One")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach, "ROOT", root)
        patch.setattr(reach, "STORE", folder / "store")
        for test in reach.files_of_tests(["tests"]):
            assert reach.measure(test, root).state == "passed"
    (root / "durations.json").unlink()
    return folder


@pytest.fixture
def tree(measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for each in measured.iterdir():
        shutil.copytree(each, tmp_path / each.name)
    monkeypatch.setattr(reach, "ROOT", tmp_path / "tree")
    monkeypatch.setattr(reach, "STORE", tmp_path / "store")
    return tmp_path / "tree"


def chosen_in(tree: Path) -> dict[str, str]:
    """Return which tests run since the last commit, and why, without those that always do."""
    tests = reach.files_of_tests(["tests"])
    found = choose(tests, changed_since("HEAD", tree), tree)
    assert "tests/docs/test_pages.py" in {one.test for one in found}
    return {one.test.removeprefix("tests/"): one.why for one in found if "docs" not in one.test}


def replace(old: str, new: str, name: str = "harness/a.py") -> Callable[[Path], None]:
    def edit(tree: Path) -> None:
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new))

    return edit


def rename(tree: Path) -> None:
    git(tree, "mv", "harness/a.py", "harness/c.py")


def new_data(tree: Path) -> None:
    (tree / "harness/data/new.csv").write_text("1")


def new_tests(tree: Path) -> None:
    (tree / "tests/test_new.py").write_text("def test_new(): pass\n")
    git(tree, "rm", "-q", "tests/test_half.py")


ALL_OF_A = {"test_double.py", "test_half.py", "test_program.py"}


@pytest.mark.parametrize(
    ("edit", "tests"),
    [
        (replace("x + x", "x * x"), {"test_double.py"}),
        (replace("    x = x / 2\n", ""), {"test_half.py", "test_program.py"}),
        (replace("(half(x))", "(x)", "harness/b.py"), {"test_program.py"}),
        (replace("def double", "LIMIT = 3\n\n\ndef double"), ALL_OF_A),
        (replace("def half", "def (half"), ALL_OF_A),
        (rename, ALL_OF_A),
        (replace("return 4", "return 5", "tests/helper.py"), {"test_double.py"}),
        (replace("4 7", "4 9", "harness/data/limits.txt"), {"test_limits.py"}),
        (replace("html", "body", "harness/data/page.html"), set()),
        (new_data, {"test_names.py"}),
        (new_tests, {"test_new.py"}),
        (replace("== 1.5", "== 1.6", "tests/test_half.py"), {"test_half.py"}),
    ],
)
def test_what_runs_is_what_a_change_affects(
    tree: Path, edit: Callable[[Path], None], tests: set[str]
) -> None:
    assert chosen_in(tree) == {}
    edit(tree)
    assert set(chosen_in(tree)) == tests


def test_the_quickest_run_first_and_those_that_read_last(tree: Path) -> None:
    seconds = {"test_program": 0.5, "test_half": 7.0, "test_double": 3.0, "docs-test_pages": 0.1}
    for name, each in seconds.items():
        stored = reach.STORE / f"tests-{name}.py.json"
        content = json.loads(stored.read_text())
        stored.write_text(json.dumps({**content, "seconds": each}))
    rename(tree)
    (tree / "tests/test_new.py").write_text("")
    tests = reach.files_of_tests(["tests"])
    chosen = choose(tests, changed_since("HEAD", tree), tree)
    names = [Path(one.test).stem for one in chosen]
    assert names == ["test_new", "test_program", "test_double", "test_half", "test_pages"]


def test_lines_are_those_of_the_text_that_was_measured(tree: Path) -> None:
    """Later commits move lines; a test that failed as it was measured runs after any change."""
    replace("def double", '"""Numbers."""\n\n\n\n\ndef double')(tree)
    git(tree, "commit", "-qam", "Two")
    replace("x + x", "x * x")(tree)
    assert set(chosen_in(tree)) == {"test_double.py"}
    stored = reach.STORE / "tests-test_limits.py.json"
    stored.write_text(stored.read_text().replace('"passed"', '"hung"'))
    assert chosen_in(tree)["test_limits.py"] == "hung when it was measured"
    shutil.rmtree(reach.STORE)
    assert set(chosen_in(tree).values()) == {"not measured"}


def test_short_ones_run_first_and_longer_ones_together() -> None:
    """5 s, then as much as before, then a quarter of what is left for two at a time, by hand."""
    seconds = [0.0, 0.5, 2.5, 4.0, 3.0, 5.0, 9.0, 9.0, 20.0, 20.0, 26.0]
    chosen = [Chosen(chr(97 + number), "", each) for number, each in enumerate(seconds)]
    names = ["".join(one.test for one in batch) for batch in batches(chosen, 2)]
    assert names == ["abcd", "ef", "gh", "i", "j", "k"]
    assert [len(batch) for batch in batches(chosen[:1], 3)] == [1]
    assert [*batches([], 3)] == []


@pytest.mark.parametrize("keep_going", [False, True])
def test_the_first_failure_ends_it(
    tree: Path, keep_going: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the tree's tests need none
    # It leaves a program that stands still, and whose output is its own.
    (tree / "tests/test_slow.py").write_text(
        "import os, pathlib, signal, subprocess, time\ndef test_it():\n"
        "    left = subprocess.Popen(['sleep', '300'])\n"
        "    os.kill(left.pid, signal.SIGSTOP)\n"
        "    pathlib.Path('left').write_text(str(left.pid))\n"
        "    os.rename('left', 'began')\n"
        f"    time.sleep({1 if keep_going else 600})\n"
    )
    (tree / "tests/test_wrong.py").write_text(
        "import pathlib\ndef test_it():\n"
        "    while not pathlib.Path('began').exists(): pass\n    assert 2 + 3 == 6\n"
    )
    shown: list[str] = []
    chosen = [Chosen("tests/test_slow.py", "", 8.0), Chosen("tests/test_wrong.py", "", 8.0)]
    begun = time.monotonic()
    assert not run(chosen, 2, keep_going, shown.append, tree)
    assert time.monotonic() - begun < 500
    assert any("assert (2 + 3) == 6" in each for each in shown)
    assert any(each.startswith("tests/test_slow.py: 1 passed") for each in shown) == keep_going
    with contextlib.suppress(ProcessLookupError):
        left = os.pidfd_open(int((tree / "began").read_text()))
        assert select.select([left], [], [], 10)[0], "what a test left goes on"
        os.close(left)


def test_without_a_difference_nothing_runs(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affected, "ROOT", tree)
    shown: list[str] = []
    assert affected.main(["--since", "HEAD"], shown.append) == 0
    assert shown == ["Nothing differs from HEAD."]
