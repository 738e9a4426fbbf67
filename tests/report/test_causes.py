"""Suspected causes: evidence joined over the cabling, and the cards of both pages.

By the file, server0 is on the ingress ports 1 and 2 and the egress ports 17 and 18 of a 16x16
switch, server1 on 3, 4, 19 and 20.
"""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from planted_nights import TEST, Grown, write_nights_of

from lightrig import testbeds
from lightrig.harness.components import HARNESS, Components, LabComponent
from lightrig.harness.findings import (
    CLOSURE,
    FAILED,
    LINK_DOWN,
    NO_LIGHT,
    SWAPPED_FIBERS,
    VOID_COUNT,
    Finding,
    each_at,
)
from lightrig.harness.record import Context, Journal, Row, TestOutcome, read_journal
from lightrig.harness.record.recovery import settle
from lightrig.harness.record.run_folder import store_ports
from lightrig.harness.report import write_page
from lightrig.harness.report.causes import Cause, Evidence, as_ever, find_causes, run_causes
from lightrig.harness.report.frames import RunFrame
from lightrig.harness.report.nights import write_nights

LAB = Path(__file__).with_name("causes_lab.yaml")
CIRCUITS = [f"ocs {ingress}>{egress}" for ingress in (1, 2, 3, 4) for egress in (17, 18, 19, 20)]
BITS = "test_bit_error.py::test_of_nic_ports[lab-after]"
LINKS = "test_reconfiguration.py::test_between_plans[lab/straight-to-crossed]"
LOSSES = "test_insertion_loss.py::test_every_circuit[lab]"


@pytest.fixture(scope="module")
def lab():
    return testbeds.load(LAB)


def names_of(cause):
    return tuple(map(str, cause.components))


def losses_of(lab, apart):
    components = Components(lab)
    evidence = [
        Evidence(Finding("lossy circuit", one, (one,)).located(components), "loss") for one in apart
    ]
    healthy = {"loss": [components.of(one) for one in CIRCUITS if one not in apart]}
    return find_causes(evidence, healthy, components)


def causes_of(lab, *failed, measured=()):
    """Return the causes of findings by the test that made them."""
    components = Components(lab)
    evidence, healthy = [], {}
    for test, findings in failed:
        located = [one.located(components) for one in findings]
        evidence += [Evidence(one, ("failed", test), test) for one in located]
        healthy["failed", test] = as_ever(located, measured, components)
    return find_causes(evidence, healthy, components)


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        (CIRCUITS[4:8], ("connector ocs.2", "fiber server0.nic0.p1 -> ocs.2")),
        (CIRCUITS[4:7], ("connector ocs.2", "fiber server0.nic0.p1 -> ocs.2")),
        (CIRCUITS[2::4], ("connector ocs.19", "fiber ocs.19 -> server1.nic0.p0")),
        (CIRCUITS[9:10], ("ocs 3>18",)),
        (CIRCUITS, ("ocs",)),
    ],
)
def test_circuits_with_one_component_in_common_are_one_cause(lab, apart, expected):
    (cause,) = losses_of(lab, apart)
    assert names_of(cause) == expected
    assert len(cause.evidence) == len(apart)


def test_a_monitor_at_the_egress_does_not_see_the_fiber_behind_it(lab):
    components = Components(lab, by_monitors=True)
    each = {one: components.of(one, "insertion_loss") for one in CIRCUITS}
    evidence = [
        Evidence(Finding("", one, (one,), tuple(each[one])), "loss") for one in CIRCUITS[2::4]
    ]
    healthy = [each[one] for one in CIRCUITS if one not in CIRCUITS[2::4]]
    (cause,) = find_causes(evidence, {"loss": healthy}, components)
    assert names_of(cause) == ("connector ocs.19",)
    beside = components.of("ocs 2>19", "check_standard.loss") - each["ocs 2>19"]
    assert {str(one) for one in beside} == {"fiber ocs.19 -> server1.nic0.p0"}


def test_two_faults_are_two_causes(lab):
    found = losses_of(lab, [*CIRCUITS[4:8], *CIRCUITS[2::4]])
    assert [names_of(one)[0] for one in found] == ["connector ocs.2", "connector ocs.19"]


