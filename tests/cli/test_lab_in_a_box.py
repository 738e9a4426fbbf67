"""`lightrig serve` of namespaces: clients of other people move circuits, and packets follow."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import preloaded
import pytest
from kernel.ssh_client import SshClient, write_ending_sshd
from telnet_session import TelnetSession
from unused_ports import unused_ports

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.core.collectives import CollectiveCall
from lightrig.instruments.jobs.traffic.mpi import MpiRunner
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import SshdError, sshd_program
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import load

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
BOX = """
name: box
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4, options: {rerouting: true}}
servers:
  server[0-2]:
    address: netns://{name}
    nics: {nic0: {model: veth, netdev: fabric0, ip: "192.0.2.{k}/24", rate: 100M,
                  transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - server[0-2].nic0 <-> ocs
plans:
  first: [server0.nic0 <-> server1.nic0]
  second: [server0.nic0 <-> server2.nic0]
"""
"""Ingress 1 to 3 is lit by server 0 to 2; egress 5 to 7 leads to them."""

SWITCH_SECONDS = 10


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    try:
        sshd_program()
    except SshdError as error:
        pytest.skip(str(error))


def begin(
    folder: Path, description: str = BOX, cwd: Path | None = None, port: int = 0
) -> preloaded.Process:
    (folder / "box.yaml").write_text(description)
    files = ["serve", str(folder / "box.yaml"), "--write", str(folder / "served.yaml")]
    pipe = subprocess.PIPE
    return preloaded.Process(
        ["lightrig", *files, "--port", str(port), "--json"], cwd, stdout=pipe, stderr=pipe
    )


_LACKING = (
    ""
    if shutil.which("ethtool")
    else "lacking here: ethtool: ports of namespaces cannot be examined\n"
)


@dataclass
class Box:
    """A served lab, and clients that know nothing of Lightrig."""

    process: preloaded.Process
    services: dict[str, dict[str, str]]
    client: SshClient

    @property
    def login(self) -> tuple[str, str]:
        return self.services["ocs"]["user"], self.services["ocs"]["password"]

    def address(self, name: str) -> tuple[str, int]:
        host, _, port = self.services[name]["address"].partition("://")[2].rpartition(":")
        return host, int(port)

    def run(self, server: str, command: str) -> subprocess.CompletedProcess[str]:
        return self.client.run(self.address(server), self.login, command)


@contextlib.contextmanager
def served(
    folder: Path, description: str = BOX, cwd: Path | None = None, port: int = 0
) -> Iterator[Box]:
    with begin(folder, description, cwd, port) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            services = {each["name"]: each for each in json.loads(line)}
            yield Box(process, services, SshClient(folder, folder / "served.known_hosts"))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    # It is started in a folder that the servers do not see: they hide /tmp of this machine.
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as cwd,
        served(tmp_path_factory.mktemp("box"), cwd=Path(cwd)) as lab,
    ):
        yield lab
        lab.process.send_signal(signal.SIGINT)
        assert lab.process.communicate(timeout=60) == ("", _LACKING)
        assert lab.process.returncode == 0


@pytest.fixture
def telnet(box: Box) -> Iterator[TelnetSession]:
    session = TelnetSession(box.address("ocs"), box.login)
    yield session
    session.close()


@pytest.mark.skipif(shutil.which("ping") is None, reason="no ping on this machine")
def test_ping_follows_the_circuits_of_a_tl1_client(box: Box, telnet: TelnetSession) -> None:
    def answers(host: str) -> bool:
        """Whether server0 reaches `host` within some seconds."""
        return box.run("server0", f"ping -c 1 -w {SWITCH_SECONDS} {host}").returncode == 0

    def is_silent(host: str) -> bool:
        return box.run("server0", f"ping -c 3 -i 0.2 -W 0.3 {host}").returncode == 1

    telnet.command("ENT-PATCH::1&2,6&5:2:;")  # 1 to 6 and back: server0 and server1
    assert answers("192.0.2.2")
    assert is_silent("192.0.2.3")
    telnet.command("ENT-PATCH::1&3,7&5:3:;")  # server0 and server2
    assert answers("192.0.2.3")
    assert is_silent("192.0.2.2")
    telnet.command("DLT-PATCH::1&3:4:;")
    assert is_silent("192.0.2.3")


def test_the_carrier_follows_the_light(box: Box, telnet: TelnetSession) -> None:
    def carrier(wanted: str) -> bool:
        file = "/sys/class/net/fabric0/carrier"
        wait = f"for i in $(seq 100); do [ $(cat {file}) = {wanted} ] && exit 0; sleep 0.1; done"
        return box.run("server1", f"{wait}; exit 1").returncode == 0

    telnet.command("ENT-PATCH::1,6:2:;")
    assert carrier("1")
    telnet.command("DLT-PATCH::1:3:;")
    assert carrier("0")


@pytest.fixture
def bench(box: Box, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The written testbed, opened as hardware."""
    monkeypatch.setenv("LIGHTRIG_SERVED", ":".join(box.login))
    opened = bind(load(box.client.folder / "served.yaml"), "hardware")
    yield opened
    opened.close()


def bring_up(fabric: Fabric, plan: str, servers: set[str]) -> None:
    """Apply a plan; `servers` are then the ones with a carrier."""
    bench = fabric.bench
    fabric.apply(bench.testbed.plans[plan])
    deadline = bench.clock.now() + SWITCH_SECONDS * 1_000_000_000
    while (lit := _lit(bench)) != servers and bench.clock.now() < deadline:
        bench.clock.sleep(20_000_000)
    assert lit == servers


def _lit(bench: Bench) -> set[str]:
    servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
    return {name for name, server in servers.items() if server.lit(["fabric0"])}


def test_the_written_testbed_is_measured_as_hardware(bench: Bench) -> None:
    assert all(server.is_namespace for server in bench.testbed.servers.values())
    assert bench.external == {"ocs", "server0", "server1", "server2"}
    assert bench.simulated == {"ocs"}
    assert bench.identities["server2"].serial == "server2"
    fabric = Fabric(bench)
    for plan, partner in (("first", "server1"), ("second", "server2"), ("first", "server1")):
        bring_up(fabric, plan, {"server0", partner})
    fabric.restore()


@pytest.mark.long
def test_ranks_of_mpi_run_on_servers_behind_ssh(bench: Bench) -> None:
    """Helpers and requests go over SSH; only the ranks' data needs the circuits."""
    fabric = Fabric(bench)
    bring_up(fabric, "first", {"server0", "server1"})
    ranks = ("server0", "server1")
    servers = {n: s for n in ranks if isinstance(s := bench.servers[n], LinuxServer)}
    runner = MpiRunner(servers, bench.clock, interface="fabric0")
    try:
        call = CollectiveCall("all_reduce", ranks, (1 << 20,), warm_up=1, iterations=3)
        (measured,) = runner.run(call)
    finally:
        runner.close()
        fabric.restore()
    assert measured.wrong == 0
    # Each rank sends 1 MiB at 100 Mbit/s: less than that would not have crossed the circuit.
    assert min(measured.times_ns) > 80_000_000


@pytest.mark.long
def test_a_kill_leaves_nothing(tmp_path: Path) -> None:
    with served(tmp_path, port=unused_ports(8)[0]) as lab:
        session = int(lab.run("server0", "sleep 300 >/dev/null 2>&1 & echo $!").stdout)
        lab.process.kill()
        lab.process.wait()
    clock = SystemClock()
    deadline = clock.now() + 20_000_000_000
    while Path(f"/proc/{session}").exists() and clock.now() < deadline:
        clock.sleep(50_000_000)
    assert not Path(f"/proc/{session}").exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(lab.address("server0"))


def test_a_server_that_ends_at_once_ends_serve_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "box.yaml").write_text(BOX)
    write_ending_sshd(tmp_path, "echo 'fatal: no host key' >&2; exit 255")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    visible = f"import lightrig; lightrig.__path__.append({str(tmp_path)!r}); "
    command = ["python", "-c", visible + LIGHTRIG[2], "serve", tmp_path / "box.yaml", "--port", "0"]
    done = preloaded.run(command, timeout=60)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "server0" in done.stderr
    assert "fatal: no host key" in done.stderr


@pytest.mark.long
def test_without_sshd_the_package_to_install_is_named(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(BOX)
    program = "import shutil; shutil.which = lambda *_, **__: None; " + LIGHTRIG[2]
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", str(tmp_path / "box.yaml"), "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "apt install openssh-server" in done.stderr
