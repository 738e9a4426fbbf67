"""What a night reads of its NIC ports as it ends, once links are up."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.record.run_folder import load_findings, load_ports, store_ports
from lightrig.harness.recorded_test import closing_notes, opening_notes
from lightrig.testbeds import load
from tests.campaigns.planted_worlds import Plant, Rewrite, planted

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 8x8}
servers:
  server[0-1]:
    address: "ssh://bench@{name}.invalid"
    nics: {nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: optics}}
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  one: ["server[0].nic0.p[0-1] <-> server[1].nic0.p[0-1]"]
  part: [server0.nic0.p1 <-> server1.nic0.p1]
"""
OF_P1 = Rewrite(
    "server1", "ethtool", r'(config": \["Auto", "|active": \[")RS', r"\1BaseR", "ens1f1"
)
"""Names of encodings in JSON as ethtool's netlink/fec.c prints them."""
OTHER = (
    "server0.nic0.p1 - server1.nic0.p1: FEC is RS at server0.nic0.p1 and BaseR at server1.nic0.p1"
)


@contextlib.contextmanager
def opened(folder: Path, *rewrites: Rewrite) -> Iterator[Bench]:
    path = folder / "lab.yaml"
    path.write_text(LAB, encoding="utf-8")
    with planted(Plant(rewrites)), contextlib.closing(bind(load(path), "simulated", 5)) as bench:
        assert not [each for each in opening_notes(bench, folder, by_reading=True) if "FEC" in each]
        assert encodings(folder) == {}
        yield bench


def encodings(folder: Path) -> dict[str, str]:
    """The FEC of each port that a run has stored."""
    ports = load_ports(folder, "lab")["ports"]
    return {name: stored["fec"] for name, stored in ports.items() if stored["fec"] is not None}


def bring_up(bench: Bench, plan: str) -> None:
    Fabric(bench).apply(bench.testbed.plans[plan])
    bench.clock.sleep(20_000_000_000)


@pytest.mark.parametrize("plan", ["one", "part"])
def test_fec_of_links_that_are_up_is_compared(tmp_path: Path, plan: str) -> None:
    with opened(tmp_path, OF_P1) as bench:
        before = load_findings(tmp_path, "lab") or []
        bring_up(bench, plan)
        assert closing_notes(bench, tmp_path) == [OTHER]
        *kept, last = load_findings(tmp_path, "lab") or []
        assert kept == before
        assert last["evidence"] == OTHER
        assert {one["name"] for one in last["components"]} == {"server0.nic0.p1", "server1.nic0.p1"}
        assert closing_notes(bench, tmp_path) == []


def test_fec_that_is_alike_is_stored_and_no_finding(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bring_up(bench, "part")
        before = load_findings(tmp_path, "lab")
        assert closing_notes(bench, tmp_path) == []
        assert encodings(tmp_path) == {"server0.nic0.p1": "RS", "server1.nic0.p1": "RS"}
        assert load_findings(tmp_path, "lab") == before


def test_links_that_are_down_tell_nothing_more(tmp_path: Path) -> None:
    with opened(tmp_path, OF_P1) as bench:
        assert closing_notes(bench, tmp_path) == []
        assert encodings(tmp_path) == {}


def test_whatever_else_is_stored_of_a_port_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        document = {**load_ports(tmp_path, "lab")}
        for one in document["ports"].values():
            one |= {"pci": "16 GT/s x8", "of a later version": [1, 2]}
        store_ports(tmp_path, "lab", document)
        bring_up(bench, "part")
        assert closing_notes(bench, tmp_path) == []
        after = load_ports(tmp_path, "lab")["ports"]
        assert after.pop("server0.nic0.p1")["fec"] == after.pop("server1.nic0.p1")["fec"] == "RS"
        assert after == {name: document["ports"][name] for name in after}
