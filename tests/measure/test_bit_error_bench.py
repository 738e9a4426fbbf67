"""Bit errors on the bench of modules: closure, planted faults, temperature, power of modules."""

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.bit_errors.setup import (
    NoCountersError,
    bit_error_counter,
    measure_port_errors,
)
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.climate import (
    NotWarmError,
    hold_temperature,
    settled_temperature,
)
from lightrig.harness.measure.gates import NothingCountedError
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import LimitExceededError, Recording
from lightrig.harness.measure.transceivers import measure_telemetry
from lightrig.harness.record import Row
from lightrig.instruments.simulated.world.ambient import ROOM_C
from lightrig.instruments.simulated.world.bit_receiver import ErrorDetector
from lightrig.testbeds import Limit, Port, load

HOME = Path(__file__).parents[2] / "testbeds"
MINUTE = 60_000_000_000


class Rig:
    """A bench in virtual time, measured."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows: list[Row] = []
        self.told: list[str] = []
        self.reported: list[str] = []
        self.fabric = Fabric(bench)
        self.measure = Recording(self.rows.extend, bench.testbed.limits, note=self._note)

    def _note(self, sentence: str, *, in_report: bool) -> None:
        (self.reported if in_report else self.told).append(sentence)

    def instrument(self, name: str) -> Any:
        return self.bench.instruments[name]

    def errors(self) -> Any:
        return bit_error_counter(
            self.fabric, self.measure, self.instrument("ber"), self.instrument("voa")
        )

    def of(self, quantity: str) -> list[Row]:
        return [row for row in self.rows if row.quantity == quantity]


@pytest.fixture
def rig(tmp_path: Path, simulated: Callable[..., Bench]) -> Callable[..., Rig]:
    def build(name: str = "infinitehbd", faults: str = "", seed: int = 0) -> Rig:
        text = (HOME / f"{name}.yaml").read_text()
        if (HOME / name).is_dir():
            shutil.copytree(HOME / name, tmp_path / name)
        return Rig(simulated(text + (f"  faults: [{faults}]\n" if faults else ""), seed))

    return build


def the_detector(monkeypatch: pytest.MonkeyPatch) -> list[ErrorDetector]:
    """Return the simulated detectors; filled when a bench is built."""
    made: list[ErrorDetector] = []
    begin = ErrorDetector.__init__

    def note(self: ErrorDetector, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(ErrorDetector, "__init__", note)
    return made


def test_counts_are_recorded_with_their_conditions(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.errors().count(2)
    ratios, errors = lab.of("bit_error_ratio"), lab.of("bit_errors")
    assert [row.value for row in ratios] == [0, 0]
    assert [row.value for row in errors] == [0, 0]
    held: Any = ratios[0].conditions
    assert held["bits"] == pytest.approx(3.03e12, rel=0.01)
    assert ratios[0].upper == pytest.approx(-math.log(0.025) / held["bits"], rel=1e-6)
    assert held["received_power_dbm"] == pytest.approx(-5.4, abs=1)
    assert held["oma_dbm"] == pytest.approx(held["received_power_dbm"] + 0.78, abs=0.01)
    assert held["planned_ns"] == pytest.approx(28.5e9, rel=0.01)
    assert [row.conditions["event"] for row in ratios] == [0, 1]
    assert lab.told == [line for line in lab.told if "gate of 28.5 s" in line]
    assert len(lab.told) == 1
    lab.measure.judge("bit_error_ratio")


def test_a_channel_that_is_too_dark_breaks_the_limit(rig: Callable[..., Rig]) -> None:
    lab = rig()
    errors = lab.errors()
    lab.instrument("voa").set_attenuation(1, 3.3)
    errors.until_decided()
    (row,) = lab.of("bit_error_ratio")
    assert row.conditions["stopped"] == "reject"
    assert row.lower is not None
    assert row.lower > 1e-12
    with pytest.raises(
        LimitExceededError,
        match=r"rejected by the sequential test .* A gate states its own time only\.",
    ):
        lab.measure.judge("bit_error_ratio")


def test_light_of_two_levels_is_no_sensitivity_of_a_pattern_of_four(
    simulated: Callable[..., Bench],
) -> None:
    """The file's pattern is PRBS31Q, so the curve is that of PAM4, whatever the world has."""
    text = (HOME / "infinitehbd.yaml").read_text()
    for modulation, refused in (("PAM4", False), ("NRZ", True)):
        stated = f"  receiver: {{modulation: {modulation}}}\n  switches:\n    trx: "
        brighter = text.replace("max: 0 dBm", "max: 5 dBm")
        lab = Rig(simulated(brighter.replace("  switches:\n    trx: ", stated), 0))
        errors = lab.errors()
        curve = errors.over_power(lab.instrument("voa"))
        assert (not curve.found) == refused
        assert ("do not follow the curve of PAM4" in " ".join(lab.reported)) == refused
        assert bool(lab.of("sensitivity")) != refused
        assert {row.conditions["levels"] for row in lab.of("sensitivity")} <= {4.0}


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sensitivity_is_the_receivers_own(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    made = the_detector(monkeypatch)
    lab = rig(seed=seed)
    errors = lab.errors()
    detector = made[0]  # of channel 1
    curve = errors.over_power(lab.instrument("voa"))
    assert lab.instrument("voa").attenuation(1) == 0
    arrival = errors.receiver.arrival()
    monitor_error = arrival.dbm - detector.level_dbm  # the monitor's own scale, which nobody knows
    for one in curve.found:
        ratio = detector.receiver.ratio(10 ** ((one.dbm - monitor_error) / 10))
        assert math.log10(ratio) == pytest.approx(math.log10(one.target), abs=0.12)
        assert one.lower < one.dbm < one.upper
        assert one.misfit > 1e-3
    reads = lab.of("bit_error_ratio.over_power")
    powers = [row.conditions["received_power_dbm"] for row in reads]
    assert powers == sorted(powers, reverse=True)
    assert len(reads) >= 8
    assert not lab.of("bit_errors")
    (void,) = lab.of("bit_errors.void")
    assert "did not follow the pattern" in str(void.conditions["trouble"])
    limit = Limit("sensitivity", "upper", 1.0, -6.0, "dBm", None)
    assert lab.measure.verdict(limit).outcome == "pass"
    assert lab.measure.verdict(replace(limit, value=-9.0)).outcome == "fail"
    targets = [row.conditions["target"] for row in lab.of("sensitivity")]
    assert targets == [1e-12, 2.4e-4]
    apart = [
        b.value - a.value
        for a, b in zip(lab.of("sensitivity"), lab.of("sensitivity.oma"), strict=True)
    ]
    assert apart == pytest.approx([0.78, 0.78], abs=0.01)


def test_warmth_takes_more_light(rig: Callable[..., Rig]) -> None:
    lab = rig()
    for celsius in (25, 75):
        hold_temperature(lab.bench.clock, lab.measure, lab.instrument("chamber"), celsius)
        errors = lab.errors()
        errors.count()
        errors.over_power(lab.instrument("voa"))
    cold, warm = (row.value for row in lab.of("sensitivity") if row.conditions["target"] == 1e-12)
    assert warm - cold == pytest.approx(1.0, abs=0.1)
    assert [row.conditions["temperature_c"] for row in lab.of("bit_errors")] == [25, 75]
    held = lab.of("temperature")
    assert [row.value for row in held] == pytest.approx([25, 75], abs=0.5)
    assert all(row.lower <= row.value <= row.upper for row in held)  # type: ignore[operator]


# --------------------------------------------------------------------------- what goes wrong


def test_a_fiber_that_is_dark_for_a_moment_voids_the_gate(rig: Callable[..., Rig]) -> None:
    """The fiber is dark while errors are counted, after five minutes of steady temperature."""
    lab = rig(faults="{fault: interrupted fiber, at: [ber.1], after: 320 s}")
    with pytest.raises(NothingCountedError, match=r"ber.1 counted nothing .* was lost"):
        lab.errors().count()
    assert not lab.of("bit_error_ratio")
    (void,) = lab.of("bit_errors.void")
    assert 0 < void.value < 0.01
    assert lab.measure.verdicts("bit_error_ratio")[0][1].outcome == "fail"


def test_light_that_goes_away_in_mid_gate_voids_it(rig: Callable[..., Rig]) -> None:
    lab = rig()
    errors = lab.errors()
    counter = errors.counter
    gate = counter.count(duration=20_000_000_000)
    lab.bench.clock.sleep(5_000_000_000)
    lab.instrument("voa").set_shutter(1, is_open=False)
    count = gate.result()
    assert count.sync_lost
    assert count.clock_lost


def test_counters_that_begin_anew_in_mid_gate_void_it(rig: Callable[..., Rig]) -> None:
    lab = rig("opus", "{fault: counter reset, at: [server0.nic0.p0], after: 20 s}")
    bring_up(lab.fabric, LinkObservation(lab.bench), lab.bench.testbed.plans["east-west"])
    sound, reset = Port("server1", "nic0.p0"), Port("server0", "nic0.p0")
    with pytest.raises(NothingCountedError, match=r"server0.nic0.p0 counted nothing") as error:
        measure_port_errors(lab.bench, lab.measure, [sound, reset], "before")
    assert "began anew" in str(error.value)
    assert "server1" not in str(error.value)
    (row,) = lab.of("nic_error_ratio.before_fec")
    assert row.subject == "server1.nic0.p0"
    (void,) = lab.of("bit_errors.void")
    assert void.subject == "server0.nic0.p0"


def test_firmware_is_queried_where_the_driver_counts_nothing(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightrig.instruments.servers.ports.port_errors._BITS", "no_such_counter")
    lab = rig("opus")
    port = Port("server0", "nic0.p0")
    bring_up(lab.fabric, LinkObservation(lab.bench), lab.bench.testbed.plans["east-west"])
    for fec in ("before", "after"):
        measure_port_errors(lab.bench, lab.measure, [port], fec)
    before, after = lab.of("nic_error_ratio.before_fec"), lab.of("nic_error_ratio.after_fec")
    assert before[0].value > 1e-10
    assert after[0].value == 0
    lab.bench.clock.sleep(MINUTE)
    monkeypatch.setattr(
        "lightrig.instruments.servers.ports.firmware_errors.is_link_up", lambda _: False
    )
    monkeypatch.setattr(
        "lightrig.instruments.servers.ports.fec_errors.unit_of_errors", lambda *_, **__: None
    )
    with pytest.raises(
        NoCountersError, match=r"its driver does not count .*; its firmware reports"
    ):
        measure_port_errors(lab.bench, lab.measure, [port], "before")


def test_a_chamber_that_misses_its_temperature_is_reported(rig: Callable[..., Rig]) -> None:
    lab = rig()

    class Broken:
        name = "chamber"

        def set_temperature(self, celsius: float) -> None:
            pass

        def temperature(self) -> float:
            return 23.0

    with pytest.raises(NotWarmError, match="chamber is at 23 °C, 4 h after it was set to 60 °C"):
        settled_temperature(Broken(), 60.0, lab.bench.clock)  # type: ignore[arg-type]


def test_a_temperature_counts_once_it_has_stood(rig: Callable[..., Rig]) -> None:
    clock = rig().bench.clock
    begun = clock.now()

    class Overshooting:
        name = "chamber"

        def set_temperature(self, celsius: float) -> None:
            pass

        def temperature(self) -> float:
            minutes = (clock.now() - begun) / MINUTE
            return 62.0 if 2 <= minutes < 4 else 60.1

    row = settled_temperature(Overshooting(), 60.0, clock)  # type: ignore[arg-type]
    assert 9 * MINUTE <= clock.now() - begun < 10 * MINUTE
    assert (row.value, row.lower, row.upper, row.unit) == (60.1, 60.1, 60.1, "°C")


# ----------------------------------------------------------------------------------- modules


def test_modules_draw_what_is_published_and_are_judged(rig: Callable[..., Rig]) -> None:
    lab = rig()
    switch: Any = lab.bench.switches["trx"]
    for celsius in (-5, 75):
        hold_temperature(lab.bench.clock, lab.measure, lab.instrument("chamber"), celsius)
        measure_telemetry(lab.bench.clock, lab.measure, [switch])
    core, total = lab.of("module_power.core"), lab.of("module_power.total")
    assert len(core) == len(total) == 10
    assert all(2 < row.value < 3.2 for row in core)
    assert all(10 < row.value < 12 for row in total)
    assert core[5].value > core[0].value
    inside = {row.conditions["temperature_c"]: row.value for row in lab.of("module_temperature")}
    assert inside[75] - inside[-5] == pytest.approx(80, abs=1)
    lab.measure.judge("module_power")
    assert {limit.quantity for limit, _ in lab.measure.verdicts("module_power")} == {
        "module_power.core",
        "module_power.total",
    }
    assert all(verdict.n == 10 for _, verdict in lab.measure.verdicts("module_power"))


def test_the_bench_is_within_what_is_published() -> None:
    testbed = load(HOME / "infinitehbd.yaml")
    for seed in range(3):
        bench = bind(testbed, "simulated", seed)
        try:
            assert bench.world is not None
            plans = testbed.plans.values()
            losses = [bench.world.loss("trx", c) for p in plans for c in p.circuits["trx"]]
        finally:
            bench.close()
        assert min(losses) >= 2.5
        assert max(losses) <= 4.0
        assert sum(losses) / len(losses) == pytest.approx(3.3, abs=0.3)


def test_bit_errors_after_heat_wait_for_the_chamber(rig: Callable[..., Rig]) -> None:
    """A chamber that was heated for the test before is put back, and cools for hours."""
    lab = rig()
    chamber = lab.instrument("chamber")
    put_back = chamber.snapshot([1])
    lab.errors()  # at room temperature, which is known to be steady from then on
    lab.measure.conditions.clear()
    settled_temperature(chamber, 75.0, lab.bench.clock)
    put_back()
    assert chamber.temperature() > 70
    lab.errors().count()
    assert abs(chamber.temperature() - ROOM_C) < 1
    (row,) = lab.of("bit_error_ratio")
    assert abs(float(row.conditions["temperature_c"]) - ROOM_C) < 1
    assert row.conditions["received_power_dbm"] is not None
    before = lab.bench.clock.now()
    lab.measure.conditions.clear()
    lab.errors()
    assert lab.bench.clock.now() - before < 60_000_000_000  # it is known to be steady


def test_every_bit_error_row_has_the_temperature(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.errors().over_power(lab.instrument("voa"))
    rows = [row for row in lab.rows if row.quantity.startswith(("bit_error", "sensitivity"))]
    assert len({row.quantity for row in rows}) >= 3
    assert all("temperature_c" in row.conditions for row in rows)
