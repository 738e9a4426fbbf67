"""Losses are measured in few settings, hold what was put in, and what is wrong is named."""

import datetime
import math
from dataclasses import replace

import hypothesis.strategies as st
import lossy_lab
import numpy as np
import pytest
from hypothesis import given, settings
from lossy_lab import measured, metered, polatis

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError, chains
from lightrig.harness.measure.insertion_loss.faults import find_faults
from lightrig.harness.measure.insertion_loss.matrix import measure_losses, repeatability_of
from lightrig.harness.measure.insertion_loss.readings import beside, cyclic_shifts, one_by_one
from lightrig.harness.measure.insertion_loss.references import (
    NoReferenceError,
    references_of,
    take_references,
)
from lightrig.harness.measure.insertion_loss.rows import all_rows, inside, normalized_errors
from lightrig.harness.statistics.uncertainty import Component
from lightrig.testbeds import Circuit, Plan, Port
from lightrig.testbeds.references import References, ReferenceSet, references_path, references_yaml

PORTS = st.integers(1, 7)


@settings(max_examples=30)
@given(PORTS, PORTS)
def test_shifts_make_every_circuit_once_in_as_few_settings_as_can_be(high, wide):
    ingress, egress = range(1, high + 1), range(high + 1, high + wide + 1)
    found = cyclic_shifts(ingress, egress)
    made = [circuit for setting in found for circuit in setting]
    assert len(found) == max(high, wide)
    assert sorted(made) == [Circuit(a, b) for a in ingress for b in egress]
    for setting in found:
        ports = [port for circuit in setting for port in circuit]
        assert len(ports) == len(set(ports))


@given(st.sets(st.builds(Circuit, st.integers(1, 4), st.integers(5, 8))))
def test_circuits_are_packed_so_that_no_port_is_used_twice(circuits):
    found = one_by_one(circuits)
    assert sorted(c for setting in found for c in setting) == sorted(circuits)
    for setting in found:
        assert beside(setting, circuits) >= set(setting)
        ports = [port for circuit in setting for port in circuit]
        assert len(ports) == len(set(ports))


# -------------------------------------------------------------------------------- closure


@pytest.mark.long
def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path):
    """The losses of one lab share their references: shares scatter from lab to lab."""
    shares, took, own = [], 0, 0.0
    for seed in range(48):
        with polatis(tmp_path, seed=seed) as bench:
            (chain,) = chains(bench, references_of(bench))
            began = bench.clock.now()
            losses = measure_losses(Fabric(bench), chain)
            took += bench.clock.now() - began
            held = list(inside(losses, bench))
        assert len(held) == 64
        shares.append(np.mean(held))
        assert (losses.settings, losses.remade) == (8, 6)
        changes = losses.settings + losses.remade
        readings = losses.entered.shape[1] + (changes - 1) * losses.readings
        own += changes * 40e6 + readings * 10e6
    error = np.std(shares, ddof=1) / np.sqrt(len(shares))
    assert error < 0.01
    assert np.mean(shares) == pytest.approx(0.95, abs=3 * error)
    assert took / own <= 1.05


def test_a_loss_is_taken_between_references_of_one_meter(tmp_path):
    with metered(tmp_path, meters=2) as bench:
        references = references_of(bench)
        (chain,) = chains(bench, references)
        for ingress in chain.ingress:
            for egress in chain.egress:
                entering, leaving = chain.ends(ingress, egress)
                assert entering.of is leaving.of
                meter = "meter1" if egress < 7 else "meter2"
                assert leaving.of.name == f"{meter}-1550"
                source = bench.testbed.cabling.transmitter(chain.switch, ingress)
                launched = chain.launched[ingress] - entering.correction_db
                assert launched == pytest.approx(leaving.of.launches[source])
        losses = measured(bench, references)
        assert all(inside(losses, bench))
    for loss in losses.losses.values():
        assert "meter calibration" not in {part.name for part in loss.budget.components}


def test_a_loss_between_references_of_two_meters_has_the_calibration_of_both(tmp_path):
    with metered(tmp_path, meters=2) as bench:
        first, second = references_of(bench).sets[-2:]
        # The second meter's launches alone: nothing was launched into the first.
        first = replace(first, launches={}, common_db=0.05)
        second = replace(second, common_db=0.07)
        references = References((first, second), simulated=True)
        losses = measured(bench, references)
    for circuit, loss in losses.losses.items():
        calibration = [p.standard for p in loss.budget.components if p.name == "meter calibration"]
        assert calibration == ([0.07, 0.05] if circuit.egress < 7 else [])