def test_two_ports_that_fail_in_one_test_are_their_link(lab):
    ports = [f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)]
    findings = [Finding(VOID_COUNT, "both had no signal", (port,)) for port in ports[1::2]]
    (cause,) = causes_of(lab, (BITS, findings), measured=ports)
    assert names_of(cause) == ("link server0.nic0.p1 - server1.nic0.p1",)
    assert len(cause.evidence) == 1


def test_an_ingress_without_light_may_have_a_dark_laser(lab):
    (cause,) = causes_of(lab, (LOSSES, each_at(NO_LIGHT, ["ocs.3"])), measured=CIRCUITS)
    fiber = "fiber server1.nic0.p0 -> ocs.3"
    assert set(names_of(cause)) >= {fiber, "connector ocs.3", "server1.nic0.p0"}
    assert {"ocs", "server1"}.isdisjoint(names_of(cause))


def test_an_egress_without_light_is_explained_by_the_laser_that_a_plan_joins_to_it(lab):
    """By the plans, server1.nic0.p0 on ingress 3 sends to egress 17 or 18."""
    links = [*each_at(LINK_DOWN, ["server1.nic0.p0"]), *each_at(NO_LIGHT, ["ocs.17"])]
    dark = each_at(NO_LIGHT, ["ocs.3"])
    components = Components(lab)
    others = [components.of(one) for one in CIRCUITS if not one.startswith("ocs 3")]
    evidence = [
        *(Evidence(one.located(components), ("failed", LOSSES), LOSSES) for one in dark),
        *(Evidence(one.located(components), ("failed", LINKS), LINKS) for one in links),
    ]
    (cause,) = find_causes(evidence, {("failed", LOSSES): others}, components)
    fiber = "fiber server1.nic0.p0 -> ocs.3"
    assert set(names_of(cause)) == {fiber, "connector ocs.3", "server1.nic0.p0"}


def test_a_failed_closure_points_to_the_harness_alone(lab):
    (cause,) = causes_of(lab, (LOSSES, [Finding(CLOSURE, "loss.closure of ocs", ("ocs",))]))
    assert cause.components == (HARNESS,)
    assert cause.next_step.startswith("run the test again with another seed")


def test_a_finding_without_a_component_is_not_located(lab):
    (cause,) = causes_of(lab, (LOSSES, [Finding(FAILED, "no sample was taken")]))
    assert cause.title.startswith("place unknown")


def card_of(page):
    found = re.search(r'<section class="lr-head lr-causes".*?</section>', page, re.DOTALL)
    return unescape(re.sub("<[^>]+>", " ", found[0])) if found else ""


def write_run(root, date, outcome, why="", rows=(), findings=(), tests=(LOSSES,)):
    folder = root / "runs" / f"{date.replace('-', '')}-020000-lab"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(LAB.read_text())
    header = {"run": folder.name, "night": date, "testbeds": {"lab": "lab.yaml"}}
    with Journal(
        folder / "journal.jsonl", header | {"descriptions": {"lab": "lab.yaml"}}
    ) as journal:
        for test in tests:
            context = Context("lab", test, ("ocs: x",), True, {"clock": "virtual"})
            for row in rows:
                journal.append(context, row)
        found = [one.located(Components(testbeds.load(LAB))).document() for one in findings]
        details = {"why": why, "command": "pytest again", "findings": found}
        journal.note_test(TestOutcome(LOSSES, outcome, 1.0, details))
    settle(folder)
    return folder


def fault(port, value=1.2):
    stated = {"fault": "dirty connector"}
    return Row(port, "loss.fault", value, value - 0.3, value + 0.2, "dB", 1, stated)


DIRTY = Finding(
    *("dirty connector", "ocs.2: dirty connector", ("ocs.2",), (), 1.2, 0.9, 1.4, "dB"),
)


def test_the_page_of_a_run_begins_with_the_suspected_cause(tmp_path, lab):
    rows = [Row(c, "insertion_loss", 1.2, 1.1, 1.3, "dB", 1, {}) for c in CIRCUITS]
    why = "AssertionError: ocs.3 is mentioned"
    folder = write_run(tmp_path, "2026-11-20", "failed", why, [*rows, fault("ocs.2")], [DIRTY])
    write_page(read_journal(folder / "journal.jsonl"), {"lab": lab}, folder / "report.html")
    page = (folder / "report.html").read_text()
    assert page.index("lr-causes") < page.index('class="lr-overview"')
    card = card_of(page)
    assert "connector ocs.2 or fiber server0.nic0.p1 -> ocs.2  lab" in card
    assert "unconfirmed" in card
    assert "1.20 dB (0.90 … 1.40)" in card
    assert "pytest again" in card
    assert "ocs.3" not in card


