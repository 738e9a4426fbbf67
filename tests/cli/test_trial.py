"""`lightrig trial` on served instruments and on a simulated fabric, and what is left after it."""

import contextlib
import json
import random
import re
import signal
import subprocess
from pathlib import Path

import preloaded
import pytest
from typer.testing import CliRunner

from lightrig.api import Results, open_lab
from lightrig.harness.bench import bind_only
from lightrig.harness.cli.app import application
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.devices import simulated_keysight_n7776c
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import load

FILE = """
name: bench
switches:
  ocs:
    model: polatis
    address: "{ocs}"
    login: env:LAB_OCS
    size: 4x4
    options: {{monitors: both}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "{laser}", launch: {{max: 3 dBm}}}}
  voa: {{kind: attenuator, model: keysight-n7764a, address: "{voa}", channels: 2, damage: 23 dBm}}
fibers:
  - laser -> voa.1
  - voa.1 -> ocs.1
simulation:
  switches:
    ocs: {{monitor: {{averaging: 1 ms, noise: 0.03 dB}}}}
"""
PLACES = {name: f"{name}.invalid" for name in ("ocs", "laser", "voa")}
SCHEMES = {"ocs": "tl1", "laser": "scpi", "voa": "scpi"}
FOUND = {"voa 1": 1.0, "voa 2": 2.0, "shutter": True, "emission": True}


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulated_keysight_n7776c, "LASER_ON", 10_000_000)  # in real time
    file = tmp_path / "bench.yaml"
    file.write_text(FILE.format(**{n: f"{SCHEMES[n]}://{place}" for n, place in PLACES.items()}))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(file), clock, 1)
        with contextlib.closing(world):
            file.write_text(FILE.format(**{n: world.services[n].address for n in PLACES}))
            monkeypatch.setenv("LAB_OCS", ":".join(world.services["ocs"].login))
            with contextlib.closing(bind_only(load(file), {"laser", "voa"}, "a test")) as bench:
                voa = bench.instruments["voa"]
                voa.restore_settings({"attenuation 1": 1.0, "attenuation 2": 2.0})
                voa.restore_settings({"shutter 1": True})
                bench.instruments["laser"].set_emission(1, on=True)
            yield file


def now(file):
    with contextlib.closing(bind_only(load(file), {"laser", "voa"}, "a test")) as bench:
        voa = bench.instruments["voa"]
        return {
            "voa 1": voa.attenuation(1),
            "voa 2": voa.attenuation(2),
            "shutter": voa.read_settings([1])["shutter 1"],
            "emission": bench.instruments["laser"].emission(1),
        }


POWER = ("--vary", "voa.1.attenuation=0dB,2.5dB", "--measure", "optical_power", "--at", "ocs.1")


def run(*arguments):
    return CliRunner().invoke(application(), ["trial", *map(str, arguments)])


def stored(file):
    return list((file.parent / "state").glob("*.found.json"))


def test_an_attenuation_is_found_in_a_power_and_all_is_put_back(lab):
    result = run(lab, *POWER, "--with", "voa.2.attenuation=7dB", "--json", "--seed", 3)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (effect,) = document["effects"]
    assert effect["lower"] <= effect["effect"] <= effect["upper"]
    # An attenuator of a box is exact to some hundredths of a dB; the monitor scatters by 0.03 dB.
    assert effect["effect"] == pytest.approx(-2.5, abs=0.2)
    assert (effect["is_seen"], effect["less_than_matters"]) == (True, False)
    assert document["values"] == ["0 dB", "2.5 dB"]
    assert document["simulated"]
    assert now(lab) == FOUND
    assert not stored(lab)
    said = result.stderr
    assert "trial of voa.1.attenuation: 0 dB, 2.5 dB; found 1 dB, which is put back" in said
    planned = re.search(r"plan: (\d+) blocks of 2 measurements in random order \(seed 3\)", said)
    assert planned is not None
    assert int(planned[1]) == document["blocks"] == len(document["orders"])
    (recorded,) = Results(lab.parent / "results").runs()
    assert (recorded.by_hand, recorded.state) == (True, "complete")
    rows = Results(lab.parent / "results").frame(run=recorded.run)
    powers = rows[rows["quantity"] == "optical_power"]
    assert len(powers) == 2 * (8 + document["blocks"])
    of_trial = powers[powers["block"].str.startswith("trial")]
    means = of_trial.groupby("set_to")["value"].mean()
    assert means["2.5 dB"] - means["0 dB"] == pytest.approx(effect["effect"], abs=1e-9)
    # The order in which the rows were taken is that of the plan.
    taken = [document["values"].index(text) for text in of_trial.sort_values("time_ns")["set_to"]]
    assert taken == [index for order in document["orders"] for index in order]
    (row,) = rows[rows["quantity"] == "trial.difference"].to_dict("records")
    assert (row["value"], row["n"]) == (effect["effect"], document["blocks"])
    assert (row["subject"], row["measured"]) == ("voa.1.attenuation", "optical_power")


