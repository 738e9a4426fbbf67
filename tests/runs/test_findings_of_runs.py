"""A finding goes with its run: into journal, terminal, JUnit, events and the card of the page.

By the file, server0 sends on ingress 1 and 2 and receives from egress 17 and 18, server1 on 3, 4,
19 and 20.
"""

import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from pathlib import Path
from typing import Any

from runs.running import started

LAB = (Path(__file__).parents[1] / "report" / "causes_lab.yaml").read_text(encoding="utf-8")
PORTS = [f"server{server}.nic0.p{port}" for server in (0, 1) for port in (0, 1)]
FIBERS = {
    *(f"{port} -> ocs.{number}" for number, port in enumerate(PORTS, 1)),
    *(f"ocs.{number} -> {port}" for number, port in enumerate(PORTS, 17)),
}


def run_with(folder: Path, fault: str, suite: str) -> tuple[Any, list[Any]]:
    """Run a suite in a lab with a fault; return the ended run and its events."""
    (folder / "lab.yaml").write_text(f"{LAB}simulation: {{faults: [{fault}]}}\n", encoding="utf-8")
    (folder / "test_it.py").write_text(suite, encoding="utf-8")
    chosen = ("--testbed", folder / "lab.yaml", "--instruments", "simulated")
    files = ("--json", folder / "events", "--junitxml", folder / "junit.xml")
    options = (folder / "test_it.py", *chosen, *files)
    with started(options, folder / "results", page=True) as run:
        ended = run.end()
    events = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    return ended, [one for one in events if one["event"] == "finding"]


def recorded(ended: Any) -> list[dict[str, Any]]:
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    tests = [one["test"] for one in lines if isinstance(one, dict) and "nodeid" in str(one)]
    return [finding for test in tests for finding in test["details"].get("findings", [])]


BRINGS_UP = "def test_it(bring_up, testbed):\n    bring_up(testbed.plans['straight'])\n"


def test_swapped_fibers_reach_every_reader_of_a_run(tmp_path: Path) -> None:
    fault = "{fault: swapped fibers, at: [server0.nic0.p0, server1.nic0.p1]}"
    ended, events = run_with(tmp_path, fault, BRINGS_UP)
    assert ended.code == 1, ended.output
    (found,) = recorded(ended)
    assert (found["kind"], found["subjects"]) == ("swapped fibers", PORTS)
    assert {one["kind"] for one in found["components"]} == {"fiber"}
    assert {one["name"] for one in found["components"]} == FIBERS
    assert "lightrig doctor" in found["next_step"]
    (event,) = events
    assert found.items() <= event.items()
    assert event["test"].endswith("test_it.py::test_it[lab]")
    (told,) = ET.parse(tmp_path / "junit.xml").findall(".//property[@name='finding']")
    assert told.get("value", "").startswith(f"swapped fibers at {', '.join(PORTS)}")
    assert f"swapped fibers at {', '.join(PORTS)}" in ended.output
    card = re.search(r'class="lr-cause">.*?</article>', ended.page.read_text("utf-8"), re.DOTALL)
    assert card is not None
    assert "two of 8 fibers, swapped" in unescape(card[0])


SUITE = """
import pytest

def test_losses(measure_insertion_loss):
    assert [str(one) for one in measure_insertion_loss()] == []

def test_losses_alone(measure_insertion_loss):
    assert len(measure_insertion_loss()) == 1

def test_words(bench):
    assert bench is None, "ocs.4: no light"

@pytest.mark.fault("instrument silent", at="ocs")
def test_silent(bench):
    bench.switches["ocs"].circuits()
"""


def test_findings_of_measurements_and_errors_are_recorded_with_their_tests(tmp_path: Path) -> None:
    """The light of server1.nic0.p0 would come to ingress 3; a word in a sentence is no finding."""
    ended, events = run_with(tmp_path, "{fault: dark laser, at: [server1.nic0.p0]}", SUITE)
    assert ended.code == 1, ended.output
    told = [(one["test"].partition("::test_")[2], one["kind"], one["subjects"]) for one in events]
    assert told == [
        ("losses[lab]", "no light", ["ocs.3"]),
        ("losses_alone[lab]", "no light", ["ocs.3"]),
        ("words[lab]", "failed", []),
        ("silent[lab]", "instrument failed", ["ocs"]),
    ]
    dark, _, words, silent = recorded(ended)
    assert {"kind": "port", "name": "server1.nic0.p0"} in dark["components"]
    assert words["components"] == []
    assert words["evidence"] == "ocs.4: no light"
    assert silent["components"] == [{"kind": "switch", "name": "ocs"}]
    properties = [one.get("value", "") for one in ET.parse(tmp_path / "junit.xml").iter("property")]
    assert [one.partition("\n")[0] for one in properties] == [
        *("no light at ocs.3", "no light at ocs.3", "instrument failed at ocs")
    ]
