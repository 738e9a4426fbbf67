"""`lightrig set` of a switch's shutters: read back, judged as circuits are, undone by `restore`.

What the switch does is read by a session of the test's own, over TL1.
"""

import contextlib
import json
import os
import re
import signal

import preloaded
import pytest
from bench.accounts import ANN, needs_accounts
from bench.served_lab import FOREIGN, LEFT, ServedLab, set_circuits
from typer.testing import CliRunner

from lightrig.harness.bench import bind_only
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.cli.app import application
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.devices import simulated_keysight_n7776c
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.switches.polatis import Polatis
from lightrig.testbeds import Circuit, load

ALL_PORTS = range(1, 17)
FOUND_CLOSED = {2, 7, 12, 15}
"""Ports whose shutters somebody has closed before: 2 and 12 are the lab's, 7 and 15 are not."""


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        served.switch.set_shutters(sorted(FOUND_CLOSED), is_open=False)
        yield served


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def closed(lab):
    return {port for port, is_open in lab.switch.shutters(ALL_PORTS).items() if not is_open}


def stored(lab):
    return list((lab.folder / "state").glob("*.found.json"))


def test_a_shutter_is_closed_and_opened_and_undone(lab):
    result = run("set", lab.file, "ocs.11.shutter=closed", "ocs.2.shutter=open")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "ocs.11.shutter: closed; before, open\nocs.2.shutter: open; before, closed\n"
    )
    assert f"`lightrig restore {lab.file}` restores what was found" in result.stderr
    assert closed(lab) == FOUND_CLOSED - {2} | {11}
    assert lab.switch.circuits() == LEFT | FOREIGN
    read = run("get", lab.file, "ocs.11.shutter", "ocs.2.shutter")
    assert [" ".join(line.split()) for line in read.stdout.splitlines()] == [
        "ocs.11.shutter closed simulated",
        "ocs.2.shutter open simulated",
    ]
    assert run("restore", lab.file).exit_code == 0
    assert closed(lab) == FOUND_CLOSED
    assert not stored(lab)


@pytest.mark.parametrize(
    ("ports", "dark"), [(("ocs.1", "ocs.12"), [12]), (("ocs.2", "ocs.12"), [2, 12])]
)
def test_connect_names_the_closed_shutters_of_its_circuit(lab, ports, dark):
    # Made anew, or there already: a person waits for light that cannot come.
    result = run("connect", lab.file, *ports, "--replace")
    assert result.exit_code == 0, result.output
    named = re.findall(r"shutter of port (\d+) of ocs is closed, so no light passes", result.stderr)
    assert [int(port) for port in named] == dark
    for port in dark:
        assert f"lightrig set {lab.file} ocs.{port}.shutter=open" in result.stderr
    answer = run("connect", lab.file, *ports, "--json")
    assert json.loads(answer.stdout)[0]["closed_shutters"] == dark
    assert closed(lab) == FOUND_CLOSED


def test_what_is_set_back_by_hand_leaves_nothing_to_restore(lab):
    run("set", lab.file, "ocs.3.shutter=closed")
    assert stored(lab)
    result = run("set", lab.file, "ocs.3.shutter=open")
    assert "nothing is left to restore" in result.stderr
    assert not stored(lab)


def test_a_run_names_it_and_ends_with_it(lab):
    run("set", lab.file, "ocs.1.shutter=closed")
    with contextlib.closing(bind_only(load(lab.file), {"ocs"}, "a night")) as bench:
        settings = SavedInstruments(bench)
        settings.save_initial_state()
        bench.switches["ocs"].set_shutters([4], is_open=False)
        settings.restore()
    assert closed(lab) == FOUND_CLOSED | {1}
    result = run("who", lab.file)
    assert "lightrig set ocs.1.shutter=closed" in result.output
    assert run("restore", lab.file).exit_code == 0
    assert closed(lab) == FOUND_CLOSED


def test_a_run_that_finds_no_saved_shutters_saves_none(lab):
    with contextlib.closing(bind_only(load(lab.file), {"ocs"}, "a night")) as bench:
        settings = SavedInstruments(bench)
        settings.save_initial_state()
        assert not stored(lab)


KILLED = """
import os, signal, sys
from lightrig.harness.cli.app import application
from lightrig.instruments.switches.polatis.switch import Polatis

def cut(self, ports, *, is_open, sent=Polatis.set_shutters):
    if {sends}:
        sent(self, ports, is_open=is_open)
    if ports == [9]:
        os.kill(os.getpid(), signal.SIGKILL)

Polatis.set_shutters = cut
application()(["set", sys.argv[1], "ocs.3.shutter=closed", "ocs.9.shutter=closed"])
"""


@pytest.mark.parametrize("sends", [True, False], ids=["after", "before"])
def test_restore_undoes_what_a_killed_command_has_set(lab, sends):
    script = KILLED.format(sends=f"{sends} or ports != [9]")
    done = preloaded.run(["python", "-c", script, lab.file], env=lab.environment)
    assert done.returncode == -signal.SIGKILL
    assert closed(lab) == FOUND_CLOSED | ({3, 9} if sends else {3})
    shown = run("restore", lab.file, "--show")
    assert shown.exit_code == 0
    assert "somebody else has set it" not in shown.output
    result = run("restore", lab.file)
    assert result.exit_code == 0, result.output
    assert closed(lab) == FOUND_CLOSED
    assert not stored(lab)