def test_a_channel_that_no_light_goes_through_changes_nothing(lab):
    result = run(
        lab, "--vary", "voa.2.attenuation=0dB,9dB", "--measure", "optical_power", "--at", "ocs.1"
    )
    assert result.exit_code == 0, result.output
    assert "less than matters" in result.stdout
    assert now(lab) == FOUND


@pytest.mark.parametrize(
    ("vary", "measure", "more", "sentence"),
    [
        ("voa.1.attenuation=3dB", "optical_power", (), "expected two values or more"),
        ("voa.1.attenuation=3dB,3.0 dB", "optical_power", (), "expected two values or more"),
        ("voa.1.attenuation=3dB,loud", "optical_power", (), "found 'loud'"),
        ("voa.attenuation=0dB,1dB", "optical_power", (), "name one of them"),
        ("vao.1.attenuation=0dB,1dB", "optical_power", (), "no instrument 'vao'"),
        ("voa.1.attenuation", "optical_power", (), "expected NAME=VALUE"),
        ("voa.1.attenuation=0dB,1dB", "optical_powr", (), "no quantity 'optical_powr'"),
        ("voa.1.attenuation=0dB,1dB", "insertion_loss", (), "no duration"),
        ("voa.1.attenuation=0dB,1dB", "relock", (), "no two plans"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--at", "ocs"), "nothing reads power"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--at", ""), "state which"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--matters", "much"), "found 'much'"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--matters", "-1dB"), "above 0"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--matters", "1%"), "above 0 in dB"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--settle", "soon"), "found 'soon'"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--with", "voa.2"), "expected NAME=VALUE"),
        ("laser.power=0dBm,4dBm", "optical_power", (), "4 dBm is more than the testbed allows"),
        ("voa.1.attenuation=0dB,1dB", "optical_power", ("--matters", "0.0001dB"), "more than the"),
    ],
)
def test_what_is_no_trial_is_refused_and_all_is_as_it_was(lab, vary, measure, more, sentence):
    at = ("--at", "ocs.1") if "relock" not in measure else ()
    result = run(lab, "--vary", vary, "--measure", measure, *at, *more)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert now(lab) == FOUND
    assert not stored(lab)


def test_a_dark_port_is_no_measurement(lab):
    result = run(lab, *POWER, "--with", "voa.1.shutter=closed")
    assert result.exit_code == 3
    assert "as without light" in result.stderr
    assert now(lab) == FOUND


def test_the_shutter_of_a_port_is_varied_saved_and_put_back(lab):
    states = []

    def level():
        states.append(
            [json.loads(path.read_text())["found"].get("shutter 1") for path in stored(lab)]
        )
        return 1.0

    with open_lab(lab, notify=len) as bench:
        switch = bench.switches["ocs"]
        before = switch.shutters([1])
        seen = bench.trial("ocs.1.shutter", ["open", "closed"], level)
        assert switch.shutters([1]) == before == {1: True}
    assert seen.values == ("open", "closed")
    # Saved on disk before each change: a kill at any of these moments can be undone.
    assert len(states) == 2 * (8 + seen.blocks)
    assert all(each.count(True) >= 1 for each in states)
    assert now(lab) == FOUND
    assert not stored(lab)


OPTIONS = [*POWER, "--with", "voa.2.attenuation=7dB", "--matters", "0.01dB"]

KILLED_AFTER_LINES = """
import os, signal, sys

from lightrig.harness.cli import main

write, left = os.write, int(sys.argv.pop(1))


def counted(file, data):
    global left
    done = write(file, data)
    if os.readlink(f"/proc/self/fd/{file}").endswith("/journal.jsonl"):
        left -= bytes(data).count(b"\\n")
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return done


os.write = counted
main()
"""
"""A `lightrig` that is killed once its run's journal has a number of lines."""


