"""Faults of a loss matrix are named with their place and their loss, and only those."""

from dataclasses import replace

import numpy as np
import pytest
from lossy_lab import measured, polatis

from lightrig.harness.measure.insertion_loss.faults import find_faults, misread
from lightrig.harness.measure.insertion_loss.rows import closure_rows, inside
from lightrig.harness.statistics.loss_matrix import outliers, take_apart
from lightrig.testbeds import Circuit


def named(bench):
    losses = measured(bench)
    return {(fault.kind, fault.subject): fault for fault in find_faults(losses, bench.testbed)}


def test_a_clean_lab_has_no_faults(tmp_path):
    with polatis(tmp_path) as bench:
        assert named(bench) == {}


@pytest.mark.parametrize(("port", "loss"), [(3, 1.6), (11, 1.3)])
def test_a_dirty_port_is_named_with_what_it_loses(tmp_path, port, loss):
    planted = f'{{fault: dirty connector, at: [ocs, "{port}"], loss: {loss} dB}}'
    with polatis(tmp_path, planted) as bench:
        found = named(bench)
    (fault,) = found.values()
    assert (fault.kind, fault.subject) == ("dirty connector", f"ocs.{port}")
    assert fault.lower <= loss <= fault.upper
    side = "ingress" if port <= 8 else "egress"
    assert f"clean {side} {port}" in str(fault)


DIRTY = "{fault: dirty connector, at: [server0.nic0.p1], loss: 1.2 dB}"


def of_four_ports(folder, seed):
    """Losses of a 4 x 4 switch behind a dirty connector, the faults found, the closure row."""
    with polatis(folder, DIRTY, seed=seed, ports=2, monitors="egress") as bench:
        losses = measured(bench)
        (closure,) = closure_rows(losses, bench)
        return losses, find_faults(losses, bench.testbed), closure


@pytest.mark.parametrize("seed", [2])
def test_a_lossy_port_of_four_is_found_by_its_references(tmp_path, seed):
    losses, (fault,), _ = of_four_ports(tmp_path, seed)
    assert outliers(take_apart(losses.matrix())) == []
    assert (fault.kind, fault.subject) == ("dirty connector or bent fiber", "ocs.2")
    assert "than when its references were taken" in fault.evidence
    assert fault.lower <= 1.2 <= fault.upper


@pytest.mark.long
def test_a_dirty_connector_of_four_ports_is_found_in_fifty_of_fifty(tmp_path):
    found, closed = [], []
    for seed in range(1, 51):
        _, faults, closure = of_four_ports(tmp_path, seed)
        found.append([fault.subject for fault in faults])
        closed.append(closure.conditions["closed"])
    assert found == [["ocs.2"]] * 50
    assert all(closed)


def test_a_lossy_port_of_four_is_found_by_the_nights_before(tmp_path):
    """Without references; the nights before are of the same switch, other light and noise."""
    with polatis(tmp_path, ports=2, monitors="egress") as bench:
        losses = replace(measured(bench), checks=())
        draws = np.random.default_rng(2)
        before = [losses.matrix() + draws.normal(0, 0.05, (4, 4)) for _ in range(5)]
        raised = losses.matrix() + 1.2 * (np.arange(4) == 3)
        values = {c: raised[c[0] - 1, c[1] - 5] for c in losses.losses}
        dirty = {c: replace(loss, value=values[c]) for c, loss in losses.losses.items()}
        losses = replace(losses, losses=dirty)
        (fault,) = find_faults(losses, bench.testbed, before=before)
        assert find_faults(losses, bench.testbed, before=before[:2]) == []
    assert (fault.kind, fault.subject) == ("dirty connector", "ocs.8")
    assert "than in the 5 nights before" in fault.evidence


def test_a_bent_fiber_is_no_dirty_port(tmp_path):
    planted = "{fault: bent fiber, at: [server0.nic0.p2], loss: 2 dB}"
    with polatis(tmp_path, planted) as bench:
        (fault,) = named(bench).values()
    assert (fault.kind, fault.subject) == ("bent fiber", "server0.nic0.p2 -> ocs.3")
    assert fault.lower <= 2 <= fault.upper


def test_many_switches_share_the_rate_of_false_alarms(tmp_path, monkeypatch):
    rates = []

    def searched(parts, *, least, error):
        rates.append(error)
        return outliers(parts, least=least, error=error)

    monkeypatch.setattr("lightrig.harness.measure.insertion_loss.faults.outliers", searched)
    with polatis(tmp_path, monitors="both") as bench:
        losses = measured(bench)
        for switches in (1, 40):
            find_faults(losses, bench.testbed, switches=switches)
    assert rates[0] == pytest.approx(40 * rates[1])


