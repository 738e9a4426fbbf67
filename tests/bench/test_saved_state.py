"""A saved state knows what it was read from, is never overwritten, and is checked when read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.served_lab import circuits

from lightrig.harness.bench.lab_folder import LabFolderError
from lightrig.harness.bench.saved_state import (
    Origin,
    SavedCircuits,
    SavedSettings,
    SavedStateError,
    SavedStates,
)

ORIGIN = Origin(
    *("Polatis serial 1", "ocs", "Polatis, serial 1", "tl1://ocs.lab", "lab", "/lab.yaml"),
    *("run 1", "ann", "gate", "2026-03-14 02:00:00 UTC"),
)
FOUND = circuits("2>12", "1>9")
STATE = SavedCircuits(ORIGIN, FOUND, {"1": "server0.nic0"}, FOUND, FOUND)
SETTINGS = SavedSettings(ORIGIN, {"emission 1": False, "power 1": -3.5})


def test_a_state_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    states = SavedStates(tmp_path / "made" / "anew")
    states.save(STATE)
    states.save(SETTINGS)
    assert states.load(STATE) == STATE
    assert states.load(SETTINGS) == SETTINGS
    assert states.read_all() in (([STATE, SETTINGS], []), ([SETTINGS, STATE], []))
    changing = STATE.changing(FOUND, circuits("3>10"))
    states.save(changing, durable=False)
    assert states.load(STATE) == changing
    for state in (STATE, SETTINGS, STATE):
        states.clear(state)
    assert not list((tmp_path / "made" / "anew").iterdir())


def test_each_instrument_has_its_state(tmp_path: Path) -> None:
    states = SavedStates(tmp_path)
    states.save(STATE)
    other = replace(STATE, origin=replace(ORIGIN, key="Polatis serial 2"))
    assert states.load(other) is None
    assert states.load(SETTINGS) is None
    states.save(other)
    assert states.load(STATE) == STATE


def test_settings_of_an_instrument_that_was_renamed_are_its_unless_several_may_be(
    tmp_path: Path,
) -> None:
    states = SavedStates(tmp_path)
    states.save(SETTINGS)
    renamed = replace(SETTINGS, origin=replace(ORIGIN, instrument="source"))
    assert states.load(renamed, known=["source", "ocs"]) is None
    assert states.load(renamed, known=["source", "voa"]) == SETTINGS
    other = replace(renamed, origin=replace(ORIGIN, key="Polatis serial 12", instrument="source"))
    assert states.load(other, known=["source"]) is None
    states.save(replace(SETTINGS, origin=replace(ORIGIN, instrument="lamp")))
    with pytest.raises(SavedStateError, match=r"lamp\.found\.json and .*ocs\.found\.json are its"):
        states.load(renamed, known=["source"])
    assert states.load(renamed, known=["source", "lamp"]) == SETTINGS


def test_circuits_of_a_change_that_was_begun_are_ours() -> None:
    state = STATE.changing(circuits("1>9", "2>12"), circuits("1>9", "2>10"))
    for present in (("1>9", "2>12"), ("1>9",), ("1>9", "2>10")):
        assert not state.foreign(circuits(*present))
        assert not state.missing(circuits(*present))
    assert list(map(str, state.foreign(circuits("1>9", "3>11")))) == ["3>11"]
    assert list(map(str, state.missing(circuits("2>10")))) == ["1>9"]


def test_ports_with_another_fiber_are_recabled() -> None:
    assert STATE.recabled({"1": "server0.nic0"}) == []
    assert STATE.recabled({"1": "server1.nic0", "10": "a", "2": "b"}) == ["1", "2", "10"]


def test_the_last_two_values_of_a_setting_are_noted() -> None:
    state = SETTINGS
    for value in (1.0, 2.0, 3.0):
        state = state.setting("power 1", value)
    assert state.values == {"power 1": (2.0, 3.0)}
    assert state.found == SETTINGS.found
    assert state.changed


WHOLE = {"lightrig state": 1}


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'{"lightrig state": 2}',
        b'{"lightrig state": 1}',
        b"[" * 100_000,
        b'{"lightrig state": 1, "changed": "", "origin": 7}',
        b'{"lightrig state": 1, "changed": "", "origin": {"key": "k"}}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, damaged: bytes) -> None:
    states = SavedStates(tmp_path)
    states.save(STATE)
    path = states.path_of(STATE)
    path.write_bytes(damaged)
    with pytest.raises(SavedStateError, match=r"found\.json is damaged") as error:
        states.load(STATE)
    assert "set the instrument by hand" in str(error.value)
    states.save(SETTINGS)
    found, (refused,) = states.read_all()
    assert found == [SETTINGS]
    assert str(path) in str(refused)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("name", ["found", "before", "after", "cabling", "origin", "changed"])
@pytest.mark.parametrize("value", [None, 7, "1>9", ["1-9"], [1], {"a": "b"}, [None]])
def test_a_field_of_another_kind_is_damage_or_harmless(
    tmp_path: Path, name: str, value: object
) -> None:
    states = SavedStates(tmp_path)
    states.save(STATE)
    path = states.path_of(STATE)
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    try:
        state = states.load(STATE)
    except SavedStateError:
        return
    assert isinstance(state, SavedCircuits)
    assert state.found == FOUND


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_is_changed(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabFolderError, match="LIGHTRIG_STATE"):
        SavedStates(tmp_path / "file").save(STATE)
