"""A night that was killed, and the command that makes a run of what it had measured."""

import json
import signal

import pytest
from runs.running import ROOT, started
from typer.testing import CliRunner

from lightrig.harness.cli.results import results
from lightrig.instruments.clock import SystemClock

SUITE = (
    "suites/test_reconfiguration.py",
    "--testbed",
    ROOT / "testbeds" / "opus.yaml",
    "--instruments",
    "simulated",
)


@pytest.mark.long
def test_a_killed_night_is_recovered_with_its_report(tmp_path):
    place, clock = tmp_path / "results", SystemClock()
    # The first test ends, the second is in its midst.
    with started((*SUITE, "--samples", 60, "-k", "between"), place) as run:
        deadline = clock.now() + 100_000_000_000
        journal = None
        while journal is None or '{"test":' not in journal.read_text():
            assert run.process.poll() is None, run.end().output
            assert clock.now() < deadline
            clock.sleep(20_000_000)
            journal = next(place.glob("runs/*/journal.jsonl"), None)
        run.signal(signal.SIGKILL)
        ended = run.end()
    result = CliRunner().invoke(results, ["recover", "--json", "--results", str(place)])
    assert result.exit_code == 0, result.stderr
    (shown,) = json.loads(result.stdout)
    assert shown["state"] == "recovered"
    lines = [row for row in ended.rows if row.endswith("]")]
    assert shown["rows"] == len(lines) > 1_000
    (listed,) = json.loads(
        CliRunner().invoke(results, ["list", "--json", "--results", str(place)]).stdout
    )
    assert (listed["rows"], listed["simulated"]) == (shown["rows"], True)
    assert listed["passed"] + listed["failed"] + listed["inconclusive"] >= 1
    page = journal.with_name("report.html").read_text()
    assert "test_between_plans[opus/east-west-to-north-south]" in page
    assert "giant-ring" in page
