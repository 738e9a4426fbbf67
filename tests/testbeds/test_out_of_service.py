"""What ports take with them when they are out of service, and what is left of plans."""

import datetime

import pytest

from lightrig.testbeds import load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import Exceptions
from lightrig.testbeds.out_of_service import plan_sentences, without

THREE = """\
name: three
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 12x20}
servers:
  server[0-2]:
    address: ssh://bench@{name}.invalid
    nics:
      nic0: {ports: 2, netdev: "ens{n}f{p}np{p}", rate: 100G, transceiver: lr4}
transceivers: {lr4: {pmd: 100GBASE-LR4}}
fibers:
  - fiber: server[0-2].nic0.p[0-1] <-> ocs
    label: F-[0117-0122]
plans:
  pairs:
    - server0.nic0.p0 <-> server1.nic0.p1
    - server0.nic0.p1 <-> server2.nic0.p0
    - server1.nic0.p0 <-> server2.nic0.p1
  one: [server0.nic0.p0 <-> server0.nic0.p1]
  half: {circuits: {ocs: ["1>15", "6>13", "3>16"]}}
"""

SERIES = """\
name: series
switches:
  a: {model: polatis, address: tl1://a.invalid, size: 6x6}
  b: {model: polatis, address: tl1://b.invalid, size: 6x6}
servers:
  server[0-3]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: ens1, rate: 100G, transceiver: lr4}}
transceivers: {lr4: {pmd: 100GBASE-LR4}}
fibers:
  - server[0-1].nic0 -> a.[1-2]
  - a.[7-8] -> server[0-1].nic0
  - server[2-3].nic0 -> b.[1-2]
  - b.[7-8] -> server[2-3].nic0
  - a.[9-10] -> b.[3-4]
  - b.[9-10] -> a.[3-4]
plans:
  through:
    circuits:
      a: ["1>9", "2>10", "3>7", "4>8"]
      b: ["3>7", "4>8", "1>9", "2>10"]
"""


@pytest.fixture
def left(tmp_path):
    def left(text, *names):
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        until = datetime.date(2026, 12, 12)
        entries = {name: Entry(name, "LAB-123", until) for name in names}
        return without(load(path), Exceptions(path, entries, {}))

    return left


def links(testbed, plan):
    return " ".join(f"{link.a}={link.b}" for link in testbed.links(plan)).replace(".nic0.", ".")


# Ingress ports 1 to 6, egress ports 13 to 18, port by port of server0, server1, server2.
@pytest.mark.parametrize(
    ("out", "pairs", "circuits"),
    [
        (
            "server2.nic0.p0",
            "server0.p0=server1.p1 server1.p0=server2.p1",
            {"1>15", "6>13", "3>16"},
        ),
        ("ocs.2", "server0.p0=server1.p1 server1.p0=server2.p1", {"1>15", "6>13", "3>16"}),
        ("ocs.14", "server0.p0=server1.p1 server1.p0=server2.p1", {"1>15", "6>13", "3>16"}),
        ("F-0122", "server0.p0=server1.p1 server0.p1=server2.p0", {"1>15", "3>16"}),
        ("server1", "server0.p1=server2.p0", {"6>13"}),
    ],
)
def test_a_port_takes_its_links_along(left, out, pairs, circuits):
    testbed = left(THREE, out)
    assert links(testbed, "pairs") == pairs
    # A circuit of one direction stands unless one of its own ports is out.
    assert set(map(str, testbed.plans["half"].circuits["ocs"])) == circuits
    # The cabling, and so what may be unmade and restored, stays.
    assert len(testbed.cabling.fibers) == 12


def test_how_many_ports_are_left_is_stated_for_each_plan(left):
    assert plan_sentences(left(THREE, "server0.nic0.p1", "ocs.18")) == [
        "plan pairs: 2 of 6 ports; out: server0.nic0.p1, ocs.18",
        "plan one: 0 of 2 ports; out: server0.nic0.p1, ocs.18",
    ]
    assert plan_sentences(left(THREE)) == []


def test_a_link_through_two_switches_is_left_out_on_both(left):
    testbed = left(SERIES, "a.10")
    # server1 - a 2>10 - b 4>8 - server3, and back by b 2>10 - a 4>8.
    assert links(testbed, "through") == "server0.nic0=server2.nic0"
    found = {name: set(map(str, of)) for name, of in testbed.plans["through"].circuits.items()}
    assert found == {"a": {"1>9", "3>7"}, "b": {"3>7", "1>9"}}
    assert {str(port) for port in testbed.out.ports} == {"a.10", "b.4"}
