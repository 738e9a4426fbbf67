"""Settings of NIC ports in a trial: what a served lab's own ports have before, during and after."""

import contextlib
import random
import signal

import preloaded
import pytest
from bench.served_lab import FOREIGN, LEFT, STRAIGHT, ServedLab, set_circuits
from real_time import until
from typer.testing import CliRunner

from lightrig.api import open_lab
from lightrig.harness.bench.nic_settings import is_valid
from lightrig.harness.cli.app import application
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Port

PORTS = [f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)]


@pytest.fixture
def served(tmp_path, monkeypatch, all_is_carried_out):
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(ServedLab(tmp_path)) as lab:
        for name, value in lab.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(lab.switch, LEFT | FOREIGN)
        yield lab


def now(served):
    """Return what the simulated ports themselves hold, by name."""
    return {
        str(port): (one.fec_encodings, one.auto_negotiation, one.advertises_all)
        for port, one in served.world.roster.items()
    }


def stored(served):
    return list((served.folder / "state").glob("*.found.json"))


FOUND = dict.fromkeys(PORTS, (("Auto", "RS"), True, False))


def seen_in_trial(served, vary, values):
    """Return what the ports held at each measurement of a trial, and its result."""
    seen = []

    def level():
        seen.append(now(served))
        return 1.0

    with open_lab(served.file, notify=len) as lab:
        result = lab.trial(vary, values, level)
        # At once, not only when the lab is closed.
        assert now(served) == FOUND
        assert not [path for path in stored(served) if "settings.server" in path.name]
    return seen, result


def test_the_encoding_of_all_ports_is_varied_and_put_back(served):
    seen, result = seen_in_trial(served, "*.fec", ["rs", "off"])
    assert len(seen) == 2 * (8 + result.blocks)
    encodings = [{port[0] for port in each.values()} for each in seen]
    assert encodings.count({("RS",)}) == encodings.count({("Off",)}) == len(seen) / 2
    order = [{("RS",): 0, ("Off",): 1}[one] for (one,) in encodings[16:]]
    assert order == [index for block in result.orders for index in block]
    assert now(served) == FOUND


def test_the_speed_of_one_port_is_set_without_negotiation_and_put_back_with_it(served):
    with open_lab(served.file, notify=len) as lab:
        lab.bring_up(lab.fabric.plans["straight"])
        seen = []

        def level():
            seen.append(now(served))
            return 1.0

        lab.trial("server0.nic0.p1.autoneg", ["on", "off"], level)
        assert now(served) == FOUND
    varied = {each["server0.nic0.p1"] for each in seen}
    assert varied == {(("Auto", "RS"), True, False), (("Auto", "RS"), False, False)}
    assert all(each["server1.nic0.p1"] == FOUND["server1.nic0.p1"] for each in seen)


KILLED = """
import os, signal, sys
from lightrig.api import open_lab

calls = 0
def level():
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0

lab = open_lab(sys.argv[1])
lab.trial("*.fec", ["rs", "off"], level)
"""


@pytest.mark.parametrize("call", [1, pytest.param(19, marks=pytest.mark.long)])
@pytest.mark.usefixtures("all_is_carried_out")
def test_a_trial_that_is_killed_is_restored(served, call):
    ended = preloaded.run(["python", "-c", KILLED, served.file, call])
    assert ended.returncode == -9, ended.stderr
    assert now(served) != FOUND
    result = CliRunner().invoke(application(), ["restore", str(served.file)])
    assert result.exit_code == 0, result.output
    assert now(served) == FOUND
    assert not stored(served)


KILLED_AFTER_MESSAGES = """
import os, signal, socket, sys

from lightrig.harness.cli import main

left = int(sys.argv.pop(1))


def counted(send):
    def sends(self, *data):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return send(self, *data)

    return sends


for name in ("send", "sendall"):
    setattr(socket.socket, name, counted(getattr(socket.socket, name)))
main()
"""
"""A `lightrig` that is killed before it sends one message more to switches and servers."""

