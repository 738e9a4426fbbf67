"""Losses compared with those that the maker of the switch measured."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.matrix import Losses, measure_losses
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.rows import factory_rows
from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.uncertainty import en_number
from lightrig.instruments.switches.sonic_ocs import SonicOcs
from lightrig.testbeds import load

FILE = """
name: factory
switches:
  ocs: {model: sonic-ocs, address: "ssh://ocs.invalid", size: 4x4}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -14 dBm, max: 4 dBm}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "factory.yaml"
    path.write_text(FILE)
    bound = bind(load(path), "simulated", seed=2)
    try:
        yield bound
    finally:
        bound.close()


def measured(bench: Bench) -> Losses:
    fabric = Fabric(bench)
    (chain,) = chains(bench, references_of(bench))
    losses = measure_losses(fabric, chain)
    fabric.restore()
    return losses


def test_every_circuit_is_compared_with_its_factory_loss(bench, monkeypatch):
    losses = measured(bench)
    rows = list(factory_rows(losses, bench, {}))
    assert len(rows) == len(losses.losses) == 16
    for row in rows:
        assert row.quantity == "insertion_loss.factory_en"
        assert 0 <= row.value < 1
        assert row.conditions["factory_thz"] == 228.85

    stored = SonicOcs.factory_losses

    def aged(switch):
        return {c: replace(f, loss_db=f.loss_db - 30) for c, f in stored(switch).items()}

    monkeypatch.setattr(SonicOcs, "factory_losses", aged)
    assert all(row.value > 1 for row in factory_rows(losses, bench, {}))


def test_a_factory_loss_at_another_wavelength_is_not_compared(bench):
    losses = measured(bench)
    elsewhere = replace(losses, chain=replace(losses.chain, wavelength_nm=1550.0))
    assert not list(factory_rows(elsewhere, bench, {}))


def test_the_en_number_is_the_difference_by_both_uncertainties():
    assert en_number(-0.5, 0.3, 0.4) == pytest.approx(1.0)
    with pytest.raises(SampleError):
        en_number(0.1, 0.0, 0.0)


@given(st.floats(-10, 10), st.floats(1e-3, 10), st.floats(0, 10))
def test_the_en_number_shrinks_with_uncertainty(difference, mine, theirs):
    assert en_number(difference, mine, theirs) <= en_number(difference, mine, 0.0)