def test_a_size_without_a_width_has_no_interval(tmp_path):
    """A check standard's losses have no bounds of their own."""
    still = [Grown("check_standard.loss", f"ocs {n}>20", 1.2, 0.01, 0.0, "dB") for n in (1, 3, 4)]
    dirty = Grown("check_standard.loss", "ocs 2>18", 1.2, 0.01, 0.0, "dB", change=1.2, at=9)
    write_nights_of(tmp_path, "bench", [*still, dirty], nights=10)
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert re.search(r"check_standard.loss of ocs 2>18, \w[^+]*\+1\.\d+ dB  ", card)


@pytest.mark.parametrize("rows", [[fault("ocs.2")], []], ids=["by rows too", "by the test"])
def test_a_cause_is_confirmed_on_its_third_night_and_leaves_with_it(tmp_path, rows):
    why = "ocs.2: dirty connector: 1.2 dB"
    write_run(tmp_path, "2026-11-20", "passed", rows=[Row("p", "los", 5, 5, 5, "ns", 1, {})])
    for night, word in ((21, "unconfirmed"), (22, "unconfirmed"), (23, "confirmed")):
        write_run(tmp_path, f"2026-11-{night}", "failed", why, rows, [DIRTY])
        card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
        since = f"since  2026-11-21 , {night - 20} night{'s' * (night > 21)} in a row"
        assert f" {word} , {since}" in card
    write_run(tmp_path, "2026-11-24", "passed", rows=[Row("p", "los", 5, 5, 5, "ns", 1, {})])
    assert not card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())


def test_the_interval_of_a_confirmed_change_holds_its_size(tmp_path):
    still = [Grown("carrier_up", f"p{n}", 3e9, 2e7, 8e7, "ns") for n in range(6)]
    moved = Grown("carrier_up", "moved", 3e9, 4e7, 1e6, "ns", change=8e8, at=9)
    write_nights_of(tmp_path, "bench", [*still, moved], nights=20)
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    size, low, high = map(float, re.search(r"\+(\d+) ms \((\d+) … (\d+)\)", card).groups())
    assert low < size < high
    assert low < 800 < high
    assert "since  2026-02-10 , 11 nights in a row" in card


def test_a_night_that_left_no_row_has_a_card_too(tmp_path):
    write_run(tmp_path, "2026-11-20", "passed", rows=[Row("p", "los", 5, 5, 5, "ns", 1, {})])
    silent = Finding("instrument failed", "ocs did not answer", ("ocs",))
    write_run(tmp_path, "2026-11-21", "error", "ocs did not answer", findings=[silent])
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert " ocs  lab" in card
    assert "ocs did not answer" in card


def test_a_cause_began_with_its_first_evidence(lab):
    """Three pieces of evidence: the second began first, and the third has no date."""
    dirty = DIRTY.located(Components(lab))
    dates = (("2026-11-21", 3, False), ("2026-11-19", 5, True), ("", 1, False))
    evidence = [
        Evidence(replace(dirty, evidence=f"{number}"), number, "", *about)
        for number, about in enumerate(dates)
    ]
    (cause,) = find_causes(evidence, {}, Components(lab))
    assert (cause.since, cause.nights, cause.confirmed) == ("2026-11-19", 5, True)


@pytest.mark.parametrize(("apart", "located"), [(3, True), (2, True), (1, False)])
def test_a_component_must_explain_more_than_there_is_that_shows_nothing(lab, apart, located):
    """One circuit through the ingress is as ever: 3 - 1 and 2 - 1 are above 0, 1 - 1 is not."""
    components = Components(lab)
    dirty = DIRTY.located(components).components
    evidence = [Evidence(Finding("", f"{n}", (), dirty), "loss") for n in range(apart)]
    (cause,) = find_causes(evidence, {"loss": [components.of("ocs 2>18")]}, components)
    assert bool(cause.components) is located
    assert len(cause.evidence) == apart