def test_another_set_of_the_same_meter_shares_its_calibration(tmp_path):
    with metered(tmp_path) as bench:
        (found,) = references_of(bench).sets[-1:]
        launches = replace(found, name="later", offsets={})
        offsets = replace(found, launches={})
        losses = measured(bench, References((offsets, launches), simulated=True))
    for loss in losses.losses.values():
        assert "meter calibration" not in {part.name for part in loss.budget.components}


def test_the_drift_of_a_reference_grows_with_its_days(tmp_path):
    with metered(tmp_path) as bench:
        (found,) = references_of(bench).sets[-1:]
        aged = replace(found, taken=found.taken - datetime.timedelta(days=10), drift_db=0.01)
        (chain,) = chains(bench, References((aged,), simulated=True))
    for plane in chain.planes.values():
        drift = [part.standard for part in plane.components if part.name == "drift"]
        assert drift == [pytest.approx(0.1, abs=0.011)]  # a day more after midnight


def test_a_pair_that_was_plugged_directly_has_the_error_of_one_connection(tmp_path):
    """Others have that of three: of the launch, and of both readings that make the offset."""
    with metered(tmp_path, meters=2) as bench:
        losses = measured(bench)
    parts = {
        circuit: [p.standard for p in loss.budget.components if p.name == "reference"]
        for circuit, loss in losses.losses.items()
    }
    variances = {circuit: sum(db**2 for db in found) for circuit, found in parts.items()}
    one = 0.04**2
    assert variances == {
        Circuit(1, 4): pytest.approx(one, rel=1e-3),  # the first source
        Circuit(1, 5): pytest.approx(one, rel=1e-3),
        Circuit(2, 7): pytest.approx(one, rel=1e-3),  # the first channel of its meter
        Circuit(2, 8): pytest.approx(3 * one, rel=1e-3),
    }


def test_a_fiber_of_uncertain_loss_is_in_the_losses_behind_it(tmp_path, monkeypatch):
    stated = '{first}.[1-2]", loss: 0.4 dB}}'
    assert stated in lossy_lab.METER
    uncertain = stated.replace("}}", ", uncertainty: 0.2 dB}}")
    monkeypatch.setattr(lossy_lab, "METER", lossy_lab.METER.replace(stated, uncertain))
    with metered(tmp_path) as bench:
        losses = measured(bench)
        errors = dict(normalized_errors(losses, bench))
    for circuit, loss in losses.losses.items():
        found = [part.standard for part in loss.budget.components if part.name == "fiber"]
        assert found == ([0.2] if circuit.egress < 7 else [])
        assert loss.budget.expanded > 0.39 or circuit.egress >= 7
    # The simulated fibers lose what is drawn, and not what is stated.
    assert max(abs(errors[Circuit(1, n)]) for n in (4, 5)) > 0.1


def monitors(folder, seed):
    return polatis(folder, seed=seed)


def launches_and_monitors(folder, seed):
    return polatis(folder, seed=seed, monitors="egress")


def one_meter(folder, seed):
    return metered(folder, seed=seed)


def two_meters(folder, seed):
    return metered(folder, seed=seed, meters=2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("lab", "benches"),
    [(monitors, 160), (launches_and_monitors, 160), (one_meter, 1200), (two_meters, 1200)],
    ids=["monitors", "source and monitors", "one meter", "two meters"],
)
def test_loss_intervals_hold_the_truth_in_95_of_100(tmp_path, lab, benches):
    """Errors over their standard uncertainties have a mean of 0 and a deviation of 1 as well.

    Losses of one bench share references, so the number of benches decides how well it is known.
    """
    held, errors = [], []
    for seed in range(1, benches + 1):
        with lab(tmp_path, seed) as bench:
            (chain,) = chains(bench, references_of(bench))
            losses = measure_losses(Fabric(bench), chain)
            held.append(np.mean(list(inside(losses, bench))))
            errors.append([error for _, error in normalized_errors(losses, bench)])
    # Normalized errors are over the half-width of the 95 % interval.
    spread = 1.96 * np.sqrt(np.mean(np.square(np.concatenate(errors))))
    assert np.mean(held) == pytest.approx(0.95, abs=0.01), (np.std(held), spread)
    assert abs(np.mean(np.concatenate(errors))) < 0.1
    assert spread == pytest.approx(1.0, abs=0.06)


def test_each_cause_of_doubt_is_named(tmp_path):
    with polatis(tmp_path) as bench:
        losses = measured(bench)
    (one, *_) = losses.losses.values()
    parts = {part.name: part.standard for part in one.budget.components}
    assert parts.keys() == {
        "noise", "repeatability", "reference", "check standard", "meter scatter",
    }  # fmt: skip
    assert losses.noise.standard == pytest.approx(0.03 * math.sqrt(2), rel=0.15)
    assert losses.repeatability.standard == pytest.approx(0.02, abs=0.008)
    assert parts["noise"] <= 0.016
    last = list(losses.losses.values())[-1]
    (noise,) = [part.standard for part in last.budget.components if part.name == "noise"]
    assert noise == pytest.approx(losses.noise.standard / math.sqrt(losses.readings), rel=1e-6)
    squares = sum(part.standard**2 for part in one.budget.components)
    assert one.budget.standard == pytest.approx(math.sqrt(squares))
    assert squares >= 2 * 0.04**2  # the references of both sides


