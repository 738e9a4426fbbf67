"""A link that does not come up: the others go on, and nothing waits for it again."""

import datetime
from types import SimpleNamespace

import pytest

from lightrig.harness.bench import Fabric
from lightrig.harness.bench.coverage import Share
from lightrig.harness.bench.fabric import OutOfServiceError
from lightrig.harness.jobs.measure.concurrent_load import measure_concurrent_load
from lightrig.harness.measure.bring_up import LOOK, bring_up
from lightrig.harness.measure.links import LINK_TIMEOUT, LinkObservation, LinksDownError
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.soak import Soak
from lightrig.instruments.jobs.core.loads import FlowRate
from lightrig.testbeds import Port, load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import Exceptions
from lightrig.testbeds.out_of_service import without

LAB = """
name: three
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 8x8}
servers:
  server[0-2]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}
transceivers: {lr4: {pmd: 100GBASE-LR4}}
fibers:
  - server[0-2].nic0.p[0-1] <-> ocs
plans:
  first:
    - server0.nic0.p0 <-> server1.nic0.p0
    - server0.nic0.p1 <-> server2.nic0.p1
    - server1.nic0.p1 <-> server2.nic0.p0
  second:
    - server0.nic0.p0 <-> server2.nic0.p1
    - server0.nic0.p1 <-> server1.nic0.p0
    - server1.nic0.p1 <-> server2.nic0.p0
  third:
    - server1.nic0.p1 <-> server2.nic0.p0
simulation:
  nic: {bring_up: {mean: 300 ms, sd: 1 ms}}
"""
DEAD = LAB + "  faults: [{fault: dark laser, at: [server1.nic0.p0]}]\n"
DEAD_PORT = Port("server1", "nic0.p0")


@pytest.fixture
def opened(simulated):
    def opened(text):
        bench = simulated(text)
        return bench, Fabric(bench), LinkObservation(bench)

    return opened


def took(bench, action):
    began = bench.clock.now()
    action()
    return bench.clock.now() - began


def partners(links):
    return {str(end) for link in links for end in (link.a, link.b)}


def test_the_test_that_first_waits_goes_on_and_names_the_port(opened):
    bench, fabric, links = opened(DEAD)
    plan, coverage = fabric.plans["first"], bench.coverage
    up = bring_up(fabric, links, plan, partly=True)
    assert partners(up).isdisjoint({"server0.nic0.p0", "server1.nic0.p0"})
    assert len(up) == 2
    # By the second plan, in which server0.nic0.p0 has a link that works.
    (sentence,) = coverage.sentences
    assert "; by its other links it is server1.nic0.p0\n" in f"{sentence}\n"
    assert {f.kind for f in coverage.failures} >= {"link down"}
    assert bench.switches["ocs"].circuits() == frozenset(
        c for c in plan.circuits["ocs"] if 3 not in c and 11 not in c
    )
    assert str(coverage.share()) == ("4 of 6 ports; out: link server0.nic0.p0 <-> server1.nic0.p0")


def test_a_soak_goes_on_with_the_links_that_there_are(opened):
    bench, fabric, links = opened(DEAD)
    rows = []
    measure = Recording(rows.extend)
    Soak(fabric, links, measure, PortCounters(bench), 60 * 10**9).run()
    (sentence,) = bench.coverage.sentences  # for which the test fails at its end
    assert "server1.nic0.p0" in sentence
    watched = [row for row in rows if row.quantity == "soak.watched"]
    assert {row.conditions["links"] for row in watched} == {2}


def test_links_at_once_are_those_that_there_are(opened):
    bench, fabric, links = opened(DEAD)
    rows = []
    measure = Recording(rows.extend)
    measure.coverage = bench.coverage
    plan = fabric.plans["first"]
    bring_up(fabric, links, plan, partly=True)
    load = SimpleNamespace(rates=lambda flows: [FlowRate(1e9, 0.0) for _ in flows])
    measure_concurrent_load(fabric, links, measure, load, plan, "datagrams")
    assert len({row.subject for row in rows}) == 4
    assert not any("server1.nic0.p0" in row.subject for row in rows)
    assert {row.conditions["ports"] for row in rows} == {
        "4 of 6 ports, without server0.nic0.p0, server1.nic0.p0"
    }


def test_later_tests_look_once_and_leave_its_links_out(opened):
    bench, fabric, links = opened(DEAD)
    bring_up(fabric, links, fabric.plans["first"], partly=True)
    bench.coverage.begin()
    spent = took(bench, lambda: bring_up(fabric, links, fabric.plans["second"], partly=True))
    # The other links come up 300 ms after their light; this one is given as long again.
    assert 600_000_000 <= spent < 1_000_000_000
    assert [str(one) for one in bench.coverage.left_out] == ["server0.nic0.p1 <-> server1.nic0.p0"]
    assert not bench.coverage.failures
    # Only once a test.
    again = took(bench, lambda: bring_up(fabric, links, fabric.plans["first"], partly=True))
    assert again < spent
    # Nor where its circuits have been there while others came up.
    bench.coverage.begin()
    fabric.apply(fabric.plans["first"])
    again = took(bench, lambda: bring_up(fabric, links, fabric.plans["first"], partly=True))
    assert again < 300_000_000
    # A plan without the port is whole.
    bench.coverage.begin()
    assert len(bring_up(fabric, links, fabric.plans["third"], partly=True)) == 1
    assert bench.coverage.share() is None
    assert not bench.coverage.left_out


