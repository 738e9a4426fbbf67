"""Restoring with states and times by hand: retries, denials, foreign changes, order of states."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.served_lab import FOREIGN, LEFT, STRAIGHT, circuits, describe, set_circuits
from bench.test_saved_state import ORIGIN, SETTINGS, STATE

from lightrig.harness.bench import Bench, Fabric, leftovers
from lightrig.harness.bench.fabric import ForeignChangeError
from lightrig.harness.bench.interlocks import InterlockError
from lightrig.harness.bench.restoring import persist
from lightrig.harness.bench.saved_state import SavedStates, origin
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import DeniedError, InstrumentError
from lightrig.testbeds import Circuit, LightrigError, Plan, load

S = 1_000_000_000
Simulated = Callable[..., Bench]


class Failing:
    """An action that fails as the list says, one entry each time, and then succeeds."""

    def __init__(self, clock: VirtualClock, *errors: LightrigError) -> None:
        self._clock, self._errors = clock, list(errors)
        self.at: list[float] = []

    def __call__(self) -> None:
        """Note the time in s, and fail or not."""
        self.at.append(self._clock.now() / S)
        if self._errors:
            raise self._errors.pop(0)


def denied(name: str) -> DeniedError:
    return DeniedError(name, code="SROF", text="Optics failure", command="ENT-PATCH")


def silent(name: str) -> InstrumentError:
    return InstrumentError(name, "does not answer")


def parts(clock: VirtualClock, *, in_process: bool = False) -> Any:
    return SimpleNamespace(clock=clock, in_process=in_process)


def test_each_instrument_may_deny_three_times(virtual_clock: VirtualClock) -> None:
    """Two that deny twice are restored by their third try; one that denies on is given up then."""
    a, b = (Failing(virtual_clock, denied(name), denied(name)) for name in "ab")
    c = Failing(virtual_clock, *(denied("c") for _ in range(9)))
    failures = persist({"a": a, "b": b, "c": c}, parts(virtual_clock), 100 * S)
    assert (list(failures), a.at) == (["c"], [0.0, 0.5, 1.5])
    assert a.at == b.at == c.at


def test_pauses_double_up_to_ten_seconds_within_the_time(virtual_clock: VirtualClock) -> None:
    """0.5, 1, 2, 4, 8, 10 and 10 s are 35.5 s; the last try is at the end of the 40 s."""
    mute = Failing(virtual_clock, *(silent("ocs") for _ in range(99)))
    told: list[str] = []
    failures = persist({"ocs": mute}, parts(virtual_clock), 40 * S, told.append)
    assert mute.at == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 40.0]
    assert str(failures["ocs"]).startswith("ocs does not answer")
    lefts = ["40", "40", "38", "36", "32", "24", "14", "4"]  # 39.5 and 38.5 are rounded to even
    assert told == [
        f"not restored yet, tried for {left} s more: ocs does not answer" for left in lefts
    ]


@pytest.mark.parametrize(("in_process", "longest"), [(True, 10.0), (False, 120.0)])
def test_instruments_of_this_process_are_tried_for_less_long(
    virtual_clock: VirtualClock, in_process: bool, longest: float
) -> None:
    mute = Failing(virtual_clock, *(silent("ocs") for _ in range(99)))
    persist({"ocs": mute}, parts(virtual_clock, in_process=in_process))
    assert mute.at[-1] == longest


def test_errors_that_are_none_of_an_instrument_are_final(virtual_clock: VirtualClock) -> None:
    lost = Failing(virtual_clock, LightrigError("lost"), LightrigError("lost"))
    heals = Failing(virtual_clock, silent("b"))
    failures = persist({"a": lost, "b": heals}, parts(virtual_clock), 100 * S)
    assert (lost.at, heals.at) == ([0.0], [0.0, 0.5])
    assert {name: str(error) for name, error in failures.items()} == {"a": "lost"}


def test_what_was_found_is_restored_after_a_foreign_change(
    simulated: Simulated, tmp_path: Path
) -> None:
    """Somebody leaves other circuits than were found: what was found is still what is restored."""
    (tmp_path / "lab").mkdir()
    bench, states = simulated(describe(tmp_path / "lab")), SavedStates(tmp_path / "states")
    switch: Any = bench.switches["ocs"]
    set_circuits(switch, LEFT | FOREIGN)
    fabric = Fabric(bench, states)
    fabric.apply(fabric.plans["straight"])
    by_hand = circuits("1>12", "4>11")
    set_circuits(switch, by_hand | FOREIGN)
    with pytest.raises(ForeignChangeError, match="1>12, 4>11 made"):
        fabric.apply(fabric.plans["crossed"])
    fabric.apply(fabric.plans["straight"])
    assert switch.circuits() == STRAIGHT | FOREIGN
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert states.read_all() == ([], [])


def test_states_are_in_the_order_in_which_they_were_saved(tmp_path: Path) -> None:
    """Not in that of their last changes, nor of their names."""
    states = SavedStates(tmp_path)
    for key, day, changed in (("b", 3, 20), ("c", 1, 22), ("a", 2, 21), ("d", 4, 19)):
        of = replace(ORIGIN, key=key, saved=f"2026-03-{day:02d} 02:00:00 UTC")
        states.save(replace(STATE, origin=of, changed=f"2026-03-{changed} 02:00:00 UTC"))
    later = replace(ORIGIN, key="e", saved="2026-03-02 23:00:00 UTC")
    states.save(replace(SETTINGS, origin=later, changed="2026-03-30 00:00:00 UTC"))
    assert [state.origin.key for state in states.read_all()[0]] == ["c", "a", "e", "b", "d"]


BOX = """
name: box
switches: {ocs: {model: polatis, address: "tl1://box.lab", size: 4x4}}
instruments:
  voa: {kind: attenuator, model: polatis-voa, address: "tl1://box.lab", channels: 4}
