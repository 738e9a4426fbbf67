"""A plan whose light was measured to be too little is refused before anything is sent."""

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.bench.interlocks import BudgetError, BudgetWarning, KnownLoss, PowerBudget
from lightrig.testbeds import Circuit, Plan, load

LAB = """
name: budget
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4, options: {rerouting: true}}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: eth0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -2 dBm, max: 1 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - {fiber: "server[0-1].nic0 -> ocs.[1-2]", loss: 0.5 dB}
  - ocs.[5-6] -> server[0-1].nic0
"""
PLAN = Plan("link", {"ocs": frozenset({Circuit(1, 6), Circuit(2, 5)})})


@pytest.fixture
def fabric(tmp_path):
    path = tmp_path / "budget.yaml"
    path.write_text(LAB)
    bench = bind(load(path), "simulated")
    yield Fabric(bench)
    bench.close()


def test_unmeasured_circuits_are_not_judged(fabric):
    fabric.power_budget.add_measured("ocs", {Circuit(1, 5): KnownLoss(40.0, 0.1)})
    fabric.apply(PLAN)
    assert list(fabric.power_budget.margins(PLAN)) == []


def test_a_margin_counts_transmitter_fibers_and_circuits(fabric):
    fabric.power_budget.add_measured("ocs", {Circuit(1, 6): KnownLoss(1.5, 0.1)})
    ((path, margin),) = fabric.power_budget.margins(PLAN)
    assert str(path.source) == "server0.nic0"
    assert margin.value == pytest.approx(-0.5 - 0.5 - 1.5 + 10.0)
    assert margin.expanded == pytest.approx(1.96 * (1.5**2 / 3 + 0.01) ** 0.5, abs=0.01)
    fabric.apply(PLAN)


def test_plan_without_margin_is_refused_before_anything_is_sent(fabric):
    fabric.power_budget.add_measured("ocs", {Circuit(1, 6): KnownLoss(11.5, 0.1)})
    with pytest.raises(BudgetError) as caught:
        fabric.apply(PLAN)
    message = str(caught.value)
    assert "plan link is not applied" in message
    assert "server0.nic0 - ocs 1>6 - server1.nic0: -2.5 dB left" in message
    assert "server1.nic0 needs -10 dBm" in message
    assert fabric.bench.switches["ocs"].circuits() == frozenset()
    fabric.apply(PLAN, check_budget=False)
    assert fabric.bench.switches["ocs"].circuits() == PLAN.circuits["ocs"]


def test_uncertain_margin_is_a_warning(fabric):
    fabric.power_budget.add_measured("ocs", {Circuit(1, 6): KnownLoss(8.8, 0.1)})
    with pytest.warns(BudgetWarning, match=r"plan link: server0.nic0 .* 0.2 dB left"):
        fabric.apply(PLAN)
    assert fabric.bench.switches["ocs"].circuits() == PLAN.circuits["ocs"]


UNEVEN = """
name: uneven
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4, options: {rerouting: true}}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {nic0: {netdev: eth0, rate: 100G, transceiver: lr4}}
  server1:
    address: ssh://bench@server1.invalid
    nics: {nic0: {netdev: eth0, rate: 100G, transceiver: er4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -2 dBm, max: 1 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
  er4:
    wavelength: 1310 nm
    launch: {min: 0 dBm, max: 4 dBm}
    receive: {min: -17 dBm, max: 4 dBm}
fibers:
  - {fiber: "server0.nic0 -> ocs.1", loss: 0.5 dB}
  - {fiber: "server1.nic0 -> ocs.2", loss: 0.7 dB}
  - {fiber: "ocs.5 -> server0.nic0", loss: 1.1 dB}
  - {fiber: "ocs.6 -> server1.nic0", loss: 1.9 dB}
"""


def test_each_fiber_and_each_end_of_a_path_count(tmp_path):
    """From the middle of what is launched to what the other end needs, less all losses."""
    (tmp_path / "uneven.yaml").write_text(UNEVEN)
    budget = PowerBudget(load(tmp_path / "uneven.yaml"))
    budget.add_measured("ocs", {Circuit(1, 6): KnownLoss(1.5, 0.1)})
    assert [str(path.source) for path, _ in budget.margins(PLAN)] == ["server0.nic0"]
    budget.add_measured("ocs", {Circuit(2, 5): KnownLoss(2.5, 0.2)})
    found = {str(path.source): margin for path, margin in budget.margins(PLAN)}
    assert found["server0.nic0"].value == pytest.approx(-0.5 - 0.5 - 1.5 - 1.9 + 17)
    assert found["server1.nic0"].value == pytest.approx(2.0 - 0.7 - 2.5 - 1.1 + 10)
    # Uniform between the limits of the transmitter, and the circuit's own: 95 % of both.
    for name, half, standard in (("server0.nic0", 1.5, 0.1), ("server1.nic0", 2.0, 0.2)):
        expanded = 1.96 * (half**2 / 3 + standard**2) ** 0.5
        assert found[name].expanded == pytest.approx(expanded, abs=0.01)
