"""Lasers, attenuators and chambers that a killed run has left are restored like circuits."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, bind_only, leftovers
from lightrig.harness.bench.saved_state import SavedStates, StateConflictError
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.world.world import World
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
def testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    """Three instruments, served on loopback; all are off."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(leftovers, "SETTLING", -1)
    path = tmp_path / "bench.yaml"
    path.write_text(FILE.format(**PLACES))
    with contextlib.closing(SystemClock()) as clock:
        world = World(load(path), clock, 1)
        path.write_text(FILE.format(**{n: world.services[n].address for n in NAMES}))
        yield load(path)
        world.close()


def use_until_killed(testbed: Testbed) -> None:
    """Set everything, and end without restoring anything."""
    with opened(testbed) as (bench, settings):
        settings.save()
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


def restore(testbed: Testbed, *, force: bool = False) -> dict[str, Any]:
    left = leftovers.leftovers(testbed)
    assert {each.name for each in left} == NAMES
    benches, absent = leftovers.open_available(testbed, NAMES)
    try:
        return {**absent, **leftovers.restore(benches, force=force)}
    finally:
        for bench in benches.values():
            bench.close()


def test_everything_is_off_again_after_a_kill(testbed: Testbed, tmp_path: Path) -> None:
    use_until_killed(testbed)
    assert state(testbed) == (True, 7.0, True)
    assert not restore(testbed)
    assert state(testbed) == (False, 0.0, False)
    assert not list(SavedStates(tmp_path / "state").all())


def test_the_next_run_restores_what_was_found_before_the_kill(testbed: Testbed) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (_, settings):
        settings.save()
        assert settings.found["laser"]["emission 1"] is False
        settings.restore()
    assert state(testbed) == (False, 0.0, False)


def test_light_is_ended_before_anything_else_is_restored(testbed: Testbed) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (_, settings):
        settings.save()
        settings.restore_off()
    assert state(testbed) == (False, 7.0, False)
    assert not restore(testbed)


def test_a_setting_that_somebody_made_since_stops_a_restore(testbed: Testbed) -> None:
    use_until_killed(testbed)
    with opened(testbed) as (bench, _):
        instruments: Any = bench.instruments
        instruments["voa"].set_attenuation(2, 12.5)
    with pytest.raises(StateConflictError, match=r"attenuation 2 is 12\.5, and was 7\.0"):
        restore(testbed)
    assert state(testbed) == (True, 12.5, True)
    assert not restore(testbed, force=True)
    assert state(testbed) == (False, 0.0, False)
