"""The generator makes the mistakes that people make, and tries them with tests that reach them."""

import subprocess
from pathlib import Path

import pytest
from mutants import generate, reach
from mutants.generate import Place, Tried, drawn, lines_of_diff, page, tried
from mutants.mistakes import Mistake, mistakes
from mutants.trees import TestRun

SOURCE = '''"""Losses, in dB; not a mistake: min, first."""
LIMIT = 3 * 1000


class Meter:
    def read(self, low: "int < 3", high=4):
        self.value = low - high
        assert low < high
        if not self.open and low <= high:
            raise ValueError("a" + f"{min(low, high)}")
        return scaled(low, high), rows[0], spans[-1].earliest, any(rows), name + "µ"

    def close(self):
        self.line.close()  # µ
        print("closed", self)
'''


def made(kind: str) -> set[tuple[str, str]]:
    """Return the texts that mistakes of a kind change, and what they become."""
    data = SOURCE.encode()
    found = [one for one in mistakes(SOURCE) if one.kind == kind]
    return {(data[one.start : one.end].decode(), one.new) for one in found}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("unit factor", {(" * ", " / "), ("1000", "(1000 * 10)")}),
        ("sign", {(" - ", " + ")}),
        ("end of an interval", {(" <= ", " < ")}),
        ("any and all", {(" and ", " or "), ("any", "all")}),
        ("dropped not", {("not self.open", "(self.open)")}),
        ("first and last", {("0", "-1"), ("-1", "0")}),
        ("wrong end", {("earliest", "latest")}),
        ("swapped arguments", {("low, high", "high, low")}),
        ("stale value", {("self.value = low - high", "pass")}),
        ("forgotten close", {("self.line.close()", "pass")}),
        ("min and max", set()),
    ],
)
def test_each_kind_is_made_where_it_can_be(kind: str, changes: set[tuple[str, str]]) -> None:
    assert made(kind) == changes


def test_every_mistake_changes_one_place_of_a_text_that_compiles() -> None:
    found = mistakes(SOURCE)
    for one in found:
        text = one.made(SOURCE)
        compile(text, "mistake", "exec")
        assert text.encode()[: one.start] == SOURCE.encode()[: one.start]
        assert text.endswith('print("closed", self)\n')
    (closed,) = (one for one in found if one.kind == "forgotten close")
    assert closed.lines == (14, 14)


DIFF = """\
diff --git a/harness/a.py b/harness/a.py
--- a/harness/a.py
+++ b/harness/a.py
@@ -3 +3,2 @@ def f():
-old
+new
+new
@@ -9,2 +10,0 @@
-gone
-gone
@@ -20 +19 @@
-old
+new
--- a/harness/b.yaml
+++ b/harness/b.yaml
@@ -1 +1 @@
--- a/harness/c.py
+++ /dev/null
@@ -1,2 +0,0 @@
"""


def test_changed_lines_are_those_of_the_new_file() -> None:
    assert lines_of_diff(DIFF) == {"harness/a.py": {3, 4, 19}}


def test_a_draw_has_as_many_of_each_folder_and_is_the_same_again() -> None:
    folders = ["harness/bench"] * 9 + ["harness/systems/acos"] * 3 + ["harness/bench/deep"] * 2
    found = [
        Place(f"{folder}/{number}.py", Mistake(number, number + 1, "x", "sign", (1, 1)))
        for number, folder in enumerate(folders)
    ]

    def no_multiple_of_3(place: Place) -> bool:
        return place.mistake.start % 3 > 0

    def draw(seed: int) -> list[Place]:
        return drawn(found, 4, seed, no_multiple_of_3)

    chosen = draw(7)
    assert [place.folder for place in chosen] == ["harness/bench"] * 4 + [
        "harness/systems/acos"
    ] * 2
    assert all(map(no_multiple_of_3, chosen))
    assert draw(7) == chosen
    assert draw(8) != chosen


def test_a_mistake_that_does_not_compile_cannot_be_made(tree: Path) -> None:
    can, cannot = (
        Place("harness/a.py", Mistake(0, 3, new, "sign", (1, 1))) for new in ("def", "(")
    )
    assert (generate.can_be_made(can), generate.can_be_made(cannot)) == (True, False)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tree"
    for folder in ("harness", "tests/harness", "tests/other"):
        (root / folder).mkdir(parents=True)
    (root / "pytest.ini").write_text("[pytest]\nmarkers = long: long\npythonpath = .\n")
    (root / "harness/__init__.py").touch()
    (root / "harness/a.py").write_text(
        "def double(x):\n    return x + x\n\n\ndef half(x):\n    return x - x / 2\n"
        "\n\ndef none(x):\n    return x - 1\n"
    )
    (root / "tests/harness/test_a.py").write_text(
        "from harness.a import double\ndef test_double(): assert double(0) == 0\n"
    )
    (root / "tests/other/test_program.py").write_text(
        "import subprocess, sys\ndef test_double():\n"
        "    code = 'import sys; from harness.a import double; sys.exit(double(2) - 4)'\n"
        "    assert subprocess.run([sys.executable, '-c', code]).returncode == 0\n"
    )
    (root / "tests/other/test_broken.py").write_text(
        "from harness.a import double, none\ndef test_double(): assert none(double(2)) == 5\n"
    )
    for module in (generate, reach):
        monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(reach, "STORE", tmp_path / "store")
    return root