def test_indistinguishable_faults_are_both_named(tmp_path):
    planted = "{fault: bent fiber, at: [server0.nic0.p2], loss: 2 dB}"
    with polatis(tmp_path, planted, monitors="egress") as bench:
        (fault,) = named(bench).values()
    assert (fault.kind, fault.subject) == ("dirty connector or bent fiber", "ocs.3")


@pytest.mark.parametrize(("monitors", "drift"), [("both", 20), ("egress", 120)])
def test_a_drifting_laser_is_named(tmp_path, monitors, drift):
    planted = f"{{fault: drifting laser, at: [server1.nic0.p0], drift: {drift} dB}}"
    with polatis(tmp_path, planted, monitors=monitors) as bench:
        losses = measured(bench)
        faults = find_faults(losses, bench.testbed)
        held = list(inside(losses, bench))
    fault = next(fault for fault in faults if fault.kind == "drifting laser")
    lasted = (losses.times[-1] - losses.times[0]) / 60e9
    assert fault.subject == "server1.nic0.p0"
    assert fault.value == pytest.approx(-drift * lasted, rel=0.3)
    assert ("free of it" in fault.evidence) == (monitors == "both")
    if monitors == "both":
        assert [each.kind for each in faults] == ["drifting laser"]
        assert np.mean(held) >= 0.85


@pytest.mark.parametrize("port", [2, 12])
def test_a_stuck_monitor_is_named_and_its_losses_are_omitted(tmp_path, port):
    with polatis(tmp_path, f'{{fault: stuck monitor, at: [ocs, "{port}"]}}') as bench:
        losses = measured(bench)
        faults = find_faults(losses, bench.testbed)
        assert [(f.kind, f.subject) for f in faults] == [("stuck monitor", f"ocs.{port}")]
        kept = losses.without(misread(losses, faults))
    assert all(port not in circuit for circuit in kept.losses)
    assert len(kept.losses) == 56


def test_only_losses_of_saturated_monitors_are_omitted(tmp_path):
    """Thirty readings at egress ports were stronger than what monitors can show from now on."""
    with polatis(tmp_path, "") as bench:
        before = measured(bench)
        matrix = bench.world.matrices["ocs"]
        readings = matrix.readings
        most = sorted(before.left[np.isfinite(before.left)])[-30]
        matrix.readings = lambda egresses, ingresses=(): [
            min(dbm, most) if place < len(tuple(egresses)) else dbm
            for place, dbm in enumerate(readings(egresses, ingresses))
        ]
        losses = measured(bench)
        faults = find_faults(losses, bench.testbed)
        assert [(fault.kind, fault.subject) for fault in faults] == [("saturated monitor", "ocs")]
        omitted = misread(losses, faults)
        remaining = losses.without(omitted)
    assert 4 <= len(omitted) <= 40
    assert f"the losses of {len(omitted)} circuits" in str(faults[0])
    far = [
        c for c, loss in remaining.losses.items() if abs(loss.value - before.losses[c].value) > 0.12
    ]
    assert far == []


def test_a_stated_range_names_a_single_saturated_reading(tmp_path):
    """A few readings at one ingress were stronger than what monitors can show from now on."""
    with polatis(tmp_path) as bench:
        before = measured(bench)
    most = round(float(np.sort(before.entered[np.isfinite(before.entered)])[-2:].mean()), 2)
    with polatis(tmp_path, switch=f", monitor_max: {most} dBm") as bench:
        matrix = bench.world.matrices["ocs"]
        readings = matrix.readings
        matrix.readings = lambda *ports: [min(dbm, most) for dbm in readings(*ports)]
        losses = measured(bench)
        faults = find_faults(losses, bench.testbed)
        reached = {
            Circuit(*circuit)
            for circuit, loss in losses.losses.items()
            for number, at in enumerate(losses.times)
            if at == loss.at and (losses.entered[number, :, circuit[0] - 1] >= most).any()
        }
    assert [(fault.kind, fault.subject) for fault in faults] == [("saturated monitor", "ocs")]
    assert 1 <= len(reached) <= 3
    assert misread(losses, faults) == reached


def test_a_dark_port_is_named_and_all_losses_besides_are_measured(tmp_path):
    with polatis(tmp_path, "{fault: dark laser, at: [server0.nic0.p1]}") as bench:
        losses = measured(bench)
        (fault,) = find_faults(losses, bench.testbed)
    assert (fault.kind, fault.subject) == ("no light", "ocs.2")
    assert len(losses.losses) == 56
    assert np.isnan(losses.matrix()[1]).all()
