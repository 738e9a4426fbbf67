"""Tests that fail by trouble of the lab are told from those that fail by what they measured."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

from bench.served_lab import describe
from report.pages import packed
from runs.running import started

SUITE = """
import pytest
from lightrig.instruments.core.errors import UnreachableError

@pytest.fixture
def down(monkeypatch, links):
    from lightrig.harness.measure.links import LinkObservation, LinksDownError

    def never(self, ports, *more):
        raise LinksDownError([(port, "carrier") for port in ports], 1_000_000)

    monkeypatch.setattr(LinkObservation, "await_up", never)

def test_unreachable(testbed):
    raise UnreachableError("ocs", "did not answer")

def test_link_down_before(measure, bring_up, transition, down):
    bring_up(transition.before)

def test_link_down_after(measure, measure_reconfiguration, bring_up, transition, request):
    bring_up(transition.before)
    measure_reconfiguration(transition.after)
    request.getfixturevalue("down")
    bring_up(transition.before)

def test_link_down_by_the_test_itself(fabric, transition, links, down):
    fabric.apply(transition.after)
    links.await_up({link.a for link in fabric.links(transition.after)})

def test_wrong(testbed):
    assert False
"""
OF_LAB = {"test_unreachable", "test_link_down_before"}


def name_of(test: str) -> str:
    return test.rpartition("::")[2].partition("[")[0]


def test_trouble_of_the_lab_stands_in_events_junit_and_page(tmp_path: Path) -> None:
    describe(tmp_path)
    (tmp_path / "test_suite.py").write_text(SUITE)
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    files = ("--json", tmp_path / "events.jsonl", "--junitxml", tmp_path / "junit.xml")
    with started((tmp_path, *given, *files), tmp_path / "results", page=True) as run:
        ended = run.end()
    assert ended.code == 1, ended.output
    events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    finished = [event for event in events if event["event"] == "test_finished"]
    assert [event["outcome"] for event in finished] == 5 * ["failed"], ended.output
    of_lab = {name_of(event["test"]) for event in finished if event.get("cause") == "lab"}
    assert of_lab == OF_LAB
    cases = ET.parse(tmp_path / "junit.xml").iter("testcase")
    found = {
        name_of(case.get("name", ""))
        for case in cases
        for each in case.iter("property")
        if (each.get("name"), each.get("value")) == ("lightrig.cause", "lab")
    }
    assert found == OF_LAB
    added = packed(ended.page)["added"].items()
    shown = {name_of(test) for test, one in added if "(lightrig.cause = lab)" in one["why"]}
    assert shown == OF_LAB


TWICE = """
from lightrig.harness.findings import FoundError, each_at
from lightrig.instruments.core.errors import UnreachableError
tries = []

def test_reached_at_the_second_try(testbed):
    tries.append(1)
    if len(tries) == 1:
        raise UnreachableError("ocs", "did not answer")

def test_dark_at_the_first_try(testbed):
    tries.append(1)
    if len(tries) == 3:
        raise FoundError("no light at ocs.9", each_at("no light", ["ocs.9"]))
"""


def test_an_attempt_that_passes_has_no_trouble_of_the_one_before(tmp_path: Path) -> None:
    describe(tmp_path)
    (tmp_path / "test_suite.py").write_text(TWICE)
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated", "--reruns", "1")
    files = ("--json", tmp_path / "events.jsonl", "--junitxml", tmp_path / "junit.xml")
    with started((tmp_path, *given, *files), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 0, ended.output
    cases = list(ET.parse(tmp_path / "junit.xml").iter("testcase"))
    assert len(cases) == 2
    for case in cases:
        names = {each.get("name") for each in case.iter("property")}
        assert names.isdisjoint({"lightrig.cause", "finding"}), names
    events = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    finished = [event for event in events if event["event"] == "test_finished"]
    outcomes = [(event["outcome"], event.get("cause")) for event in finished]
    assert outcomes.count(("passed", None)) == 2
