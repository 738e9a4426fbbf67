"""Lasers, attenuators and chambers that a killed run has left are restored like circuits."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, bind_only, leftovers
from lightrig.harness.bench.leftovers import Restoration
from lightrig.harness.bench.saved_state import SavedStates, StateConflictError
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.devices import simulated_keysight_n7776c
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Testbed, load

FILE = """
name: bench
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "{laser}"}}
  voa: {{kind: attenuator, model: keysight-n7764a, address: "{voa}", channels: 4}}
  chamber: {{kind: climate_chamber, model: weiss-simserv, address: "{chamber}"}}
"""
PLACES = {
    "laser": "scpi://laser.invalid",
    "voa": "scpi://voa.invalid",
    "chamber": "simserv://chamber.invalid",
}
NAMES = set(PLACES)


@pytest.fixture
def testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_is_carried_out: None
) -> Iterator[Testbed]:
    """Three instruments, served on loopback; all are off."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(simulated_keysight_n7776c, "LASER_ON", 10_000_000)  # in real time
    path = tmp_path / "bench.yaml"
    path.write_text(FILE.format(**PLACES))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(path), clock, 1)
        path.write_text(FILE.format(**{n: world.services[n].address for n in NAMES}))
        yield load(path)
        world.close()


def use_until_killed(testbed: Testbed) -> None:
    """Set everything, and end without restoring anything."""
    with opened(testbed) as (bench, settings):
        settings.save_initial_state()
        instruments: Any = bench.instruments
        instruments["laser"].set_emission(1, on=True)
        instruments["voa"].set_attenuation(2, 7.0)
        instruments["chamber"].set_temperature(60.0)


@contextlib.contextmanager
def opened(testbed: Testbed) -> Iterator[tuple[Bench, SavedInstruments]]:
    with contextlib.closing(bind_only(testbed, NAMES, "a test")) as bench:
        yield bench, SavedInstruments(bench)


def state(testbed: Testbed) -> tuple[bool, float, bool]:
    with opened(testbed) as (bench, _):
        instruments: Any = bench.instruments
        runs = instruments["chamber"].read_settings([1])["running 1"]
        return instruments["laser"].emission(1), instruments["voa"].attenuation(2), runs


def restore(testbed: Testbed, *, force: bool = False) -> Restoration:
    found = leftovers.leftovers(testbed)
    assert {each.name for each in found.left} == NAMES
    return leftovers.restore_left(testbed, found, force=force)


def test_everything_is_off_again_after_a_kill(testbed: Testbed, tmp_path: Path) -> None:
    use_until_killed(testbed)
    assert state(testbed) == (True, 7.0, True)
    assert not restore(testbed).failures
    assert state(testbed) == (False, 0.0, False)
    assert SavedStates(tmp_path / "state").read_all() == ([], [])


def test_the_last_commands_of_a_killed_run_are_awaited(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_until_killed(testbed)
    awaited, sleep = [], SystemClock.sleep

    def hurried(clock: SystemClock, duration: int) -> None:
        if duration < 60_000_000_000:
            sleep(clock, duration)
        else:
            awaited.append(duration)

    monkeypatch.setattr(SystemClock, "sleep", hurried)
    monkeypatch.setattr(leftovers, "SETTLING", 3600)
    assert not restore(testbed).failures
    (duration,) = awaited
    assert 3000 < duration / 1e9 <= 3601


def test_the_next_run_restores_what_was_found_before_the_kill(testbed: Testbed) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (_, settings):
        settings.save_initial_state()
        assert settings.states["laser"].found["emission 1"] is False
        settings.restore()
    assert state(testbed) == (False, 0.0, False)


def test_light_is_ended_before_anything_else_is_restored(testbed: Testbed) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (_, settings):
        settings.save_initial_state()
        settings.restore_off()
    assert state(testbed) == (False, 7.0, False)
    assert not restore(testbed).failures


def test_a_conflict_keeps_no_other_instrument_from_being_restored(testbed: Testbed) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (bench, _):
        instruments: Any = bench.instruments
        instruments["voa"].set_attenuation(2, 12.5)
    done = restore(testbed)
    assert state(testbed) == (False, 12.5, False)
    assert not done.failures
    assert {each.origin.instrument for each in done.restored} == {"laser", "chamber"}
    (conflict,) = done.conflicts
    assert "voa is not restored" in conflict
    assert "attenuation 2 is 12.5, and was 7.0" in conflict
    lines = {words[0]: words[1] for words in (s.split(maxsplit=1) for s in conflict.splitlines())}
    assert "attenuation 2 0.0" in lines["found"]
    assert "attenuation 2 7.0" in lines["last"]
    assert "attenuation 2 12.5" in lines["now"]
    left = leftovers.leftovers(testbed)
    assert not leftovers.restore_left(testbed, left, force=True).conflicts
    assert state(testbed) == (False, 0.0, False)


def test_light_that_was_found_off_goes_off_also_where_the_laser_conflicts(
    testbed: Testbed,
) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (bench, _):
        instruments: Any = bench.instruments
        instruments["laser"].set_wavelength(1, 1550.12)
    (conflict,) = restore(testbed).conflicts
    assert "wavelength 1 is 1550.12" in conflict
    assert state(testbed) == (False, 0.0, False)
    with opened(testbed) as (bench, _):
        instruments = bench.instruments
        assert instruments["laser"].wavelength(1) == pytest.approx(1550.12)


def test_a_run_that_conflicts_switches_off_what_was_found_off_and_says_all_conflicts(
    testbed: Testbed,
) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (bench, _):
        instruments: Any = bench.instruments
        instruments["voa"].set_attenuation(2, 12.5)
        instruments["chamber"].set_temperature(41.0)
    with (
        opened(testbed) as (_, settings),
        pytest.raises(StateConflictError, match=r"(?s)voa is not .*chamber is not|chamber.*voa"),
    ):
        settings.save_initial_state()
    assert state(testbed) == (False, 12.5, False)
