"""The list of bugs is of the code that there is, and its runner tells noticed from unnoticed."""

import contextlib
import os
import select

import pytest
from mutants import plant
from mutants.plant import ROOT, Bug, Edit, Outcome, bugs, remember, remembered, report, try_bug
from mutants.trees import TestRun, limit_s, run_tests


@pytest.fixture(scope="module")
def listed():
    return bugs()


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: long\npythonpath = .\n")
    return tmp_path


def bug_in_a(new, *, survives=None):
    return Bug("one", (Edit("a.py", "x = 1", new),), ("test_a.py",), survives)


def test_every_bug_can_be_planted_and_has_tests(listed):
    assert len({bug.name for bug in listed}) == len(listed)
    for bug in listed:
        for name, text in bug.mutate(ROOT).items():
            assert text != (ROOT / name).read_text()
            if name.endswith(".py"):
                compile(text, name, "exec")
        assert bug.tests
        for test in bug.tests:
            assert (ROOT / test.partition("::")[0]).exists(), (bug.name, test)


def test_a_bug_whose_code_has_changed_is_named(tree):
    (tree / "a.py").write_text("y = 1")
    with pytest.raises(ValueError, match=r"one: found 'x = 1' 0 times in a\.py"):
        bug_in_a("x = 2").mutate(tree)
    (tree / "a.py").unlink()
    with pytest.raises(ValueError, match=r"one: no file a\.py"):
        bug_in_a("x = 2").mutate(tree)


@pytest.mark.parametrize(
    ("new", "state"),
    [
        ("x = 2", "killed"),
        ("x = 1  # same", "survived"),
        ("y = 1", "uncollected"),
        ("x = 1 +", "uncollected"),
    ],
)
def test_a_bug_is_killed_by_a_test_that_fails(tree, new, state):
    (tree / "test_a.py").write_text("from a import x\ndef test_x(): assert x == 1\n")
    outcome = try_bug(bug_in_a(new), tree)
    assert outcome.state == state, outcome.output
    assert (tree / "a.py").read_text() == "x = 1\n"
    assert outcome.noticed == outcome.expected == (state == "killed")


def test_a_fixture_that_fails_notices_the_bug(tree):
    (tree / "test_a.py").write_text(
        "import pytest, a\n@pytest.fixture\ndef f(): assert a.x == 1\ndef test_x(f): pass\n"
    )
    assert try_bug(bug_in_a("x = 2"), tree).state == "killed"


def test_a_test_that_ends_the_process_notices_the_bug(tree):
    (tree / "test_a.py").write_text(
        "import a, os\ndef test_x():\n    if a.x == 2: raise KeyboardInterrupt\n"
        "    if a.x == 3: os._exit(0 if a.x == 1 else 7)\n"
    )
    assert try_bug(bug_in_a("x = 2"), tree).state == "killed"
    assert try_bug(bug_in_a("x = 3"), tree).state == "killed"


def test_tests_that_open_and_close_a_terminal_are_run(tree):
    """The first terminal that a session leader opens controls it, and closing it ends it (SIGHUP).

    POSIX.1-2017, sections 11.1.3 and 11.1.10.
    """
    (tree / "test_a.py").write_text(
        "import a, os\ndef test_x():\n    ends = os.openpty()\n"
        "    own = os.open(os.ttyname(ends[1]), os.O_RDWR)\n"
        "    for end in (own, *ends): os.close(end)\n    assert a.x == 1\n"
    )
    outcome = run_tests(["test_a.py"], tree)
    assert outcome.state == "passed", outcome.output
    assert try_bug(bug_in_a("x = 2"), tree).state == "killed"


