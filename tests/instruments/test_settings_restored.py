"""Every setting that a user changes on a bench instrument can be restored."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.core.capabilities import Restorable
from lightrig.testbeds import load

FILE = """
name: bench
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}
instruments:
  n7764a: {kind: attenuator, model: keysight-n7764a, address: "scpi://a.invalid", channels: 4}
  voa: {kind: attenuator, model: polatis-voa, address: "tl1://b.invalid", channels: 2}
  n7776c: {kind: light_source, model: keysight-n7776c, address: "scpi://c.invalid"}
  n7745a: {kind: power_meter, model: keysight-n7745a, address: "scpi://d.invalid", channels: 8}
  pm100d: {kind: power_meter, model: thorlabs-pm100d, address: "scpi://e.invalid"}
  m8040a: {kind: bit_error_tester, model: keysight-m8040a, address: "scpi://f.invalid"}
  mp1900a: {kind: bit_error_tester, model: anritsu-mp1900a, address: "scpi://g.invalid"}
  chamber: {kind: climate_chamber, model: weiss-simserv, address: "simserv://h.invalid"}
fibers:
  - m8040a -> m8040a
  - mp1900a -> mp1900a
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("bench") / "bench.yaml"
    path.write_text(FILE)
    bound = bind(load(path), "simulated", seed=1)
    yield bound
    bound.close()


def the_attenuator(it: Any) -> Any:
    return it.attenuation(2)


def change_attenuator(it: Any) -> None:
    it.set_attenuation(2, 7.0)
    it.set_shutter(2, is_open=True)


def the_source(it: Any) -> Any:
    return it.emission(1), it.power_setting.get(1), it.wavelength(1)


def change_source(it: Any) -> None:
    it.set_wavelength(1, 1530.0)
    it.set_power(1, -2.0)
    it.set_emission(1, on=True)


def the_meter(it: Any) -> Any:
    return it.power([1]).window


def change_meter(it: Any) -> None:
    it.prepare([1], wavelength_nm=1540.0, averaging=30_000_000)


def the_tester(it: Any) -> Any:
    return it.count(1, duration=1_000_000_000).result().clock_lost


def change_tester(it: Any) -> None:
    it.prepare(1, pattern="PRBS31", bits_per_second=10e9)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], None]]] = {
    "n7764a": (the_attenuator, change_attenuator),
    "voa": (the_attenuator, change_attenuator),
    "n7776c": (the_source, change_source),
    "n7745a": (the_meter, change_meter),
    "pm100d": (the_meter, change_meter),
    "m8040a": (the_tester, change_tester),
    "mp1900a": (the_tester, change_tester),
}


@pytest.mark.parametrize("name", CASES)
def test_settings_are_restored(bench: Bench, name: str) -> None:
    state, change = CASES[name]
    it = bench.instruments[name]
    assert isinstance(it, Restorable)
    found = state(it)
    put_back = it.snapshot(range(1, bench.testbed.instruments[name].channels + 1))
    change(it)
    assert state(it) != found
    put_back()
    assert state(it) == found


@pytest.mark.parametrize("name", CASES)
def test_unchanged_settings_are_not_sent(bench: Bench, name: str) -> None:
    it: Any = bench.instruments[name]
    put_back = it.snapshot([1])
    before = set(it.wire())
    put_back()
    sent = [line for line in it.wire() if line not in before and " > " in line]
    assert sent
    assert all("?" in line or "RTRV" in line for line in sent)


def test_emission_is_restored_last(bench: Bench) -> None:
    laser: Any = bench.instruments["n7776c"]
    change_source(laser)
    put_back = laser.snapshot([1])
    laser.set_emission(1, on=False)
    laser.set_power(1, 1.0)
    put_back()
    assert the_source(laser) == (True, -2.0, 1530.0)
    laser.set_emission(1, on=False)


def test_a_source_that_shows_watts_keeps_its_power(bench: Bench) -> None:
    laser: Any = bench.instruments["n7776c"]
    laser.set_power(1, -3.0)
    laser.write(":SOUR0:POW:UNIT 1")
    assert laser.power_setting.get(1) == pytest.approx(-3.0, abs=1e-4)
    laser.write(":SOUR0:POW:UNIT 0")


def test_a_shutter_is_shut_again_and_opened_again(bench: Bench) -> None:
    voa: Any = bench.instruments["n7764a"]
    for is_open in (False, True):
        voa.set_shutter(1, is_open=is_open)
        put_back = voa.snapshot([1])
        voa.set_shutter(1, is_open=not is_open)
        put_back()
        assert voa.shutter(1) is is_open


def test_a_stopped_chamber_is_stopped_again(bench: Bench) -> None:
    chamber: Any = bench.instruments["chamber"]
    put_back = chamber.snapshot([1])
    chamber.set_temperature(60.0)
    bench.clock.sleep(20 * 60_000_000_000)
    assert chamber.temperature() == pytest.approx(60, abs=1)
    put_back()
    bench.clock.sleep(120 * 60_000_000_000)
    assert chamber.temperature() == pytest.approx(22, abs=1)


def test_a_chamber_that_ran_goes_back_to_its_set_point(bench: Bench) -> None:
    chamber: Any = bench.instruments["chamber"]
    chamber.set_temperature(30.0)
    put_back = chamber.snapshot([1])
    chamber.set_temperature(5.0)
    put_back()
    bench.clock.sleep(60 * 60_000_000_000)
    assert chamber.temperature() == pytest.approx(30, abs=0.5)
