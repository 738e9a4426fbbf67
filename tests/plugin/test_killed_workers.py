"""A run by pytest-xdist restores what a killed worker has left, or ends as not as found."""

import contextlib
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import preloaded
import pytest
from bench.served_lab import (
    FOREIGN,
    LEFT,
    STRAIGHT,
    ServedLab,
    circuits,
    describe,
    killed_suite,
    set_circuits,
)
from runs.running import QUIET

from lightrig.harness.bench import Fabric, bind_only
from lightrig.harness.bench.restoring import NOT_AS_FOUND
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.workers import MainProcess
from lightrig.harness.run import ObservedRun


@pytest.fixture
def lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_is_carried_out: None
) -> Iterator[ServedLab]:
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def config_of(lab: ServedLab, instruments: str) -> pytest.Config:
    given = SimpleNamespace(stash=pytest.Stash(), getoption={"instruments": instruments}.get)
    given.stash[TESTBEDS] = [lab.testbed]
    return given  # type: ignore[return-value]


def ended(main: MainProcess, lab: ServedLab, error: str | None) -> None:
    """Change the lab, let the worker end, and then the loop over all tests."""
    loop = main.pytest_runtestloop()
    next(loop)
    with contextlib.closing(bind_only(lab.testbed, {"ocs"}, "run 7 of testbed lab")) as bench:
        Fabric(bench).apply(Fabric(bench).plans["straight"])
    main.pytest_testnodedown(SimpleNamespace(workerinput={"workerid": "gw0"}), error)
    with contextlib.suppress(StopIteration):
        next(loop)


@pytest.mark.parametrize(
    ("error", "instruments", "found"),
    [
        ("Not properly terminated", "hardware", LEFT),
        ("Not properly terminated", "auto", LEFT),
        ("Not properly terminated", "simulated", STRAIGHT),
        (None, "hardware", STRAIGHT),
    ],
)
def test_what_a_killed_worker_has_left_is_restored_after_the_last_test(
    lab: ServedLab, tmp_path: Path, error: str | None, instruments: str, found: frozenset[object]
) -> None:
    run = ObservedRun(tmp_path / "results", {})
    ended(MainProcess(config_of(lab, instruments), run), lab, error)
    assert lab.switch.circuits() == found | FOREIGN
    assert bool(run.report_notes) == (found == LEFT)
    assert not run.failures_to_restore
    run.close({})


def test_what_cannot_be_restored_is_of_the_run_s_end(
    lab: ServedLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ObservedRun(tmp_path / "results", {})
    main = MainProcess(config_of(lab, "hardware"), run)
    restore = main.restore

    def restore_after_a_foreign_change() -> None:
        set_circuits(lab.switch, circuits("2>9") | FOREIGN)
        restore()

    monkeypatch.setattr(main, "restore", restore_after_a_foreign_change)
    ended(main, lab, "Not properly terminated")
    (problem,) = run.failures_to_restore
    assert problem.startswith(f"NOT as found; run `lightrig restore {lab.file}`")
    assert lab.switch.circuits() == circuits("2>9") | FOREIGN
    run.close({})


@pytest.mark.long
@pytest.mark.parametrize("restarts", ["0", "4"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["restored", "not as found"])
def test_a_worker_is_killed_in_the_last_test(
    lab: ServedLab, tmp_path: Path, by_hand: bool, restarts: str
) -> None:
    (tmp_path / "test_suite.py").write_text(killed_suite(by_hand))
    command = ["pytest", "test_suite.py", "--testbed", "lab.yaml", *QUIET]
    command += ["--instruments", "hardware", "-n", "1", "--max-worker-restart", restarts]
    command += ["--results", "results"]
    done = preloaded.run(command, tmp_path, timeout=120)
    if by_hand:
        assert done.returncode == NOT_AS_FOUND, done.stdout
        assert "NOT as found; run `lightrig restore lab.yaml`" in done.stdout
        assert lab.switch.circuits() == frozenset()
    else:
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
        assert "the lab was restored" in done.stdout
        assert lab.switch.circuits() == LEFT | FOREIGN


KILLER = """
import os, pathlib, signal

def begun(name):
    with pathlib.Path(__file__).with_name("begun").open("a") as file:
        print(name, file=file)

def test_before(testbed):
    begun("before")

def test_killer(testbed):
    begun("killer")
    os.kill(os.getpid(), signal.SIGKILL)

def test_after(testbed):
    begun("after")

def test_at_last(testbed):
    begun("at last")
"""


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), marks=pytest.mark.long),
        pytest.param(("--reruns", "2"), marks=pytest.mark.long),
        ("-n", "2"),
    ],
    ids=" ".join,
)
def test_a_test_that_kills_its_worker_fails_once(tmp_path: Path, more: tuple[str, ...]) -> None:
    describe(tmp_path)
    (tmp_path / "test_suite.py").write_text(KILLER)
    command = ["pytest", "test_suite.py", "--testbed", "lab.yaml", *QUIET]
    command += ["--instruments", "simulated", "-n", "1"]
    command += ["--results", "results", "--json", "events.jsonl", "--junitxml", "junit.xml", *more]
    done = preloaded.run(command, tmp_path, timeout=120)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    begun = (tmp_path / "begun").read_text().splitlines()
    assert begun == ["before", "killer", "after", "at last"], done.stdout
    events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    ended = [(e["test"], e["outcome"]) for e in events if e["event"] == "test_finished"]
    outcomes = {test.partition("::")[2].partition("[")[0]: outcome for test, outcome in ended}
    assert len(ended) == len(outcomes)
    assert outcomes.pop("test_killer") == "error"
    assert outcomes == dict.fromkeys(("test_before", "test_after", "test_at_last"), "passed")
    (suite,) = ET.parse(tmp_path / "junit.xml").iter("testsuite")
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    assert counts["tests"] == len(suite.findall("testcase")) == 4
    assert counts["failures"] + counts["errors"] == 1
