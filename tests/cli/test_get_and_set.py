"""`lightrig get` and `set`: settings by name on served instruments, and what undoes them."""

import contextlib
import json

import pytest
from typer.testing import CliRunner

from lightrig.harness.bench import bind_only
from lightrig.harness.bench.named_values import shown_value
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.cli.app import application
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.simulated.devices import simulated_keysight_n7776c
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import load

FILE = """
name: bench
switches:
  ocs: {{model: polatis, address: "{ocs}", login: env:LAB_OCS, size: 4x4}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "{laser}", launch: {{max: 3 dBm}}}}
  voa: {{kind: attenuator, model: keysight-n7764a, address: "{voa}", channels: 2}}
fibers:
  - laser -> ocs.1
  - ocs.[5-6] -> voa.[1-2]
"""
PLACES = {name: f"{name}.invalid" for name in ("ocs", "laser", "voa")}
SCHEMES = {"ocs": "tl1", "laser": "scpi", "voa": "scpi"}


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(simulated_keysight_n7776c, "LASER_ON", 10_000_000)  # in real time
    file = tmp_path / "bench.yaml"
    file.write_text(FILE.format(**{n: f"{SCHEMES[n]}://{place}" for n, place in PLACES.items()}))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(file), clock, 1)
        with contextlib.closing(world):
            file.write_text(FILE.format(**{n: world.services[n].address for n in PLACES}))
            monkeypatch.setenv("LAB_OCS", ":".join(world.services["ocs"].login))
            set_by_hand(file, laser=-3.0, voa=0.0, emission=False)
            yield file


def set_by_hand(file, laser=None, voa=None, emission=None):
    """Set as a person does at the front panels."""
    with contextlib.closing(bind_only(load(file), {"laser", "voa"}, "a test")) as bench:
        if laser is not None:
            bench.instruments["laser"].set_power(1, laser)
        if emission is not None:
            bench.instruments["laser"].set_emission(1, on=emission)
        if voa is not None:
            bench.instruments["voa"].set_attenuation(1, voa)


def now(file):
    with contextlib.closing(bind_only(load(file), {"laser", "voa"}, "a test")) as bench:
        laser, voa = bench.instruments["laser"], bench.instruments["voa"]
        power = laser.read_settings([1])["power 1"]
        return power, laser.emission(1), voa.attenuation(1), voa.attenuation(2)


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def stored(file):
    return list((file.parent / "state").glob("*.found.json"))


@pytest.mark.parametrize(
    ("kind", "value", "unit", "text"),
    [
        ("averaging", 2e8, "ns", "200 ms"),
        ("power", -3.256, "dBm", "-3.26 dBm"),
        ("shutter", True, "", "open"),
        ("emission", False, "", "off"),
        ("attenuation", 3.5, "dB", "3.5 dB"),
        ("circuit", "1>5", "", "1>5"),
        ("temperature", None, "°C", "not known"),
    ],
)
def test_a_value_is_shown_as_a_person_reads_it(kind, value, unit, text):
    assert shown_value(kind, value, unit) == text


def test_a_setting_is_read_by_its_name(lab):
    result = run("get", lab, "laser.power")
    assert result.exit_code == 0, result.output
    assert " ".join(result.stdout.split()) == "laser.1.power -3 dBm (emission is off) simulated"


def test_all_of_an_instrument_and_of_a_port(lab):
    run("set", lab, "voa.2.shutter=open")
    result = run("get", lab, "voa", "ocs.1", "--json")
    assert result.exit_code == 0, result.output
    found = {row["name"]: (row["value"], row["unit"]) for row in json.loads(result.stdout)}
    assert found["voa.1.attenuation"] == (0, "dB")
    assert found["voa.2.shutter"] == (True, "")
    assert found["ocs.1.circuit"] == ("none", "")
    assert found.keys() >= {"ocs.1.power"}
    assert not any(name.startswith(("laser", "ocs.5")) for name in found)
    assert all(row["simulated"] for row in json.loads(result.stdout))


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("lasr", "has no instrument 'lasr'; did you mean 'laser'?"),
        ("laser.powr", "nothing is named 'laser.powr'; did you mean 'laser.1.power'?"),
        ("voa.3", "nothing is named 'voa.3'"),
    ],
)
def test_a_name_without_a_value_is_answered_with_the_nearest(lab, subject, sentence):
    result = run("get", lab, subject)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_laser_is_set_and_stays_until_it_is_undone(lab):
    result = run("set", lab, "laser.power=1.5dBm", "laser.emission=on")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "laser.1.power: 1.5 dBm; before, -3 dBm\nlaser.1.emission: on; before, off\n"
    )
    assert f"`lightrig restore {lab}` restores what was found" in result.stderr
    assert now(lab) == (1.5, True, 0, 0)
    assert run("restore", lab).exit_code == 0
    assert now(lab) == (-3.0, False, 0, 0)
    assert not stored(lab)