def test_a_program_that_tests_left_behind_ends_with_their_run(tree):
    (tree / "test_a.py").write_text(
        "import pathlib, subprocess, sys\ndef test_x():\n"
        "    code = 'import time; time.sleep(600)'\n"
        "    started = subprocess.Popen([sys.executable, '-c', code])\n"
        "    pathlib.Path('pid').write_text(str(started.pid))\n"
    )
    assert run_tests(["test_a.py"], tree).state == "passed"
    left = int((tree / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):
        assert select.select([os.pidfd_open(left)], [], [], 30.0)[0]


def test_a_bug_that_hangs_is_noticed_after_its_limit(tree, monkeypatch):
    monkeypatch.setattr(plant, "limit_s", lambda sound_s: 1.0)
    (tree / "test_a.py").write_text(
        "import a, threading\ndef test_x():\n    a.x == 1 or threading.Event().wait()\n"
    )
    outcome = try_bug(bug_in_a("x = 2"), tree)
    assert (outcome.state, outcome.noticed, outcome.expected) == ("hung", True, True)


def test_the_limit_is_ten_times_the_sound_time():
    assert (limit_s(0.5), limit_s(3.0), limit_s(7.0)) == (30.0, 30.0, 70.0)


def test_edits_are_planted_together(tree):
    (tree / "b.py").write_text("y = 5\n")
    (tree / "test_a.py").write_text(
        "import a, b\ndef test_sum(): assert a.x + b.y == 6\ndef test_b(): assert b.y == 5\n"
    )
    shift = Edit("b.py", "y = 5", "y = 4")
    both = Bug("both", (Edit("a.py", "x = 1", "x = 2"), shift), ("test_a.py::test_sum",))
    assert try_bug(both, tree).state == "survived"
    one = Bug("one", (shift,), ("test_a.py::test_sum",))
    assert try_bug(one, tree).state == "killed"
    assert (tree / "b.py").read_text() == "y = 5\n"


def test_a_test_that_fails_on_the_sound_tree_kills_nothing(tree, monkeypatch):
    (tree / "test_a.py").write_text("import a\ndef test_x(): assert a.x == 3\n")
    (tree / "test_b.py").write_text("import a\ndef test_x(): assert a.x == 1\n")
    monkeypatch.setattr("mutants.trees.ROOT", tree)
    monkeypatch.setattr(
        "mutants.trees._listed", lambda: ["a.py", "test_a.py", "test_b.py", "pytest.ini"]
    )
    edits = (Edit("a.py", "x = 1", "x = 2"),)
    bad, good = Bug("bad", edits, ("test_a.py",)), Bug("good", edits, ("test_b.py",))
    outcomes = list(plant.try_all([bad, good], 1))
    assert [(one.state, one.expected) for one in outcomes] == [("broken", False), ("killed", True)]
    told = report(outcomes).splitlines()
    assert told[:3] == [
        "1 of 2 bugs noticed; broken: 1",
        "broken, and was not to be: bad in a.py",
        "on the sound tree: test_a.py::test_x",
    ]


def test_the_report_counts_and_names():
    edits = (Edit("a.py", "x", "y"), Edit("b.py", "x", "y"))
    bug = Bug("one", edits[:1], ("t",))
    excused = Bug("two", edits, ("t",), survives="the same by another way")
    outcomes = [
        Outcome(bug, "killed", 1, ""),
        Outcome(bug, "survived", 1, ""),
        Outcome(excused, "survived", 1, ""),
        Outcome(excused, "killed", 1, ""),
        Outcome(bug, "hung", 1, ""),
        Outcome(bug, "uncollected", 1, "ImportError"),
    ]
    assert report(outcomes).splitlines() == [
        "3 of 6 bugs noticed; hung: 1; uncollected: 1",
        "survived, and was not to be: one in a.py",
        "survived, as expected: two: the same by another way",
        "killed, and was not to be: two in a.py, b.py",
        "uncollected, and was not to be: one in a.py",
        "ImportError",
    ]
    assert [one.expected for one in outcomes] == [True, False, True, False, True, False]


def test_tests_without_a_run_that_passed_are_broken():
    bug = Bug("one", (Edit("a.py", "x", "y"),), ("t",))
    for state in ("failed", "uncollected", "hung", "empty"):
        assert plant.broken(bug, {"t": TestRun(state, 1.0, (), "")}).state == "broken"
    assert plant.broken(bug, {"t": TestRun("passed", 1.0, (), "")}) is None


def test_an_outcome_is_remembered_until_the_code_changes(tmp_path, listed):
    bug = next(bug for bug in listed if bug.survives is None)
    path = tmp_path / "outcomes.jsonl"
    assert remembered([bug], path) == {}
    remember(Outcome(bug, "broken", 2.0, "x"), path)
    assert remembered([bug], path) == {}
    remember(Outcome(bug, "killed", 2.0, "x"), path)
    assert remembered([bug], path)[bug.name].state == "killed"
    first = bug.edits[0]
    edits = (Edit(first.file, first.old, first.new + " "), *bug.edits[1:])
    assert remembered([Bug(bug.name, edits, bug.tests)], path) == {}