def test_restore_leaves_to_a_person_what_somebody_else_has_set_since(lab):
    run("set", lab.file, "ocs.3.shutter=closed")
    lab.switch.set_shutters([10], is_open=False)
    result = run("restore", lab.file)
    assert result.exit_code == 3
    assert "somebody else has set it since: shutter 10 is False" in result.stderr
    assert closed(lab) == FOUND_CLOSED | {3, 10}
    assert run("restore", lab.file, "--force").exit_code == 0
    assert closed(lab) == FOUND_CLOSED


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("ocs.15.shutter=open", "port 15 of ocs is not cabled in"),
        ("ocs.99.shutter=open", "port 99 of ocs is not cabled in"),
        ("ocs.3.shutter=0", "found '0' for shutter, expected closed or open"),
        ("ocs.3.label=a", "no setting is named 'ocs.3.label'"),
        ("server0.shutter=open", "server0 has no settings that are set by name"),
    ],
)
def test_what_cannot_be_set_is_refused(lab, assignment, sentence):
    result = run("set", lab.file, "ocs.3.shutter=closed", assignment)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert closed(lab) == FOUND_CLOSED
    assert not stored(lab)


def test_a_port_in_a_circuit_of_somebody_else_is_not_opened(lab):
    set_circuits(lab.switch, (LEFT - {Circuit(2, 12)}) | FOREIGN | {Circuit(6, 12)})
    result = run("set", lab.file, "ocs.3.shutter=closed", "ocs.12.shutter=open")
    assert result.exit_code == 2, result.output
    assert "the shutter of port 12 of ocs is not opened: 6>12 is there" in result.stderr
    assert "ocs.3.shutter was set, and is open again" in result.stderr
    assert closed(lab) == FOUND_CLOSED


def test_a_shutter_that_does_not_do_it_is_named(lab, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Polatis, "set_shutters", lambda *_args, **_kwargs: None)
        result = run("set", lab.file, "ocs.3.shutter=closed")
    assert result.exit_code == 3, result.output
    assert "acknowledged that the shutter of port 3 is closed, but it is not" in result.stderr
    assert not stored(lab)


def test_a_raw_command_that_closes_a_shutter_is_undone(lab):
    result = run("ask", lab.file, "ocs", "OPR-PORT-SHUTTER::4:1:;", "--yes")
    assert result.exit_code == 0, result.output
    assert f"`lightrig restore {lab.file}` restores" in result.stderr
    assert closed(lab) == FOUND_CLOSED | {4}
    assert run("restore", lab.file).exit_code == 0
    assert closed(lab) == FOUND_CLOSED


@needs_accounts
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("set", "ocs.3.shutter=closed"), ("connect", "ocs.4", "ocs.10")),
        (("connect", "ocs.4", "ocs.10"), ("set", "ocs.3.shutter=closed")),
    ],
    ids=["shutters", "circuits"],
)
def test_a_switch_that_one_account_has_changed_is_not_changed_by_another(lab, first, second):
    """Each would keep the other one from restoring what it has changed."""
    assert run(first[0], lab.file, *first[1:]).exit_code == 0
    (state,) = stored(lab)
    os.chown(state, ANN, -1)
    before = lab.switch.circuits(), closed(lab)
    result = run(second[0], lab.file, *second[1:])
    assert result.exit_code == 3, result.output
    assert f"ask account {ANN} to run `lightrig restore`" in result.stderr
    assert (lab.switch.circuits(), closed(lab)) == before
    assert stored(lab) == [state]


BRIGHT = """
name: bright
switches:
  ocs: {{model: polatis, address: "tl1://{ocs}", login: env:LAB_OCS, size: 4x4,
        options: {{monitors: both}}}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "scpi://{laser}"}}
  meter: {{kind: power_meter, model: keysight-n7745a, address: "scpi://{meter}", channels: 2,
          damage: 3 dBm}}
fibers:
  - laser -> ocs.1
  - ocs.[5-6] -> meter.[1-2]
"""
"""A laser whose greatest power is not stated, and can be more than the meter withstands."""


