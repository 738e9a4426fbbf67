"""Faults by light: as text, drawn by a seed, and as circuits of a plan."""

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.jobs.measure.light_faults import (
    Fault,
    FaultError,
    FaultKind,
    dark_plans,
    draw_faults,
    parse_fault,
)
from lightrig.testbeds import Link, load

MS = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cut:2s", FaultKind("cut", 2000 * MS)),
        ("cut:70 ms,one-way", FaultKind("cut", 70 * MS, single=True)),
        ("flap:1s,duty=0.3,number=4", FaultKind("flap", 1000 * MS, duty=0.3, number=4)),
        ("flap:400ms,duty=25%", FaultKind("flap", 400 * MS, duty=0.25, number=5)),
        ("swap:1.5s", FaultKind("swap", 1500 * MS)),
        ("dim:5s,loss=2%", FaultKind("dim", 5000 * MS, loss=0.02)),
        ("dim:30s,loss=0%", FaultKind("dim", 30_000 * MS, loss=0.0)),
        ("cut:2s,return=300ms", FaultKind("cut", 2000 * MS, slower=300 * MS)),
        ("restart:4s", FaultKind("restart", 4000 * MS)),
        ("plan:1.5s,to=crossed", FaultKind("plan", 1500 * MS, to="crossed")),
        ("flap:10s,number=3", FaultKind("flap", 10_000 * MS, duty=0.5, number=3)),
    ],
)
def test_faults_are_read_from_text(text: str, expected: FaultKind) -> None:
    assert parse_fault(text) == expected
    assert parse_fault(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bend:2s", "expected one of cut, flap, swap, dim, restart, plan"),
        ("cut", "found '', expected a duration"),
        ("cut:2s,loss=3%", "a cut has no setting 'loss'; known: one-way, return"),
        ("cut:29s,return=2s", "lasts longer than 30 s"),
        ("cut:2s,one-way,return=1s", "has no other that returns"),
        ("cut:2s,return=soon", "expected a duration"),
        ("plan:2s", "to=NAME is missing"),
        ("restart:2s,to=ring", "a restart has no setting 'to'; known: none"),
        ("swap:2s,one-way", "a swap has no setting 'one-way'; known: none"),
        ("cut:31s", "lasts longer than 30 s"),
        ("flap:10s,number=4", "lasts longer than 30 s"),
        ("cut:0s", "or no time"),
        ("flap:1s,duty=1", "shares between 0 and 1"),
        ("flap:1s,duty=0", "shares between 0 and 1"),
        ("dim:1s,loss=1", "shares between 0 and 1"),
        ("flap:1s,number=x", "invalid literal"),
        ("dim:1s,loss=120%", "from 0 to 100"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        parse_fault(text)


def test_one_seed_draws_the_same_faults() -> None:
    testbed = load("testbeds/namespaces.yaml")
    links = testbed.links("ring")
    kinds = [parse_fault("cut:2s,one-way"), parse_fault("swap:1s")]

    def lines(seed: int, given: list[Link]) -> list[str]:
        return [each.line() for each in draw_faults(kinds, given, 40, seed)]

    found = lines(7, list(links))
    assert found == lines(7, list(reversed(links)))
    assert found[0] == (
        '{"fault": "cut:2s,one-way", "link": "server1.nic0.p1 <-> server2.nic0.p0", '
        '"from": "server1.nic0.p1", "after_ns": 411969249}'
    )
    assert len(set(found)) == 40
    assert found != lines(8, list(links))
    drawn = draw_faults(kinds, links, 200, 1)
    assert {each.link for each in drawn} == set(links)
    assert {each.reverse for each in drawn if each.what.single} == {False, True}
    assert all(each.partner not in (None, each.link) for each in drawn if each.what.kind == "swap")
    with pytest.raises(FaultError, match="a swap needs two"):
        draw_faults(kinds, links[:1], 2, 1)


def test_circuits_of_each_fault() -> None:
    testbed = load("testbeds/opus.yaml")
    bench = bind(testbed, "simulated", 1)
    try:
        fabric = Fabric(bench)
        plan = testbed.plans["giant-ring"]
        first, second, *_ = sorted(fabric.links(plan))

        def links_of(fault: Fault) -> list[tuple[set[Link], set[Link], int]]:
            return [
                (
                    set(fabric.links(plan)) - set(testbed.links(dark)),
                    set(testbed.links(dark)) - set(fabric.links(plan)),
                    duration,
                )
                for dark, duration in dark_plans(fabric, plan, fault)
            ]

        assert links_of(Fault(FaultKind("cut", 70 * MS), first)) == [({first}, set(), 70 * MS)]
        one_way = Fault(FaultKind("cut", 70 * MS, single=True), first, reverse=True)
        assert one_way.ports(testbed, plan) == {first.a}
        ((dark, _),) = dark_plans(fabric, plan, one_way)
        (missing,) = [
            (name, circuit)
            for name in plan.circuits
            for circuit in plan.circuits[name] - dark.circuits[name]
        ]
        # The light from `first.b`, which alone `first.a` receives.
        assert missing[0] == testbed.cabling.egress_of(first.a)[0]
        assert missing[1].egress == testbed.cabling.egress_of(first.a)[1]
        assert missing[1].ingress == testbed.cabling.ingress_of(first.b)[1]
        assert links_of(Fault(FaultKind("swap", 5 * MS), first, second)) == [
            ({first, second}, {Link(first.a, second.b), Link(second.a, first.b)}, 5 * MS)
        ]
        flap = Fault(FaultKind("flap", 1000 * MS, duty=0.3, number=3), first)
        assert [(lost, time) for lost, _, time in links_of(flap)] == [
            ({first}, 300 * MS), (set(), 700 * MS), ({first}, 300 * MS), (set(), 700 * MS),
            ({first}, 300 * MS),
        ]  # fmt: skip
    finally:
        bench.close()


def test_circuits_of_a_slow_return_a_restart_and_another_plan() -> None:
    """In a ring of four over one switch, by hand from the testbed's file."""
    testbed = load("testbeds/namespaces.yaml")
    bench = bind(testbed, "simulated", 1)
    try:
        fabric, plan = Fabric(bench), testbed.plans["ring"]
        links = sorted(fabric.links(plan))

        def left(fault: Fault) -> list[tuple[int, int]]:
            """Return how many of the eight circuits are left, and for how many ms."""
            return [
                (len(dark.circuits["ocs"] & plan.circuits["ocs"]), duration // MS)
                for dark, duration in dark_plans(fabric, plan, fault)
            ]

        slow = Fault(parse_fault("cut:70ms,return=20ms"), links[1], reverse=True)
        assert slow.ports(testbed, plan) == {links[1].a, links[1].b}
        assert left(slow) == [(6, 70), (7, 20)]
        _, (last, _) = dark_plans(fabric, plan, slow)
        # The light from the second end, which the first one receives, comes back last.
        missing = {each.egress for each in plan.circuits["ocs"] - last.circuits["ocs"]}
        assert missing == {testbed.cabling.egress_of(links[1].a)[1]}  # type: ignore[index]
        restart = Fault(parse_fault("restart:30ms"), links[2])
        assert restart.ports(testbed, plan) == {each for link in links for each in (link.a, link.b)}
        assert left(restart) == [(0, 30)]
        # 0-1-2-3 and 0-2-1-3 have the link between 3 and 0 in common, and turn 1-2 round.
        other = Fault(parse_fault("plan:40ms,to=crossed"), links[0])
        assert left(other) == [(2, 40)]
        untouched = {str(port) for link in links for port in (link.a, link.b)} - {
            str(port) for port in other.ports(testbed, plan)
        }
        assert untouched == {"server3.nic0.p1", "server0.nic0.p0"}
        assert other.switched
        assert not restart.switched
    finally:
        bench.close()


def test_a_change_of_plans_is_drawn_among_the_links_that_go() -> None:
    testbed = load("testbeds/namespaces.yaml")
    links = {name: testbed.links(name) for name in testbed.plans}
    kinds = [parse_fault("plan:1s,to=crossed")]
    drawn = draw_faults(kinds, links["ring"], 60, 3, links)
    assert {str(each.link) for each in drawn} == {
        "server0.nic0.p1 <-> server1.nic0.p0",
        "server1.nic0.p1 <-> server2.nic0.p0",
        "server2.nic0.p1 <-> server3.nic0.p0",
    }
    with pytest.raises(FaultError, match="no plan 'other'; known: crossed, pairs, ring"):
        draw_faults([parse_fault("plan:1s,to=other")], links["ring"], 1, 3, links)
    with pytest.raises(FaultError, match="has all of these links"):
        draw_faults([parse_fault("plan:1s,to=ring")], links["ring"], 1, 3, links)
