"""Runs, terminal lines and exit status of `lightrig night` for testbeds that end differently."""

import json
import socket

import pytest
import typer
from typer.testing import CliRunner
from uneven import SIZE

from lightrig.harness.cli import night
from lightrig.harness.cli.app import application
from lightrig.harness.night.outcomes import TestbedNight, store

MEASURED = TestbedNight("one", "measured", passed=7, inconclusive=1)
FAILED = TestbedNight("two", "measured", passed=5, failed=2)
CUT_OFF = TestbedNight("three", "interrupted", passed=3, reason="the power failed")
MISSING = TestbedNight("four", "not run", reason="host b is down")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([MEASURED, MEASURED], None),
        ([MEASURED, FAILED, MEASURED], 1),
        ([FAILED, FAILED], 1),
        ([MEASURED, MISSING, MEASURED], 3),
        ([CUT_OFF, MEASURED], 3),
        ([FAILED, CUT_OFF], 3),
        ([MISSING, MISSING], 3),
    ],
)
def test_one_testbed_among_several_decides_the_status(capsys, found, status):
    """docs/reference: 0 passed, 1 a test failed, 3 the lab was unavailable."""
    try:
        night._report(None, found, True, page=False)
        ended = None
    except typer.Exit as error:
        ended = error.exit_code
    assert ended == status
    shown = json.loads(capsys.readouterr().out)["testbeds"]
    assert [one["testbed"] for one in shown] == [one.testbed for one in found]


@pytest.fixture
def run(tmp_path):
    """Run the command on a host of the testbeds alpha and beta."""
    for name in ("alpha", "beta"):
        switch = f'{{model: polatis, address: "tl1://ocs.invalid", size: {SIZE}}}'
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nswitches: {{ocs: {switch}}}\n")
    file = tmp_path / "lab.yaml"
    file.write_text("results: r\nhosts: {one: {testbeds: [alpha.yaml, beta.yaml]}}\n")
    return lambda *options: CliRunner().invoke(application("night"), ["night", str(file), *options])


def test_a_job_measures_its_testbed_alone_and_draws_no_page(run, tmp_path, monkeypatch):
    tasks = []

    def measure(lab, task, host):
        tasks.append((lab.results, task.night, task.testbed, task.file, host))
        counts = {"rows": 1234, "passed": 7, "failed": 2, "inconclusive": 1, "skipped": 5}
        took = {"attempts": 3, "duration_s": 12.7, "reason": "the host was lost"}
        return TestbedNight(task.testbed, "measured", host, **counts, **took)

    pages = []
    monkeypatch.setattr(night, "measure", measure)
    monkeypatch.setattr(night, "_page", pages.append)
    ended = run("--testbed", "beta", "--night", "n7")
    here = socket.gethostname()
    assert tasks == [(str(tmp_path / "r"), "n7", "beta", "beta.yaml", here)]
    head, line, *more = ended.stdout.splitlines()
    heads = "testbed state host rows passed failed inconclusive attempts took reason"
    assert head.split() == heads.split()
    measured = ["beta", "measured", here, "1234", "7", "2", "1", "3"]
    assert line.split() == [*measured, "12.7", "s", "the", "host", "was", "lost"]
    assert (ended.exit_code, more, pages) == (1, [], [])
    unknown = run("--testbed", "gamma")
    assert unknown.exit_code == 2
    assert "lab.yaml has no testbed 'gamma'; it has alpha, beta" in unknown.stderr


def test_a_collected_night_names_testbeds_that_left_nothing(run, tmp_path):
    (tmp_path / "r").mkdir()
    store(TestbedNight("beta", "measured", passed=4), "n7", str(tmp_path / "r"))
    ended = run("--collect", "n7", "--json")
    assert ended.exit_code == 3
    shown = json.loads(ended.stdout)
    assert [(one["testbed"], one["state"], one["passed"]) for one in shown["testbeds"]] == [
        *(("alpha", "not run", 0), ("beta", "measured", 4))
    ]
    assert shown["page"] is None
