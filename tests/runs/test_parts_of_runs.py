"""Runs on a lab with a dead port: what fails, what is inconclusive, what is measured."""

import datetime
import json
import xml.etree.ElementTree as ET

import pytest
from measure.test_links_left_out import DEAD, DEAD_PORT
from report.pages import above
from runs.running import started
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.record import Results
from lightrig.testbeds import load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import change_exceptions

MINE = """
import pytest

def test_own(bring_up, fabric):
    bring_up(fabric.plans["first"])

@pytest.mark.needs(whole_plans=True)
def test_whole(bring_up, fabric):
    bring_up(fabric.plans["third"])

def test_parts(measure, bring_up, measure_reconfiguration, fabric):
    bring_up(fabric.plans["first"], partly=True)
    for name in ("second", "first"):
        measure_reconfiguration(fabric.plans[name])
    measure.judge("reconfiguration")

def test_third(bring_up, fabric):
    bring_up(fabric.plans["third"], partly=True)

def test_more_parts(bring_up, fabric):
    bring_up(fabric.plans["second"], partly=True)
"""


@pytest.fixture
def dead(tmp_path):
    path = tmp_path / "three.yaml"
    limits = "limits:\n  reconfiguration.carrier_up: {max: 10 s}\n"
    path.write_text(DEAD.replace("simulation:", f"{limits}simulation:"), encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(MINE, encoding="utf-8")
    return path


def put_out(path, until="2999-12-31"):
    what = str(DEAD_PORT)
    entry = Entry(what, "LAB-123", datetime.date.fromisoformat(until))
    change_exceptions(load(path), "out", add={what: entry})


def measured(path, *options, page=False):
    folder = path.parent
    arguments = [
        *(folder / "test_mine.py", "--testbed", path, "--instruments", "simulated", "-v"),
        *("--json", folder / "events", "--junitxml", folder / "junit.xml", *options),
    ]
    with started(arguments, folder / "results", page=page) as run:
        ended = run.end()
    events = [json.loads(line) for line in (folder / "events").read_text().splitlines()]
    outcomes = {
        one["test"].rpartition("::")[2].partition("[")[0]: one["outcome"]
        for one in events
        if one["event"] == "test_finished"
    }
    return ended, events, outcomes


def test_without_a_list_no_test_passes_that_left_a_link_out(dead):
    ended, events, outcomes = measured(dead, "--reruns", "1", "-k", "not whole")
    # The first waits and asks for all; of the next a rerun follows, which leaves out what the first
    # attempt found.
    assert outcomes == {
        "test_own": "failed",
        "test_parts": "inconclusive",
        "test_third": "passed",
        "test_more_parts": "inconclusive",
    }
    assert f"`lightrig out {dead} PORT --because TEXT`" in ended.output
    (verdict,) = [one for one in events if one["event"] == "verdict"]
    assert verdict["outcome"] == "pass, 4 of 6 ports"


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_the_first_that_waits_fails_at_its_end_and_has_measured(dead, workers):
    """What is known to be down belongs to the process that has the testbed."""
    _, _, outcomes = measured(dead, *workers, "-k", "parts")
    assert outcomes == {"test_parts": "failed", "test_more_parts": "inconclusive"}
    nodes = CliRunner().invoke(
        application(),
        ["results", "nodes", "last", "--good", "--results", str(dead.parent / "results")],
    )
    assert nodes.stdout.split() == ["server2"]


def test_strict_links_are_waited_for_by_each_test(dead):
    _, _, outcomes = measured(dead, "-k", "parts", "--strict-links")
    assert outcomes == {"test_parts": "failed", "test_more_parts": "failed"}


def test_a_worker_has_the_list_that_the_run_began_with(dead):
    put_out(dead)
    _, events, outcomes = measured(dead, "-n", "1", "-k", "parts or whole")
    assert outcomes == {
        "test_whole": "inconclusive",
        "test_parts": "passed",
        "test_more_parts": "passed",
    }
    ports = [one["ports"] for one in events if one["event"] == "test_finished" and "ports" in one]
    assert ports == ["4 of 6 ports; out: server1.nic0.p0"] * 2


def test_with_the_list_nothing_fails_and_everything_says_what_was_left_out(dead):
    put_out(dead)
    ended, events, outcomes = measured(dead, page=True)
    assert outcomes == {
        "test_own": "passed",
        "test_whole": "inconclusive",
        "test_parts": "passed",
        "test_third": "passed",
        "test_more_parts": "passed",
    }
    sentence = "plan first: 4 of 6 ports; out: server1.nic0.p0"
    assert f"three: {sentence}" in ended.output
    assert "PASSED, 4 of 6 ports" in ended.output
    assert "it needs whole plans, and out of service is server1.nic0.p0 (LAB-123" in ended.output
    assert sentence in [one["note"] for one in events if one["event"] == "note"]
    ports = {
        one["test"].rpartition("::")[2].partition("[")[0]: one.get("ports")
        for one in events
        if one["event"] == "test_finished"
    }
    stated = "4 of 6 ports; out: server1.nic0.p0"
    assert (ports["test_parts"], ports["test_third"]) == (stated, None)
    cases = ET.parse(dead.parent / "junit.xml").iter("testcase")
    by_case = {
        case.get("name").partition("[")[0]: [
            each.get("value") for each in case.iter("property") if each.get("name") == "ports"
        ]
        for case in cases
    }
    assert (by_case["test_parts"], by_case["test_third"]) == ([stated], [])
    page = above(ended.page)
    assert sentence in page
    assert "pass, 4 of 6 ports" in page


def test_a_date_that_has_passed_is_a_card_and_the_port_stays_out(dead):
    put_out(dead, "2020-02-29")
    ended, _, outcomes = measured(dead, "-k", "parts", page=True)
    assert set(outcomes.values()) == {"passed"}
    assert "server1.nic0.p0 (LAB-123, until 2020-02-29) is out of service still" in ended.output
    page = ended.page.read_text(encoding="utf-8")
    assert "the date has passed" in page.partition('id="lr-causes"')[2].partition("</section>")[0]
    # In the morning the card tells over which ports the night was.
    results, message = dead.parent / "results", dead.parent / "new.md"
    arguments = ["report", "--message", str(message), "--results", str(results)]
    assert CliRunner().invoke(application(), arguments).exit_code == 1
    assert "\n- plan first: 4 of 6 ports; out: server1.nic0.p0\n" in message.read_text("utf-8")
    assert "plan first: 4 of 6 ports" in (results / "nights.html").read_text("utf-8")


def test_events_as_a_whole_are_of_their_set_of_ports_and_single_ports_are_not(dead):
    put_out(dead)
    measured(dead, "-k", "test_parts")
    frame = Results(dead.parent / "results").frame(run="*", quantity="reconfiguration.carrier_up")
    assert {*frame["subject"]} == {"three"}
    missing = {"second": "server0.nic0.p1", "first": "server0.nic0.p0"}
    assert {*zip(frame["after"], frame["ports"], strict=True)} == {
        (plan, f"4 of 6 ports, without {port}, server1.nic0.p0") for plan, port in missing.items()
    }
    single = Results(dead.parent / "results").frame(run="*", quantity="carrier_up")
    assert "server2.nic0.p1" in {*single["subject"]}
    assert "server1.nic0.p0" not in {*single["subject"]}
    assert single.get("ports") is None or single["ports"].isna().all()


def test_all_ports_out_is_said_before_a_run_begins(dead):
    entries = {
        name: Entry(name, "LAB-9", datetime.date(2999, 1, 1)) for name in ("server0", "server1")
    }
    entries["server2"] = Entry("server2", "LAB-9", datetime.date(2999, 1, 1))
    change_exceptions(load(dead), "out", add=entries)
    with started(
        [dead.parent / "test_mine.py", "--testbed", dead, "--instruments", "simulated"],
        dead.parent / "results",
    ) as run:
        ended = run.end()
    assert ended.code == 4
    assert "every port of three is out of service: server0, server1, server2" in ended.output
