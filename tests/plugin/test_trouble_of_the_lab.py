"""Tests that fail by trouble of the lab are told from those that fail by what they measured."""

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bench.served_lab import describe
from report.pages import above, packed
from runs.running import started

SUITE = """
import pytest
from lightrig.instruments.core.errors import DisconnectedError, NoReplyError, UnreachableError

@pytest.fixture
def down(monkeypatch, links):
    from lightrig.harness.measure.links import LinkObservation, LinksDownError

    def never(self, ports, *more):
        raise LinksDownError([(port, "carrier") for port in ports], 1_000_000)

    monkeypatch.setattr(LinkObservation, "await_up", never)

@pytest.fixture
def silent(monkeypatch, fabric):
    def never(*given, **more):
        raise NoReplyError("ocs", "did not answer within 5 s")

    monkeypatch.setattr(type(fabric), "prepare", never)

@pytest.fixture
def refusing(testbed):
    raise DisconnectedError("ocs", "closed the connection")

def test_unreachable(testbed):
    raise UnreachableError("ocs", "did not answer")

def test_link_down_before(measure, bring_up, transition, down):
    bring_up(transition.before)

def test_silent_before(measure, bring_up, transition, silent):
    bring_up(transition.before)

def test_silent_while_prepared(refusing):
    pass

def test_silent_after(measure, measure_reconfiguration, bring_up, transition, request):
    bring_up(transition.before)
    measure_reconfiguration(transition.after)
    request.getfixturevalue("silent")
    bring_up(transition.before)

def test_silent_to_what_it_measures(fabric, transition, silent):
    fabric.apply(transition.after)

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
OF_LAB = {
    *("test_unreachable", "test_link_down_before"),
    *("test_silent_before", "test_silent_while_prepared"),
}


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
    outcomes = sorted(event["outcome"] for event in finished)
    assert outcomes == ["error", *8 * ["failed"]], ended.output
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


def test_a_run_that_the_lab_ended_says_so(tmp_path: Path) -> None:
    names = enumerate(("ocs", "server0", "server1"), 1)
    describe(tmp_path, {name: f"127.0.0.{n}:9" for n, name in names})  # nothing listens there
    (tmp_path / "test_suite.py").write_text("def test_it(bench):\n    pass\n")
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "hardware")
    files = ("--json", tmp_path / "events.jsonl", "--junitxml", tmp_path / "junit.xml")
    environment = {**os.environ, "LAB_OCS": "a:b", "LAB_SERVER": "a:b", "HOME": str(tmp_path)}
    environment["LIGHTRIG_STATE"] = str(tmp_path / "state")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").touch()
    arguments = (tmp_path, *given, *files)
    with started(arguments, tmp_path / "results", environment, page=True) as run:
        ended = run.end()
    assert ended.code == 3, ended.output
    *_, last = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    assert (last["event"], last["cause"]) == ("run_finished", "lab")
    (suite,) = ET.parse(tmp_path / "junit.xml").iter("testsuite")
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["lightrig.cause"] == "lab"
    assert "(lightrig.cause = lab)" in above(ended.page)


def test_a_run_that_a_test_ended_says_nothing_of_the_lab(tmp_path: Path) -> None:
    describe(tmp_path)
    suite = "import pytest\n\ndef test_it(bench):\n    pytest.exit('enough', 3)\n"
    (tmp_path / "test_suite.py").write_text(suite)
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    with started((tmp_path, *given, "--json", tmp_path / "events.jsonl"), tmp_path / "r") as run:
        ended = run.end()
    assert ended.code == 3, ended.output
    *_, last = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    assert last["ended"].startswith("enough")
    assert "cause" not in last


LIMITED = """
import threading
import pytest

@pytest.fixture(scope="session", autouse=True)
def limited():
    start = threading.Thread.start

    def refuse(self):
        if ON in (threading.current_thread().name, None):
            raise ERROR
        start(self)

    threading.Thread.start = refuse
"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ('RuntimeError("can\'t start new thread")', "starts no more threads"),
        ("MemoryError()", "has no more memory"),
    ],
)
def test_a_machine_at_its_limits_opens_no_lab(tmp_path: Path, error: str, sentence: str) -> None:
    describe(tmp_path)
    (tmp_path / "conftest.py").write_text(LIMITED.replace("ERROR", error).replace("ON", "None"))
    (tmp_path / "test_suite.py").write_text("def test_opened(bench):\n    pass\n")
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    with started((tmp_path, *given), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 3, ended.output
    assert f"lab is not opened: the machine {sentence} for this account" in ended.output
    assert "Traceback" not in ended.output


NO_MEMORY_FOR_REPORTS = """

def pytest_keyboard_interrupt():
    raise MemoryError
"""

NO_MEMORY_AT_ALL = """
def pytest_runtest_makereport():
    raise MemoryError

def pytest_sessionfinish():
    raise MemoryError
"""


def test_a_run_without_memory_for_any_report_ends_with_a_sentence(tmp_path: Path) -> None:
    describe(tmp_path)
    (tmp_path / "conftest.py").write_text(NO_MEMORY_AT_ALL)
    (tmp_path / "test_suite.py").write_text("def test_opened(bench):\n    pass\n")
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    with started((tmp_path, *given), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 3, ended.output
    assert ended.output.count("lightrig: the machine has no more memory for this account") == 2
    assert "\nTraceback" not in ended.output


def test_why_a_run_ended_is_reported_where_pytest_has_no_memory_for_it(tmp_path: Path) -> None:
    describe(tmp_path)
    limited = LIMITED.replace("ERROR", "MemoryError()").replace("ON", "None")
    (tmp_path / "conftest.py").write_text(limited + NO_MEMORY_FOR_REPORTS)
    (tmp_path / "test_suite.py").write_text("def test_opened(bench):\n    pass\n")
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    with started((tmp_path, *given), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 3, ended.output
    assert "lightrig: lab is not opened: the machine has no more memory for" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ('RuntimeError("can\'t start new thread")', "starts no more threads"),
        ("MemoryError()", "has no more memory"),
    ],
)
def test_a_simulated_server_that_has_no_memory_is_not_just_silent(
    tmp_path: Path, error: str, sentence: str
) -> None:
    """Its connections are served by threads that a thread of the run's own starts."""
    describe(tmp_path)
    limited = LIMITED.replace("ERROR", error).replace("ON", '"listeners"')
    (tmp_path / "conftest.py").write_text(limited)
    (tmp_path / "test_suite.py").write_text("def test_opened(bench):\n    pass\n")
    given = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    with started((tmp_path, *given), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code != 0
    assert f"a thread failed before: the machine {sentence} for this account" in ended.output
