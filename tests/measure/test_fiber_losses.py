"""Losses of the fibers between a switch's monitors and transceivers, against what was put in."""

import contextlib
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.components import Components, LabComponent
from lightrig.harness.measure.fiber_losses import measure_fiber_losses
from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import load

LAB = """
name: ward
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 6x6{monitors}}}
servers:
  server[0-2]:
    address: ssh://bench@{{name}}.invalid
    nics: {{nic0: {{netdev: e0, rate: 100G, transceiver: wdm}}}}
transceivers:
  wdm:
    wavelength: 1310 nm
    {lanes}
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}
    damage: 5.5 dBm
fibers:
  - {{fiber: server0.nic0 -> ocs.1, loss: 0.3 dB}}
  - {{fiber: server1.nic0 -> ocs.2, loss: 1.1 dB}}
  - {{fiber: server2.nic0 -> ocs.4, loss: 0.7 dB}}
  - {{fiber: ocs.7 -> server0.nic0, loss: 0.2 dB}}
  - {{fiber: ocs.8 -> server1.nic0, loss: 0.9 dB}}
  - {{fiber: ocs.10 -> server2.nic0, loss: 0.5 dB}}
plans:
  one: [server0.nic0 <-> server1.nic0]
  two: [server0.nic0 <-> server2.nic0]
simulation:
  connectors: {{mean: 0 dB, sd: 0 dB}}
  faults: [{faults}]
"""
BOTH = ", options: {monitors: both}"
FOUR = "wavelengths: 4"
STATED = {
    "server0.nic0 -> ocs.1": 0.3,
    "server1.nic0 -> ocs.2": 1.1,
    "server2.nic0 -> ocs.4": 0.7,
    "ocs.7 -> server0.nic0": 0.2,
    "ocs.8 -> server1.nic0": 0.9,
    "ocs.10 -> server2.nic0": 0.5,
}
MODULES_DB = 0.4
"""Greatest difference between simulated modules; real ones may differ by 3 dB (SFF-8636)."""


def measured(
    folder: Path, faults: str = "", monitors: str = BOTH, lanes: str = FOUR
) -> dict[str, Row]:
    path = folder / "lab.yaml"
    path.write_text(LAB.format(faults=faults, monitors=monitors, lanes=lanes), encoding="utf-8")
    rows: list[Row] = []
    with contextlib.closing(bind(load(path), "simulated", 4)) as bench:
        measure_fiber_losses(Fabric(bench), Recording(rows.extend))
    assert len({row.subject for row in rows}) == len(rows)
    return {row.subject: row for row in rows}


def test_each_fiber_of_any_plan_has_its_own_loss(tmp_path: Path) -> None:
    found = measured(tmp_path)
    assert {name: row.value for name, row in found.items()} == pytest.approx(STATED, abs=MODULES_DB)
    for row in found.values():
        assert (row.quantity, row.unit) == ("fiber_loss", "dB")
        assert row.lower < row.value < row.upper


@pytest.mark.parametrize(("at", "loss"), [("ocs.10", 1.8), ("server1.nic0", 0.6), ("ocs.7", 3.1)])
def test_a_dirty_fiber_loses_more_and_no_other(tmp_path: Path, at: str, loss: float) -> None:
    clean = measured(tmp_path)
    dirty = measured(tmp_path, f"{{fault: dirty connector, at: [{at}], loss: {loss} dB}}")
    more = {name: dirty[name].value - clean[name].value for name in clean}
    planted = {name: loss if name.startswith(f"{at} ->") else 0.0 for name in clean}
    assert more == pytest.approx(planted, abs=0.1)


def test_without_monitors_at_ingress_the_fibers_to_nics_are_left(tmp_path: Path) -> None:
    assert {*measured(tmp_path, monitors="")} == {n for n in STATED if n.startswith("ocs")}


def test_without_the_number_of_lanes_the_losses_are_relative(tmp_path: Path) -> None:
    for row in measured(tmp_path, lanes="").values():
        assert row.quantity == "fiber_loss.relative"


def test_a_fiber_without_light_has_no_loss(tmp_path: Path) -> None:
    """Only the fiber of a dark laser has none: another plan lights where that would lead."""
    found = measured(tmp_path, "{fault: dark laser, at: [server2.nic0]}")
    assert {*STATED} - {*found} == {"server2.nic0 -> ocs.4"}


def test_a_switch_without_monitors_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    text = LAB.format(faults="", monitors="", lanes=FOUR)
    path.write_text(
        text.replace("model: polatis, address: tl1", "model: osw-ascii, address: serial")
    )
    with (
        contextlib.closing(bind(load(path), "simulated", 4)) as bench,
        pytest.raises(NothingToMeasureError, match="no fiber of testbed ward"),
    ):
        measure_fiber_losses(Fabric(bench), Recording(lambda rows: None))


def test_only_a_fiber_and_its_ends_explain_its_loss(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB.format(faults="", monitors=BOTH, lanes=FOUR), encoding="utf-8")
    found = Components(load(path)).of("ocs.10 -> server2.nic0", "fiber_loss")
    assert found == {
        LabComponent("fiber", "ocs.10 -> server2.nic0"),
        LabComponent("connector", "ocs.10"),
        LabComponent("port", "server2.nic0"),
    }
