"""Suspected causes: evidence joined over the cabling, and the cards of both pages.

By the file, server0 is on the ingress ports 1 and 2 and the egress ports 17 and 18 of a 16x16
switch, server1 on 3, 4, 19 and 20.
"""

import re
from html import unescape
from pathlib import Path

import pytest
from planted_nights import TEST, Grown, write_nights_of

from lightrig import testbeds
from lightrig.harness.record import Context, Journal, Row, TestOutcome, read_journal
from lightrig.harness.record.recovery import settle
from lightrig.harness.report import write_page
from lightrig.harness.report.causes import HARNESS, Components, Evidence, find_causes
from lightrig.harness.report.nights import write_nights

LAB = Path(__file__).with_name("causes_lab.yaml")
CIRCUITS = [f"ocs {ingress}>{egress}" for ingress in (1, 2, 3, 4) for egress in (17, 18, 19, 20)]
GATE = "{0} counted nothing that bounds a ratio: it had no signal for a part of the gate"
BITS = "test_bit_error.py::test_of_nic_ports[lab-after]"
LINKS = "test_reconfiguration.py::test_between_plans[lab/straight-to-crossed]"
LOSSES = "test_insertion_loss.py::test_every_circuit[lab]"


@pytest.fixture(scope="module")
def lab():
    return testbeds.load(LAB)


def losses_of(lab, apart):
    components = Components(lab)
    evidence = [Evidence(one, components.of(one), "loss") for one in apart]
    return find_causes(evidence, {"loss": [components.of(c) for c in CIRCUITS if c not in apart]})


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        (CIRCUITS[4:8], ("fiber server0.nic0.p1 -> ocs.2", "ocs.2")),
        (CIRCUITS[4:7], ("fiber server0.nic0.p1 -> ocs.2", "ocs.2")),
        (CIRCUITS[2::4], ("fiber ocs.19 -> server1.nic0.p0", "ocs.19")),
        (CIRCUITS[9:10], ("ocs 3>18",)),
        (CIRCUITS, ("ocs",)),
    ],
)
def test_circuits_with_one_component_in_common_are_one_cause(lab, apart, expected):
    (cause,) = losses_of(lab, apart)
    assert cause.components == expected
    assert len(cause.evidence) == len(apart)


def test_a_monitor_at_the_egress_does_not_see_the_fiber_behind_it(lab):
    components = Components(lab, by_monitors=True)
    each = {one: components.of(one, "insertion_loss") for one in CIRCUITS}
    evidence = [Evidence(one, each[one], "loss") for one in CIRCUITS[2::4]]
    as_ever = [each[one] for one in CIRCUITS if one not in CIRCUITS[2::4]]
    (cause,) = find_causes(evidence, {"loss": as_ever})
    assert cause.components == ("ocs.19",)


def test_two_faults_are_two_causes(lab):
    found = losses_of(lab, [*CIRCUITS[4:8], *CIRCUITS[2::4]])
    assert [one.components[-1] for one in found] == ["ocs.2", "ocs.19"]


def test_two_ports_that_fail_in_one_test_are_their_link(lab):
    reason = "; ".join(GATE.format(f"server{n}.nic0.p1") for n in (0, 1))
    components = Components(lab)
    ports = [f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)]
    as_ever = {("failed", BITS): components.as_ever(reason, ports)}
    (cause,) = find_causes(components.failed(BITS, reason), as_ever)
    assert cause.components == ("link server0.nic0.p1 - server1.nic0.p1",)
    assert len(cause.evidence) == 1


def test_an_ingress_without_light_may_have_a_dark_laser(lab):
    components = Components(lab)
    (cause,) = find_causes(
        components.failed(LOSSES, "ocs.3: no light: no circuit of this ingress brought light"),
        {
            ("failed", LOSSES): [
                components.of(one) for one in CIRCUITS if not one.startswith("ocs 3")
            ]
        },
    )
    fiber = "fiber server1.nic0.p0 -> ocs.3"
    assert set(cause.components) >= {fiber, "ocs.3", "server1.nic0.p0"}
    assert {"ocs", "server1"}.isdisjoint(cause.components)


def test_an_egress_without_light_is_explained_by_the_laser_that_a_plan_joins_to_it(lab):
    """By the plans, server1.nic0.p0 on ingress 3 sends to egress 17 or 18."""
    components = Components(lab)
    reason = "links did not come up within 60 s: server1.nic0.p0 (carrier); no light at ocs.17"
    evidence = [
        *components.failed(LOSSES, "ocs.3: no light: no circuit of this ingress brought light"),
        *components.failed(LINKS, reason),
    ]
    others = [components.of(one) for one in CIRCUITS if not one.startswith("ocs 3")]
    (cause,) = find_causes(evidence, {("failed", LOSSES): others})
    fiber = "fiber server1.nic0.p0 -> ocs.3"
    assert set(cause.components) == {fiber, "ocs.3", "server1.nic0.p0"}


def test_a_failed_closure_points_to_the_harness_alone(lab):
    reason = "the harness measured a simulated world wrong: loss.closure of ocs is not closed"
    (cause,) = find_causes(Components(lab).failed(LOSSES, reason), {})
    assert cause.components == (HARNESS,)


