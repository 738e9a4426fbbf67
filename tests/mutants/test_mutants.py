"""The list of bugs is of the code that there is, and its runner tells killed from alive."""

import pytest
from mutants.plant import ROOT, Bug, Outcome, bugs, remember, remembered, report, try_bug


@pytest.fixture(scope="module")
def listed():
    return bugs()


def test_every_bug_can_be_planted_and_has_tests(listed):
    assert len({bug.name for bug in listed}) == len(listed)
    for bug in listed:
        sound = (ROOT / bug.file).read_text()
        assert bug.mutate(sound) != sound
        assert bug.tests
        for test in bug.tests:
            assert (ROOT / test.partition("::")[0]).exists(), (bug.name, test)
        if bug.file.endswith(".py"):
            compile(bug.mutate(sound), bug.file, "exec")


def test_a_bug_whose_code_has_changed_is_named():
    bug = Bug("gone", "a.py", "x = 1", "x = 2", ("tests/test_a.py",))
    with pytest.raises(ValueError, match=r"gone: found 'x = 1' 0 times in a\.py"):
        bug.mutate("y = 1")


@pytest.mark.parametrize(("new", "state"), [("x = 2", "killed"), ("x = 1  # same", "survived")])
def test_a_bug_is_killed_by_a_test_that_fails(tmp_path, new, state):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "test_a.py").write_text("from a import x\ndef test_x(): assert x == 1\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long: long\npythonpath = .\n")
    bug = Bug("one", "a.py", "x = 1", new, ("test_a.py",))
    outcome = try_bug(bug, tmp_path)
    assert outcome.state == state, outcome.output
    assert (tmp_path / "a.py").read_text() == "x = 1\n"
    assert outcome.expected == (state == "killed")


def test_the_report_counts_and_names():
    bug = Bug("one", "a.py", "x", "y", ("t",))
    excused = Bug("two", "b.py", "x", "y", ("t",), survives="the same by another way")
    outcomes = [
        Outcome(bug, "killed", 1, ""),
        Outcome(bug, "survived", 1, ""),
        Outcome(excused, "survived", 1, ""),
        Outcome(excused, "killed", 1, ""),
    ]
    assert report(outcomes).splitlines() == [
        "2 of 4 bugs killed",
        "survived, and was not to be: one in a.py",
        "survived, as expected: two: the same by another way",
        "killed, and was not to be: two in b.py",
    ]
    assert [one.expected for one in outcomes] == [True, False, True, False]


def test_an_outcome_is_remembered_until_the_code_changes(tmp_path, listed):
    bug = next(bug for bug in listed if bug.survives is None)
    path = tmp_path / "outcomes.jsonl"
    assert remembered([bug], path) == {}
    remember(Outcome(bug, "error", 2.0, "x"), path)
    assert remembered([bug], path) == {}
    remember(Outcome(bug, "killed", 2.0, "x"), path)
    assert remembered([bug], path)[bug.name].state == "killed"
    other = Bug(bug.name, bug.file, bug.old, bug.new + " ", bug.tests)
    assert remembered([other], path) == {}
