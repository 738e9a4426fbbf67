"""A meter that shifts after its references were taken, or during a loss matrix, voids losses."""

import datetime
import math
from dataclasses import replace

import numpy as np
import pytest
from lossy_lab import measured, metered, polatis

from lightrig.harness.measure.insertion_loss.chains import Chain, Plane
from lightrig.harness.measure.insertion_loss.check_standards import (
    CheckReading,
    changes,
    check_components,
    shifts,
)
from lightrig.harness.measure.insertion_loss.faults import check_shifts, find_faults, misread
from lightrig.harness.measure.insertion_loss.readings import CheckStandardError
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.rows import all_rows
from lightrig.harness.statistics.uncertainty import Component
from lightrig.testbeds import Circuit
from lightrig.testbeds.references import References, ReferenceSet


def shift(bench, ports, db, since=0):
    """Let the monitors of `ports` show `db` more from the moment `since` on."""
    matrix = bench.world.matrices["ocs"]
    offset = matrix.offset
    matrix.offset = lambda port: (
        offset(port) + (db if port in ports and bench.clock.now() >= since else 0.0)
    )


def of_kind(rows, quantity):
    return [row for row in rows if row.quantity == quantity]


@pytest.mark.parametrize(
    ("ports", "side", "kind"),
    [
        # Connectors between the monitors that were mated anew look the same.
        (range(9, 17), "monitors at egress ports", "changed check standard"),
        (range(1, 9), "monitors at ingress ports", "shifted meter"),
    ],
)
def test_shift_since_the_references_voids_all_losses(tmp_path, ports, side, kind):
    with polatis(tmp_path) as bench:
        references = references_of(bench)
        shift(bench, ports, 0.25)
        losses = measured(bench, references)
        faults = find_faults(losses, bench.testbed)
        assert [(fault.kind, fault.subject) for fault in faults] == [(kind, "ocs")]
        rest = losses.without(misread(losses, faults))
        rows = all_rows(rest, faults, bench, {})
    assert f"before the losses the {side} show 0.2" in str(faults[0])
    assert "more than when its references were taken, beyond the limit of 0.1 dB" in str(faults[0])
    assert ("nothing read here tells which" in str(faults[0])) == (kind != "shifted meter")
    sign = -1 if side.endswith("egress ports") else 1
    assert faults[0].lower <= sign * 0.25 <= faults[0].upper
    assert rest.losses == {}
    assert of_kind(rows, "insertion_loss") == []
    found = of_kind(rows, "check_standard.shift")
    assert [row.conditions["phase"] for row in found] == ["before", "during", "after"]
    assert all(row.conditions["void"] and row.conditions["limit_db"] == 0.1 for row in found)
    assert len(of_kind(rows, "check_standard.loss")) == 3 * 8
    assert {row.unit for row in of_kind(rows, "check_standard.power")} == {"dBm"}


def test_a_power_has_the_budget_that_gtc_makes_of_its_components(tmp_path):
    gtc = pytest.importorskip("GTC", reason="GTC is not installed")
    with polatis(tmp_path) as bench:
        losses = measured(bench, references_of(bench))
        (common,) = {each.common_db for each in references_of(bench).sets}
        rows = of_kind(all_rows(losses, [], bench, {}), "check_standard.power")
    assert len(rows) == 3 * 8
    for row in rows:
        stated = row.conditions
        assert stated["meter_calibration_db"] == common > 0
        names = [n for n in stated if n.endswith("_db") and n not in ("expanded_db", "limit_db")]
        assert {"noise_db", "reference_db", "meter_calibration_db"} <= {*names}
        total = sum(
            gtc.ureal(0.0, stated[name], stated.get(name.replace("_db", "_degrees"), math.inf))
            for name in names
        )
        half = gtc.rp.k_factor(min(total.df, 1e6), 95) * total.u
        assert row.upper - row.value == pytest.approx(half, rel=1e-4)
        assert row.value - row.lower == pytest.approx(half, rel=1e-4)


def test_a_power_without_a_reference_has_no_interval(tmp_path):
    with polatis(tmp_path) as bench:
        rows = of_kind(
            all_rows(measured(bench, References()), [], bench, {}), "check_standard.power"
        )
    assert rows
    assert {(row.lower, row.upper) for row in rows} == {(None, None)}


