"""Settings and circuits after which light can destroy a receiver are refused, in any order.

Expected powers are sums of what is set: dBm of the laser, less dB of attenuator and fiber.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.bench.interlocks import InterlockError
from lightrig.harness.bench.light_levels import LightLevels
from lightrig.testbeds import Circuit, Plan, Port, load

pytest_plugins = ["pytester"]

LAB = """
name: lab
switches:
  ocs: {{model: polatis, address: "tl1://ocs.invalid", size: 4x4{monitors}}}
  far: {{model: polatis, address: "tl1://far.invalid", size: 4x4}}
instruments:
  laser:  {{kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"{launch}}}
  voa:    {{kind: attenuator, {voa}}}
  plates: {{kind: polarization_controller, model: agilent-8169a, address: "scpi://p.invalid"}}
  ber:    {{kind: bit_error_tester, model: {ber}, address: "scpi://ber.invalid"}}
  meter:  {{kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid",
           channels: 4, damage: 5 dBm}}
fibers:
{fibers}
plans:
  one: {{circuits: {{ocs: ["1>5"]}}}}
{overrides}
"""
N7764A = 'model: keysight-n7764a, address: "scpi://voa.invalid", channels: 4'
POLATIS = 'model: polatis-voa, address: "tl1://voa.invalid", channels: 4'
DIRECT = ["laser -> ocs.1", "ocs.[5-8] -> meter.[1-4]"]
BEFORE = ["laser -> voa.1", "voa.1 -> ocs.1", "ocs.[5-8] -> meter.[1-4]"]
BEHIND = ["laser -> ocs.1", "ocs.5 -> voa.1", "voa.1 -> meter.1"]
PLATES = ["laser -> plates", "plates -> voa.1", "voa.1 -> ocs.1", "ocs.[5-8] -> meter.[1-4]"]
CASCADE = ["laser -> voa.1", "voa.1 -> ocs.1", "ocs.5 -> far.1", "far.5 -> meter.1"]
TESTER = ["ber.1 -> ocs.1", "ocs.5 -> meter.1"]
STATED = ", launch: {max: 12 dBm}"
MONITORS = ", options: {monitors: both}"

ONE, TWO = frozenset({Circuit(1, 5)}), frozenset({Circuit(1, 6)})
PLANS = {
    "one": Plan("one", {"ocs": ONE}),
    "two": Plan("two", {"ocs": TWO}),
    "far": Plan("far", {"ocs": ONE, "far": ONE}),
    "dark": Plan("dark", {"ocs": frozenset()}),
}


@contextlib.contextmanager
def bench_of(folder: Path, fibers: list[str], **parts: str) -> Iterator[Bench]:
    stated = {
        "monitors": "",
        "launch": "",
        "overrides": "",
        "voa": N7764A,
        "ber": "keysight-m8040a",
        "fibers": "\n".join(f"  - {fiber}" for fiber in fibers),
    }
    path = folder / "lab.yaml"
    path.write_text(LAB.format(**{**stated, **parts}))
    with contextlib.closing(bind(load(path), "simulated", 1)) as bench:
        yield bench


def refused(text: str) -> Any:
    return pytest.raises(InterlockError, match=text)


def apply(bench: Bench, plan: str) -> None:
    Fabric(bench).apply(PLANS[plan])


def light(bench: Bench, dbm: float) -> None:
    """Set the laser in the dark, then switch it on."""
    laser: Any = bench.instruments["laser"]
    laser.set_emission(1, on=False)
    laser.set_power(1, dbm)
    laser.set_emission(1, on=True)


def arriving(bench: Bench, channel: int = 1) -> float:
    meter: Any = bench.instruments["meter"]
    meter.prepare([channel], wavelength_nm=1550.0)
    level: float = meter.power([channel]).dbm[channel]
    return level


@pytest.mark.parametrize("monitors", ["", MONITORS], ids=["blind", "monitors"])
@pytest.mark.parametrize("launch", ["", STATED], ids=["unstated", "through"])
def test_light_is_not_switched_on_above_what_a_receiver_withstands(
    tmp_path: Path, monitors: str, launch: str
) -> None:
    fibers = BEFORE if launch else DIRECT
    with bench_of(tmp_path, fibers, monitors=monitors, launch=launch) as bench:
        laser: Any = bench.instruments["laser"]
        if launch:
            open_voa(bench, 0.0)
        apply(bench, "one")
        laser.set_power(1, 9.5)
        sent = len(laser.wire())
        with refused(r"emission 1 of laser is not set to on: 9\.5 dBm from laser\.1 .* meter\.1"):
            laser.set_emission(1, on=True)
        assert not any(":POW:STAT 1" in line for line in laser.wire()[sent:])
        assert laser.emission(1) is False
        # Harmless light is let through, and raised up to the threshold only.
        light(bench, 0.0)
        assert arriving(bench) < 0.0
        with refused(r"power 1 of laser is not set to 5\.1: 5\.1 dBm from laser\.1"):
            laser.set_power(1, 5.1)
        laser.set_power(1, 4.9)
        laser.set_power(1, 3.0)


def open_voa(bench: Bench, decibel: float) -> Any:
    voa: Any = bench.instruments["voa"]
    voa.set_attenuation(1, decibel)
    voa.set_shutter(1, is_open=True)
    return voa


@pytest.mark.parametrize("model", [N7764A, POLATIS], ids=["n7764a", "polatis-voa"])
@pytest.mark.parametrize("fibers", [BEFORE, BEHIND, PLATES], ids=["before", "behind", "plates"])
@pytest.mark.parametrize("launch", ["", STATED], ids=["unstated", "stated"])
def test_an_attenuator_is_not_lowered_or_opened_under_too_much_light(
    tmp_path: Path, model: str, fibers: list[str], launch: str
) -> None:
    with bench_of(tmp_path, fibers, launch=launch, voa=model) as bench:
        voa = open_voa(bench, 20.0)
        apply(bench, "one")
        light(bench, 9.5)  # 9.5 - 20 = -10.5 dBm
        with refused(r"attenuation 1 of voa is not set to 4: 5\.5 dBm from voa\.1"):
            voa.set_attenuation(1, 4.0)
        assert voa.attenuation(1) == pytest.approx(20.0, abs=0.01)
        voa.set_attenuation(1, 5.0)  # 4.5 dBm
        voa.set_attenuation(1, 30.0)
        voa.set_shutter(1, is_open=False)
        voa.set_attenuation(1, 1.0)  # in the dark
        with refused(r"shutter 1 of voa is not set to on: 8\.5 dBm from voa\.1"):
            voa.set_shutter(1, is_open=True)
        voa.set_attenuation(1, 6.0)
        voa.set_shutter(1, is_open=True)  # 3.5 dBm


@pytest.mark.parametrize("launch", ["", STATED], ids=["unstated", "stated"])
@pytest.mark.parametrize("fibers", [BEFORE, PLATES], ids=["before", "plates"])
def test_a_circuit_is_not_made_for_light_through_instruments_in_line(
    tmp_path: Path, launch: str, fibers: list[str]
) -> None:
    with bench_of(tmp_path, fibers, launch=launch) as bench:
        voa = open_voa(bench, 4.0)
        light(bench, 9.5)
        with refused(r"up to 5\.5 dBm at ingress 1, .* would reach meter\.2"):
            apply(bench, "two")
        assert bench.switches["ocs"].circuits() == frozenset()
        voa.set_shutter(1, is_open=False)
        apply(bench, "two")
        apply(bench, "dark")
        voa.set_attenuation(1, 5.0)
        voa.set_shutter(1, is_open=True)
        apply(bench, "two")
        assert arriving(bench, 2) < 4.5


def test_an_attenuator_behind_the_switch_protects_its_receiver_alone(tmp_path: Path) -> None:
    with bench_of(tmp_path, [*BEHIND, "ocs.6 -> meter.2"], monitors=MONITORS) as bench:
        open_voa(bench, 20.0)
        light(bench, 9.5)
        apply(bench, "one")
        with refused(r"at ingress 1 would reach meter\.2, .* by more than 5 dBm from there"):
            apply(bench, "two")


@pytest.mark.parametrize("monitors", ["", MONITORS], ids=["blind", "monitors"])
def test_switches_that_change_at_once_are_judged_together(tmp_path: Path, monitors: str) -> None:
    with bench_of(tmp_path, CASCADE, launch=STATED, monitors=monitors) as bench:
        voa = open_voa(bench, 0.0)
        light(bench, 9.5)
        with refused(r"would reach meter\.1, whose receiver"):
            apply(bench, "far")
        assert bench.switches["ocs"].circuits() == frozenset()
        assert bench.switches["far"].circuits() == frozenset()
        voa.set_attenuation(1, 10.0)
        apply(bench, "far")
        with refused(r"attenuation 1 of voa is not set to 1: 8\.5 dBm"):
            voa.set_attenuation(1, 1.0)


def test_the_loss_of_fibers_counts(tmp_path: Path) -> None:
    fibers = ["laser -> voa.1", "{fiber: voa.1 -> ocs.1, loss: 6 dB}", "ocs.5 -> meter.1"]
    with bench_of(tmp_path, fibers, launch=STATED) as bench:
        open_voa(bench, 0.0)
        apply(bench, "one")
        light(bench, 10.9)
        laser: Any = bench.instruments["laser"]
        with refused(r"11\.1 dBm from laser\.1 .* by more than 11 dBm from there"):
            laser.set_power(1, 11.1)


@pytest.mark.parametrize("model", ["keysight-m8040a", "anritsu-mp1900a"])
def test_a_tester_of_unknown_power_is_not_switched_on(tmp_path: Path, model: str) -> None:
    with bench_of(tmp_path, TESTER, ber=model) as bench:
        ber: Any = bench.instruments["ber"]
        apply(bench, "one")
        with refused("is not set to on: light of unknown power from ber.1 would reach meter.1"):
            ber.prepare(1, pattern="PRBS31", bits_per_second=25e9)
        apply(bench, "dark")
        ber.prepare(1, pattern="PRBS31", bits_per_second=25e9)
        with refused(r"light of ber\.1, which is not measured and whose `launch:` is not stated"):
            apply(bench, "one")


def test_an_overridden_interlock_judges_no_setting(tmp_path: Path) -> None:
    overrides = "overrides: {receiver_damage: the meters are dummies}"
    with bench_of(tmp_path, DIRECT, overrides=overrides) as bench:
        apply(bench, "one")
        light(bench, 9.5)
        assert arriving(bench) > 5.0


def test_what_is_restored_passes_the_interlocks(tmp_path: Path) -> None:
    """A laser found on at 9.5 dBm stays dark where a receiver was connected meanwhile."""
    with bench_of(tmp_path, DIRECT) as bench:
        laser: Any = bench.instruments["laser"]
        light(bench, 9.5)
        put_back = laser.snapshot([1])
        laser.set_emission(1, on=False)
        apply(bench, "one")
        with refused("emission 1 of laser is not set to on"):
            put_back()
        assert laser.emission(1) is False
        apply(bench, "dark")
        put_back()
        assert laser.emission(1) is True


def test_what_is_not_open_is_taken_for_the_worst_and_neighbours_are_asked(tmp_path: Path) -> None:
    """A restore opens each instrument apart: the others are its neighbours."""
    with bench_of(tmp_path, BEFORE) as bench:
        open_voa(bench, 20.0)
        light(bench, 9.5)

        def parts(instruments: set[str], switches: set[str], **neighbours: Any) -> Any:
            opened = {name: bench.instruments[name] for name in instruments}
            of_switches = {name: bench.switches[name] for name in switches}
            return SimpleNamespace(
                testbed=bench.testbed,
                clock=bench.clock,
                instruments=opened,
                switches=of_switches,
                neighbours=neighbours,
            )

        voa, meters = Port("voa", "1"), {Port("meter", str(n)) for n in range(1, 5)}
        alone = LightLevels(parts({"voa"}, set()), {})
        assert alone.leaving(voa) == math.inf
        assert {sink for sink, _ in alone.receivers(voa)} == {Port("ocs", "1"), *meters}
        beside = parts({"voa"}, set(), laser=parts({"laser"}, set()), ocs=parts(set(), {"ocs"}))
        known = LightLevels(beside, {})
        assert known.leaving(voa) == pytest.approx(9.5 - 20.0, abs=0.01)
        assert {sink for sink, _ in known.receivers(voa)} == {Port("ocs", "1")}


SUITE = """
def test_light(fabric, light_source):
    fabric.apply(fabric.plans["one"])
    light_source.set_power(1, 9.5)
    light_source.set_emission(1, on=True)
"""


def test_a_suite_is_refused_as_well(tmp_path: Path, pytester: pytest.Pytester) -> None:
    with bench_of(tmp_path, DIRECT):
        pass
    pytester.makepyfile(SUITE)
    result = pytester.runpytest(
        "--testbed", str(tmp_path / "lab.yaml"), "--instruments", "simulated", "-p", "no:xdist"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*InterlockError: emission 1 of laser is not set to on*"])


def test_harmless_labs_are_not_asked(tmp_path: Path) -> None:
    """A launch that harms no receiver was judged by the check of the file: no query is sent."""
    with bench_of(tmp_path, DIRECT, launch=", launch: {max: 4 dBm}") as bench:
        apply(bench, "one")
        laser: Any = bench.instruments["laser"]
        ocs = bench.switches["ocs"]
        laser.set_power(1, 3.0)
        before, asked = len(laser.wire()), list(ocs.wire())
        laser.set_power(1, 3.5)
        assert not any("POW:STAT?" in line for line in laser.wire()[before:])
        assert list(ocs.wire()) == asked
