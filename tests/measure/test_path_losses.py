"""Losses of light paths through switches in series, against the losses that were put in."""

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError
from lightrig.harness.measure.insertion_loss.end_to_end import measure_path_losses, true_loss
from lightrig.harness.measure.recording import Recording
from lightrig.testbeds import Circuit, Plan, load

SERIES = """
name: series
switches:
  sw[0-2]: {model: osw-ascii, address: 'serial:///dev/{name}', size: 1x2}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: ens1, rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -14 dBm, max: 4 dBm}
fibers:
  - {fiber: server0.nic0 -> sw0.1, loss: 0.25 dB}
  - {fiber: sw0.2 -> sw1.1, loss: 0.25 dB}
  - {fiber: sw1.2 -> sw2.1, loss: 0.25 dB}
  - {fiber: sw2.2 -> server1.nic0, loss: 0.25 dB}
plans:
  whole: {circuits: {sw0: ["1>2"], sw1: ["1>2"], sw2: ["1>2"]}}
simulation:
  faults: []
  switches:
    sw0: &switch {acknowledge: {mean: 8 ms}, settle: {mean: 8 ms}, loss: {mean: 0.7 dB, sd: 0.2 dB}}
    sw1: *switch
    sw2: {acknowledge: {mean: 8 ms}, settle: {mean: 8 ms}, loss: {mean: 3 dB, sd: 0.2 dB}}
"""


@pytest.fixture
def fabric(tmp_path):
    path = tmp_path / "series.yaml"
    path.write_text(SERIES, encoding="utf-8")
    bench = bind(load(path), "simulated", 1)
    yield Fabric(bench)
    bench.close()


def measured(fabric: Fabric, plan: Plan):
    rows = []
    return measure_path_losses(fabric, Recording(rows.extend), plan), rows


def test_loss_through_three_switches_holds_the_true_one(fabric):
    found, rows = measured(fabric, fabric.plans["whole"])
    (loss,) = found.losses
    assert loss.path.crossings == tuple((f"sw{n}", Circuit(1, 2)) for n in range(3))
    stages = sum(fabric.bench.world.loss(f"sw{n}", Circuit(1, 2)) for n in range(3))
    assert true_loss(loss.path, fabric.bench) == pytest.approx(stages + 4 * 0.25)
    # The simulated transceivers are within some tenths of a dB, not the 3 dB of their standard.
    assert loss.value == pytest.approx(stages + 1.0, abs=0.8)
    assert 4.7 < loss.budget.expanded < 5.2
    whole, closed = rows
    assert (whole.subject, whole.quantity) == ("server0.nic0 -> server1.nic0", "path_loss")
    assert whole.conditions == {
        "event": 0, "plan": "whole", "stages": 3, "wavelength_nm": 1310,
    }  # fmt: skip
    assert whole.lower == pytest.approx(loss.value - loss.budget.expanded)
    assert (closed.quantity, closed.value, closed.conditions["n"]) == ("loss.path_closure", 1.0, 1)


def test_path_without_light_is_reported_and_has_no_loss(fabric):
    fabric.bench.world.power_off("server0")
    found, rows = measured(fabric, fabric.plans["whole"])
    assert [str(path.source) for path in found.dark] == ["server0.nic0"]
    assert found.losses == ()
    assert rows == []


def test_loss_that_a_switch_does_not_state_opens_the_closure(fabric, monkeypatch):
    monkeypatch.setattr(fabric.bench.world, "loss", lambda switch, circuit: 9.0)
    _, rows = measured(fabric, fabric.plans["whole"])
    assert not rows[-1].conditions["closed"]


def test_plan_that_ends_at_a_switch_is_refused(fabric):
    with pytest.raises(NothingToMeasureError, match="plan part has no light path"):
        measured(fabric, Plan("part", {"sw0": frozenset({Circuit(1, 2)})}))
