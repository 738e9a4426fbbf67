"""`lightrig serve` as a process of its own: what it says, writes and answers, and how it ends."""

import base64
import contextlib
import http.client as http_client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import preloaded
import pytest
from netconf_client import netconf_session
from typer.testing import CliRunner
from unused_ports import unused_ports

from lightrig.harness.bench import bind
from lightrig.harness.cli.app import application
from lightrig.testbeds import load
from lightrig.testbeds.readdressing import readdressed

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
RACK = """
name: rack           # by the window
switches:
  # the big one, on loan
  ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:OCS_LOGIN, size: 4x4,
        identity: {serial: "21877"}}   # front panel sticks
  # the small one
  osw: {model: osw-ascii, address: "serial:///dev/ttyUSB0", size: 1x4}
servers:
  server[0-1]:       # both old
    address: ssh://bench@{name}.invalid
    nics: &nics {nic0: {ports: 2, netdev: "ens1f{p}", ip: "192.0.2.{k}/24", rate: 100G}}
  server2: {address: ssh://bench@server2.invalid, nics: *nics}
instruments:
  meter: {kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid", channels: 4}
"""
NAMES = ["ocs", "osw", "meter", "server0", "server1", "server2"]
SCHEMES = ["tl1", "serial", "scpi", "ssh", "ssh", "ssh"]


OTHERS = ["scpi", "netconf", "restconf"]
RESTCONF = "/api/data/optical-switch:cross-connects"


def begin(*arguments: object) -> preloaded.Process:
    pipe = subprocess.PIPE
    return preloaded.Process(["lightrig", "serve", *arguments], stdout=pipe, stderr=pipe)


@dataclass
class Served:
    """The rack on loopback, and what was said and written of it."""

    process: preloaded.Process
    first_port: int
    said: list[dict[str, Any]]
    file: Path

    def of(self, name: str) -> dict[str, Any]:
        return next(each for each in self.said if each["name"] == name)


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rack") / "rack.yaml"
    path.write_text(RACK)
    return path


@pytest.fixture(scope="module")
def served(rack: Path) -> Iterator[Served]:
    file, port = rack.with_name("served.yaml"), unused_ports(len(NAMES) + 3)[0]
    with begin(rack, "--port", port, "--write", file, "--json") as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            yield Served(process, port, json.loads(line), file)
        finally:
            process.kill()


def test_one_line_names_every_instrument(served: Served) -> None:
    assert [each["name"] for each in served.said] == NAMES
    assert [each["address"].partition("://")[0] for each in served.said] == SCHEMES
    for place, each in enumerate(served.said):
        keys = ["name", "address", "user", "password", "known_hosts", "certificate"]
        assert list(each) == [*keys, "further_wires"]
        assert each["certificate"] == ""
        assert each["user"]
        assert each["password"]
        own = f"127.0.0.1:{served.first_port + place}"
        scheme = SCHEMES[place]
        if scheme != "serial":
            assert each["address"] == f"{scheme}://{own}"
        assert each["known_hosts"].startswith(f"[127.0.0.1]:{served.first_port + place} ") == (
            scheme == "ssh"
        )


def test_a_serial_instrument_is_a_terminal(served: Served) -> None:
    device = Path(served.of("osw")["address"].removeprefix("serial://"))
    assert stat.S_ISCHR(device.stat().st_mode)
    line = os.open(device, os.O_RDWR | os.O_NOCTTY)
    try:
        os.write(line, b"<OSW_OUT_?>")
        assert os.read(line, 64) == b"<OSW_OUT_01>"
    finally:
        os.close(line)


def test_any_client_is_answered_over_a_bare_socket(served: Served) -> None:
    ocs = served.of("ocs")
    with socket.create_connection(("127.0.0.1", served.first_port), timeout=30) as line:
        line.sendall(f"ACT-USER::{ocs['user']}:7::{ocs['password']};".encode())
        answer = b""
        while not answer.endswith(b"\r\n;"):
            answer += line.recv(4096)
    assert b"M  7 COMPLD" in answer


