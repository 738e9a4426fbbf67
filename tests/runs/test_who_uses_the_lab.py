"""`lightrig who`: holders of leases, those who wait, and saved states; nothing is contacted."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import preloaded
import pytest
from bench.served_lab import ServedLab
from runs.running import Started

from lightrig.harness.bench.lease import this_owner
from lightrig.harness.bench.shared_lease import SharedFolder

SUITE = """
import time

def test_it(bench, fabric):
    fabric.apply(fabric.plans["crossed"])
    print("has it", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def who(lab: ServedLab) -> Callable[..., Any]:
    environment = {**os.environ, **lab.environment}

    def who(*options: str) -> Any:
        done = preloaded.run(["lightrig", "who", lab.file, *options], env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout) if options else done.stdout

    return who


def test_a_run_that_holds_the_lab_and_what_it_leaves(
    lab: ServedLab,
    start: Callable[..., Started],
    until: Callable[[Callable[[], bool]], None],
    who: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """One run holds it and one waits; the first is killed then, and leaves what it had saved."""
    assert {row["holder"] for row in who("--json")["instruments"]} == {None}
    suite = tmp_path / "test_holding.py"
    suite.write_text(SUITE)
    given = (suite, "--testbed", lab.file, "--instruments", "hardware", "-s")
    first = start(*given, environment=lab.environment)
    until(lambda: bool(who("--json")["saved"]))
    second = start(*given, "--queue", "2h", environment=lab.environment)
    until(lambda: any(row["waiting"] for row in who("--json")["instruments"]))
    rows = {row["instrument"]: row for row in who("--json")["instruments"]}
    assert rows["ocs"]["holder"]["process"] == str(first.process.pid)
    assert rows["ocs"]["holder"]["purpose"].startswith("run ")
    assert rows["ocs"]["waiting"] == 1
    line = next(each for each in who().splitlines() if each.startswith("ocs "))
    assert f"process {first.process.pid} on " in line
    assert " UTC, for run " in line
    assert line.endswith("; 1 wait for it")
    second.signal(signal.SIGKILL)
    second.end()
    first.signal(signal.SIGKILL)
    first.end()
    shown = who()
    assert next(each for each in shown.splitlines() if each.startswith("ocs ")).endswith(" free")
    assert "\nocs: saved 20" in shown
    assert shown.endswith(f"`lightrig restore {lab.file}` restores what was saved\n")


def test_the_record_of_another_host_is_its_holder_until_it_is_released(tmp_path: Path) -> None:
    far, here = SharedFolder(tmp_path, machine="far"), SharedFolder(tmp_path)
    assert here.holder("ocs") is None
    claim = far.claim("ocs", this_owner("a night"))
    found = here.holder("ocs")
    assert found is not None
    assert found["purpose"] == "a night"
    assert here.holder("laser") is None
    claim.release()
    assert here.holder("ocs") is None
