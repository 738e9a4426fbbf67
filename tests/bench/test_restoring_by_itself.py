"""Each instrument is restored by itself; light comes back only where its path is as found."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind_only, leftovers
from lightrig.harness.bench.leftovers import Restoration
from lightrig.harness.bench.light_reach import light_reach
from lightrig.harness.bench.saved_state import SavedState, SavedStates
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.devices import simulated_keysight_n7776c
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, Plan, Testbed, load

FILE = """
name: bench
switches:
  ocs: {{model: polatis, address: "{ocs}", login: env:LAB_OCS, size: 4x4}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "{laser}", launch: {{max: 3 dBm}}}}
  voa: {{kind: attenuator, model: keysight-n7764a, address: "{voa}", channels: 2}}
  chamber: {{kind: climate_chamber, model: weiss-simserv, address: "{chamber}",
            temperature: {{min: 10 °C, max: 60 °C}}}}
fibers:
  - laser -> ocs.1
  - ocs.5 -> voa.1
  - voa.1 -> ocs.2
  - ocs.6 -> voa.2
"""
PLACES = {
    "ocs": "tl1://ocs.invalid",
    "laser": "scpi://laser.invalid",
    "voa": "scpi://voa.invalid",
    "chamber": "simserv://chamber.invalid",
}
THROUGH, ELSEWHERE = Circuit(1, 5), Circuit(1, 6)


@pytest.fixture
def testbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_is_carried_out: None
) -> Iterator[Testbed]:
    """A laser whose light goes through a switch to an attenuator; a chamber apart."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(simulated_keysight_n7776c, "LASER_ON", 10_000_000)  # in real time
    path = tmp_path / "bench.yaml"
    path.write_text(FILE.format(**PLACES))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(path), clock, 1)
        path.write_text(FILE.format(**{n: world.services[n].address for n in PLACES}))
        monkeypatch.setenv("LAB_OCS", ":".join(world.services["ocs"].login))
        yield load(path)
        world.close()


@contextlib.contextmanager
def opened(testbed: Testbed) -> Iterator[Bench]:
    with contextlib.closing(bind_only(testbed, set(PLACES), "a test")) as bench:
        yield bench


def set_up(
    testbed: Testbed,
    *,
    emission: bool | None = None,
    power: float | None = None,
    attenuation: float | None = None,
    shutter: bool | None = None,
    celsius: float | None = None,
    circuits: set[Circuit] | None = None,
    bench: Bench | None = None,
) -> None:
    """Set some things as a person does, or as a run whose `bench` this is."""
    with contextlib.ExitStack() as stack:
        used: Any = bench or stack.enter_context(opened(testbed))
        if attenuation is not None:
            used.instruments["voa"].set_attenuation(1, attenuation)
        if shutter is not None:
            used.instruments["voa"].set_shutter(1, is_open=shutter)
        if power is not None:
            used.instruments["laser"].set_power(1, power)
        if emission is not None:
            used.instruments["laser"].set_emission(1, on=emission)
        if celsius is not None:
            used.instruments["chamber"].set_temperature(celsius)
        if circuits is not None:
            present = used.switches["ocs"].circuits()
            used.switches["ocs"].change(present - circuits, circuits - present).done()


def kill_a_run(testbed: Testbed, circuits: set[Circuit] | None = None, **changes: Any) -> None:
    """Let a run save what it found, change some things, and end without restoring anything."""
    with opened(testbed) as bench:
        SavedInstruments(bench).save_initial_state()
        fabric = Fabric(bench)
        fabric.save_initial_state()
        set_up(testbed, bench=bench, **changes)
        if circuits is not None:
            fabric.apply(Plan("of the run", {"ocs": frozenset(circuits)}))


