"""The report on bit errors: bounds, not zeros; curves with a fit; what counted nothing."""

import re

import pytest
from report_runs import YAML, context

from lightrig import testbeds
from lightrig.harness.record import Row
from lightrig.harness.statistics.bit_errors import error_ratio
from lightrig.harness.statistics.sensitivity import Sensitivity

LIMITS = "  bit_error_ratio: {max: 1.0e-12, confidence: 95 %}\n  module_power.core: {max: 3.2 W}\n"


@pytest.fixture
def limited(tmp_path):
    """A description that states limits on what is shown here."""
    path = tmp_path / "limited.yaml"
    path.write_text(YAML + LIMITS)
    return {"small": testbeds.load(path)}


def gate(errors, bits=3 * 10**12, quantity="bit_error_ratio", **conditions):
    found = error_ratio(errors, bits)
    given = {
        "errors": errors,
        "bits": bits,
        "confidence": 0.95,
        "gate_ns": 10,
        **conditions,
    }
    return Row("ber.1", quantity, found.value, found.lower, found.upper, "1", 0, given)


def sweep(shift=0.0, target=1e-12, **conditions):
    """A receiver that fits its model exactly, and its sensitivity."""
    fitted = Sensitivity(
        target, -8.0 + shift, -8.05 + shift, -7.95 + shift, 0.1, None, 8, 0.95, 0.5
    )
    for step in range(8):
        dbm = -11.5 + 0.5 * step + shift
        bits = 10**13 if step == 7 else 10**10
        errors = round(fitted.ratio_at(dbm) * bits)
        given = {"received_power_dbm": dbm, "oma_dbm": dbm + 0.78, **conditions}
        yield gate(errors, bits, "bit_error_ratio.over_power", event=step, **given)
    given = {
        "target": target,
        "slope": 0.1,
        "misfit": 0.5,
        "points": 8,
        "confidence": 0.95,
    }
    for quantity, apart in (("sensitivity", 0.0), ("sensitivity.oma", 0.78)):
        values = (each + apart for each in (fitted.dbm, fitted.lower, fitted.upper))
        yield Row("ber.1", quantity, *values, "dBm", 0, {**given, "event": 9, **conditions})


def test_no_error_is_a_bound_and_not_zero(show, limited):
    page = show((context(), [gate(0, event=n) for n in range(6)]), described=limited)
    stated = (
        "at most 2.05e-13 (0 errors in 1.8e13; 95 % interval 0 … 2.05e-13, exact for independent "
        "errors; simulated)"
    )
    assert page.text.count(stated) == 2  # among the answers, and in the section
    assert "✓ pass" in page.text
    assert "limit max <= 1e-12 (95 % confident)" in page.text
    assert "Verdicts: ✓ 1 pass" in page.text
    assert "Other quantities" not in page.text


def test_one_bad_gate_fails_them_all(show, limited):
    page = show((context(), [gate(0), gate(40)]), described=limited)
    assert "6.7e-12 (40 errors in 6e12" in page.text
    assert "✗ fail" in page.text
    assert "at least 1.00e-11 at 95 % confidence" in page.text


def test_an_undecided_gate_states_the_bits_it_needs(show, limited):
    page = show((context(), [gate(3)]), described=limited)
    assert "? not enough data" in page.text
    assert "more needed" in page.text


@pytest.mark.parametrize(("stopped", "sign"), [("accept", "✓ pass"), ("reject", "✗ fail")])
def test_a_sequential_test_is_judged_by_its_decision(show, limited, stopped, sign):
    page = show((context(), [gate(2, stopped=stopped)]), described=limited)
    assert sign in page.text
    assert "valid at any time" in page.text


def test_void_gates_are_listed_apart_with_their_reason(show):
    given = {
        "trouble": "it did not follow the pattern all the time",
        "received_power_dbm": -13.4,
    }
    page = show((context(), [Row("ber.1", "bit_errors.void", 1.0, 1.0, 1.0, "1", 0, given)]))
    assert "Gates that counted nothing" in page.text
    assert "it did not follow the pattern all the time" in page.text
    assert "-13.4 dBm" in page.text
    assert "exact" not in page.text.partition("Gates that counted nothing")[2]


def test_a_sweep_is_a_curve_with_its_sensitivity(show):
    page = show((context(), list(sweep())))
    assert "Bit error ratio of ber.1 over received power" in page.labelled
    assert "-8.000 dBm (95 % interval -8.050 … -7.950; 8 powers; simulated)" in page.text
    assert "-7.22 dBm" in page.text
    assert "1e-12" in page.text
    assert "no floor needed" in page.text
    assert "lr-dot" in page.classes
    assert "over temperature" not in page.text


