"""`lightrig ask`: a raw command of TL1, SCPI or a shell, and what undoes what it has changed."""

import contextlib
import json

import paramiko
import pytest
from bench.served_lab import FOREIGN, LEFT, ServedLab, circuits, set_circuits
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.cli.served_lab import ServedLab as SwitchServer
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.simulated.devices import simulated_sonic_ocs
from lightrig.instruments.simulated.hosts.host_shell import shell_obstacle
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.wire.tl1 import Tl1Session
from lightrig.testbeds import load


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def stored(lab):
    return list((lab.folder / "state").glob("*.found.json"))


def test_a_query_is_answered_and_changes_nothing(lab):
    result = run("ask", lab.file, "ocs", "RTRV-PATCH:::1:;", "--yes")
    assert result.exit_code == 0, result.output
    lines = set(result.stdout.splitlines())
    assert {f"{c.ingress},{c.egress}" for c in LEFT | FOREIGN} <= lines
    assert not stored(lab)


def test_the_reply_as_bytes_and_its_place_on_the_wire(lab):
    result = run("ask", lab.file, "ocs", "RTRV-EQPT::SYSTEM:1:::PARAMETER=SIZE;", "--yes", "--json")
    found = json.loads(result.stdout)
    assert "SIZE=8x8" in found["reply"]
    assert bytes.fromhex(found["bytes"]).decode() == found["reply"]
    assert any("RTRV-EQPT::SYSTEM:" in line for line in found["wire"])
    assert lab.login[1] not in result.output


def test_what_it_has_changed_stays_and_is_undone_by_restore(lab):
    result = run("ask", lab.file, "ocs", "ENT-PATCH::4,10:1:;", "--yes")
    assert result.exit_code == 0, result.output
    assert f"`lightrig restore {lab.file}` restores" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN | circuits("4>10")
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)


def test_what_it_has_changed_of_others_is_named(lab):
    result = run("ask", lab.file, "ocs", "DLT-PATCH::5:1:;", "--yes")
    assert "ocs: 5>14 unmade, on ports that are not this testbed's" in result.stderr
    assert not stored(lab)


def test_a_refusal_has_the_code_and_text_of_the_switch(lab):
    result = run("ask", lab.file, "ocs", "ENT-PATCH::4,99:1:;", "--yes")
    assert result.exit_code == 3
    assert "ocs denied a command" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ocs", "RTRV-PATCH:::1:;"], "not sent; --yes sends it without a question"),
        (["ocs", "RTRV-PATCH:T1::1:;", "--yes"], "with no target"),
        (["ocs", "ACT-USER::bench:1::secret;", "--yes"], "logs in and out by itself"),
        (["ocs", "RTRV-PATCH:::1:;\r\nDLT-PATCH::5:1:;", "--yes"], "with no target"),
        (["server0", "ls", "--yes"], "server0 is a server"),
        (["osc", "RTRV-PATCH:::1:;", "--yes"], "has no instrument 'osc'; did you mean 'ocs'?"),
    ],
)
def test_what_is_not_sent_says_why(lab, arguments, sentence):
    result = run("ask", lab.file, *arguments)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert "secret" not in result.output
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_a_colon_in_quotes_separates_nothing(lab):
    session = Tl1Session("ocs", *lab.places["ocs"].rsplit(":", 1), lab.clock, lab.login)
    with contextlib.closing(session), pytest.raises(DeniedError):
        session.ask('ENT-PATCH::"4:10":1:;')
    assert 'ENT-PATCH::"4:10":' in "\n".join(map(str, session.trace.tail()))


SCPI = """
name: bench
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "scpi://{laser}"}}
  meter: {{kind: power_meter, model: keysight-n7745a, address: "scpi://{meter}", channels: 1}}
switches:
  ocs: {{model: polatis, address: "restconf://{ocs}", login: env:LAB_OCS, size: 4x4}}
fibers:
  - laser -> ocs.1
  - ocs.5 -> meter
"""


@pytest.fixture
def bench(tmp_path, monkeypatch, all_is_carried_out):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    file = tmp_path / "bench.yaml"
    names = ("laser", "meter", "ocs")
    file.write_text(SCPI.format(**{name: f"{name}.invalid" for name in names}))
    with contextlib.closing(SystemClock()) as clock:
        world = SimulatedLab(load(file), clock, 1)
        with contextlib.closing(world):
            services = world.services
            places = {n: f"{services[n].host}:{services[n].port}" for n in names}
            file.write_text(SCPI.format(**places))
            monkeypatch.setenv("LAB_OCS", ":".join(services["ocs"].login))
            yield file


def test_a_setting_that_a_raw_command_has_set_is_put_back(bench):
    result = run("ask", bench, "laser", ":SOUR0:POW 1.5DBM", "--yes")
    assert result.exit_code == 0, result.output
    assert "accepted, without a reply" in result.stderr
    result = run("ask", bench, "laser", ":SOUR0:POW?", "--yes")
    assert float(result.stdout) == 1.5
    assert run("restore", bench).exit_code == 0
    assert float(run("ask", bench, "laser", ":SOUR0:POW?", "--yes").stdout) == 0


def test_a_wire_without_single_commands_names_what_to_use(bench):
    result = run("ask", bench, "ocs", "GET /", "--yes")
    assert result.exit_code == 2
    assert "no single command can be sent over restconf://" in result.stderr
    assert "such as netconf-console or curl" in result.stderr