def now(testbed: Testbed) -> dict[str, Any]:
    with opened(testbed) as bench:
        used: Any = bench
        return {
            "emission": used.instruments["laser"].emission(1),
            "power": used.instruments["laser"].read_settings([1])["power 1"],
            "attenuation": used.instruments["voa"].attenuation(1),
            "celsius": used.instruments["chamber"].read_settings([1])["temperature 1"],
            "runs": used.instruments["chamber"].read_settings([1])["running 1"],
            "circuits": set(used.switches["ocs"].circuits()),
        }


def restore(testbed: Testbed, *, force: bool = False) -> Restoration:
    found = leftovers.leftovers(testbed)
    assert not found.unused
    return leftovers.restore_left(testbed, found, force=force, keep_trying=0)


@pytest.mark.parametrize(
    ("by_hand", "circuits", "lit"),
    [
        ({"attenuation": 12.5}, {THROUGH}, False),
        ({"attenuation": 12.5}, {ELSEWHERE}, False),  # to the other channel of the same box
        ({"attenuation": 12.5}, set(), True),  # its light does not get there
        ({"celsius": 41.0}, {THROUGH}, True),
        ({"circuits": {Circuit(2, 6)}}, {THROUGH}, False),
    ],
)
def test_a_laser_that_was_on_is_switched_on_only_where_its_path_is_as_found(
    testbed: Testbed, by_hand: dict[str, Any], circuits: set[Circuit], lit: bool
) -> None:
    set_up(testbed, emission=True, power=1.5, circuits=circuits)
    kill_a_run(testbed, emission=False, power=-2.0, attenuation=7.0)
    set_up(testbed, **by_hand)
    done = restore(testbed)
    assert len(done.conflicts) == 1
    found = now(testbed)
    assert found["emission"] is lit
    assert found["power"] == pytest.approx(1.5 if lit else -2.0)
    if lit:
        assert not done.failures
    else:
        (name,) = by_hand
        part = {"attenuation": "voa", "circuits": "ocs"}[name]
        text = str(done.failures["laser"])
        assert "laser: emission 1, power 1 would raise light" in text
        assert f"on its path {part} is not as it was found" in text
    again = restore(testbed, force=True)
    assert not again.failures
    assert not again.conflicts
    assert now(testbed)["emission"] is True
    assert now(testbed)["attenuation"] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("found", "left", "shutter", "expected"),
    [(20.0, 7.0, True, 20.0), (7.0, 20.0, True, 20.0), (7.0, 20.0, False, 7.0)],
)
def test_light_is_lowered_and_not_raised_beside_a_conflict(
    testbed: Testbed, found: float, left: float, shutter: bool, expected: float
) -> None:
    """Behind a closed shutter a lower attenuation raises no light."""
    set_up(testbed, emission=True, attenuation=found, shutter=shutter, circuits={THROUGH})
    kill_a_run(testbed, attenuation=left)
    set_up(testbed, power=-3.25)
    done = restore(testbed)
    assert "laser is not restored" in done.conflicts[0]
    assert now(testbed)["attenuation"] == pytest.approx(expected)
    assert ("voa" in done.failures) is (expected != found)


def test_what_was_found_dark_is_dark_before_anything_else_whatever_conflicts(
    testbed: Testbed,
) -> None:
    set_up(testbed, circuits={THROUGH})
    kill_a_run(testbed, emission=True, celsius=50.0, attenuation=7.0, circuits={ELSEWHERE})
    set_up(testbed, attenuation=12.5, circuits={Circuit(2, 6)}, power=-5.0)
    done = restore(testbed)
    assert [text.split()[0] for text in done.conflicts] == ["laser", "voa", "ocs"]
    for text in done.conflicts:
        lines = [line.split()[0] for line in text.splitlines()]
        assert [line for line in lines if line in {"found", "last", "now"}] == [
            "found",
            "last",
            "now",
        ]
    assert now(testbed) == {
        "emission": False,
        "power": pytest.approx(-5.0),
        "attenuation": pytest.approx(12.5),
        "celsius": pytest.approx(23.0, abs=5),
        "runs": False,
        "circuits": {Circuit(2, 6)},
    }