def test_shift_during_the_losses_is_seen_without_references(tmp_path):
    with polatis(tmp_path) as bench:
        times = measured(bench, References()).times
        begun = bench.clock.now()
        shift(bench, range(9, 17), -0.3, since=begun + (times[-1] - times[0]) * 3 // 4)
        losses = measured(bench, References())
        (fault,) = find_faults(losses, bench.testbed)
        assert misread(losses, [fault]) == set(losses.losses)
        phases = [one.reading.phase for one in check_shifts(losses, [])]
    assert phases == ["during", "after"]
    assert "check standard: after the losses the monitors at egress ports show 0.3" in str(fault)
    assert "less than before the first loss" in str(fault)
    assert fault.lower <= 0.3 <= fault.upper


def test_sound_meters_are_within_and_nothing_is_made_more_often(tmp_path):
    with polatis(tmp_path) as bench:
        losses = measured(bench)
        assert find_faults(losses, bench.testbed) == []
        found = check_shifts(losses, [])
        assert not misread(losses, [])
    assert [one.reading.phase for one in found] == ["before", "during", "after"]
    assert losses.settings == 8
    assert losses.remade == 6
    assert losses.checks[0].at < losses.times[1] < losses.checks[1].at < losses.checks[2].at
    assert losses.times[3] < losses.checks[1].at < losses.times[4]


def test_a_dirty_connector_and_a_stuck_monitor_void_nothing_else(tmp_path):
    planted = [
        '{fault: dirty connector, at: [ocs, "3"], loss: 1.6 dB}',
        '{fault: stuck monitor, at: [ocs, "12"]}',
    ]
    with polatis(tmp_path, *planted) as bench:
        losses = measured(bench)
        faults = find_faults(losses, bench.testbed)
        found = check_shifts(losses, faults)
    assert {fault.kind for fault in faults} == {"dirty connector", "stuck monitor"}
    assert all(abs(one.value) < 0.1 for one in found)


def test_a_stated_circuit_is_the_check_standard_with_its_limit(tmp_path):
    stated = ", check_standard: {circuit: 2>13, limit: 0.4 dB}"
    with polatis(tmp_path, switch=stated) as bench:
        references = references_of(bench)
        assert references.sets[0].checks.keys() >= {"ocs 2>13"}
        shift(bench, range(9, 17), 0.25)
        losses = measured(bench, references)
        assert find_faults(losses, bench.testbed) == []
        assert [list(one.losses) for one in losses.checks] == [[Circuit(2, 13)]] * 3
        assert Circuit(2, 13) in list(losses.losses)[:8]
        shift(bench, [13], 0.4)
        (fault,) = find_faults(measured(bench, references), bench.testbed)
    assert fault.kind == "changed check standard"
    assert "beyond the limit of 0.4 dB" in str(fault)


def test_a_check_standard_without_monitors_is_refused(tmp_path):
    with (
        polatis(tmp_path, ports=2, switch=", check_standard: {circuit: 2>3}") as bench,
        pytest.raises(CheckStandardError, match="ocs: check standard 2>3: found no such circuit"),
    ):
        measured(bench)


def test_a_meter_is_checked_within_a_run(tmp_path):
    with metered(tmp_path) as bench:
        losses = measured(bench)
        found = check_shifts(losses, find_faults(losses, bench.testbed))
    assert all(one.against == "references" for one in found)
    assert all(abs(one.value) < 0.1 for one in found)


def test_shift_is_the_median_with_the_interval_of_a_difference():
    """By hand: changes of 0.1, 0.2, 0.3 dB; each has noise 0.03 and repeatability 0.04, twice.

    The standard uncertainty of a change is 0.05 x 1.41421 = 0.0707107 dB, that of the median of
    three 1.2533141 / 1.7320508 times as much: 0.0511663 dB; 1.959964 of them are 0.100284 dB.
    """
    planes = {n: Plane() for n in range(1, 7)}
    chain = Chain("ocs", "monitors", (1, 2, 3), (4, 5, 6), (), {}, planes, 1310.0)
    first = {Circuit(n, n + 3): float(n) for n in (1, 2, 3)}
    then = {circuit: loss + loss / 10 for circuit, loss in first.items()}
    readings = [
        CheckReading("before", 0, first, {1: -1.0, 2: -1.0, 3: -1.0}),
        CheckReading("after", 1, then, {1: -0.9, 2: -1.0, 3: -1.5}),
    ]
    parts = Component("noise", 0.03), Component("repeatability", 0.04)
    (found,) = shifts(chain, readings, *parts)
    assert found.value == pytest.approx(0.2)
    assert found.half == pytest.approx(0.100284, abs=1e-6)
    assert found.entering == pytest.approx(0.0)
    assert found.exceeds(0.0997)
    assert not found.exceeds(0.0998)
    (rest,) = shifts(chain, readings, *parts, beside={Circuit(3, 6)})
    assert rest.value == pytest.approx(0.15)


def test_changes_of_circuits_have_the_uncertainty_of_mean_and_median():
    """By hand: circuits lost 1, 2 and 4 dB at the references, and 0.1, 0.3 and 0.8 dB more now.

    The median of these is 0.3 dB. Noise and repeatability of one reading make 0.05 dB. The mean of
    two readings less the references' one has 1 + 1/2 of their variance; the median of three has
    pi / 2 of that of a mean: sqrt(1.5 * (1 + 1.570796 / 3)) is 1.511753, so 0.0755876 dB. Two
    drifts of 0.02 dB make that 0.0807062 dB.
    """
    day = datetime.date(2026, 11, 20)
    losses = {Circuit(1, 4): 1.0, Circuit(2, 5): 2.0, Circuit(3, 6): 4.0}
    known = {f"ocs {circuit}": db for circuit, db in losses.items()}
    taken = ReferenceSet("r", day, day, 1310.0, ("meter",), 0.01, checks=known)
    planes = {n: Plane(components=(Component("drift", 0.02),), of=taken) for n in range(1, 7)}
    chain = Chain("ocs", "monitors", (1, 2, 3), (4, 5, 6), (), {}, planes, 1310.0)
    more = dict(zip(losses, (0.1, 0.3, 0.8), strict=True))
    readings = [
        CheckReading(phase, at, {c: db + more[c] + off for c, db in losses.items()}, {})
        for at, (phase, off) in enumerate((("before", -0.05), ("after", 0.05)))
    ]
    parts = Component("noise", 0.03), Component("repeatability", 0.04)
    found = changes(chain, readings, *parts)
    assert {c: value for c, (value, _) in found.items()} == {
        Circuit(1, 4): pytest.approx(-0.2),
        Circuit(2, 5): pytest.approx(0.0),
        Circuit(3, 6): pytest.approx(0.5),
    }
    for _, budget in found.values():
        assert budget.standard == pytest.approx(0.0807062, abs=1e-6)
    # Two circuits are compared with no median: sqrt(1.5) of 0.05 dB, and the drifts.
    few = changes(chain, readings, *parts, beside={Circuit(1, 4)})
    assert {c: (value, budget.standard) for c, (value, budget) in few.items()} == {
        Circuit(2, 5): pytest.approx((0.3, 0.0674537), abs=1e-6),
        Circuit(3, 6): pytest.approx((0.8, 0.0674537), abs=1e-6),
    }


def test_the_budget_has_what_the_check_standard_shows():
    """By hand: five circuits have changed by 0.06, 0.10, 0.14, -0.02, 0.22 dB: 0.10 dB by median.

    Noise 0.01 and repeatability 0.02 dB explain 0.001 dB² of a difference, and pi / 10 of that of
    the median: sqrt(0.01 - 0.000314159) = 0.0984167 dB are left. The deviations -0.04, 0, 0.04,
    -0.12 and 0.12 dB have the squares 0.032 dB² in all, 0.008 dB² for four degrees of freedom,
    beyond 2.372 times what is explained (chi squared, 95 %): sqrt(0.007) = 0.0836660 dB are left.
    Half as large, they are within it. A sixth circuit that lost 1 dB is a fault.
    """
    day = datetime.date(2026, 11, 20)
    more = (0.06, 0.10, 0.14, -0.02, 0.22)
    losses = {Circuit(n, n + 6): 1.0 for n in range(1, 7)}
    known = {f"ocs {circuit}": db for circuit, db in losses.items()}
    taken = ReferenceSet("r", day, day, 1310.0, ("meter",), 0.01, checks=known)
    planes = {n: Plane(of=taken) for n in range(1, 13)}
    ports = tuple(range(1, 7)), tuple(range(7, 13))
    chain = Chain("ocs", "monitors", *ports, (), {}, planes, 1310.0)
    now = {c: 1.0 + db for c, db in zip(losses, more, strict=False)}
    parts = Component("noise", 0.01), Component("repeatability", 0.02)
    shift_of, scatter = check_components(chain, [CheckReading("before", 0, now, {})], *parts)
    assert (shift_of.name, shift_of.standard) == ("check standard", pytest.approx(0.0984167))
    assert (scatter.name, scatter.degrees) == ("meter scatter", 4)
    assert scatter.standard == pytest.approx(0.0836660, abs=1e-6)
    half = {c: 1.0 + 0.10 + (db - 1.10) / 2 for c, db in now.items()}
    _, scatter = check_components(chain, [CheckReading("before", 0, half, {})], *parts)
    assert scatter.standard == 0.0
    now[Circuit(6, 12)] = 2.1
    now[Circuit(4, 10)] = 1.1  # so that the median is the same
    faulty = check_components(chain, [CheckReading("before", 0, now, {})], *parts)
    assert [one.standard for one in faulty] == pytest.approx([0.1189, 0.0520], abs=1e-3)
    unknown = Chain("ocs", "monitors", *ports, (), {}, {n: Plane() for n in planes}, 1310.0)
    assert check_components(unknown, [CheckReading("before", 0, now, {})], *parts) == []


@pytest.mark.parametrize("meters", [1, 2])
def test_references_by_a_meter_have_a_check_standard(tmp_path, meters):
    with metered(tmp_path, meters=meters) as bench:
        references = references_of(bench)
        noted = {name: db for each in references.sets for name, db in each.checks.items()}
        truths = {name: bench.world.loss("trx", Circuit.parse(name[4:])) for name in noted}
        losses = measured(bench, references)
        assert find_faults(losses, bench.testbed) == []
        found = check_shifts(losses, [])
    assert set(noted) == {"trx 1>4", "trx 2>7"}
    assert all(abs(noted[name] - truths[name]) < 0.4 for name in noted)
    assert {one.against for one in found} == {"references"}
    names = {part.name for loss in losses.losses.values() for part in loss.budget.components}
    assert "check standard" in names


def test_a_meter_that_is_off_since_its_references_is_named(tmp_path):
    """Of two meters the second shows 0.3 dB more: 0.15 dB by median, beyond the limit of 0.1 dB."""
    with metered(tmp_path, meters=2) as bench:
        references = references_of(bench)
        meter = bench.instruments["meter2"]
        power = meter.power

        def off(ports):
            reading = power(ports)
            return replace(reading, dbm={port: dbm + 0.3 for port, dbm in reading.dbm.items()})

        meter.power = off
        losses = measured(bench, references)
        faults = find_faults(losses, bench.testbed)
        left = losses.without(misread(losses, faults)).losses
    assert [(fault.kind, fault.subjects) for fault in faults] == [
        ("changed check standard", ("trx",))
    ]
    assert left == {}


def test_scatter_of_the_circuits_widens_the_interval():
    """By hand: the median of 0, 0.1, 0.2, 0.3, 1 dB is 0.2, the median of its deviations 0.1 dB.

    1.4826 x 0.1 dB / sqrt(5) x 1.2533141 = 0.0830999 dB; Student's t of 4 degrees is 2.776445.
    """
    more = np.array([0.0, 0.1, 0.2, 0.3, 1.0])
    circuits = [Circuit(n, n + 5) for n in range(1, 6)]
    planes = {n: Plane() for n in range(1, 11)}
    chain = Chain("ocs", "monitors", (), (), (), {}, planes, 1310.0)
    before = CheckReading("before", 0, dict.fromkeys(circuits, 1.0), {})
    after = CheckReading("after", 1, dict(zip(circuits, 1 + more, strict=True)), {})
    (found,) = shifts(chain, [before, after], Component("noise", 0.001), None)
    assert found.half == pytest.approx(0.230722, abs=1e-5)
    assert found.entering is None
