"""Faults while tests run: the run ends, names the cause, restores, and keeps its rows."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.served_lab import describe

Start = Callable[..., Any]

# Faults by marker; `test_listed` has its fault from the file.
SUITE = """
import pytest

def measured(measure, bring_up, measure_outage, transition):
    bring_up(transition.before)
    for plan in (transition.after, transition.before):
        measure_outage(plan)

def test_clean(measure, bring_up, measure_outage, transition):
    measured(measure, bring_up, measure_outage, transition)

@pytest.mark.fault("server lost", at="server0", after="1 ms")
def test_lost(measure, bring_up, measure_outage, transition):
    measured(measure, bring_up, measure_outage, transition)

@pytest.mark.fault("clock step", step="-2 h")
def test_stepped(measure, bring_up, measure_outage, transition):
    measured(measure, bring_up, measure_outage, transition)

@pytest.mark.fault("disk full", after="20 ms")
def test_full(measure, bring_up, measure_outage, transition):
    measured(measure, bring_up, measure_outage, transition)

def test_listed(measure, bring_up, measure_outage, transition):
    measured(measure, bring_up, measure_outage, transition)

@pytest.mark.fault("instrument restarts", at="ocs", after="1 ms")
def test_restarted(measure, bring_up, measure_outage, transition):
    measured(measure, bring_up, measure_outage, transition)
    measured(measure, bring_up, measure_outage, transition)
"""
PLAN = """
faults:
  - {fault: instrument silent, at: [ocs], tests: "test_listed*", after: 1 ms}
"""


def test_faults_end_in_named_causes(start: Start, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    plan = tmp_path / "faults.yaml"
    plan.write_text(PLAN)
    chosen = ("--testbed", describe(tmp_path), "--instruments", "simulated", "-k", "straight-to")
    ended = start(tmp_path, *chosen, "--faults", plan, "--tb=short").end()
    assert ended.code == 1, ended.output
    assert "INTERNALERROR" not in ended.output
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    ends = [line["test"] for line in lines if isinstance(line, dict) and "test" in line]
    tests = [end for end in ends if isinstance(end, dict)]
    outcomes = {re.findall(r"::test_(\w+)", test["nodeid"])[0]: test["outcome"] for test in tests}
    passed = {name for name, outcome in outcomes.items() if outcome == "passed"}
    assert passed == {"clean", "stepped"}, ended.output
    assert "ocs closed the connection" in ended.output
    assert "server0.nic0.p0 carrier_up, server0.nic0.p0 first_datagram" in ended.output
    assert "journal.jsonl: File too large" in ended.output
    assert "ocs did not answer within 10 s" in ended.output
    assert "fault injected into test_listed" in ended.output
    assert "instrument silent at ocs after 1 ms" in ended.output
    assert "NOT as found" not in ended.output
    assert len(ended.rows) > 20
    conditions = [c["conditions"] for c in lines if isinstance(c, dict) and "conditions" in c]
    assert any(each.get("faults") == "clock step after 0 ns" for each in conditions)
    assert any("faults" not in each for each in conditions)


def test_a_place_that_is_not_there_is_a_wrong_use(start: Start, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.fault('fiber cut', at='server9.nic0')\n"
        "def test_it(bench): pass\n"
    )
    ended = start(tmp_path, "--testbed", describe(tmp_path), "--instruments", "simulated").end()
    assert ended.code == 4, ended.output
    assert "testbed lab has no server9.nic0 there, it has ocs.10, ocs.11" in ended.output
