"""What plugins that know pytest's outcomes alone write of a test that is inconclusive."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import describe

Start = Callable[..., Any]

# Six samples do not decide a limit on a p99: 299 must keep it.
SUITE = """
import pytest
from lightrig.api import Row

def test_undecided(testbed, measure):
    for event in range(6):
        row = Row("ocs", "reconfiguration.carrier_up", 10**6, None, None, "ns", 0, {"event": event})
        measure.record([row])
    measure.judge("reconfiguration.carrier_up")

def test_skipped():
    pytest.skip("no meter")

@pytest.mark.xfail
def test_expected():
    assert False

def test_failed():
    assert False

def test_passed():
    pass
"""
DECIDED = {
    "test_skipped": "skipped",
    "test_expected": "skipped",
    "test_failed": "failed",
    "test_passed": "passed",
}
"""Status of the other tests, as allure-pytest documents it without Lightrig."""


@pytest.fixture
def suite(tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "test_five.py").write_text(SUITE)
    lab = describe(tmp_path, limit="{p99: 10 s, confidence: 95 %}")
    return tmp_path / "test_five.py", "--testbed", lab, "--instruments", "simulated"


@pytest.mark.skipif(
    importlib.util.find_spec("allure_pytest") is None, reason="allure-pytest is not installed"
)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_allure_has_it_skipped_with_its_reason(
    suite: tuple[object, ...], workers: tuple[str, ...], start: Start, tmp_path: Path
) -> None:
    ended = start(*suite, *workers, "--alluredir", tmp_path / "allure", fresh=True).end()
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 inconclusive" in ended.output
    written = [json.loads(path.read_text()) for path in (tmp_path / "allure").glob("*-result.json")]
    found = {each["name"].partition("[")[0]: each for each in written}
    undecided = found.pop("test_undecided")
    assert undecided["status"] == "skipped"
    assert "293 more needed" in undecided["statusDetails"]["message"]
    assert {name: each["status"] for name, each in found.items()} == DECIDED


@pytest.mark.skipif(
    importlib.util.find_spec("pytest_jsonreport") is None,
    reason="pytest-json-report is not installed",
)
def test_json_report_has_it_as_inconclusive(
    suite: tuple[object, ...], start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    given = ("--json-report", "--json-report-file", file)
    start(*suite, *given, fresh=True).end()
    written = json.loads(file.read_text())
    (undecided,) = (each for each in written["tests"] if "undecided" in each["nodeid"])
    assert undecided["outcome"] == "inconclusive"
    assert "293 more needed" in str(undecided["call"]["longrepr"])
    assert written["summary"]["passed"] == 1
