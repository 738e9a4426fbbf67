import pytest

from lightrig.testbeds import (
    Cabling,
    CablingError,
    Circuit,
    Fiber,
    Link,
    NoLightPathError,
    Plan,
    Port,
    load,
)


def port(text):
    owner, _, name = text.partition(".")
    return Port(owner, name)


def cabling(*lines, switches=("ocs",)):
    ends = [line.split(" -> ") for line in lines]
    return Cabling(tuple(Fiber(port(a), port(b), 0.25) for a, b in ends), frozenset(switches))


A, B = port("a.nic0"), port("b.nic0.p1")
PAIR = cabling("a.nic0 -> ocs.1", "b.nic0.p1 -> ocs.2", "ocs.9 -> a.nic0", "ocs.10 -> b.nic0.p1")


def test_ports_are_written_as_in_a_file():
    assert str(B) == "b.nic0.p1"
    assert str(port("ocs.34")) == "ocs.34"
    assert port("a.nic0") < port("b.nic0")


def test_both_ends_of_a_fiber():
    assert PAIR.ingress_of(A) == ("ocs", 1)
    assert PAIR.egress_of(A) == ("ocs", 9)
    assert PAIR.transmitter("ocs", 2) == B
    assert PAIR.receiver("ocs", 10) == B
    assert PAIR.ingress_of(port("c.nic0")) is None
    assert PAIR.egress_of(port("c.nic0")) is None
    assert PAIR.transmitter("ocs", 3) is None
    assert PAIR.receiver("ocs", 11) is None
    assert PAIR.cabled_ports("ocs") == ({1, 2}, {9, 10})
    assert PAIR.cabled_ports("other") == (set(), set())


def test_a_circuit_is_valid_only_where_the_light_goes():
    assert PAIR.light_path("ocs", Circuit(1, 10)) == (A, B)
    with pytest.raises(NoLightPathError, match=r"no fiber ends at ocs\.3"):
        PAIR.light_path("ocs", Circuit(3, 10))
    with pytest.raises(NoLightPathError, match=r"no fiber starts at ocs\.11"):
        PAIR.light_path("ocs", Circuit(1, 11))


def test_a_link_takes_two_circuits():
    plan = PAIR.circuits_for_link(A, B)
    assert plan.circuits == {"ocs": {Circuit(1, 10), Circuit(2, 9)}}
    assert PAIR.links(plan) == {Link(A, B)}
    assert PAIR.links(Plan("half", {"ocs": frozenset({Circuit(1, 10)})})) == frozenset()
    assert PAIR.links(Plan("loops", {"ocs": frozenset({Circuit(1, 9)})})) == frozenset()


def test_ports_that_hear_each_other_in_a_cycle_of_three_are_no_links():
    names = ("a.nic0", "b.nic0", "c.nic0")
    ring = cabling(
        *(f"{name} -> ocs.{n}" for n, name in enumerate(names, 1)),
        *(f"ocs.{n} -> {name}" for n, name in enumerate(names, 9)),
    )
    one_way = Plan("cycle", {"ocs": frozenset({Circuit(1, 10), Circuit(2, 11), Circuit(3, 9)})})
    assert ring.links(one_way) == frozenset()
    chain = Plan("chain", {"ocs": frozenset({Circuit(1, 10), Circuit(2, 11)})})
    assert ring.links(chain) == frozenset()


def test_ends_must_meet_at_one_switch():
    lines = ("a.nic0 -> ocs.1", "ocs.9 -> a.nic0", "b.nic0 -> two.1", "two.9 -> b.nic0")
    two = cabling(*lines, "c.nic0 -> ocs.2", switches=("ocs", "two"))
    with pytest.raises(NoLightPathError, match="does not meet one switch"):
        two.circuits_for_link(A, port("b.nic0"))
    with pytest.raises(NoLightPathError, match="no receive fiber"):
        two.circuits_for_link(A, port("c.nic0"))


def test_links_through_two_switches():
    lines = ("a.nic0 -> ocs.1", "ocs.9 -> a.nic0", "b.nic0 -> two.1", "two.9 -> b.nic0")
    both = cabling(*lines, "ocs.10 -> two.2", "two.10 -> ocs.2", switches=("ocs", "two"))
    circuits = frozenset({Circuit(1, 10), Circuit(2, 9)})
    assert both.links(Plan("far", {"ocs": circuits, "two": circuits})) == {Link(A, port("b.nic0"))}


def test_a_cable_without_a_switch_is_in_no_plan():
    direct = cabling("a.nic0 -> b.nic0", "b.nic0 -> a.nic0")
    assert direct.links(Plan("none")) == frozenset()


def test_no_port_has_two_fibers_in_one_direction():
    with pytest.raises(CablingError, match=r"a\.nic0 is the source of two fibers"):
        cabling("a.nic0 -> ocs.1", "a.nic0 -> ocs.2")
    with pytest.raises(CablingError, match=r"ocs\.1 is the sink of two fibers"):
        cabling("a.nic0 -> ocs.1", "b.nic0 -> ocs.1")


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("written", ["nic0", "nic0.p0"])
def test_the_first_port_of_a_nic_has_two_names(tmp_path, ports, written):
    """A file of fibers and plans stays right when the NIC gets a second port."""
    (tmp_path / "lab.yaml").write_text(
        f"""\
name: lab
switches: {{ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4}}}}
servers:
  server[0-1]:
    address: ssh://{{name}}.invalid
    nics: {{nic0: {{ports: {ports}, netdev: "ens{{p}}", rate: 100G, transceiver: lr4}}}}
transceivers: {{lr4: {{pmd: 100GBASE-LR4}}}}
fibers: ["server[0-1].{written} <-> ocs"]
plans: {{one: ["server0.{written} <-> server1.nic0"]}}
"""
    )
    testbed = load(tmp_path / "lab.yaml")
    first = "nic0" if ports == 1 else "nic0.p0"
    assert list(map(str, testbed.links("one"))) == [f"server0.{first} <-> server1.{first}"]