@pytest.fixture
def bright(tmp_path, monkeypatch, all_is_carried_out):
    """Yield the file, a session with the switch, whose circuit is 1>6, and what sets the laser."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(simulated_keysight_n7776c, "LASER_ON", 10_000_000)  # in real time
    file = tmp_path / "bright.yaml"
    names = ("ocs", "laser", "meter")
    file.write_text(BRIGHT.format(**{name: f"{name}.invalid" for name in names}))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(file), clock, 1)
        with contextlib.closing(world):
            places = {n: f"{world.services[n].host}:{world.services[n].port}" for n in names}
            file.write_text(BRIGHT.format(**places))
            service = world.services["ocs"]
            monkeypatch.setenv("LAB_OCS", ":".join(service.login))
            endpoint = Endpoint("tl1", service.host, service.port, service.login)
            with contextlib.closing(Polatis("ocs", endpoint, clock)) as switch:
                switch.change((), [Circuit(1, 6)]).done()
                yield file, switch


def shine(file, dbm):
    """Set the laser and switch it on, past all interlocks, as at its front panel."""
    with contextlib.closing(bind_only(load(file), {"laser"}, "a test")) as bench:
        laser = bench.instruments["laser"]
        laser.on_setting = None
        laser.set_power(1, dbm)
        laser.set_emission(1, on=True)


@pytest.mark.parametrize(
    ("port", "light"),
    [
        (1, r"light of laser\.1, which is not measured"),
        (6, r"(8\.9\d?|9(\.0\d?)?) dBm at ingress 1"),
    ],
    ids=["ingress", "egress"],
)
def test_a_shutter_is_not_opened_to_light_that_destroys_a_receiver(bright, port, light):
    file, switch = bright
    switch.set_shutters([port], is_open=False)
    shine(file, 9.0)
    result = run("set", file, f"ocs.{port}.shutter=open")
    assert result.exit_code == 2, result.output
    refused = f"the shutter of port {port} of ocs is not opened: {light}"
    assert re.search(refused, result.stderr)
    assert "would reach meter.2, whose receiver is destroyed by more than 3 dBm" in result.stderr
    assert switch.shutters([port]) == {port: False}
    assert not list(file.parent.glob("state/*.found.json"))


@pytest.mark.parametrize("port", [5, 6])
def test_a_shutter_is_opened_where_no_light_comes_or_harmless_light(bright, port):
    file, switch = bright
    switch.set_shutters([port], is_open=False)
    shine(file, {5: 9.0, 6: 0.0}[port])
    assert run("set", file, f"ocs.{port}.shutter=open").exit_code == 0
    assert switch.shutters([port]) == {port: True}


@pytest.mark.parametrize("port", [1, 6])
def test_a_shutter_is_closed_whatever_the_light(bright, port):
    file, switch = bright
    shine(file, 9.0)
    assert run("set", file, f"ocs.{port}.shutter=closed").exit_code == 0
    assert switch.shutters([port]) == {port: False}


def test_restore_names_a_shutter_before_a_source_whose_power_is_not_known(bright):
    file, switch = bright
    shine(file, 0.0)
    assert run("set", file, "ocs.1.shutter=closed").exit_code == 0
    result = run("restore", file, "--keep-trying", "0")
    assert result.exit_code == 6, result.output
    assert "NOT as found: ocs" in result.stderr
    assert "`lightrig set` with laser off before the shutter, in one command" in result.stderr
    assert switch.shutters([1]) == {1: False}
    result = run("set", file, "laser.emission=off", "ocs.1.shutter=open")
    assert result.exit_code == 0, result.output
    assert switch.shutters([1]) == {1: True}
    assert run("restore", file).exit_code == 0
    with contextlib.closing(bind_only(load(file), {"laser"}, "a test")) as bench:
        assert bench.instruments["laser"].emission(1)
    assert not list(file.parent.glob("state/*.found.json"))


def test_an_ingress_whose_source_is_named_too_is_judged_by_its_settings(bright):
    file, switch = bright
    switch.set_shutters([1], is_open=False)
    shine(file, 9.0)
    result = run("set", file, "laser.emission=off", "ocs.1.shutter=open")
    assert result.exit_code == 0, result.output
    assert switch.shutters([1]) == {1: True}


def test_a_unit_without_shutters_says_so(lab, monkeypatch):
    def refuse(switch, _ports):
        raise switch.denied("RTRV-PORT-SHUTTER::1&16:1:", "ENEQ", "no shutters fitted")

    with monkeypatch.context() as patch:
        patch.setattr(Polatis, "shutters", refuse)
        for command in (
            ["set", lab.file, "ocs.3.shutter=closed"],
            ["get", lab.file, "ocs.3.shutter"],
        ):
            result = run(*command)
            assert result.exit_code == 2, result.output
            assert "ocs has no shutters: no shutters fitted" in result.stderr
        assert run("get", lab.file, "ocs.3").exit_code == 0
        assert run("ask", lab.file, "ocs", "RTRV-PATCH:::1:;", "--yes").exit_code == 0
    assert closed(lab) == FOUND_CLOSED
    assert not stored(lab)


PLAIN = """
name: plain
switches:
  osw: {{model: dicon-gp600, address: "scpi://{osw}", size: 4x4}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "scpi://{laser}"}}
fibers:
  - laser -> osw.1
"""


def test_a_switch_whose_driver_has_no_shutters_says_so(tmp_path, monkeypatch, all_is_carried_out):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN.format(osw="osw.invalid", laser="laser.invalid"))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(file), clock, 1)
        with contextlib.closing(world):
            services = world.services
            places = {n: f"{services[n].host}:{services[n].port}" for n in ("osw", "laser")}
            file.write_text(PLAIN.format(**places))
            for command in (["set", file, "osw.1.shutter=closed"], ["get", file, "osw.1.shutter"]):
                result = run(*command)
                assert result.exit_code == 2, result.output
                assert "osw has no shutters that are set by name" in result.stderr