def test_a_reason_without_a_component_is_not_located(lab):
    (cause,) = find_causes(Components(lab).failed(LOSSES, "no sample was taken"), {})
    assert cause.title.startswith("not located")


def card_of(page):
    found = re.search(r'<section class="lr-head lr-causes".*?</section>', page, re.DOTALL)
    return unescape(re.sub("<[^>]+>", " ", found[0])) if found else ""


def write_run(root, date, outcome, why="", rows=()):
    folder = root / "runs" / f"{date.replace('-', '')}-020000-lab"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(LAB.read_text())
    header = {"run": folder.name, "night": date, "testbeds": {"lab": "lab.yaml"}}
    with Journal(
        folder / "journal.jsonl", header | {"descriptions": {"lab": "lab.yaml"}}
    ) as journal:
        context = Context("lab", LOSSES, ("ocs: x",), True, {"clock": "virtual"})
        for row in rows:
            journal.append(context, row)
        details = {"why": why, "command": "pytest again"}
        journal.note_test(TestOutcome(LOSSES, outcome, 1.0, details))
    settle(folder)
    return folder


def fault(port, value=1.2):
    stated = {"fault": "dirty connector"}
    return Row(port, "loss.fault", value, value - 0.3, value + 0.2, "dB", 1, stated)


def test_the_page_of_a_run_begins_with_the_suspected_cause(tmp_path, lab):
    rows = [Row(c, "insertion_loss", 1.2, 1.1, 1.3, "dB", 1, {}) for c in CIRCUITS]
    why = "AssertionError: ocs.2: dirty connector: 1.2 dB\nassert not [Fault(subject='ocs.3')]"
    folder = write_run(tmp_path, "2026-11-20", "failed", why, [*rows, fault("ocs.2")])
    write_page(read_journal(folder / "journal.jsonl"), {"lab": lab}, folder / "report.html")
    page = (folder / "report.html").read_text()
    assert page.index("lr-causes") < page.index('class="lr-overview"')
    card = card_of(page)
    assert "connector ocs.2 or fiber server0.nic0.p1 -> ocs.2  lab" in card
    assert "unconfirmed" in card
    assert "1.2 dB (0.9 … 1.4)" in card
    assert "pytest again" in card
    assert "ocs.3" not in card


def test_a_size_without_a_width_has_no_interval(tmp_path):
    """A check standard's losses have no bounds of their own."""
    still = [Grown("check_standard.loss", f"ocs {n}>20", 1.2, 0.01, 0.0, "dB") for n in (1, 3, 4)]
    dirty = Grown("check_standard.loss", "ocs 2>18", 1.2, 0.01, 0.0, "dB", change=1.2, at=9)
    write_nights_of(tmp_path, "bench", [*still, dirty], nights=10)
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert re.search(r"check_standard.loss of ocs 2>18, \w[^+]*\+1\.\d+ dB  ", card)


def test_a_cause_is_confirmed_on_its_third_night_and_leaves_with_it(tmp_path):
    why = "ocs.2: dirty connector: 1.2 dB"
    write_run(tmp_path, "2026-11-20", "passed", rows=[Row("p", "los", 5, 5, 5, "ns", 1, {})])
    for night, word in ((21, "unconfirmed"), (22, "unconfirmed"), (23, "confirmed")):
        write_run(tmp_path, f"2026-11-{night}", "failed", why, [fault("ocs.2")])
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
    write_run(tmp_path, "2026-11-21", "error", "ocs did not answer")
    card = card_of(write_nights(tmp_path, tmp_path / "nights.html").read_text())
    assert " ocs  lab" in card
    assert "ocs did not answer" in card


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


SWAPPED = "light leads to all of them: are their fibers swapped, or do rate or FEC differ?"
DOWN = "links did not come up within 60 s: "


def test_links_that_stay_down_with_light_have_two_of_their_fibers_swapped(lab):
    ports = [f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)]
    reason = DOWN + ", ".join(f"{one} (carrier)" for one in ports) + f"; {SWAPPED}"
    (cause,) = find_causes(Components(lab).failed(BITS, reason), {})
    leaving = {f"fiber server{n}.nic0.p{p} -> ocs.{2 * n + p + 1}" for n in (0, 1) for p in (0, 1)}
    coming = {f"fiber ocs.{2 * n + p + 17} -> server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)}
    assert set(cause.components) == leaving | coming
    assert cause.title == "two of 8 fibers, swapped"
    assert "lightrig doctor" in cause.split


def test_a_link_that_is_lost_in_both_plans_is_lost_at_the_port_that_both_have(lab):
    components = Components(lab)
    ends = ("server0.nic0.p1", "server1.nic0.p1", "server0.nic0.p0")
    evidence = [Evidence(one, components.explaining(one), one) for one in ends]
    (cause,) = find_causes(evidence, {})
    fibers = {"fiber server1.nic0.p1 -> ocs.4", "fiber ocs.20 -> server1.nic0.p1"}
    assert {"server1.nic0.p1", *fibers} <= set(cause.components)


def test_a_stuck_monitor_is_its_port_alone(lab):
    (cause,) = find_causes(Components(lab).failed(LOSSES, "ocs.19: stuck monitor"), {})
    assert cause.components == ("ocs.19",)