"""


def test_states_of_one_box_are_of_its_switch_and_of_its_attenuator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were left by a testbed file with other names, and are known by the address."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    path, states = tmp_path / "box.yaml", SavedStates(tmp_path / "state")
    path.write_text(BOX)
    of = replace(ORIGIN, testbed="another", address="tl1://box.lab")
    states.save(replace(STATE, origin=replace(of, instrument="matrix")))
    states.save(replace(SETTINGS, origin=replace(of, instrument="dimmer")))
    found = leftovers.leftovers(load(path))
    names = {each.state.origin.instrument: each.name for each in found.left}
    assert names == {"matrix": "ocs", "dimmer": "voa"}


@pytest.mark.parametrize(
    ("address", "stated"), [("tl1://ocs.lab", "tl1://ocs.lab"), (None, "no address")]
)
def test_an_origin_states_what_was_read_and_for_what(address: str | None, stated: str) -> None:
    testbed = SimpleNamespace(name="lab", path=Path("/labs/lab.yaml"))
    made = origin("key 7", "ocs", "Polatis, serial 7", address, testbed, "run 3")
    assert (made.key, made.instrument, made.identity) == ("key 7", "ocs", "Polatis, serial 7")
    assert (made.testbed, made.file, made.purpose) == ("lab", "/labs/lab.yaml", "run 3")
    assert made.address == stated
    assert str(made).endswith(f"run 3, from Polatis, serial 7 at {stated}")
    assert f"by {made.user} on {made.host}, " in str(made)


LASER = """
name: bright
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}
  meter: {kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid", channels: 4,
          damage: 5 dBm}
fibers: [{fiber: "laser -> meter.1", loss: 1 dB}]
"""


def test_a_setting_passes_the_interlock_and_is_noted_before_it_is_sent(
    simulated: Simulated,
) -> None:
    """More than 5 dBm damages the meter, behind a fiber of 1 dB: up to 6 dBm may be launched."""
    bench = simulated(LASER)
    laser: Any = bench.instruments["laser"]
    noted: list[tuple[str, float]] = []
    bench.setting_notes["laser"] = lambda setting, value: noted.append((setting, value))
    laser.set_power(1, 5.5)
    laser.set_emission(1, on=True)
    assert noted == [("power 1", 5.5), ("emission 1", True)]
    with pytest.raises(InterlockError, match=r"(?s)power 1 of laser is not set to 6.5.*meter.1"):
        laser.set_power(1, 6.5)
    assert noted[2:] == []
    assert laser.read_settings([1])["power 1"] == 5.5


def test_a_plan_of_other_circuits_is_a_difference_of_sets(
    simulated: Simulated, tmp_path: Path
) -> None:
    """By hand: of three circuits one stays, two go, and one comes."""
    (tmp_path / "lab").mkdir()
    bench = simulated(describe(tmp_path / "lab"))
    switch: Any = bench.switches["ocs"]
    set_circuits(switch, LEFT | FOREIGN)
    fabric = Fabric(bench)
    change = fabric.prepare(Plan("p", {"ocs": circuits("1>9", "4>10")})).changes["ocs"]
    assert (change.keep, change.remove, change.add) == (
        circuits("1>9"),
        circuits("2>12", "3>11"),
        frozenset({Circuit(4, 10)}),
    )