def begun(file, part):
    """Start a trial in a process of its own; return it once it has begun that part."""
    process = preloaded.Process(
        ["lightrig", "trial", file, *OPTIONS],
        cwd=file.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    for line in process.stderr:
        if part in line:
            return process
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("part", ["pilot of", "plan:"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_orderly(lab, part, number):
    with begun(lab, part) as process:
        process.send_signal(number)
        _, said = process.communicate(60)
        assert process.wait() == 130, said
    assert "ended by a signal; what was found is restored" in said
    assert now(lab) == FOUND
    assert not stored(lab)


def test_a_killed_trial_is_restored(lab):
    with begun(lab, "plan:") as process:
        process.kill()
        process.wait()
    assert stored(lab)
    result = CliRunner().invoke(application(), ["restore", str(lab)])
    assert result.exit_code == 0, result.output
    assert now(lab) == FOUND
    assert not stored(lab)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_a_trial_that_is_killed_at_any_moment_is_restored(lab, seed):
    """Of chance is after how many lines of the run's journal it is killed."""
    lines = random.Random(seed).randrange(2, 40)
    command = ["python", "-c", KILLED_AFTER_LINES, lines, "trial", lab, *OPTIONS]
    ended = preloaded.run(command, lab.parent)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert stored(lab)
    result = CliRunner().invoke(application(), ["restore", str(lab)])
    assert result.exit_code == 0, result.output
    assert now(lab) == FOUND


# --------------------------------------------------------------------------- changes of circuits

FABRIC = Path(__file__).parents[2] / "testbeds" / "mixnet.yaml"


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """A simulated fabric in virtual time, with a laser that none of its links uses."""
    monkeypatch.chdir(tmp_path)
    text = FABRIC.read_text()
    assert "\ninstruments:" not in text
    lamp = 'lamp: {kind: light_source, model: keysight-n7776c, address: "scpi://lamp.invalid"'
    text = text.replace(
        "\nservers:", f"\ninstruments:\n  {lamp}, launch: {{max: 3 dBm}}}}\n\nservers:", 1
    )
    (tmp_path / "fabric.yaml").write_text(text)
    return tmp_path / "fabric.yaml"


@pytest.mark.parametrize("measure", ["relock", "reconfiguration.carrier_up"])
def test_a_lamp_beside_it_does_not_change_how_long_a_fabric_takes(fabric, measure):
    result = run(
        fabric, "--vary", "lamp.power=0dBm,3dBm", "--measure", measure, "--matters", "5%",
        "--instruments", "simulated", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (effect,) = document["effects"]
    assert -0.05 < effect["lower"] < effect["upper"] < 0.05
    assert effect["less_than_matters"]
    assert all(1e9 < level < 10e9 for level in document["levels"])


@pytest.mark.long
def test_ten_whole_trials_of_an_encoding_that_changes_nothing(fabric):
    """The simulated link takes as long with every encoding; fewer than 8 of 10: 1 in 90."""
    hold = 0
    for seed in range(10):
        result = run(
            fabric, "--vary", "*.fec=rs,off", "--measure", "relock", "--matters", "4%",
            "--instruments", "simulated", "--seed", seed, "--json",
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        (effect,) = json.loads(result.stdout)["effects"]
        hold += effect["lower"] <= 0 <= effect["upper"]
    assert hold >= 8


def test_a_duration_that_a_change_does_not_have_is_named_with_those_it_has(fabric):
    result = run(
        fabric, "--vary", "lamp.power=0dBm,3dBm", "--measure", "carrier_up", "--at", "server9.nic0",
        "--instruments", "simulated",
    )  # fmt: skip
    assert result.exit_code == 2
    assert "has shown no carrier_up at server9.nic0" in result.stderr


def test_the_effect_of_a_function_by_its_world(fabric):
    """The truth is the file's: a function whose value a setting changes by 4 %."""
    with open_lab(fabric, "simulated", notify=len) as lab:
        lamp = lab.light_source

        def level():
            return 5.0 if lamp.read_settings([1])["power 1"] < 1 else 5.2

        found = lab.trial("lamp.power", ["0 dBm", "2 dBm"], level, hold={"lamp.emission": "on"})
        assert found.effects[0].value == pytest.approx(0.04)
        assert found.quantity == "level"
        assert "+4.00 %" in str(found)
        assert lamp.read_settings([1])["emission 1"] is False


LINKS = """
name: small
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}
servers:
  server[0-1]: {address: "ssh://{name}.invalid", nics: {nic0: {
    netdev: "ens1f{p}", rdma: "mlx5_{p}", ports: 2, rate: 400G, transceiver: fr}}}
transceivers:
  fr: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-1].nic0.p[0-1] <-> ocs"]
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
"""


@pytest.fixture
def links(tmp_path, monkeypatch):
    """Links whose transceivers and firmware tell their stages, in virtual time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(LINKS)
    return tmp_path / "small.yaml"


def test_a_stage_that_nothing_tells_apart_is_named_with_what_is(links):
    """The firmware's timers start anew only with a forced speed."""
    result = run(
        links, "--vary", "*.fec=rs,off", "--measure", "relock.phy", "--instruments", "simulated"
    )
    assert result.exit_code == 2, result.output
    assert "has not told relock.phy apart" in result.stderr
    assert "NIC input, PHY, firmware, driver (between " in " ".join(result.stderr.split())


def test_what_auto_negotiation_costs_is_found(links):
    """Of Opus's NICs (section 5.1): 6 s with it, 3 s without; here of the later of four ports."""
    with links.open("a") as file:
        file.write("simulation: {nic: {negotiation: {mean: 3 s, sd: 300 ms}}}\n")
    with open_lab(links, "simulated", notify=len) as lab:
        lab.bring_up(lab.fabric.plans["straight"])
        found = lab.trial("*.autoneg", ["on", "off"], "relock", matters="10%")
    (effect,) = found.effects
    # Of four ports with 3 and 0.3 s the last takes 3.31 s; with 6 and 0.42 s 6.44 s.
    assert effect.lower < 3.31 / 6.44 - 1 < effect.upper
    assert effect.upper < -0.4
    assert effect.is_seen


@pytest.mark.parametrize("name", ["relock.price", "relock.between", "relock.nothing"])
def test_what_is_no_stage_is_refused_before_anything_is_varied(links, name):
    result = run(links, "--vary", "*.fec=rs,off", "--measure", name, "--instruments", "simulated")
    assert result.exit_code == 2
    assert f"{name} is no stage of a relock" in " ".join(result.stderr.split())