def test_a_mistake_is_tried_with_the_tests_that_run_its_line(tree: Path) -> None:
    """The near test cannot tell; a program that another starts can; the broken one is not asked."""
    measured: list[str] = []

    def mapped(function, items):
        for item in items:
            measured.append(item)
            yield function(item, tree)

    tests = reach.files_of_tests(["tests"])
    reaches = reach.refreshed(tests, ["harness/a.py"], mapped)
    assert measured == tests
    assert reach.broken(reaches) == ["tests/other/test_broken.py: failed"]
    by_line = {place.mistake.lines: place for place in generate.places("harness/a.py")}
    double, unreached = by_line[2, 2], by_line[10, 10]
    chosen, left = reach.reaching(reaches, "harness/a.py", (2, 2), 600.0)
    assert [one.test for one in chosen] == [
        "tests/harness/test_a.py",
        "tests/other/test_program.py",
    ]
    assert left == 0
    assert [len(each) if isinstance(each, list) else each for each in
            reach.reaching(reaches, "harness/a.py", (2, 2), 0.0)] == [1, 1]  # fmt: skip

    outcome = tried(double, tree, reaches, 600.0)
    assert (outcome.state, outcome.tests) == ("noticed", 2)
    assert outcome.by == "tests/other/test_program.py::test_double"
    assert tried(double, tree, reaches, 0.0).state == "survived"
    assert tried(unreached, tree, reaches, 600.0).state == "unreached"
    assert "return x + x" in (tree / "harness/a.py").read_text()

    measured.clear()
    reach.refreshed(tests, ["harness/a.py"], mapped)
    assert measured == []
    (tree / "harness/a.py").write_text((tree / "harness/a.py").read_text() + "\n")
    reach.refreshed(tests, ["harness/other.py"], mapped)
    assert measured == []
    reach.refreshed(tests, ["harness/a.py"], mapped)
    assert measured == tests


def test_the_lines_of_a_program_that_is_sent_as_text_are_known(tree: Path) -> None:
    """Also of one that ends at once, without what Python does at exit, as the ranks do."""
    program = "instruments/servers/programs/sums.py"
    (tree / program).parent.mkdir(parents=True)
    (tree / program).write_text("def main():\n    return 1 + 1\n\n\ndef other():\n    return 3\n")
    (tree / "tests/other/test_sums.py").write_text(
        "import pathlib, subprocess, sys\n"
        "NAME = 'lightrig.instruments.servers.programs.sums'\n"
        "CODE = f'import os, sys, types; module = types.ModuleType({NAME!r});'\\\n"
        "    f'exec(compile(sys.stdin.read(), {NAME!r}, \"exec\"), module.__dict__);'\\\n"
        "    'os._exit(module.main() - 2)'\n"
        "def test_sums(tmp_path):\n"
        f"    text = pathlib.Path('{program}').read_text()\n"
        "    command = [sys.executable, '-c', CODE]\n"
        "    run = subprocess.run(command, input=text, text=True, cwd=tmp_path)\n"
        "    assert run.returncode == 0\n"
    )
    found = reach.measure("tests/other/test_sums.py", tree)
    assert found.state == "passed"
    assert found.lines(program) == {1, 2, 5}
    assert reach.reaching([found], program, (2, 2), 600.0) == ([found], 0)
    assert reach.reaching([found], program, (6, 6), 600.0) == ([], 0)


def test_the_page_has_the_share_of_each_folder_and_what_is_not_noticed() -> None:
    """Clopper-Pearson: of 4, 3 noticed is 19 % to 99 %; the one not collected does not count."""
    outcomes = [
        *[Tried("harness/a", f"a.py:{n}", "sign", "noticed", "t", 1, 0) for n in range(3)],
        Tried("harness/a", "a.py:9  sign: + -> -", "sign", "survived", "", 2, 5),
        Tried("harness/a", "a.py:8  sign: + -> -", "sign", "uncollected", "t", 1, 0),
        Tried("flows", "b.py:1  sign: + -> -", "sign", "unreached", "", 0, 0),
    ]
    lines = page(outcomes).splitlines()
    assert "| flows | 1 | 0 | 0 | 1 | 0 | 0% (0% … 98%) |" in lines
    assert "| harness/a | 5 | 3 | 1 | 0 | 1 | 75% (19% … 99%) |" in lines
    assert lines[-3:] == [
        "Not noticed: 2",
        "- `a.py:9  sign: + -> -` (2 test files ran, 5 more reach it)",
        "- `b.py:1  sign: + -> -` (no test runs the line)",
    ]


def test_lines_that_differ_from_a_commit_are_found(tmp_path: Path, monkeypatch) -> None:
    def git(*command: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        subprocess.run(["git", *name, *command], cwd=tmp_path, check=True, capture_output=True)

    for folder in generate.PRODUCT:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("a = 1\nb = 2\nc = 3\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "harness/a.py").write_text("a = 1\nb = 5\nc = 3\nd = 4\n")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.changed_lines("HEAD") == {"harness/a.py": {2, 4}}


@pytest.mark.parametrize("state", ["passed", "failed"])
def test_tests_that_fail_only_while_they_are_measured_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    def run(*_: object, data_file: Path | None = None, **__: object) -> TestRun:
        return TestRun("failed" if data_file else state, 2.0, (), "")

    monkeypatch.setattr(reach, "STORE", tmp_path)
    monkeypatch.setattr(reach, "run_tests", run)
    assert reach.measure("tests/test_a.py", tmp_path).state == state