@pytest.mark.parametrize(
    ("faulty", "since", "word"),
    [
        ({20, 21, 23}, "2026-11-20 , 3 nights in a row", "confirmed"),
        ({19, 21, 23}, "2026-11-21 , 2 nights in a row", "unconfirmed"),
    ],
)
def test_a_night_without_a_run_does_not_end_a_row(tmp_path, faulty, since, word):
    """Nothing is measured on the 22nd; on the 20th of the second case all is well."""
    for night in (18, 19, 20, 21, 23):
        rows = [fault("ocs.2")] if night in faulty else []
        other = Row("p", "los", 5, 5, 5, "ns", 1, {})
        write_run(tmp_path, f"2026-11-{night}", "passed", rows=[other, *rows])
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert f" {word} , since  {since}" in card


@pytest.mark.parametrize("count", [1, 8, 9])
def test_more_than_eight_components_are_not_listed(count):
    ports = tuple(LabComponent("connector", f"ocs.{number}") for number in range(count))
    cause = Cause(ports, (Evidence(DIRTY, 0),))
    assert cause.title.count("connector") == (count if count < 9 else 0)
    assert cause.title.startswith("place unknown: one of 9") is (count == 9)


@pytest.mark.parametrize("outcome", ["failed", "error", "inconclusive", "passed"])
def test_cards_of_a_run_are_of_failed_tests_of_each_testbed(lab, outcome):
    """Of two testbeds of a run, the test is of the second by its parameter."""
    labs = {"fab": lab, "lab": lab}
    details = {"findings": [DIRTY.located(Components(lab)).document()]}
    tests = [TestOutcome(name, outcome, 1.0, details) for name in (LOSSES, "t.py::a[x]")]
    card = card_of(str(run_causes(tests, labs, RunFrame((), 0, None))))
    assert card.count("ocs.2: dirty connector") == (outcome in {"failed", "error"})
    assert ("-> ocs.2 or ocs  lab" in card) is (outcome in {"failed", "error"})


def test_quiet_nights_have_no_card(tmp_path):
    still = [Grown("carrier_up", f"p{n}", 3e9, 2e7, 8e7, "ns") for n in range(6)]
    write_nights_of(tmp_path, "bench", still, nights=10)
    assert not card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())


@pytest.mark.parametrize(
    ("quantity", "change", "shown"),
    [("carrier_up", 8e8, True), ("carrier_up", -8e8, False), ("watched", 8e8, False)],
)
def test_a_port_that_becomes_slower_has_a_card_and_a_faster_one_none(
    tmp_path, quantity, change, shown
):
    """How long a port was watched is about the measurement: it is no cause."""
    still = [Grown(quantity, f"p{n}", 3e9, 2e7, 8e7, "ns") for n in range(6)]
    moved = Grown(quantity, "moved", 3e9, 2e7, 8e7, "ns", change=change, at=9)
    write_nights_of(tmp_path, "bench", [*still, moved], nights=10)
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert ("moved  bench" in card) is shown
    assert TEST not in card


def test_a_sentence_of_a_run_without_findings_is_shown_and_locates_nothing(tmp_path):
    """Though it names a port and a kind: 1 switch, 2 servers, 4 + 8 ports and 8 fibers are left."""
    write_run(tmp_path, "2026-11-20", "passed", rows=[Row("p", "los", 5, 5, 5, "ns", 1, {})])
    write_run(tmp_path, "2026-11-21", "failed", "ocs.3: no light\nocs.4: no light")
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert "place unknown: one of 23 components" in card
    assert "failed: ocs.3: no light" in card
    assert "ocs.4" not in card