@pytest.mark.parametrize("settle", ["43 ms", "70 ms"])
def test_settling_after_the_acknowledgement_is_awaited(tmp_path, settle):
    with polatis(tmp_path, settle=settle) as bench:
        losses = measured(bench)
        held = list(inside(losses, bench))
    assert np.mean(held) >= 0.85
    moved = np.nanmax(losses.left, axis=1) - np.nanmin(losses.left, axis=1)
    assert moved.max() < 0.4  # only noise: no reading has a part of the dark in it


def test_one_side_alone_takes_its_launches_from_the_references(tmp_path):
    with polatis(tmp_path, monitors="egress") as bench:
        losses = measured(bench)
        held = list(inside(losses, bench))
    assert set(losses.chain.launched) == set(losses.chain.ingress)
    assert np.isnan(losses.entered).all()
    assert np.mean(held) >= 0.85


def test_a_source_and_a_meter_measure_what_plans_lead_between_them(tmp_path):
    with metered(tmp_path) as bench:
        losses = measured(bench)
        held = list(inside(losses, bench))
        assert not bench.instruments["laser1"].emission(1)
    assert losses.chain.method == "meter"
    assert sorted(losses.losses) == [Circuit(1, 4), Circuit(1, 5), Circuit(2, 7), Circuit(2, 8)]
    assert (losses.settings, held) == (2, [True] * 4)


def test_without_monitors_the_modules_say_it_roughly(tmp_path):
    with polatis(tmp_path, monitors="none", ports=2) as bench:
        losses = measured(bench, remade=1)
        assert losses.chain.method == "modules"
        assert all(inside(losses, bench))
        assert len(losses.losses) == 16
    assert all(loss.budget.expanded > 3 for loss in losses.losses.values())


def test_circuits_are_put_back(tmp_path):
    with polatis(tmp_path, ports=2) as bench:
        switch = bench.switches["ocs"]
        found = frozenset({Circuit(1, 7), Circuit(2, 5)})
        switch.change((), found).done()
        measured(bench)
        assert switch.circuits() == found


def test_noise_is_taken_off_what_makings_differ_by():
    makings = {Circuit(1, 5): (1.0, 1.2), Circuit(2, 6): (3.1, 2.9)}
    found = repeatability_of(makings, Component("noise", 0.2), 4)
    assert found.standard == pytest.approx(math.sqrt(0.02 - 0.04 / 4))
    assert found.degrees == 2
    assert repeatability_of(makings, Component("noise", 0.4), 4).standard == 0
    assert repeatability_of({}, Component("noise", 0.4), 4) is None


# ----------------------------------------------------------------------------- references


def rows(bench, references, **held):
    losses = measured(bench, references)
    faults = find_faults(losses, bench.testbed)
    return all_rows(losses, faults, bench, held)


def of(*sets):
    return References(sets)


def test_without_a_reference_a_loss_is_relative(tmp_path):
    with polatis(tmp_path, ports=2) as bench:
        found = rows(bench, References())
        names = {row.quantity for row in found}
    assert "insertion_loss.relative" in names
    assert "insertion_loss" not in names
    assert "loss.closure" not in names


def test_unknown_light_is_compared_with_that_of_its_own_ingress(tmp_path):
    with polatis(tmp_path, ports=2, monitors="egress") as bench:
        found = measured(bench, References()).matrix()
    assert np.median(found, axis=1) == pytest.approx(np.zeros(4), abs=1e-9)


@pytest.mark.parametrize("spoil", ["expired", "wavelength", "serial"])
def test_a_reference_that_does_not_hold_makes_losses_relative(tmp_path, spoil):
    with polatis(tmp_path, ports=2) as bench:
        (good, *_) = [each for each in references_of(bench).sets if each.wavelength_nm == 1310]
        changes = {
            "expired": {"expires": datetime.date(2020, 1, 1)},
            "wavelength": {"wavelength_nm": 1550.0},
            "serial": {"instruments": ("Polatis, serial 7",)},
        }
        bad = ReferenceSet(**{f: getattr(good, f) for f in good.__slots__} | changes[spoil])
        (chain,) = chains(bench, of(bad))
        why = chain.relative(chain.ingress[0], chain.egress[0])
        says = {"expired": "expired on", "wavelength": "taken at 1550 nm", "serial": "another"}
        assert says[spoil] in why
        (chain,) = chains(bench, of(good))
        assert chain.relative(chain.ingress[0], chain.egress[0]) is None