def test_where_none_has_come_up_yet_the_look_is_the_longest(opened):
    bench, fabric, links = opened(DEAD)
    plan = fabric.plans["first"]
    fabric.apply(plan)
    bench.clock.sleep(LINK_TIMEOUT)
    bench.coverage.note_down([one for one in fabric.links(plan) if DEAD_PORT in (one.a, one.b)])
    bench.coverage.is_partial = True
    fabric.apply(plan)
    bench.coverage.begin()

    def failing():
        with pytest.raises(LinksDownError, match=r"server1\.nic0\.p0"):
            bring_up(fabric, links, plan)

    assert LOOK <= took(bench, failing) < 2 * LOOK


def test_a_test_that_does_not_ask_for_parts_fails_at_once(opened):
    bench, fabric, links = opened(DEAD)
    plan = fabric.plans["first"]
    with pytest.raises(LinksDownError, match=r"server1\.nic0\.p0"):
        bring_up(fabric, links, plan)
    bench.coverage.begin()

    def failing(waited="are down still"):
        with pytest.raises(LinksDownError, match=rf"{waited}.*server1\.nic0\.p0"):
            bring_up(fabric, links, plan)

    assert took(bench, failing) < 2 * LOOK
    bench.coverage.forget()
    assert took(bench, lambda: failing("within 60 s")) >= LINK_TIMEOUT


def test_a_link_that_is_back_is_measured_again(opened):
    bench, fabric, links = opened(LAB)
    plan = fabric.plans["first"]
    bench.coverage.note_down([min(fabric.links(plan))])
    bench.coverage.begin()
    assert len(bring_up(fabric, links, plan, partly=True)) == 3
    assert not bench.coverage.left_out
    assert bench.coverage.share() is None


def test_where_nothing_tells_the_end_the_link_alone_is_left_out(opened):
    """The other plan has none of its ends: either may be why."""
    bench, fabric, _ = opened(LAB)
    coverage = bench.coverage
    (down,) = (one for one in fabric.links(fabric.plans["first"]) if one.a.name == "nic0.p0")
    coverage.note_down([down])
    second = fabric.links(fabric.plans["second"])
    assert coverage.down(second) == frozenset()
    assert coverage.suspected(second) == {
        one for one in second if {down.a, down.b} & {one.a, one.b}
    }
    coverage.note_up(one for one in second if down.a in (one.a, one.b))
    assert coverage.down(second) == {one for one in second if down.b in (one.a, one.b)}


def test_no_circuit_with_a_port_on_the_list_is_made_and_none_is_waited_for(simulated, tmp_path):
    path = tmp_path / "testbed.yaml"
    path.write_text(DEAD, encoding="utf-8")
    stated = load(path)
    entry = Entry(str(DEAD_PORT), "LAB-123", datetime.date(2026, 12, 12))
    bench = simulated(DEAD)
    bench.testbed = without(stated, Exceptions(path, {entry.what: entry}, {}))
    bench.__post_init__()
    fabric, links = Fabric(bench), LinkObservation(bench)
    assert took(bench, lambda: bring_up(fabric, links, fabric.plans["first"])) < LOOK
    assert str(bench.coverage.share()) == "4 of 6 ports; out: server1.nic0.p0"
    with pytest.raises(OutOfServiceError, match=r"LAB-123"):
        fabric.apply(stated.plans["first"])
    made = bench.switches["ocs"].circuits()
    assert not any(3 in circuit or 11 in circuit for circuit in made)


def test_a_port_of_two_links_that_is_back_is_not_why_they_were_down(opened):
    bench, fabric, _ = opened(LAB)
    coverage = bench.coverage
    of_port = [
        one
        for name in ("first", "second")
        for one in fabric.links(fabric.plans[name])
        if DEAD_PORT in (one.a, one.b)
    ]
    coverage.note_down(of_port)
    assert coverage.dead_of(of_port) == {DEAD_PORT}
    coverage.note_up(of_port[:1])
    assert coverage.dead_of(of_port[1:]) == {
        end for end in (of_port[1].a, of_port[1].b) if end != DEAD_PORT
    }


def test_sets_of_many_ports_are_different_conditions():
    def share(*numbers):
        missing = tuple(Port(f"server{number:02}", "nic0") for number in numbers)
        return Share("ring", 30, 40, missing, "LAB-123").condition

    many = range(10)
    assert share(*many, 11) != share(*many, 12)
    assert share(*many, 11) == share(*many, 11)
    assert share(3, 5) == "30 of 40 ports, without server03.nic0, server05.nic0"
