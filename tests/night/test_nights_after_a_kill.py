"""A night whose pytest was killed restores the testbed, or says that it is not as found."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from bench.served_lab import (
    FOREIGN,
    LEFT,
    STRAIGHT,
    ServedLab,
    circuits,
    killed_suite,
    set_circuits,
)

from lightrig.harness.bench import Fabric, aftermath, bind_only
from lightrig.harness.bench.aftermath import AS_FOUND, restore_after
from lightrig.harness.night.measuring import measure, tasks
from lightrig.harness.record import recover
from lightrig.harness.record.results import Results
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds.lab_hosts import load_hosts

ABANDONS = """
import os, sys
from lightrig.instruments.temporary_folders import TemporaryFolder
print(TemporaryFolder("night", has_results=True).name, flush=True)
os._exit(9)
"""
BEFORE, LATER = "2026-01-01 00:00:00 UTC", "2999-01-01 00:00:00 UTC"


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    """A served lab as people have left it."""
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def killed_run(lab):
    """Change the lab, and end without restoring it."""
    with contextlib.closing(bind_only(lab.testbed, {"ocs"}, "run 7 of testbed lab")) as bench:
        fabric = Fabric(bench)
        fabric.apply(fabric.plans["straight"])


def test_what_a_killed_run_has_left_is_restored(lab):
    killed_run(lab)
    assert restore_after(lab.file, BEFORE) == AS_FOUND
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert restore_after(lab.file, BEFORE) == ""


def test_what_was_left_before_the_run_is_not_touched(lab):
    """`lightrig apply` leaves a state on purpose."""
    assert restore_after(lab.file, BEFORE) == ""  # not even a folder of states
    killed_run(lab)
    assert restore_after(lab.file, LATER) == ""
    assert lab.switch.circuits() == STRAIGHT | FOREIGN


def test_a_conflict_is_reported_with_the_command(lab):
    killed_run(lab)
    by_hand = circuits("2>9") | FOREIGN
    set_circuits(lab.switch, by_hand)
    text = restore_after(lab.file, BEFORE, keep_trying=0)
    assert text.startswith(f"NOT as found; run `lightrig restore {lab.file}`")
    assert "2>9 made by somebody else" in text
    assert lab.switch.circuits() == by_hand


def test_a_silent_switch_is_reported_with_the_command(lab):
    killed_run(lab)
    lab.file.write_text(lab.file.read_text().replace(lab.places["ocs"], "127.0.0.1:9"))
    text = restore_after(lab.file, BEFORE, keep_trying=0)
    assert text.startswith(f"NOT as found; run `lightrig restore {lab.file}`")
    assert "ocs" in text


def test_workers_of_a_killed_pytest_are_waited_for(lab, monkeypatch):
    killed_run(lab)
    still = bind_only(lab.testbed, {"ocs"}, "a worker that outlives its pytest")

    class WorkerEnds(SystemClock):
        def sleep(self, duration):
            still.close()
            super().sleep(duration // 100)

    monkeypatch.setattr(aftermath, "SystemClock", WorkerEnds)
    assert restore_after(lab.file, BEFORE) == AS_FOUND
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_an_instrument_in_use_is_reported_with_its_owner(lab, monkeypatch):
    killed_run(lab)
    monkeypatch.setattr(aftermath, "_WORKERS_END", 0)
    with contextlib.closing(bind_only(lab.testbed, {"ocs"}, "another run")):
        text = restore_after(lab.file, BEFORE)
    assert text.startswith("NOT as found, as far as is known; run `lightrig restore")
    assert "for another run" in text


def abandoned():
    """Return the folder that a worker has left which was killed."""
    command = [sys.executable, "-c", ABANDONS]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return Path(made.stdout.strip())


@pytest.mark.long
@pytest.mark.parametrize("by_hand", [False, True], ids=["restored", "not as found"])
def test_a_night_whose_pytest_is_killed(lab, tmp_path, monkeypatch, by_hand):
    suite = tmp_path / "test_suite.py"
    suite.write_text(killed_suite(by_hand))
    document = {
        "suites": [str(suite)],
        "results": "results",
        "pytest": ["--instruments", "hardware"],
        "hosts": {"here": {"testbeds": ["lab.yaml"]}},
    }
    (tmp_path / "hosts.yaml").write_text(json.dumps(document))
    hosts = load_hosts(tmp_path / "hosts.yaml")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    # Of three workers that were killed: before a run, after its publication, and before it.
    empty, published, unpublished = (abandoned() for _ in range(3))
    for folder in (published, unpublished):
        (folder / "runs" / "r1").mkdir(parents=True)
        (folder / "runs" / "r1" / "journal.jsonl").touch()
    (published / "runs" / "r1" / "published").touch()
    (task,) = tasks(hosts, "20260314-021500-n")
    outcome = measure(hosts, task, "here")
    assert (outcome.state, outcome.exit) == ("not run", -9)
    assert outcome.reason.startswith("pytest was killed by signal 9; ")
    assert not empty.exists()
    assert not published.exists()
    assert (unpublished / "runs" / "r1" / "journal.jsonl").exists()
    words = outcome.reason.split()
    spool = Path(words[words.index("--results") + 1].rstrip("`"))
    assert f"on here in {spool}/runs/20260314-021500-n-lab" in outcome.reason
    try:
        recover(spool / "runs" / "20260314-021500-n-lab")
        assert list(Results(spool).frame()["value"]) == [7]
    finally:
        shutil.rmtree(spool)
    if by_hand:
        assert f"NOT as found; run `lightrig restore {lab.file}`" in outcome.reason
        assert lab.switch.circuits() == frozenset()
    else:
        assert AS_FOUND in outcome.reason
        assert lab.switch.circuits() == LEFT | FOREIGN