RACK = """
name: rack
switches:
  ocs: {{model: sonic-ocs, address: "{scheme}://{ocs}", login: env:LAB_OCS, size: 6x5}}
servers:
  host: {{address: "ssh://host.invalid", nics: {{nic0: {{
    ports: 2, netdev: "e{{p}}", rate: 100G, transceiver: lr4}}}}}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {{min: -4 dBm, max: 4 dBm}}
    receive: {{min: -10 dBm, max: 4 dBm}}
fibers:
  - host.nic0.p[0-1] -> ocs.[1-2]
  - ocs.[8-9] -> host.nic0.p[0-1]
"""
"""Ports 1A, 2A, 2B and 3B of the switch are the rack's; the others are somebody else's."""
SECRET = "YourPaSsWoRd"


@pytest.fixture
def rack(tmp_path, monkeypatch, all_is_carried_out):
    """Yield the file, and what somebody else's SSH client runs on the switch."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LAB_OCS", f"admin:{SECRET}")
    monkeypatch.setattr(simulated_sonic_ocs, "PROCESSING", 10_000_000)  # in real time
    file = tmp_path / "rack.yaml"
    file.write_text(RACK.format(scheme="ssh", ocs="ocs.invalid"))
    served = SwitchServer(load(file), 0, 0, {"ocs": ("admin", SECRET), "host": ("admin", SECRET)})
    with contextlib.closing(served):
        service = served.services["ocs"]
        (tmp_path / ".ssh").mkdir()
        (tmp_path / ".ssh" / "known_hosts").write_text(f"{service.known_hosts}\n")
        file.write_text(RACK.format(scheme="ssh", ocs=f"{service.host}:{service.port}"))
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect(
            service.host, service.port, "admin", SECRET, look_for_keys=False, allow_agent=False
        )
        with contextlib.closing(client):

            def line(text):
                _, stdout, _ = client.exec_command(text)
                return stdout.read().decode()

            line("config ocs cross-connect add 1A-2B,5A-4B")
            yield file, line


def pairs(table):
    return {row.split()[0] for row in table.splitlines()[2:]}


CONFIGURED = "show ocs cross-connect config"


def test_a_shell_over_ssh_answers_with_bytes_and_its_place_on_the_wire(rack):
    file, line = rack
    result = run("ask", file, "ocs", CONFIGURED, "--yes", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert pairs(found["reply"]) == {"1A-2B", "5A-4B"}
    assert found["reply"] == line(CONFIGURED).removesuffix("\n")
    assert bytes.fromhex(found["bytes"]).decode() == found["reply"]
    assert any(CONFIGURED in each for each in found["wire"])
    assert SECRET not in result.output
    assert not list(file.parent.glob("state/*.found.json"))


def test_what_a_shell_has_changed_is_undone_or_named(rack):
    file, line = rack
    changes = (
        "config ocs cross-connect add 2A-3B && config ocs cross-connect delete 5A-4B && "
        "config ocs port state 1A force_blocked"
    )
    result = run("ask", file, "ocs", changes, "--yes")
    assert result.exit_code == 0, result.output
    assert "succeeded" in result.stdout
    assert "ocs: 5>10 unmade, on ports that are not this testbed's" in result.stderr
    assert f"`lightrig restore {file}` restores" in result.stderr
    assert pairs(line(CONFIGURED)) == {"1A-2B", "2A-3B"}
    assert run("restore", file).exit_code == 0
    assert pairs(line(CONFIGURED)) == {"1A-2B"}
    assert "force_blocked" not in line("show ocs port config")
    assert not list(file.parent.glob("state/*.found.json"))


def test_a_shell_that_refuses_says_its_status_and_text(rack):
    file, line = rack
    result = run("ask", file, "ocs", "config ocs cross-connect delete 4A-1B", "--yes")
    assert result.exit_code == 3, result.output
    assert "does not exist" in result.stderr
    assert "exit status 1" in result.stderr
    assert pairs(line(CONFIGURED)) == {"1A-2B", "5A-4B"}


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (f"echo {SECRET} | sudo -S reboot", "it contains the password of the login"),
        ("show version\nreboot", "expected one line of a shell"),
        (" ", "expected one line of a shell"),
    ],
)
def test_what_is_no_line_or_has_the_password_is_not_sent(rack, command, sentence):
    file, _ = rack
    result = run("ask", file, "ocs", command, "--yes")
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert SECRET not in result.output


def test_a_password_in_a_reply_is_masked(rack):
    if reason := shell_obstacle():
        pytest.skip(reason)
    file, _ = rack
    half = len(SECRET) // 2
    printed = f"printf %s%s {SECRET[:half]} {SECRET[half:]}"
    result = run("ask", file, "ocs", printed, "--yes", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["reply"] == "***"


def test_gnmi_names_the_client_to_use(tmp_path, monkeypatch, all_is_carried_out):
    pytest.importorskip("pygnmi.client", reason="the extra gnmi is not installed")
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_OCS", f"admin:{SECRET}")
    file = tmp_path / "rack.yaml"
    file.write_text(RACK.format(scheme="gnmi", ocs="ocs.invalid"))
    served = SwitchServer(load(file), 0, 0, {"ocs": ("admin", SECRET), "host": ("admin", SECRET)})
    with contextlib.closing(served):
        service = served.services["ocs"]
        (tmp_path / "trusted.pem").write_text(service.certificate)
        text = RACK.format(scheme="gnmi", ocs=f"{service.host}:{service.port}")
        option = f", options: {{certificates: {tmp_path}/trusted.pem}}}}"
        file.write_text(text.replace("size: 6x5}", f"size: 6x5{option}"))
        result = run("ask", file, "ocs", "show version", "--yes")
    assert result.exit_code == 2, result.output
    assert "ocs takes no commands of one line over gnmi" in result.stderr
    assert "such as gnmic" in result.stderr
