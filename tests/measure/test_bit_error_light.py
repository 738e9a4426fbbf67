"""Path of a tester's light through switches and attenuators, and the power that arrives."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.bench import Bench, bind
from lightrig.harness.measure.bit_errors.light import (
    NoLoopbackPathError,
    Receiver,
    light_path,
    oma,
    plan_of_loop,
)
from lightrig.harness.measure.bit_errors.sources import MissingParameterError, Signal
from lightrig.testbeds import Port, Testbed, load

FILE = """
name: bits
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}
instruments:
  ber: {kind: bit_error_tester, model: keysight-m8040a, address: "scpi://ber.invalid",
        launch: {max: 0 dBm}, options: {rate: 25G}}
  voa: {kind: attenuator, model: keysight-n7764a, address: "scpi://voa.invalid", channels: 4}
  other: {kind: attenuator, model: keysight-n7764a, address: "scpi://other.invalid"}
fibers:
  - ber -> ocs.1
  - ocs.6 -> voa.2
  - {fiber: voa.2 -> ber, loss: 3 dB}
plans:
  away: {circuits: {ocs: ["1>6"]}}
"""
BER = Port("ber", "1")

Lab = Callable[..., Testbed]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    def described(old: str = "plans:", new: str = "plans:", *, plans: bool = True) -> Testbed:
        assert FILE.count(old) == 1
        text = FILE.replace(old, new)
        path = tmp_path / "bits.yaml"
        path.write_text(text if plans else text.partition("plans:")[0])
        return load(path)

    return described


def test_light_is_followed_through_switches_and_attenuators(lab: Lab) -> None:
    testbed = lab()
    plan = plan_of_loop(testbed, BER)
    assert plan == testbed.plans["away"]
    passed = [str(port) for port in light_path(testbed, plan, BER)]
    assert passed == ["ocs.1", "ocs.6", "voa.2", "ber.1"]
    assert [str(port) for port in light_path(testbed, None, BER)] == ["ocs.1"]


def test_fibers_alone_need_no_plan(lab: Lab) -> None:
    testbed = lab("  - ber -> ocs.1\n  - ocs.6 -> voa.2\n", "  - ber -> voa.2\n", plans=False)
    assert plan_of_loop(testbed, BER) is None


def test_a_missing_loopback_is_reported(lab: Lab) -> None:
    testbed = lab('["1>6"]', "[]")
    with pytest.raises(
        NoLoopbackPathError, match=r"no plan of .* leads the light of ber.1 back to it"
    ):
        plan_of_loop(testbed, BER)


@given(st.floats(-30, 10), st.floats(0.5, 40))
def test_modulation_amplitude_is_the_difference_of_the_levels(dbm: float, ratio_db: float) -> None:
    ratio = 10 ** (ratio_db / 10)
    high = 2 * 10 ** (dbm / 10) * ratio / (1 + ratio)
    low = high / ratio
    assert 10 ** (oma(dbm, ratio_db) / 10) == pytest.approx(high - low, rel=1e-9)


def test_a_rate_must_be_stated(lab: Lab) -> None:
    stated = lab().instruments["ber"]
    assert Signal.stated(stated) == Signal("PRBS31", 25e9, None)
    without = lab(", options: {rate: 25G}", "").instruments["ber"]
    with pytest.raises(MissingParameterError, match=r"ber: options: rate: .* at which bit rate"):
        Signal.stated(without)


def test_errors_in_a_burst_may_be_declared(lab: Lab) -> None:
    def declared(text: str) -> Signal:
        changed = lab(
            ", options: {rate: 25G}", f", options: {{rate: 25G, errors_per_burst: {text}}}"
        )
        return Signal.stated(changed.instruments["ber"])

    assert declared("3.5").burst == 3.5
    for wrong in ("0.9", "many", "true", ".inf"):
        with pytest.raises(MissingParameterError, match="expected the mean number of errors"):
            declared(wrong)


def test_the_modulation_is_that_of_the_pattern_or_of_the_file(lab: Lab) -> None:
    def modulation(text: str) -> str:
        changed = lab(", options: {rate: 25G}", f", options: {{rate: 25G{text}}}")
        return Signal.stated(changed.instruments["ber"]).modulation

    assert modulation("") == "NRZ"
    assert modulation(", pattern: PRBS13Q") == "PAM4"
    assert modulation(", pattern: PRBS31, modulation: PAM4") == "PAM4"
    with pytest.raises(MissingParameterError, match="expected PAM4, which the pattern has"):
        modulation(", pattern: PRBS31Q, modulation: NRZ")
    with pytest.raises(MissingParameterError, match="found 'PAM8', expected NRZ or PAM4"):
        modulation(", modulation: PAM8")


def opened(testbed: Testbed) -> Bench:
    return bind(testbed, "simulated", seed=2)


def test_the_attenuators_monitor_measures_the_received_power(lab: Lab) -> None:
    bench = opened(lab())
    try:
        voa = bench.instruments["voa"]
        receiver = Receiver(bench, BER, 6.0)
        assert receiver.channel_of(voa) == 2  # type: ignore[arg-type]
        arrival = receiver.arrival()
        assert arrival is not None
        assert arrival.dbm <= -50  # shutter and light are off
        plan = plan_of_loop(bench.testbed, BER)
        assert plan is not None
        bench.switches["ocs"].change([], plan.circuits["ocs"]).done()
        voa.set_shutter(2, is_open=True)  # type: ignore[attr-defined]
        bench.instruments["ber"].prepare(1, pattern="PRBS31", bits_per_second=25e9)  # type: ignore[attr-defined]
        bench.clock.sleep(10**9)
        lit = receiver.arrival()
        assert lit is not None
        assert bench.world is not None
        true_mw = bench.world.light.level(BER)
        # The monitor's calibration is off by some tenths of a dB, as it says itself.
        assert 10 ** (lit.dbm / 10) == pytest.approx(true_mw, rel=0.2)
        assert lit.noise_db < 0.01
        assert lit.oma_dbm == pytest.approx(oma(lit.dbm, 6.0))
        assert lit.by == "voa.2"
    finally:
        bench.close()


def test_another_attenuator_is_not_in_front(lab: Lab) -> None:
    bench = opened(lab())
    try:
        with pytest.raises(NoLoopbackPathError, match=r"other is not in front of ber.1: voa.2 is"):
            Receiver(bench, BER, None).channel_of(bench.instruments["other"])  # type: ignore[arg-type]
    finally:
        bench.close()
