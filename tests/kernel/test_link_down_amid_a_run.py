"""A kernel's link that a script takes down amid a run: one wait, and no test passes without it."""

import json
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from runs.running import started

from lightrig.instruments.namespaces import namespaces as kernel

LAB = Path(__file__).parents[2] / "testbeds" / "namespaces.yaml"
WAIT = "5 s"
DOWN, TESTS = 2, 7
RUN = f"""
import pytest

@pytest.mark.parametrize("number", range({TESTS}))
def test_links(number, bench, fabric, bring_up):
    plan = fabric.plans["ring" if number % 2 else "crossed"]
    links = bring_up(plan, partly=True, timeout=5_000_000_000)
    print("links:", len(links))
    if number == {DOWN}:
        script = ["ip", "link", "set", "dev", "fabric1", "down"]
        assert bench.servers["server2"].commands.run(script).status == 0
"""


@pytest.mark.long
def test_one_test_waits_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Waits are counted, not timed: a sentence of a test names the one that it made."""
    if (reason := kernel.available()) is not None:
        pytest.skip(reason)
    (tmp_path / "test_mine.py").write_text(RUN)
    arguments = [
        *(tmp_path / "test_mine.py", "--testbed", LAB, "--json", tmp_path / "events"),
        *("--junitxml", tmp_path / "junit.xml"),
    ]
    with started(arguments, tmp_path / "results", fresh=True) as run:
        ended = run.end()
    events = map(json.loads, (tmp_path / "events").read_text().splitlines())
    found = [one["outcome"] for one in events if one["event"] == "test_finished"]
    assert found[: DOWN + 1] == ["passed"] * (DOWN + 1), ended.output
    assert Counter(found[DOWN + 1 :]) == {"failed": 1, "inconclusive": TESTS - DOWN - 2}
    assert found[DOWN + 1] == "failed"
    assert "server2.nic0.p1" in ended.output
    cases = ET.parse(tmp_path / "junit.xml").iter("testcase")
    waited = [
        case.get("name")
        for case in cases
        if any(f"did not come up within {WAIT}" in (each.get("message") or "") for each in case)
    ]
    assert waited == [f"test_links[namespaces-{DOWN + 1}]"]