def test_links_that_stay_down_with_light_have_two_of_their_fibers_swapped(lab):
    ports = tuple(f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1))
    (cause,) = causes_of(lab, (BITS, [Finding(SWAPPED_FIBERS, "light leads to all", ports)]))
    leaving = {f"fiber server{n}.nic0.p{p} -> ocs.{2 * n + p + 1}" for n in (0, 1) for p in (0, 1)}
    coming = {f"fiber ocs.{2 * n + p + 17} -> server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)}
    assert set(names_of(cause)) == leaving | coming
    assert cause.title == "two of 8 fibers, swapped"
    assert "lightrig doctor" in cause.next_step


def test_a_link_that_is_lost_in_both_plans_is_lost_at_the_port_that_both_have(lab):
    ends = ("server0.nic0.p1", "server1.nic0.p1", "server0.nic0.p0")
    (cause,) = causes_of(lab, *((one, each_at(LINK_DOWN, [one])) for one in ends))
    fibers = {"fiber server1.nic0.p1 -> ocs.4", "fiber ocs.20 -> server1.nic0.p1"}
    assert {"server1.nic0.p1", *fibers} <= set(names_of(cause))


def test_a_stuck_monitor_is_its_port_alone(lab):
    (cause,) = causes_of(lab, (LOSSES, each_at("stuck monitor", ["ocs.19"])))
    assert names_of(cause) == ("connector ocs.19",)


@pytest.mark.parametrize(("tests", "nights", "shown"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_a_port_that_two_tests_or_nights_find_slower_than_its_kin_has_a_card(
    tmp_path, tests, nights, shown
):
    """With nothing measured before; one test names a port by chance where all are alike."""
    row = Row("ocs.18", "port.excess", 6e7, 5.9e7, 6.1e7, "ns", 1, {"stage": "signal_recovered"})
    usual = Row("ocs.19", "signal_recovered", 4e7, 4e7, 4e7, "ns", 1, {"event": 0})
    for night in range(nights):
        named = [f"t.py::{name}" for name in "ab"[:tests]]
        write_run(tmp_path, f"2026-11-2{night}", "passed", rows=[usual, row], tests=named)
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert ("ocs.18 takes longer than the other ports" in card) is shown
    assert ("of the same events: signal recovered" in card) is shown
    assert ("60.0 ms (59.0 … 61.0)" in card) is shown


@pytest.mark.parametrize("described", [True, False])
def test_a_lost_lane_and_the_errors_of_its_port_are_one_card(tmp_path, described):
    """The other lanes of the port, and all other ports, are as ever."""
    ports = [f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)]
    for night in range(5):
        rows = []
        for port in ports:
            lost = night == 4 and port == "server1.nic0.p0"
            rows.append(
                Row(
                    port,
                    "pre_fec_ber",
                    v := (2e-5 if lost else 1e-8) + night * 1e-10,
                    v,
                    v,
                    "1",
                    1,
                    {},
                )
            )
            for lane in range(4):
                dbm = (-30.0 if lost and lane == 2 else -2.0 - lane / 10) + night / 100
                subject = f"{port}.lane{lane}"
                rows.append(Row(subject, "received_power", dbm, dbm, dbm, "dBm", 1, {}))
        folder = write_run(tmp_path, f"2026-11-2{night}", "passed", rows=rows)
        if not described:
            (folder / "lab.yaml").unlink()
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    assert page.count('class="lr-cause"') == 1
    card = card_of(page)
    assert "causes server1.nic0.p0 lab" in " ".join(card.split())
    assert "pre_fec_ber of server1.nic0.p0" in card
    assert "received_power of server1.nic0.p0.lane2" in card
    assert ("exchange its transceiver" in card) is described


@pytest.mark.parametrize(("at", "shown"), [(4, True), (3, False)])
def test_what_was_new_at_a_component_in_its_first_night_stands_on_its_card(tmp_path, at, shown):
    """Settings of two ports change on the night on which one of them becomes slow, or before."""
    ports = [f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)]
    for night in range(5):
        rows = [
            Row(
                port, "carrier_up", v := 3e9 + night * 1e6 + slow * 1e9, v, v, "ns", 1, {"event": 0}
            )
            for port in ports
            for slow in [night == 4 and port == "server1.nic0.p0"]
        ]
        folder = write_run(tmp_path, f"2026-11-2{night}", "passed", rows=rows)
        fec = {"server1.nic0.p0": "RS", "server1.nic0.p1": "RS", "server0.nic0.p1": "RS"}
        if night >= at:
            fec |= {"server1.nic0.p0": "BASE-R", "server0.nic0.p1": "off"}
        stored = {port: {"mtu": 9000, "fec": one} for port, one in fec.items()}
        store_ports(folder, "lab", {"kernels": {}, "ports": stored})
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    card = " ".join(card_of(page).split())
    assert "carrier_up of server1.nic0.p0" in card
    assert ("New that night: server1.nic0.p0: FEC RS → BASE-R." in card) is shown
    assert "server1.nic0.p0: FEC RS → BASE-R" in unescape(page)
    assert "server0.nic0.p1: FEC RS → off" in unescape(page)
