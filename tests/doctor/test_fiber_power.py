"""Light of several wavelengths in one fiber: what doctor compares a switch's monitor with."""

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import bind
from lightrig.harness.doctor import Findings, examine
from lightrig.harness.measure.fiber_light import power_in_fiber
from lightrig.testbeds import load

LAB = """
name: ward
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4, loss: {{max: 3 dB}},
        options: {{monitors: both}}}}
servers:
  server[0-1]:
    address: ssh://bench@{{name}}.invalid
    nics:
      nic0: {{netdev: e0, rate: {rate}, transceiver: wdm}}
transceivers:
  wdm:
    wavelength: 1310 nm
    {wavelengths}
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}
    damage: 5.5 dBm
fibers:
  - server[0-1].nic0 <-> ocs
plans:
  one: [server0.nic0 <-> server1.nic0]
simulation:
  connectors: {{mean: 0 dB, sd: 0 dB}}
  nic: {{bring_up: {{mean: 1 s, sd: 0.1 s}}}}
  faults: [{faults}]
"""
FOUR = "wavelengths: 4"
_SCATTER_DB = 1.0
"""Monitors and modules scatter less, and fibers here lose nothing; four wavelengths are 6 dB."""


def lab(folder: Path, wavelengths: str = FOUR, faults: str = "", rate: str = "100G") -> Path:
    path = folder / "lab.yaml"
    path.write_text(LAB.format(wavelengths=wavelengths, faults=faults, rate=rate))
    return path


def examined(path: Path) -> Findings:
    return examine(load(path), simulated=True, seed=1)


def dirty(at: str, loss: float) -> str:
    return f"{{fault: dirty connector, at: [{at}], loss: {loss} dB}}"


def lanes_and_fiber(path: Path) -> tuple[list[float], float]:
    """Power that a transmitter's lanes report, and the reading of the switch's monitor, in dBm."""
    with contextlib.closing(bind(load(path), "simulated", 1)) as bench:
        ocs: Any = bench.switches["ocs"]
        server: Any = bench.servers["server0"]
        lanes = server.nic.module("e0").value.lanes
        return [lane.tx_power_dbm for lane in lanes], ocs.power([1]).dbm[1]


@pytest.mark.parametrize("rate", ["100G", "400G"])
def test_a_simulated_monitor_reads_the_sum_of_the_wavelengths(tmp_path: Path, rate: str) -> None:
    """IEEE 802.3 clause 88: 4.5 dBm a lane of LR4, 10.5 dBm in its fiber, 6 dB more."""
    lanes, four = lanes_and_fiber(lab(tmp_path, FOUR, rate=rate))
    for other in ("wavelengths: 1", ""):
        alone, one = lanes_and_fiber(lab(tmp_path, other, rate=rate))
        assert lanes == pytest.approx(alone, abs=0.01)
        assert four - one == pytest.approx(10 * math.log10(4), abs=0.3)
        mean = sum(10 ** (lane / 10) for lane in alone) / len(alone)
        assert one == pytest.approx(10 * math.log10(mean), abs=_SCATTER_DB)


@pytest.mark.parametrize("rate", ["25G", "100G", "400G"])
def test_clean_fibers_of_four_wavelengths_are_clean(tmp_path: Path, rate: str) -> None:
    findings = examined(lab(tmp_path, rate=rate))
    assert findings.problems == []
    light = [f.text for f in findings.found if f.check == "light" and f.subject.startswith("serv")]
    assert len(light) == 2
    for text in light:
        lost = float(text.partition(", ")[2].partition(" dB")[0])
        assert abs(lost) <= _SCATTER_DB


@pytest.mark.parametrize(
    ("fault", "subject"),
    [(dirty("server0.nic0", 2.5), "server0.nic0"), (dirty("ocs.5", 2.5), "server")],
)
def test_what_a_dirty_connector_takes_of_four_wavelengths_is_found(
    tmp_path: Path, fault: str, subject: str
) -> None:
    """2.5 dB are more than the 1.5 dB that clean connectors lose; a sum is 6 dB above a lane."""
    (problem,) = examined(lab(tmp_path, faults=fault)).problems
    assert problem.subject.startswith(subject)
    assert "dirty" in problem.text


@pytest.mark.parametrize("at", ["server0.nic0", "ocs.5"])
def test_without_the_number_of_wavelengths_no_loss_is_judged(tmp_path: Path, at: str) -> None:
    findings = examined(lab(tmp_path, wavelengths="", faults=dirty(at, 5)))
    assert findings.problems == []
    assert not any("less than it sends" in finding.text for finding in findings.found)
    (note,) = [finding for finding in findings.found if finding.subject == "transceiver wdm"]
    assert (note.grade, note.check) == ("note", "light")
    assert "`wavelengths:`" in note.fix


def test_one_lane_needs_no_number_of_wavelengths(tmp_path: Path) -> None:
    path = lab(tmp_path, wavelengths="", faults=dirty("server0.nic0", 2.5), rate="25G")
    (problem,) = examined(path).problems
    assert "dirty" in problem.text


LIT = (0.0, -1.0, 1.0, 0.5)


@pytest.mark.parametrize(
    ("levels", "wavelengths", "milliwatt"),
    [
        (LIT, 4, 1.0 + 10**-0.1 + 10**0.1 + 10**0.05),
        (LIT[:3], 4, 1.0 + 10**-0.1 + 10**0.1),  # a fourth laser is off
        (LIT, 1, (1.0 + 10**-0.1 + 10**0.1 + 10**0.05) / 4),
        (LIT * 2, 4, 1.0 + 10**-0.1 + 10**0.1 + 10**0.05),  # 2xFR4: two fibers
        (LIT[:1], None, 1.0),
        ((-math.inf, 0.0), 2, 1.0),
    ],
)
def test_power_in_one_fiber(
    levels: tuple[float, ...], wavelengths: int | None, milliwatt: float
) -> None:
    assert power_in_fiber(levels, wavelengths) == pytest.approx(10 * math.log10(milliwatt))


def test_power_in_one_fiber_without_light_or_number() -> None:
    assert power_in_fiber([-math.inf] * 4, 4) == -math.inf
    assert power_in_fiber(LIT, None) is None
    assert power_in_fiber([], 4) is None