VARIED = (
    ("*.fec=rs,off", "server0.nic0.p1.autoneg=off"),
    ("server1.nic0.p0.autoneg=on,off", "*.fec=off"),
    ("server0.nic0.p0.fec=rs,off", "*.speed=100G"),
)
"""What is varied, and what is set beside it for the time of the trial."""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_a_trial_of_relocks_that_is_killed_at_any_moment_is_restored(served, seed):
    """Of chance is how many messages it sends: to find and save settings, set them, and measure."""
    set_circuits(served.switch, STRAIGHT | FOREIGN)
    chance = random.Random(seed)
    messages = chance.randrange(170, 900)
    vary, fixed = VARIED[seed % len(VARIED)]
    command = ["python", "-c", KILLED_AFTER_MESSAGES, messages, "trial", served.file]
    options = ["--vary", vary, "--with", fixed, "--measure", "relock"]
    ended = preloaded.run([*command, *options], served.folder)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert stored(served)
    result = CliRunner().invoke(application(), ["restore", str(served.file)])
    assert result.exit_code == 0, result.output
    assert now(served) == FOUND
    assert served.switch.circuits() == STRAIGHT | FOREIGN
    assert not stored(served)
    lasers = [served.testbed.cabling.speaker(port) for port in served.world.roster]
    # One that is left down has its laser off; one that is up comes on within half a second.
    until(lambda: all(served.world.light.level(one) > 0 for one in lasers), SystemClock())


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        ("server0.nic0.p0.fec=rs,best", "found 'best' for fec, expected rs, baser or off"),
        ("server0.nic0.p0.speed=100G,fast", "expected a rate such as 100G"),
        ("server0.nic0.p0.autoneg=on,maybe", "expected on or off"),
        ("server0.nic0.p7.fec=rs,off", "has no NIC port 'server0.nic0.p7'"),
        ("server0.nic0.p0.fec=rs", "expected two values or more"),
    ],
)
def test_what_no_port_can_be_set_to_is_refused(served, vary, sentence):
    result = CliRunner().invoke(
        application(), ["trial", str(served.file), "--vary", vary, "--measure", "relock"]
    )
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert now(served) == FOUND
    assert served.switch.circuits() == LEFT | FOREIGN
    assert not stored(served)


def test_what_a_driver_refuses_ends_the_trial_with_its_answer_and_all_is_put_back(served):
    result = CliRunner().invoke(
        application(),
        ["trial", str(served.file), "--vary", "*.fec=rs,baser", "--measure", "relock"],
    )
    assert result.exit_code == 3, result.output
    assert "Operation not supported" in result.stderr
    assert now(served) == FOUND
    assert served.switch.circuits() == LEFT | FOREIGN
    assert not stored(served)


def test_what_a_driver_reads_and_does_not_take_is_refused_before_anything_is_varied(served):
    served.world.roster[Port("server1", "nic0.p0")].fec_encodings = ("BaseR",)
    found = now(served)
    result = CliRunner().invoke(
        application(),
        ["trial", str(served.file), "--vary", "*.fec=rs,off", "--measure", "relock"],
    )
    assert result.exit_code == 3, result.output
    assert "encoding baser" in result.stderr
    assert now(served) == found
    assert not stored(served)


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        ("fec ens1f0", "auto rs", True),
        ("fec ens1f0", "rs; reboot", False),
        ("fec ens1f0", "", False),
        ("link ens1f0", "autoneg on", True),
        ("link ens1f0", "autoneg on advertise 100000baseLR4_ER4/Full on", True),
        ("link ens1f0", "speed 100000 duplex full autoneg off", True),
        ("link ens1f0", "wol g", False),
    ],
)
def test_a_saved_state_sets_nothing_that_no_trial_sets(key, value, valid):
    assert is_valid(key, value) is valid