def test_what_is_set_back_by_hand_leaves_nothing_to_restore(lab):
    run("set", lab, "voa.1.attenuation=3dB")
    assert stored(lab)
    result = run("set", lab, "voa.1.attenuation=0 dB")
    assert "nothing is left to restore" in result.stderr
    assert not stored(lab)


def test_a_run_ends_with_what_a_person_has_set(lab):
    run("set", lab, "voa.1.attenuation=3dB", "laser.emission=on")
    for _ in range(2):
        with contextlib.closing(bind_only(load(lab), {"laser", "voa"}, "a night")) as bench:
            settings = SavedInstruments(bench)
            settings.save_initial_state()
            bench.instruments["voa"].set_attenuation(1, 20.0)
            bench.instruments["laser"].set_emission(1, on=False)
            settings.restore()
        assert now(lab) == (-3.0, True, 3.0, 0)
    assert run("restore", lab).exit_code == 0
    assert now(lab) == (-3.0, False, 0, 0)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("laser.power=3", "found '3', expected a power in dBm"),
        ("laser.power=3dB", "found '3dB', expected a power in dBm"),
        ("laser.emission=yes", "found 'yes' for emission, expected off or on"),
        ("voa.1.shutter=off", "found 'off' for shutter, expected closed or open"),
        ("voa.attenuation=3dB", "is voa.1.attenuation, voa.2.attenuation: name one of them"),
        ("laser.colour=3", "no setting is named 'laser.colour'"),
        ("ocs.1.power=3dBm", "no setting is named 'ocs.1.power'"),
        ("ocs.1.shutter=shut", "found 'shut' for shutter, expected closed or open"),
        ("ocs.2.shutter=closed", "port 2 of ocs is not cabled in"),
        ("laser.power", "expected NAME=VALUE"),
        ("laser.power=4dBm", "4 dBm is more than the testbed allows"),
    ],
)
def test_what_cannot_be_set_is_refused_before_anything_is_sent(lab, assignment, sentence):
    result = run("set", lab, assignment)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert now(lab) == (-3.0, False, 0, 0)
    assert not stored(lab)


def test_where_one_of_several_is_refused_those_before_it_are_put_back(lab):
    run("set", lab, "voa.2.attenuation=2dB")
    result = run("set", lab, "voa.1.attenuation=3dB", "laser.power=99dBm")
    assert result.exit_code == 2
    assert "99 dBm is more than the testbed allows" in result.stderr
    assert "voa.1.attenuation was set, and is 0 dB again" in result.stderr
    assert now(lab) == (-3.0, False, 0, 2.0)
    assert run("restore", lab).exit_code == 0
    assert now(lab) == (-3.0, False, 0, 0)


def test_what_cannot_be_put_back_is_said_and_restored_later(lab, monkeypatch):
    driver = type(bind_and_close(lab))
    restore = driver.restore_settings

    def silent_for(values):
        return lambda self, settings: (
            restore(self, settings) if list(settings.values()) == values else silent(self)
        )

    def silent(self):
        raise NoReplyError(self.name, "did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "restore_settings", silent_for([3.0]))
        result = run("set", lab, "voa.1.attenuation=3dB", "voa.2.attenuation=4dB")
    assert result.exit_code == 6
    assert "NOT as found: voa" in result.stderr
    assert now(lab)[2] == 3.0
    assert run("restore", lab).exit_code == 0
    assert now(lab) == (-3.0, False, 0, 0)


def bind_and_close(file):
    with contextlib.closing(bind_only(load(file), {"voa"}, "a test")) as bench:
        return bench.instruments["voa"]