# ----------------------------------------------------------- what a state may do at most


def rewrite(testbed: Testbed, instrument: str, **found: Any) -> None:
    """Change what a saved state says was found."""
    states = SavedStates(leftovers.state_folder(testbed))
    (state,) = [each for each in states.read_all()[0] if each.origin.instrument == instrument]
    changed: SavedState
    if "circuits" in found:
        changed = replace(state, found=frozenset(found["circuits"]))  # type: ignore[type-var]
    else:
        changed = replace(state, found={**state.found, **found["settings"]})  # type: ignore[type-var, dict-item]
    states.save(changed)


@pytest.mark.parametrize(
    ("instrument", "settings", "why"),
    [
        ("chamber", {"temperature 1": 85.0, "running 1": True}, "not what the devices in it"),
        ("chamber", {"temperature 1": -40.0, "running 1": True}, "not what the devices in it"),
        ("laser", {"power 1": 10.0, "emission 1": True}, "more than the testbed allows"),
    ],
)
def test_a_setting_beyond_the_limits_of_the_testbed_is_not_restored(
    testbed: Testbed, instrument: str, settings: dict[str, Any], why: str
) -> None:
    before = now(testbed)
    kill_a_run(testbed)
    rewrite(testbed, instrument, settings=settings)
    done = restore(testbed, force=True)
    assert why in str(done.failures[instrument])
    assert now(testbed) == before


@pytest.mark.parametrize(
    ("instrument", "settings"),
    [
        ("voa", {"attenuation 3": 30.0}),  # the box has it, the testbed does not
        ("laser", {"emission 1": 1}),
        ("laser", {"power 1": "3"}),
        ("chamber", {"door": True}),
    ],
)
def test_a_setting_that_the_testbed_does_not_have_is_a_conflict_also_by_force(
    testbed: Testbed, instrument: str, settings: dict[str, Any]
) -> None:
    before = now(testbed)
    kill_a_run(testbed)
    rewrite(testbed, instrument, settings=settings)
    (conflict,) = restore(testbed, force=True).conflicts
    assert f"settings that are not this testbed's: {next(iter(settings))}" in conflict
    assert now(testbed) == before


def test_a_circuit_on_foreign_ports_is_a_conflict_also_by_force(testbed: Testbed) -> None:
    kill_a_run(testbed, circuits={THROUGH})
    rewrite(testbed, "ocs", circuits={Circuit(1, 7)})
    (conflict,) = restore(testbed, force=True).conflicts
    assert "1>7, whose ports are not all cabled in" in conflict
    assert now(testbed)["circuits"] == {THROUGH}


def test_a_run_that_is_refused_leaves_no_state_of_its_own(testbed: Testbed) -> None:
    kill_a_run(testbed, attenuation=7.0)
    states = SavedStates(leftovers.state_folder(testbed))
    for state in states.read_all()[0]:
        if state.origin.instrument != "voa":
            states.clear(state)
    set_up(testbed, attenuation=12.5)
    with opened(testbed) as bench, pytest.raises(leftovers.StateConflictError):
        SavedInstruments(bench).save_initial_state()
    assert [each.origin.instrument for each in states.read_all()[0]] == ["voa"]


# ------------------------------------------------------------------------- light paths


def test_light_reaches_what_fibers_and_circuits_join(testbed: Testbed) -> None:
    assert light_reach(testbed, "laser", {"ocs": {THROUGH}}) == {"ocs", "voa"}
    assert light_reach(testbed, "laser", {"ocs": {Circuit(2, 6)}}) == {"ocs"}
    assert light_reach(testbed, "laser", {"ocs": set()}) == {"ocs"}
    assert light_reach(testbed, "laser", {}) == {"ocs", "voa"}
    assert light_reach(testbed, "voa", {"ocs": {THROUGH}}) == {"ocs", "laser"}
    assert light_reach(testbed, "chamber", {}) == frozenset()