def test_one_switch_is_reached_over_all_its_wires_at_once(served: Served) -> None:
    """A circuit of one program's wire is read over the others, each by a bare client."""
    ocs = served.of("ocs")
    behind = served.first_port + len(NAMES)
    addresses = [f"{s}://127.0.0.1:{behind + i}" for i, s in enumerate(OTHERS)]
    assert [each["address"] for each in ocs["further_wires"]] == addresses
    assert [bool(each["known_hosts"]) for each in ocs["further_wires"]] == [False, True, False]
    assert all(each["further_wires"] == [] for each in served.said if each is not ocs)
    login = (ocs["user"], ocs["password"])
    with socket.create_connection(("127.0.0.1", behind), timeout=30) as scpi:
        scpi.sendall(b":oxc:swit:conn:add (@3),(@6);*opc?\n")
        assert scpi.makefile("rb").readline().strip() == b"1"
    with netconf_session(("127.0.0.1", behind + 1), login) as netconf:
        leaves = netconf.get_config("running").data_ele.iterfind(".//{*}pair/{*}*")
        assert [leaf.text for leaf in leaves] == ["3", "6"]
    token = base64.b64encode(":".join(login).encode()).decode()
    http = http_client.HTTPConnection("127.0.0.1", behind + 2, timeout=30)
    with contextlib.closing(http):
        headers = {"Authorization": f"Basic {token}"}
        http.request("DELETE", f"{RESTCONF}/pair=3", headers=headers)
        assert http.getresponse().status == 204
    with socket.create_connection(("127.0.0.1", served.first_port), timeout=30) as line:
        line.sendall(f"ACT-USER::{login[0]}:7::{login[1]};RTRV-PATCH:::8:;".encode())
        answer = b""
        while b"M  8 " not in answer or not answer.endswith(b"\r\n;"):
            answer += line.recv(4096)
    assert b'"3,6"' not in answer
    assert b"M  8 COMPLD" in answer


def test_the_written_testbed_is_valid(served: Served) -> None:
    checked = CliRunner().invoke(application(), ["check", str(served.file)])
    assert checked.exit_code == 0, checked.stderr
    known = served.file.with_name("served.known_hosts").read_text().splitlines()
    lines = [each["known_hosts"] for each in served.said]
    lines += [each["known_hosts"] for each in served.of("ocs")["further_wires"]]
    assert known == list(filter(None, lines))
    text = served.file.read_text()
    for comment in re.findall(r"# .+", RACK):
        assert comment in text