def test_sweeps_at_several_temperatures_make_one_figure_and_one_over_temperature(show):
    parts = [
        (
            context(test=f"test_{n}", temperature_c=celsius),
            list(sweep(0.02 * celsius, temperature_c=celsius)),
        )
        for n, celsius in enumerate((-5, 25, 75))
    ]
    page = show(*parts)
    assert page.labelled.count("Bit error ratio of ber.1 over received power") == 2  # box, picture
    assert "Sensitivity of ber.1 over temperature" in page.labelled
    for name in ("-5 °C", "25 °C", "75 °C"):
        assert name in page.text


def test_a_sweep_without_errors_at_a_power_has_an_arrow_there(show):
    rows = [
        *sweep(),
        gate(0, 10**12, "bit_error_ratio.over_power", received_power_dbm=-7.0, event=8),
    ]
    page = show((context(), rows))
    assert "m-4 0v9" in page.fragment


def test_symbols_after_fec_have_a_separate_row(show):
    rows = [gate(0, quantity="nic_error_ratio.symbols_after_fec")]
    assert "nic error ratio.symbols after fec" in show((context(), rows)).text


def test_transceivers_report_the_greatest_value_and_its_verdict(show, limited):
    def reading(module, watt, celsius):
        given = {"event": celsius, "temperature_c": celsius}
        bounds = (watt, watt - 5e-4, watt + 5e-4)
        return Row(f"trx.{module}", "module_power.core", *bounds, "W", 0, given)

    parts = [
        (context(test=f"test_{n}"), [reading(m, 2.8 + 0.1 * m + 0.1 * n, celsius) for m in (1, 2)])
        for n, celsius in enumerate((25, 75))
    ]
    page = show(*parts, described=limited)
    assert "3 W (trx.2, of 2 transceivers; ± 0.0005 W: the last digit of its register" in page.text
    assert "3.1 W (trx.2" in page.text
    assert "limit max <= 3.2 W" in page.text
    assert "Power of the switching core over temperature" in page.labelled
    assert "Verdicts: ✓ 2 pass" in page.text


def test_the_worst_of_several_counters_is_shown(show):
    def port(name, errors):
        one = gate(errors, quantity="nic_error_ratio.before_fec")
        return Row(name, one.quantity, one.value, one.lower, one.upper, "1", 0, one.conditions)

    page = show((context(), [port("server0.nic0", 3), port("server1.nic0", 300)]))
    assert "2 counters" in page.text
    assert "1.00e-10 (worst: server1.nic0; 300 errors in 3e12" in page.text


def looked(errors, looks, squares, largest, **conditions):
    """A gate of 3e12 bits that was read while it was open."""
    seen = {"error_looks": looks, "error_squares": squares, "error_largest": largest}
    return gate(errors, **{name: float(value) for name, value in seen.items()}, **conditions)


@pytest.mark.parametrize(
    ("looks", "burst", "verdict"),
    [
        ([(0, 0, 0, 0)] * 2, {}, "✓ pass"),
        # A declared burst of 4 errors takes four times the bits.
        ([(0, 0, 0, 0)] * 2, {"burst": 4.0}, "? not enough data 8982929094215 more needed"),
        # Few looks: as independent errors are. Ten looks: by the sizes of what they show.
        ([(8, 2, 34, 5)], {}, "✗ fail"),
        ([(13, 10, 25, 4)], {}, "✗ fail"),
        ([(13, 10, 89, 8)], {}, "? not enough data"),
    ],
)
def test_gates_are_judged_by_their_bursts_as_the_test_does(show, limited, looks, burst, verdict):
    gates = [looked(*each, **burst) for each in looks]
    page = show((context(), gates), described=limited)
    assert verdict in page.text.replace(",", "")


def test_the_pattern_stands_beside_each_ratio_and_sensitivity(show, limited):
    measured = [gate(0, event=n, pattern="PRBS31Q") for n in range(3)]
    page = show((context(), [*measured, *sweep(pattern="PRBS13Q")]), described=limited)
    text = " ".join(page.text.split())
    gates = text.partition("test counter gates ratio pattern verdict")[2]
    assert re.search(r"ber\.1 3 at most .*?\) PRBS31Q ", gates[:400])
    assert re.search(r"sensitivity OMA pattern fit.*? PRBS13Q NRZ", text)
    assert re.search(r"simulated; PRBS31Q\)", text)  # of the answers


def test_a_ratio_of_any_traffic_has_no_pattern(show, limited):
    measured = [gate(3, quantity="nic_error_ratio.before_fec", event=n) for n in range(3)]
    page = show((context(), measured), described=limited)
    assert "PRBS" not in page.text


def test_a_gate_that_counted_nothing_keeps_its_reason_whole(show):
    reason = "it compared 3 of 4 bits: the signal was lost for a while, or its counters began anew"
    void = Row("ber.1", "bit_errors.void", 0.25, 0.25, 0.25, "1", 0,
               {"event": 0, "pattern": "PRBS31Q", "trouble": reason})  # fmt: skip
    text = " ".join(show((context(), [gate(0), void])).text.split())
    assert f"ber.1 {reason}" in text
