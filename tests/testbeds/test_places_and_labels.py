"""Places of devices, labels of cables and the patch panels that they cross."""

from pathlib import Path

import pytest

from lightrig import testbeds
from lightrig.harness.components import Components, LabComponent
from lightrig.harness.findings import Finding
from lightrig.testbeds import TestbedError

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 8x8, place: "rack 7, U12"}
servers:
  server[0-1]:
    address: "ssh://bench@{name}.invalid"
    place: "rack 3, U1{n}"
    nics:
      nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: optics}
  server2:
    address: "ssh://bench@{name}.invalid"
    nics:
      nic0: {netdev: "ens1f0", rate: 100G, transceiver: optics}
transceivers:
  optics: {pmd: 100GBASE-LR4}
fibers:
  - fiber: "server[0-1].nic0.p[0-1] <-> ocs"
    label: "F-[0117-0120]"
    via: ["panel A3 port [12-15]", "panel B1 port [7-10]"]
  - {fiber: "ocs.16 -> server2.nic0", label: L9, loss: 0.4 dB}
  - server2.nic0 -> ocs.8
"""


def loaded(folder: Path, text: str) -> testbeds.Testbed:
    file = folder / "lab.yaml"
    file.write_text(text)
    return testbeds.load(file)


def test_both_fibers_of_a_pair_have_its_label_and_cross_its_panels_in_turn(tmp_path: Path) -> None:
    fibers = {str(one): one for one in loaded(tmp_path, LAB).fibers}
    there, back = fibers["server0.nic0.p1 -> ocs.2"], fibers["ocs.10 -> server0.nic0.p1"]
    assert there.label == back.label == "F-0118"
    assert there.via == ("panel A3 port 13", "panel B1 port 8")
    assert back.via == ("panel B1 port 8", "panel A3 port 13")
    single = fibers["ocs.16 -> server2.nic0"]
    assert (single.label, single.via, single.loss_db) == ("L9", (), 0.4)
    assert fibers["server2.nic0 -> ocs.8"].label == ""


def test_another_label_is_no_other_cabling(tmp_path: Path) -> None:
    first = loaded(tmp_path, LAB).fibers
    assert loaded(tmp_path, LAB.replace("F-[0117-0120]", "G-[1-4]")).fibers == first


@pytest.mark.parametrize(
    ("component", "where"),
    [
        (
            LabComponent("fiber", "server1.nic0.p0 -> ocs.3"),
            "F-0119, panel A3 port 14, panel B1 port 9 to ocs.3, rack 7, U12",
        ),
        (LabComponent("fiber", "ocs.16 -> server2.nic0"), "L9 to server2.nic0"),
        (LabComponent("fiber", "server2.nic0 -> ocs.8"), "rack 7, U12"),
        (LabComponent("connector", "ocs.16"), "rack 7, U12"),
        (LabComponent("port", "server1.nic0.p1"), "rack 3, U11"),
        (LabComponent("server", "server2"), ""),
        (LabComponent("other", "elsewhere"), ""),
    ],
    ids=str,
)
def test_a_component_is_found_at_a_place(
    tmp_path: Path, component: LabComponent, where: str
) -> None:
    assert Components(loaded(tmp_path, LAB)).where(component) == where


def test_a_finding_says_where_to_go(tmp_path: Path) -> None:
    components = Components(loaded(tmp_path, LAB))
    found = Finding("weak laser", "it is weak", ("server1.nic0.p1",), next_step="replace it")
    lines = found.located(components).lines()
    assert "  at        server1.nic0.p1: rack 3, U11" in lines
    assert Finding.of_document(found.located(components).document()).where


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('label: "F-[0117-0119]"', "found 3 of 'F-[0117-0119]' for 4 fibers or pairs"),
        ('label: "F-[0117-"', "[0117-"),
    ],
)
def test_labels_that_do_not_fit_are_located(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TestbedError) as error:
        loaded(tmp_path, LAB.replace('label: "F-[0117-0120]"', text))
    assert problem in str(error.value)
    assert f"{tmp_path / 'lab.yaml'}:19:" in str(error.value)