def test_the_written_testbed_is_measured_like_hardware(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = f"{served.of('ocs')['user']}:{served.of('ocs')['password']}"
    monkeypatch.setenv("LIGHTRIG_SERVED", login)
    bench = bind(load(served.file), "hardware")
    try:
        assert bench.external == bench.simulated == set(NAMES)
        assert bench.identities["ocs"].serial == "SIM21877"
    finally:
        bench.close()


def test_clients_with_their_own_login_find_the_unit_that_the_file_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send what a public client with fixed credentials sends (admin and root on a Polatis)."""
    file, written = tmp_path / "lab.yaml", tmp_path / "served.yaml"
    file.write_text(
        "name: lab\nswitches:\n  ocs: {model: polatis, address: 'tl1://ocs.invalid', size: 24x24,"
        " login: env:OCS_LOGIN, options: {monitors: none}, identity: {model: "
        'I-OST-24x24-LU1-DMHNS, serial: "002414", firmware: 6.5.2.18}}\ninstruments:\n'
        "  meter: {kind: power_meter, model: keysight-n7745a, address: 'scpi://meter.invalid',"
        " channels: 4, identity: {model: N7744C, firmware: V2.022}}\n"
    )
    monkeypatch.setenv("OCS_LOGIN", "admin:root")
    with begin(file, "--port", 0, "--json", "--write", written) as process:
        try:
            assert process.stdout is not None
            ocs, meter = json.loads(process.stdout.readline())
            assert (ocs["user"], ocs["password"]) == ("admin", "root")
            assert meter["user"] != "admin"
            assert load(written).switches["ocs"].login == "env:OCS_LOGIN"
            port = int(ocs["address"].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
                line.sendall(b"ACT-USER::admin:1::root;RTRV-NETYPE:::2:;RTRV-INV::OCS:3:;")
                text = ""
                while text.count("\r\n;") < 3:
                    text += line.recv(4096).decode()
            assert '"Polatis,I-OST-24x24-LU1-DMHNS,OCS,6.5.2.18"' in text
            assert re.search(r"SN=(\w+)", text)[1] == "SIM002414"  # type: ignore[index]
            port = int(meter["address"].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
                line.sendall(b"*IDN?\n")
                identity = line.recv(4096).decode()
            assert identity == "Keysight Technologies,N7744C,SIM-meter,V2.022\n"
        finally:
            process.kill()


def test_a_configured_login_survives_restarts_and_a_random_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program with fixed credentials and address reaches the host again after each start."""
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: lab\nswitches:\n  ocs: {model: sonic-ocs, address: 'ssh://ocs.invalid', size: 4x4,"
        " login: env:HOST_LOGIN}\n"
        "  free: {model: sonic-ocs, address: 'ssh://free.invalid', size: 4x4}\n"
    )
    monkeypatch.setenv("HOST_LOGIN", "carol:tea 4 two")
    port, drawn = unused_ports(8)[0], set()
    for _ in range(2):
        with begin(file, "--port", port, "--json") as process:
            try:
                assert process.stdout is not None
                ocs, free = json.loads(process.stdout.readline())
                with contextlib.closing(paramiko.SSHClient()) as client:
                    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
                    client.connect(
                        "127.0.0.1",
                        int(ocs["address"].rpartition(":")[2]),
                        "carol",
                        "tea 4 two",
                        look_for_keys=False,
                        allow_agent=False,
                        timeout=30,
                    )
                    _, stdout, _ = client.exec_command("show version", timeout=60)
                    assert "Serial Number: SIM-ocs" in stdout.read().decode()
                drawn |= {(ocs["address"], ocs["password"]), free["password"]}
            finally:
                process.kill()
    assert (ocs["address"], "tea 4 two") in drawn
    assert len(drawn) == 3


def test_the_rest_of_the_file_is_unchanged(rack: Path, tmp_path: Path) -> None:
    again = tmp_path / "deep" / "again.yaml"
    again.parent.mkdir()
    known_hosts = tmp_path / "hosts"
    again.write_text(
        readdressed(
            rack, {"server1": "ssh://there"}, login="env:L", known_hosts=known_hosts, target=again
        )
    )
    before, after = load(rack), load(again)
    assert after.known_hosts is not None
    assert after.known_hosts.resolve() == known_hosts
    for name, spec in after.servers.items():
        assert spec.nics == before.servers[name].nics
    assert after.servers["server0"].address == before.servers["server0"].address
    moved = after.servers["server1"]
    assert (moved.address, moved.login) == ("ssh://there", "env:L")
    assert after.switches["ocs"].identity == before.switches["ocs"].identity


def test_ctrl_c_ends_it_in_peace(rack: Path) -> None:
    with begin(rack, "--port", 0, "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
    assert printed == ""
    assert [line for line in said.splitlines() if not line.startswith("lacking here: ")] == []
    assert process.returncode == 0


def test_a_port_that_is_taken(rack: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with begin(rack, "--port", taken, "--json") as process:
            printed, complaint = process.communicate(timeout=60)
    assert process.returncode == 2
    assert printed == ""
    assert complaint.startswith(f"port {taken} and those after it: Address already in use")
    assert complaint.endswith("; try another --port\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "65534"], "6 ports from 65534 on: 65535 is the last one"),
        (["--port", "65536"], "65535"),
        (["--port", "0", "--write", "{folder}/none/served.yaml"], "No such file or directory"),
        (["--port", "0", "--write", "{folder}/rack.yaml"], "is the file to be served"),
    ],
)
def test_a_testbed_that_cannot_be_served_is_reported(
    rack: Path, arguments: list[str], sentence: str
) -> None:
    filled = [text.format(folder=rack.parent) for text in arguments]
    ended = CliRunner().invoke(application(), ["serve", str(rack), *filled])
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert sentence in ended.stderr
    assert rack.read_text() == RACK


def test_nothing_to_serve(tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("name: empty\nswitches: {tor: {model: sn3700, kind: packet, ports: 4}}\n")
    ended = CliRunner().invoke(application(), ["serve", str(empty), "--port", "0"])
    assert ended.exit_code == 2
    assert "none of its instruments has a wire" in ended.stderr


def test_missing_programs_are_named(rack: Path, tmp_path: Path) -> None:
    """Without util-linux, or without root, simulated servers have no shell."""
    environment = {**os.environ, "PATH": str(tmp_path)}
    pipe = subprocess.PIPE
    command = ["lightrig", "serve", rack, "--port", "0", "--json"]
    with preloaded.Process(command, env=environment, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert said.startswith("lacking here: simulated servers have no shell: ")