def test_the_common_error_of_two_references_is_in_no_loss(tmp_path):
    with polatis(tmp_path, ports=2) as bench:
        (good, *_) = [each for each in references_of(bench).sets if each.wavelength_nm == 1310]
        known = {f: getattr(good, f) for f in good.__slots__} | {"common_db": 0.5}
        together = measured(bench, of(ReferenceSet(**known)))
        first = {p: v for p, v in good.offsets.items() if int(p.name) <= 4}
        rest = {p: v for p, v in good.offsets.items() if int(p.name) > 4}
        entering = ReferenceSet(**known | {"name": "in", "offsets": first})
        other = (*good.instruments, "another meter, serial 8")
        leaving = ReferenceSet(**known | {"name": "out", "offsets": rest, "instruments": other})
        apart = measured(bench, of(entering, leaving))
    assert max(loss.budget.standard for loss in together.losses.values()) < 0.1
    assert min(loss.budget.standard for loss in apart.losses.values()) > 0.7


def test_simulated_references_hold_for_no_hardware(tmp_path, monkeypatch):
    with polatis(tmp_path, ports=2) as bench:
        path = references_path(bench.testbed.path)
        path.write_text(references_yaml(references_of(bench)))
        monkeypatch.setattr(bench, "world", None)
        with pytest.raises(NoReferenceError, match="hold for no hardware"):
            references_of(bench)
        path.unlink()
        assert references_of(bench) == References()


def test_references_need_a_source_and_a_meter(tmp_path):
    nothing = pytest.raises(NoReferenceError, match="no light source and power meter")
    with polatis(tmp_path, ports=2) as bench, nothing:
        take_references(bench, lambda source, sink: lambda: None)


def test_other_channels_are_compared_with_the_first(tmp_path):
    with metered(tmp_path) as bench:
        of_meter = references_of(bench).sets[-1]
    assert of_meter.offsets[Port("meter", "1")] == 0
    assert all(abs(offset) < 0.5 for offset in of_meter.offsets.values())
    assert len(of_meter.offsets) == 4
    assert of_meter.launches.keys() == {Port("laser1", "1"), Port("laser2", "1")}


def test_fibers_are_where_they_were_after_references_are_taken(tmp_path):
    with metered(tmp_path) as bench:
        before = measured(bench).matrix()
        references_of(bench)
        assert measured(bench).matrix() == pytest.approx(before, abs=0.1, nan_ok=True)


def test_a_circuit_without_a_monitor_is_not_measured(tmp_path):
    with polatis(tmp_path, ports=2, monitors="none") as bench:
        for server in bench.servers:
            bench.servers[server].close()
        bench.servers = {}
        with pytest.raises(NothingToMeasureError, match="ocs has no power monitors"):
            chains(bench, References())


def test_same_seed_same_losses(tmp_path):
    found = []
    for _ in range(2):
        with polatis(tmp_path, ports=2, seed=5) as bench:
            found.append(measured(bench))
    assert [loss.value for loss in found[0].losses.values()] == [
        loss.value for loss in found[1].losses.values()
    ]


def test_rows_state_their_conditions(tmp_path):
    with polatis(tmp_path, '{fault: dirty connector, at: [ocs, "3"], loss: 2 dB}') as bench:
        found = rows(bench, None, temperature_c=25)
    by_name = {}
    for row in found:
        by_name.setdefault(row.quantity, []).append(row)
    assert len(by_name["insertion_loss"]) == 64
    one = by_name["insertion_loss"][0]
    assert one.conditions == {
        "wavelength_nm": 1310,
        "temperature_c": 25,
        # Simulated monitors have check standards and read in one range.
        "not_included": "linearity, polarization, wavelength",
    }
    assert (one.unit, one.subject) == ("dB", "ocs 1>9")
    assert one.lower < one.value < one.upper
    assert len(by_name["loss.remade"]) == 64
    assert by_name["loss.fault"][0].conditions["fault"] == "dirty connector"
    (repeatability,) = by_name["insertion_loss.repeatability"]
    assert repeatability.lower <= 0.02 <= repeatability.upper
    shares = {
        q.removeprefix("loss.budget."): r[0].value for q, r in by_name.items() if "budget" in q
    }
    assert shares["combined"] > shares["reference"] > shares["noise"] > 0


def test_other_circuits_stay_where_they_are():
    held = [Circuit(1, 5), Circuit(2, 6), Circuit(3, 7)]
    assert beside((Circuit(1, 6),), held) == {Circuit(1, 6), Circuit(3, 7)}
    assert Plan("x", {"ocs": beside((Circuit(1, 6),), held)}).circuits["ocs"]
